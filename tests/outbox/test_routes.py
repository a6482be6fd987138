"""Several ways to Telegram in virtual time: letters leave a way that fails, and return when it has proved itself."""

import asyncio
import enum
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from peik.app.lifetime import running
from peik.core import events
from peik.core.letter import OnUncertain, State
from peik.core.outcome import NetworkFault, Reply
from peik.settings.config import Config
from peik.settings.values import RouteAddress
from peik.storage.executor import InlineExecutor
from peik.telegram.port import Request
from peik.telegram.routes import PROBE_TIMEOUT_S, SILENCE_S, WATCH_S
from peik.testing import Telegram
from peik.testing.virtual import SimCarrier
from tests.outbox.story import BOT, Stage, call, play_closed

TRIAL_S = 5.0
ROUTES = "direct, socks5://spare:1080, mirror+https://mirror"


class Weather(enum.Enum):
    FAIR = "everything passes"
    REFUSING = "nobody listens"
    LOSING = "requests arrive, answers are lost"
    FILTERED = "a page of somebody else's comes back"
    DARK = "nothing arrives, nothing comes back"


class Way:
    """A carrier of its own to the one Telegram, with weather of its own. `methods` counts what was tried by it."""

    def __init__(self, telegram: Telegram) -> None:
        self.weather = Weather.FAIR
        self.methods: Counter[str] = Counter()
        self._through = SimCarrier(telegram)

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        self.methods[request.method] += 1
        loop = asyncio.get_running_loop()
        match self.weather:
            case Weather.FAIR:
                self._through.start(request, done)
            case Weather.REFUSING:
                loop.call_later(0.01, done, Reply(fault=NetworkFault.REFUSED, left=False, detail="connection refused"))
            case Weather.LOSING:
                self._through.start(
                    request, lambda _: done(Reply(fault=NetworkFault.RESET, detail="closed by the peer"))
                )
            case Weather.FILTERED:
                loop.call_later(0.01, done, Reply(status=403, body=b"<html>forbidden</html>"))
            case Weather.DARK:
                loop.call_later(request.timeout_s, done, Reply(fault=NetworkFault.TIMEOUT, detail="no answer in time"))

    async def carry(self, request: Request) -> Reply:
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.start(request, lambda reply: None if answered.done() else answered.set_result(reply))
        return await answered

    async def close(self) -> None:
        await self._through.close()

    @property
    def letters(self) -> int:
        return self.methods["sendMessage"]


class Crossroads:
    """A stage whose Peik has three ways."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.ways: list[Way] = []
        self.sleep = asyncio.sleep

    def make_carrier(self, address: RouteAddress, config: Config) -> Way:
        self.ways.append(Way(self.stage.telegram))
        return self.ways[-1]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        told = events.Events()
        told.listen(self.stage.told.extend)
        async with running(
            self.stage.config(),
            events=told,
            clock=self.stage.clock,
            make_carrier=self.make_carrier,
            chance=random.Random(1),
            executor=lambda name: InlineExecutor(),
        ) as self.stage.peik:
            yield

    async def send(self, *texts: str, chat: int = 1) -> None:
        """These letters, delivered."""
        for text in texts:
            view = await self.stage.ended(await self.stage.text(chat, text))
            assert view.state is State.COMPLETED

    @property
    def states(self) -> list[str]:
        """Each route's state, the one in use in capitals."""
        shown = self.stage.peik.outbox.courier.routes.statuses()
        return [status.state.upper() if is_in_use else status.state.value for status, is_in_use in shown]

    def chosen(self) -> list[str | None]:
        return [event.route for event in self.stage.events_of(events.RouteChosen)]


