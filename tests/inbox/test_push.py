"""Pushes in virtual time: one in flight per chat, patience with a bot that is away, and calls in its answers."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from peik.core import events
from peik.core.letter import State
from peik.errors import Conflict
from peik.inbox.store import ConsumerKind, PushAnswer
from peik.outbox.store import LetterFilter, LetterView
from tests.inbox.bots import HANGS, Bots, Got, ok
from tests.inbox.handing import Program, all_over, consumer, on_unsure_store, told, until, views, written
from tests.outbox.story import BOT, Stage, play, play_closed

Story = Callable[[Stage, Bots], Coroutine[Any, Any, None]]
URL = "http://127.0.0.1:9000/hook"
HOUR_S = 3600.0
# As aiogram answers.
FORM = b"\r\n".join(
    (
        b'--x1\r\nContent-Disposition: form-data; name="method"\r\n\r\nsendMessage',
        b'--x1\r\nContent-Disposition: form-data; name="chat_id"\r\n\r\n5',
        b'--x1\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name="text"\r\n\r\nre: hello',
        b"--x1--\r\n",
    )
)


def tell(story: Story, answer: Callable[[Got], PushAnswer] = ok, **settings: str) -> None:
    """With everything of the default consumer pushed to a bot."""

    async def main(stage: Stage) -> None:
        stage.pusher = bots = Bots(stage.clock, answer)
        async with stage.open():
            await stage.peik.inbox.service.set_consumer(BOT, "default", url=URL)
            await story(stage, bots)
        assert not stage.events_of(events.Surprise)

    play_closed(main, pace="off", **settings)


async def letters(stage: Stage) -> list[LetterView]:
    return await stage.peik.outbox.service.find(LetterFilter(bot_id=BOT), before=None, limit=100)


def calling(method: str, **params: Any) -> PushAnswer:
    return PushAnswer(status=200, body=msgspec.json.encode({"method": method, **params}))


def test_an_update_is_posted_as_telegram_posts_it() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        await stage.peik.inbox.service.set_consumer(BOT, "default", url=URL, secret="s3cret_", connections_max=7)
        await written(stage, "hello")
        await all_over(stage)
        (got,) = bots.got
        assert got.url == URL
        assert got.headers == {"X-Telegram-Bot-Api-Secret-Token": "s3cret_", "X-Peik-Trace": f"u{BOT}.1001"}
        assert (got.update["update_id"], got.update["message"]["text"]) == (1001, "hello")
        (event,) = stage.events_of(events.ArrivalSettled)
        assert (event.state, event.tries) == (State.COMPLETED, 1)

    tell(story)


def test_one_in_flight_per_chat_in_order_and_no_more_at_once_than_allowed() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        await stage.peik.inbox.service.set_consumer(BOT, "default", url=URL, connections_max=3)
        for number, chat in itertools.product(range(4), range(1, 9)):
            await written(stage, f"{chat}: {number}", chat=chat)
        await all_over(stage)
        assert bots.at_once_max == 3
        for chat in range(1, 9):
            assert [got.text for got in bots.got if got.chat == chat] == [f"{chat}: {number}" for number in range(4)]

    tell(story)


@pytest.mark.parametrize(
    "gone",
    [
        HANGS,
        PushAnswer(why="no connection: refused"),
        PushAnswer(status=502),
        PushAnswer(status=503),
        PushAnswer(status=504),
    ],
)
def test_a_bot_that_is_away_costs_no_try_and_is_probed_with_one_push_at_a_time(gone: PushAnswer) -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: gone if stage.clock.mono() < 1500 else PushAnswer(status=200)
        for chat in range(1, 11):
            await written(stage, f"from {chat}", chat=chat)
        await all_over(stage)
        assert sorted(set(bots.texts)) == sorted(f"from {chat}" for chat in range(1, 11))
        assert len(stage.events_of(events.ConsumerAway)) == len(stage.events_of(events.ConsumerBack)) == 1
        assert [event.tries for event in stage.events_of(events.ArrivalSettled)] == [1] * 10
        assert not stage.events_of(events.ArrivalDeferred)
        probes = [got.at_s for got in bots.got if bots.got[0].at_s + 10 < got.at_s < 1500]
        waits = {round(later - sooner) for sooner, later in itertools.pairwise(probes[6:])}
        assert waits == {120 if gone is HANGS else 60}

    tell(story)


def test_an_endpoint_may_say_how_long_it_wants_to_be_left_alone() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        busy = PushAnswer(status=503, retry_after_s=1800)
        bots.answer = lambda got: PushAnswer(status=200) if len(bots.got) > 2 else busy
        await written(stage, "hello")
        await all_over(stage)
        assert [round(got.at_s) for got in bots.got] == [0, 1800, 3600]

    tell(story)


def test_another_refusal_counts_and_after_thirty_the_arrival_is_dead_while_others_go_on() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: PushAnswer(status=500 if got.chat == 5 else 200)
        await written(stage, "poison", "after", chat=5)
        await written(stage, "elsewhere", chat=6)
        await until(stage, lambda: "elsewhere" in bots.texts, 1)
        bots.answer = lambda got: PushAnswer(status=500 if got.text == "poison" else 200)
        await all_over(stage)
        times = [got.at_s for got in bots.got if got.text == "poison"]
        assert [round(later - sooner) for sooner, later in itertools.pairwise(times)] == [
            1,
            2,
            4,
            8,
            16,
            32,
            *[60] * 23,
        ]
        (delivery,) = (await views(stage))["poison"].deliveries
        assert (delivery.state, delivery.tries, delivery.failed_reason) == (State.FAILED, 30, "it answered 500")
        assert bots.texts[-1] == "after"
        assert not stage.events_of(events.ConsumerAway)

    tell(story)


@pytest.mark.parametrize("end", [HANGS, PushAnswer(status=502)])
def test_an_update_that_fells_the_bot_each_time_is_given_up_in_the_end(end: PushAnswer) -> None:
    """The bot is there for everybody else in between: it is this update, and not an absence."""

    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: end if got.text == "poison" else PushAnswer(status=200)
        await written(stage, "poison", chat=5)
        while not any(event.state is State.FAILED for event in stage.events_of(events.ArrivalSettled)):
            await written(stage, "hello", chat=6)
            await asyncio.sleep(30)
            assert stage.clock.mono() < 3 * HOUR_S
        await all_over(stage)
        assert bots.texts.count("poison") < 60

    tell(story)


def test_a_call_in_the_answer_becomes_a_letter_before_the_update_is_settled() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: calling("sendMessage", chat_id=got.chat, text=f"re: {got.text}")
        await written(stage, "hello")
        await all_over(stage)
        await stage.quiet()
        assert stage.texts(5) == ["re: hello"]

    tell(story)


@pytest.mark.parametrize(
    "body",
    [
        b"chat_id=5&method=sendMessage&text=re%3A+hello",
        FORM,
    ],
)
def test_calls_come_as_forms_too(body: bytes) -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: PushAnswer(status=200, body=body)
        await written(stage, "hello")
        await all_over(stage)
        await stage.quiet()
        assert stage.texts(5) == ["re: hello"]

    tell(story)


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        (b"ok", False),
        (b'{"ok": true}', False),
        (b"", False),
        (b'{"method": "sendMessage", ', True),
        (b'{"method": "sendMessage", "text": "to nobody"}', True),
        (b'{"method": "setWebhook", "url": "http://evil"}', True),
        (b'{"method": "getUpdates"}', True),
        (b'{"method": "logOut"}', True),
        (b'{"method": 7}', True),
        (b"--x\r\nnonsense", False),
    ],
)
def test_an_answer_that_is_no_call_is_ignored_and_the_update_counts_as_taken(body: bytes, is_told: bool) -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: PushAnswer(status=200, body=body)
        await written(stage, "hello")
        await all_over(stage)
        assert len(bots.got) == 1
        assert await letters(stage) == []
        assert bool(stage.events_of(events.AnswerIgnored)) is is_told

    tell(story)


def test_a_crash_between_the_call_and_the_settlement_does_not_send_it_twice() -> None:
    async def story(stage: Stage) -> None:
        bots = Bots(stage.clock)
        bots.answer = lambda got: calling("sendMessage", chat_id=5, text=f"answer {len(bots.got)}")
        await written(stage, "hello")
        pushed = msgspec.structs.replace(await consumer(stage), kind=ConsumerKind.PUSH, url=URL)
        await stage.peik.store.inbox.save_consumer(pushed)
        async with on_unsure_store(stage, bots) as (_, store):
            store.is_full = True
            await told(stage, events.StoreFailed)
        assert (await consumer(stage)).progress.watermark < 1001
        async with on_unsure_store(stage, bots):
            await all_over(stage)
        await stage.quiet()
        assert bots.texts == ["hello", "hello"]
        assert stage.texts(5) == ["answer 1"]

    play(story, pace="off")


def test_changes_of_the_address_take_effect_and_removal_ends_the_pushes() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        await written(stage, "one")
        await all_over(stage)
        await stage.peik.inbox.service.set_consumer(BOT, "default", url="http://127.0.0.1:9001/other")
        await written(stage, "two")
        await all_over(stage)
        await stage.peik.inbox.service.set_consumer(BOT, "default", url=None)
        await written(stage, "three")
        await asyncio.sleep(60)
        assert [(got.url.split("/")[-1], got.text) for got in bots.got] == [("hook", "one"), ("other", "two")]

    tell(story)


def test_a_further_consumer_is_pushed_everything_too_and_a_deaf_one_delays_nobody() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: HANGS if "9002" in got.url else PushAnswer(status=200)
        await stage.peik.inbox.service.set_consumer(BOT, "deaf", url="http://127.0.0.1:9002/")
        await written(stage, "one", "two", "three")
        await all_over(stage, timeout_s=2)
        assert [got.text for got in bots.got if got.url == URL] == ["one", "two", "three"]

    tell(story)


def test_handlers_take_over_from_a_push_after_what_was_in_flight() -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        await written(stage, "pushed")
        await until(stage, lambda: bots.texts == ["pushed"])
        program = Program(stage)
        program.run()
        await written(stage, "handled")
        await all_over(stage)
        assert (bots.texts, program.texts) == (["pushed"], ["handled"])
        with pytest.raises(Conflict):
            await stage.peik.inbox.service.set_consumer(BOT, "default", url=URL)

    tell(story)


@pytest.mark.parametrize(("policy", "count"), [("process", 21), ("drop", 2)])
def test_what_waited_for_a_bot_that_was_away_is_dealt_with_by_policy(policy: str, count: int) -> None:
    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: PushAnswer(why="refused") if stage.clock.mono() < HOUR_S else PushAnswer(status=200)
        for chat in range(20):
            await written(stage, f"waited {chat}", chat=100 + chat)
        await told(stage, events.OutageSettled)
        await written(stage, "now", chat=7)
        await all_over(stage)
        # With policy drop only the one that found out that the bot is back, and what came after.
        assert len({got.text for got in bots.got if got.at_s >= HOUR_S}) == count

    tell(story, missed=policy)


def test_a_bot_that_is_away_with_nothing_left_for_it_is_waited_for_in_peace() -> None:
    """Somebody acknowledged what waited for it. There was nothing to try it with, and the runner spun."""

    async def story(stage: Stage, bots: Bots) -> None:
        bots.answer = lambda got: PushAnswer(why="refused")
        await written(stage, "one")
        await told(stage, events.ConsumerAway)
        state = (await stage.peik.inbox.service.inbox(BOT)).state
        assert state is not None
        await stage.peik.inbox.service.acknowledge(BOT, "default", up_to=state.last_number)
        await asyncio.sleep(HOUR_S)  # in a spin time would stand still
        bots.answer = ok
        await written(stage, "two")
        await all_over(stage)
        assert bots.texts[-1] == "two"

    tell(story)