def play(story: Callable[[Crossroads], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def opened(stage: Stage) -> None:
        crossroads = Crossroads(stage)
        async with crossroads.open():
            await asyncio.sleep(1)  # every route has been asked once, and answered
            await story(crossroads)

    play_closed(opened, **({"routes": ROUTES, "route_trial": f"{TRIAL_S}s"} | settings))


def test_letters_go_by_the_first_and_the_others_are_only_asked() -> None:
    async def story(at: Crossroads) -> None:
        await at.send("one", "two")
        assert [way.letters for way in at.ways] == [2, 0, 0]
        await at.sleep(10 * WATCH_S)
        assert all(8 <= way.methods["getMe"] <= 12 for way in at.ways)
        assert at.states == ["CLOSED", "closed", "closed"]

    play(story)


def test_a_single_route_is_not_asked_while_nothing_is_to_be_sent() -> None:
    async def story(at: Crossroads) -> None:
        await at.send("one")
        await at.sleep(3600)
        assert at.ways[0].methods == {"sendMessage": 1, "getMe": 1}  # for the name of the bot, once a day

    play(story, routes="direct")


def test_a_route_that_refuses_costs_nothing_and_the_next_takes_over_at_once() -> None:
    async def story(at: Crossroads) -> None:
        await at.send("one")
        at.ways[0].weather = Weather.REFUSING
        before = at.stage.clock.mono()
        letter = await at.stage.ended(await at.stage.text(1, "two"))
        assert at.stage.clock.mono() - before < 1.5, "within the pace of the chat"
        assert (letter.attempts_made, letter.uncertain_tries) == (1, 0)
        assert at.states == ["open", "CLOSED", "closed"]
        assert at.chosen() == ["socks5://spare:1080"]
        (opened,) = at.stage.events_of(events.RouteOpened)
        assert (opened.route, opened.why) == ("direct", "refused: connection refused")

    play(story)


def test_letters_return_when_the_better_route_has_answered_for_its_trial() -> None:
    async def story(at: Crossroads) -> None:
        at.ways[0].weather = Weather.REFUSING
        await at.send("one")
        at.ways[0].weather = Weather.FAIR
        await closed(at, "direct")
        back_at = at.stage.clock.mono()
        await at.send("two")
        assert at.states == ["closed", "CLOSED", "closed"], "back, and on trial"
        asked = at.ways[0].methods["getMe"]
        while at.states[0] != "CLOSED":
            await at.sleep(0.1)
        assert TRIAL_S <= at.stage.clock.mono() - back_at <= TRIAL_S + 0.2
        assert at.ways[0].methods["getMe"] >= asked + 2, "it was asked during its trial"
        await at.send("three")
        assert [way.letters for way in at.ways] == [2, 2, 0], "the first one was refused"
        assert at.chosen() == ["socks5://spare:1080", "direct"]

    play(story, pace="off")


def test_a_route_that_comes_and_goes_carries_few_letters() -> None:
    async def story(at: Crossroads) -> None:
        flapping = asyncio.ensure_future(flap(at.ways[0], fair_s=12.0, losing_s=3.0))
        letters = 0
        while at.stage.clock.mono() < 900:
            await at.stage.accept_all([call(params={"chat_id": 1 + n, "text": str(letters + n)}) for n in range(5)])
            letters += 5
            await at.sleep(1.0)
        flapping.cancel()
        await at.stage.quiet()
        arrived = sum(len(at.stage.texts(1 + n)) for n in range(5))
        # Without trials the route fails 60 times, with five letters in it each time.
        assert 0 < arrived - letters <= 20, (arrived, letters)
        assert at.ways[0].letters < letters * 0.05
        assert at.ways[1].letters > letters * 0.9

    play(story, pace="off")


async def flap(way: Way, *, fair_s: float, losing_s: float) -> None:
    while True:
        way.weather = Weather.FAIR
        await asyncio.sleep(fair_s)
        way.weather = Weather.LOSING
        await asyncio.sleep(losing_s)


def test_an_uncertain_try_is_not_sent_again_by_another_route_if_the_letter_says_hold() -> None:
    async def story(at: Crossroads) -> None:
        at.ways[0].weather = Weather.LOSING
        ids = [await at.stage.text(1 + n, "once", on_uncertain=OnUncertain.HOLD) for n in range(8)]
        views = [await at.stage.ended(letter_id) for letter_id in ids]
        assert all(view.failed_reason == "uncertain" for view in views)
        assert all(at.stage.texts(1 + n) == ["once"] for n in range(8))
        assert [way.letters for way in at.ways] == [8, 0, 0]

    play(story, pace="off")


def test_the_page_of_a_filter_is_uncertain_for_the_letter_and_opens_the_route() -> None:
    async def story(at: Crossroads) -> None:
        at.ways[0].weather = Weather.FILTERED
        ids = [await at.stage.text(1 + n, str(n)) for n in range(6)]
        views = [await at.stage.ended(letter_id) for letter_id in ids]
        assert all((view.state, view.uncertain_tries) == (State.COMPLETED, 1) for view in views)
        assert at.states == ["open", "CLOSED", "closed"]
        await at.sleep(600)
        assert at.states == ["open", "CLOSED", "closed"], "getMe meets the same page"
        assert at.ways[0].letters == 6

    play(story, pace="off")


def test_when_no_route_is_left_letters_wait_and_the_first_that_answers_wins() -> None:
    async def story(at: Crossroads) -> None:
        for way in at.ways:
            way.weather = Weather.REFUSING
        letter_id = await at.stage.text(1, "patience")
        await at.sleep(3600)
        assert at.states == ["open", "open", "open"]
        assert at.stage.peik.outbox.courier.routes.is_open
        at.ways[2].weather = Weather.FAIR
        letter = await at.stage.ended(letter_id, timeout_s=20)
        assert (letter.state, letter.attempts_made, letter.uncertain_tries) == (State.COMPLETED, 1, 0)
        assert at.states == ["open", "open", "CLOSED"]
        assert [way.letters for way in at.ways] == [1, 1, 2], "open routes are asked with getMe, never with a letter"
        assert at.chosen() == ["socks5://spare:1080", "mirror+https://mirror", None, "mirror+https://mirror"]

    play(story)


def test_a_path_that_swallows_everything_is_left_with_what_was_in_it() -> None:
    async def story(at: Crossroads) -> None:
        at.ways[0].weather = Weather.DARK
        ids = await at.stage.accept_all([call(params={"chat_id": 1 + n, "text": str(n)}) for n in range(200)])
        views = [await at.stage.ended(letter_id) for letter_id in ids]
        assert at.stage.clock.mono() < SILENCE_S + PROBE_TIMEOUT_S + 10, "not when the time of each try is over (75 s)"
        assert all(view.state is State.COMPLETED for view in views)
        assert sum(view.uncertain_tries for view in views) == at.ways[0].letters < 100

    play(story, pace="off")


def test_what_fails_late_in_an_outage_that_is_over_says_nothing_about_the_route() -> None:
    async def story(at: Crossroads) -> None:
        at.ways[0].weather = Weather.DARK
        ids = [await at.stage.text(1 + n, str(n)) for n in range(8)]
        await opened(at, "direct")
        at.ways[0].weather = Weather.FAIR
        views = [await at.stage.ended(letter_id) for letter_id in ids]
        assert at.stage.clock.mono() > 75
        assert all(view.uncertain_tries == 1 for view in views)
        assert len(at.stage.events_of(events.RouteOpened)) == 1

    play(story, routes="direct")


def test_a_spare_route_that_dies_is_told_though_nothing_goes_by_it() -> None:
    async def story(at: Crossroads) -> None:
        await at.send("one")
        at.ways[2].weather = Weather.DARK
        await at.sleep(WATCH_S + PROBE_TIMEOUT_S + 1)
        assert at.states == ["CLOSED", "closed", "open"]
        (status,) = [status for status, _ in at.stage.peik.outbox.courier.routes.statuses() if status.kind == "mirror"]
        assert status.failures >= 1
        assert status.why == "timeout: no answer in time"
        assert status.probe_at_ms is not None
        assert status.since_ms <= at.stage.clock.wall_ms() <= status.probe_at_ms + PROBE_TIMEOUT_S * 1000
        at.ways[2].weather = Weather.FAIR
        await closed(at, "mirror+https://mirror")
        assert at.states == ["CLOSED", "closed", "closed"]

    play(story)


def test_a_paused_bot_is_asked_for_by_the_route_in_use() -> None:
    async def story(at: Crossroads) -> None:
        at.ways[0].weather = Weather.REFUSING
        await at.send("one")
        at.stage.telegram.faults.add("error", method="sendMessage", status=401, words="Unauthorized", count=1)
        letter_id = await at.stage.text(1, "two")
        assert (await at.stage.ended(letter_id)).state is State.COMPLETED
        assert at.stage.events_of(events.BotResumed)

    play(story)


@pytest.mark.parametrize("seed", range(8))
def test_random_weather_on_all_routes_loses_nothing_and_keeps_the_order(seed: int) -> None:
    play(lambda at: random_weather(at, random.Random(seed)), pace="off")


async def random_weather(at: Crossroads, chance: random.Random) -> None:
    wanted = [(chance.randint(1, 10), number) for number in range(300)]
    ids: list[int] = []
    for chat, number in wanted:
        ids.append(await at.stage.text(chat, str(number)))
        if chance.random() < 0.1:
            chance.choice(at.ways).weather = chance.choice([*Weather, Weather.FAIR])
        await at.sleep(chance.uniform(0, 2))
    for way in at.ways:
        way.weather = Weather.FAIR
    await at.stage.quiet()
    views = [await at.stage.letter(letter_id) for letter_id in ids]
    assert all(view.state is State.COMPLETED for view in views)
    repeats = 0
    for chat in range(1, 11):
        arrived = at.stage.texts(chat)
        first_seen = list(dict.fromkeys(arrived))
        assert first_seen == [str(number) for other, number in wanted if other == chat]
        repeats += len(arrived) - len(first_seen)
    assert repeats <= sum(view.uncertain_tries for view in views)
    await at.sleep(600)  # longer than the longest trial
    assert at.states == ["CLOSED", "closed", "closed"]
    assert (await at.stage.peik.outbox.service.tallies())[BOT].completed == 300


async def opened(at: Crossroads, name: str) -> None:
    while not any(event.route == name for event in at.stage.events_of(events.RouteOpened)):
        await at.sleep(0.1)


async def closed(at: Crossroads, name: str) -> None:
    while not any(event.route == name for event in at.stage.events_of(events.RouteClosed)):
        await at.sleep(0.1)
