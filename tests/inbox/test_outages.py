"""Outages as stories: who waited is told once, in his language, whatever crashes; and what is not to be handed on is not."""

# ruff: noqa: RUF001 - Persian, Russian and Uzbek are written with their own letters

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from peik.core.arrival import DEFAULT_CONSUMER, read_updates
from peik.core.events import Arrived, InboxRecovered, OutageSettled, StoreFailed, Surprise
from peik.core.token import Token
from peik.errors import StoreUnavailable
from peik.inbox.outages import ASKED_AT_ONCE, Outages, OutageSettlement
from peik.inbox.store import OutageRecord, OutgoingPush
from peik.inbox.texts import load_texts
from peik.outbox.store import LetterFilter
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed

SARA, IVAN, AZIZ, JOHN = 11, 12, 13, 14
LANGUAGES = {SARA: "fa", IVAN: "ru", AZIZ: "uz", JOHN: "en"}
HOUR_S = 3600.0


async def begin(stage: Stage) -> None:
    """Peik has been there for a while, and everybody has met the bot."""
    await stage.peik.store.inbox.open_inbox(BOT, server="https://api.telegram.org", at_ms=stage.clock.wall_ms())
    for user, language in LANGUAGES.items():
        stage.telegram.user(user, f"User {user}", language)
        stage.telegram.write(TOKEN, user, "/start")
    await fetch(stage)
    await over(stage, await waiting(stage))


async def fetch(stage: Stage) -> None:
    """What a source does: store what Telegram has kept, then confirm it."""
    offset = 0
    while True:
        answer: Any = stage.telegram.call(TOKEN, "getUpdates", {"offset": offset, "timeout": 0})
        updates, _ = read_updates(msgspec.json.encode(answer.result))
        if not updates:
            return
        offset = updates[-1].update_id + 1
        at_ms = stage.clock.wall_ms()
        await stage.peik.store.inbox.take_in(BOT, updates, at_ms=at_ms, last_update_id=offset - 1)


async def away(stage: Stage, *deeds: Callable[[], Any], before_s: float = HOUR_S, after_s: float = HOUR_S) -> int:
    """Peik is away while people do something; when it began."""
    began = stage.clock.wall_ms()
    await asyncio.sleep(before_s)
    for deed in deeds:
        deed()
    await asyncio.sleep(after_s)
    return began


async def come_back(stage: Stage, began: int) -> OutageSettled:
    outages = stage.peik.inbox.outages
    outages.expect(BOT, "source", began)
    await outages.kept(BOT)
    await fetch(stage)
    outages.over(BOT, "source")
    return await settled(stage)


async def settled(stage: Stage, count: int = 1) -> OutageSettled:
    await until(stage, lambda: len(stage.events_of(OutageSettled)) >= count)
    await stage.quiet()
    found: OutageSettled = stage.events_of(OutageSettled)[-1]
    return found


async def until(stage: Stage, fact: Callable[[], bool]) -> None:
    deadline = stage.clock.mono() + HOUR_S
    while True:
        if fact():
            return
        assert stage.clock.mono() < deadline
        await asyncio.sleep(0.01)


async def waiting(stage: Stage) -> list[int]:
    """The numbers that the default consumer still has to get."""
    inbox = stage.peik.store.inbox
    consumer = await inbox.ensure_consumer(BOT, DEFAULT_CONSUMER, at_ms=stage.clock.wall_ms())
    page = await inbox.arrivals_after(consumer.id, consumer.progress.watermark, limit=1000)
    return [arrival.number for arrival in page if not consumer.progress.is_over(arrival.number)]


async def over(stage: Stage, numbers: Sequence[int]) -> None:
    inbox = stage.peik.store.inbox
    consumer = await inbox.ensure_consumer(BOT, DEFAULT_CONSUMER, at_ms=stage.clock.wall_ms())
    await inbox.settle_arrivals(consumer.id, over=[(one, one) for one in numbers], at_ms=stage.clock.wall_ms())


def writes(stage: Stage, user: int, *texts: str) -> list[Callable[[], Any]]:
    return [lambda text=text: stage.telegram.write(TOKEN, user, text) for text in texts]  # type: ignore[misc]


# ---- who is told ----


@pytest.mark.parametrize(("policy", "handed"), [("both", 8), ("notify", 0)])
def test_everybody_who_wrote_is_told_once_and_in_his_language(policy: str, handed: int) -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        deeds = [
            *writes(stage, SARA, "سلام، فیلم https://youtu.be/x"),
            *writes(stage, IVAN, "раз", "два", "три"),
            *writes(stage, AZIZ, "bir", "ikki", "uch", "toʻrt"),
        ]
        event = await come_back(stage, await away(stage, *deeds))
        (sara,), (ivan,), (aziz,) = (stage.texts(user) for user in (SARA, IVAN, AZIZ))
        assert sara.startswith(
            "پیام شما دریافت شد: «\u2068سلام، فیلم https://youtu.be/x\u2069»\nربات حدود ۲ ساعت آفلاین"
        )
        assert ivan.startswith("Мы получили ваши сообщения: «\u2068раз\u2069» и ещё 2 сообщения\n")
        assert aziz.startswith("Xabarlaringiz qabul qilindi: “\u2068bir\u2069” va yana 3 ta xabar\n")
        assert stage.texts(JOHN) == []
        assert (event.policy, event.missed, event.handed, event.notices) == (policy, 8, handed, 3)
        assert len(await waiting(stage)) == handed

    play(story, missed=policy)


def test_a_notice_answers_the_first_message_and_is_known_by_its_type() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        await come_back(stage, await away(stage, *writes(stage, JOHN, "one", "two")))
        (letter,) = await stage.peik.outbox.service.find(
            LetterFilter(message_type="missed_notice"), before=None, limit=10
        )
        params = msgspec.json.decode(letter.params)
        first = stage.telegram.message(TOKEN, JOHN, params["reply_parameters"]["message_id"])
        assert first is not None
        assert first["text"] == "one"
        assert params["reply_parameters"]["allow_sending_without_reply"] is True
        assert "parse_mode" not in params

    play(story, missed="both")


def test_a_bot_has_its_own_policy() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        await stage.peik.outbox.service.change_bot(BOT, missed="drop")
        event = await come_back(stage, await away(stage, *writes(stage, JOHN, "hello")))
        assert (event.policy, event.missed, event.handed, event.notices) == ("drop", 1, 0, 0)
        assert (stage.texts(JOHN), await waiting(stage)) == ([], [])

    play(story, missed="both")


def test_by_default_everything_is_handed_on_but_queries_that_nobody_can_answer() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        deeds = [
            *writes(stage, JOHN, "hello"),
            lambda: stage.telegram.ask(TOKEN, JOHN, "pre_checkout", {"currency": "XTR"}),
        ]
        event = await come_back(stage, await away(stage, *deeds, after_s=5.0))
        assert (event.policy, event.missed, event.handed, event.notices) == ("process", 1, 0, 0)
        assert len(await waiting(stage)) == 1

    play(story)


def test_groups_hear_nothing_unless_somebody_spoke_to_the_bot() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        quiet, busy = (stage.telegram.chat("supergroup", chat_id=chat, bots=[TOKEN]) for chat in (-1001, -1002))
        news = stage.telegram.chat("channel", chat_id=-1003, bots=[TOKEN])
        event = await come_back(
            stage,
            await away(
                stage,
                lambda: stage.telegram.write(TOKEN, SARA, "good morning", chat=quiet),
                lambda: stage.telegram.write(TOKEN, IVAN, "good morning", chat=busy),
                lambda: stage.telegram.write(TOKEN, SARA, "/help", chat=busy),
                lambda: stage.telegram.write(TOKEN, IVAN, "news", chat=news),
            ),
        )
        assert [len(stage.texts(chat.id)) for chat in (quiet, busy, news)] == [0, 1, 0]
        assert "\u2068/help\u2069" in stage.texts(busy.id)[0]
        assert (event.missed, event.handed, event.notices) == (4, 3, 1)

    play(story, missed="notify")


def test_who_blocked_the_bot_meanwhile_is_left_alone() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        deeds = [
            *writes(stage, SARA, "hello"),
            lambda: stage.telegram.block(TOKEN, SARA),
            *writes(stage, IVAN, "hello"),
        ]
        event = await come_back(stage, await away(stage, *deeds))
        assert event.notices == 1
        assert (await stage.peik.outbox.service.tallies())[BOT].failed == 0

    play(story, missed="both")


# ---- presses ----


def test_a_press_is_answered_at_once_or_joins_the_notice_when_it_is_too_old() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        button = {"inline_keyboard": [[{"text": "Pay", "callback_data": "pay"}]]}
        sent = {}
        for user in (SARA, IVAN):
            params = {"chat_id": user, "text": "menu", "reply_markup": button}
            view = await stage.ended(await stage.accept(params=params))
            assert view.result is not None
            sent[user] = msgspec.json.decode(view.result)["message_id"]
        began = await away(stage, lambda: stage.telegram.press(TOKEN, IVAN, sent[IVAN], "pay"), after_s=100.0)
        stage.telegram.press(TOKEN, SARA, sent[SARA], "pay")
        event = await come_back(stage, began)
        assert stage.texts(SARA) == ["menu"]  # seen in a small window instead
        assert stage.texts(IVAN)[1:] == [
            "Мы получили ваше нажатие, но бот был офлайн примерно 62 минуты. Пожалуйста, нажмите кнопку ещё раз."
        ]
        assert (event.missed, event.handed, event.notices) == (2, 0, 1)
        assert stage.telegram.counters.requests["answerCallbackQuery"] == 2

    play(story, missed="notify")


# ---- not twice, and not for nothing ----


def test_a_crash_in_the_middle_tells_nobody_twice_and_forgets_nobody() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await begin(stage)
            presser = 15
            menu = stage.telegram.write(TOKEN, presser, "menu")["message_id"]
            await fetch(stage)
            await over(stage, await waiting(stage))
            everybody = [deed for user in LANGUAGES for deed in writes(stage, user, "hello", "again")]
            began = await away(stage, *everybody)
            stage.telegram.press(TOKEN, presser, menu, "pay")
            await crash_while_telling(stage, began)
            assert sum(len(stage.texts(user)) for user in LANGUAGES) == 2
            assert len(await waiting(stage)) == 8  # the press was answered, and is over
        await asyncio.sleep(HOUR_S)  # so that the words are others now
        async with stage.open():
            event = await settled(stage)
            assert [len(stage.texts(user)) for user in (*LANGUAGES, presser)] == [1, 1, 1, 1, 0]
            assert (event.missed, event.handed) == (8, 0)
            assert await waiting(stage) == []
        async with stage.open():
            await asyncio.sleep(60.0)
            assert len(stage.events_of(OutageSettled)) == 1

    play_closed(story, missed="notify")


async def crash_while_telling(stage: Stage, began: int) -> None:
    """An outage is being settled chat by chat, and the process stops after two of them were told."""
    told: list[str] = []

    async def accept(bot_id: int, calls: Sequence[OutgoingPush]) -> None:
        for one in calls[:2]:
            terms = {"idempotency_key": one.idempotency_key, "metadata": msgspec.json.decode(one.metadata or b"{}")}
            told.append(str(await stage.accept(one.method, params=msgspec.json.decode(one.params), **terms)))
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        outages = other_outages(stage, accept=accept)
        outages.open(group, list)
        outages.expect(BOT, "source", began)
        await outages.kept(BOT)
        await fetch(stage)
        outages.over(BOT, "source")
        await until(stage, lambda: len(told) == 2)
        await stage.quiet()
        outages.stop()


def other_outages(stage: Stage, *, store: Any = None, accept: Any = None, chats_max: int = 1000) -> Outages:
    """As the app builds them, but for what a story changes."""
    runtime = stage.peik

    async def accepted(bot_id: int, calls: Sequence[OutgoingPush]) -> None:
        for one in calls:
            terms = {"idempotency_key": one.idempotency_key}
            await stage.accept(one.method, params=msgspec.json.decode(one.params), **terms)

    async def answer(bot_id: int, method: str, params: bytes) -> bool:
        return True

    settling = OutageSettlement(
        store=store or runtime.store.inbox,
        clock=stage.clock,
        texts=load_texts(None),
        accept=accept or accepted,
        answer=answer,
        chats_max=chats_max,
    )
    return Outages(
        store=store or runtime.store.inbox,
        clock=stage.clock,
        events=runtime.events,
        settling=settling,
        bot=runtime.outbox.service.bot,
        policy=runtime.config.missed,
        missed_after_s=60.0,
    )


def test_an_outage_that_a_crash_interrupted_before_all_was_fetched_is_taken_up_again() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await begin(stage)
            began = await away(stage, *writes(stage, JOHN, "hello"))
            stage.peik.inbox.outages.expect(BOT, "source", began)
            await stage.peik.inbox.outages.kept(BOT)
        async with stage.open():
            await fetch(stage)
            await settled(stage)
            (text,) = stage.texts(JOHN)
            assert "about 2 hours" in text

    play_closed(story, missed="both")


def test_an_outage_that_is_taken_up_again_waits_for_its_source() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await until(stage, lambda: bool(stage.events_of(InboxRecovered)))
            stage.peik.inbox.outages.expect(BOT, "source", stage.clock.wall_ms() - 7_200_000)
            await stage.peik.inbox.outages.kept(BOT)
        stage.telegram.user(JOHN, "John", "en")
        stage.telegram.write(TOKEN, JOHN, "hello", date=stage.clock.wall_s() - 600.0)
        stage.telegram.dark(True)
        async with stage.open():
            await asyncio.sleep(30.0)
            assert (stage.events_of(OutageSettled), stage.peik.inbox.outages.holds(BOT)) == ([], True)
            stage.telegram.dark(False)
            assert (await settled(stage)).missed == 1
            assert "about 2 hours" in stage.texts(JOHN)[0]

    play_closed(story, missed="both", inbound="polling")


def test_peik_and_its_consumer_being_away_at_once_is_one_outage() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        began = await away(stage, *writes(stage, JOHN, "hello"))
        outages = stage.peik.inbox.outages
        outages.expect(BOT, "consumer", began + 1000)
        outages.expect(BOT, "source", began)
        outages.over(BOT, "consumer")
        await asyncio.sleep(1.0)
        assert stage.events_of(OutageSettled) == []
        await fetch(stage)
        outages.over(BOT, "source")
        event = await settled(stage)
        assert event.away_s == pytest.approx(2 * HOUR_S, abs=2.0)
        assert len(stage.texts(JOHN)) == 1
        # A bot that finds its way back a little later was away through the same outage.
        await asyncio.sleep(120.0)
        outages.expect(BOT, "consumer", began)
        outages.over(BOT, "consumer")
        event = await settled(stage, 2)
        assert (event.missed, len(stage.texts(JOHN))) == (0, 1)

    play(story, missed="both")


def test_a_consumer_that_is_back_before_the_source_waits_for_it() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            stage.telegram.user(JOHN, "John", "en")
            stage.telegram.write(TOKEN, JOHN, "before the crash")
            await until(stage, lambda: bool(stage.events_of(Arrived)))
        began = await away(stage, *writes(stage, JOHN, "after it"))
        stage.telegram.dark(True)
        async with stage.open():
            stage.peik.inbox.outages.expect(BOT, "consumer", began)
            stage.peik.inbox.outages.over(BOT, "consumer")
            await asyncio.sleep(300.0)
            assert stage.events_of(OutageSettled) == []
            stage.telegram.dark(False)
            event = await settled(stage)
            assert (event.missed, event.notices) == (2, 1)
            assert "“\u2068before the crash\u2069” and 1 more" in stage.texts(JOHN)[0]

    play_closed(story, missed="both", inbound="polling")


def test_a_consumer_that_was_away_while_peik_was_there_is_an_outage_too() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        began = stage.clock.wall_ms()
        stage.telegram.write(TOKEN, JOHN, "hello")
        await fetch(stage)
        await asyncio.sleep(70.0)
        stage.telegram.write(TOKEN, SARA, "just now")
        await fetch(stage)
        stage.peik.inbox.outages.expect(BOT, "consumer", began)
        stage.peik.inbox.outages.over(BOT, "consumer")
        event = await settled(stage)
        assert (event.missed, event.handed, len(stage.texts(JOHN)), len(stage.texts(SARA))) == (1, 0, 1, 0)
        assert len(await waiting(stage)) == 1

    play(story, missed="notify")


def test_nobody_is_told_of_a_short_absence_or_of_a_first_start() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)  # a source without a past expects nothing
        event = await come_back(stage, await away(stage, *writes(stage, JOHN, "hello"), before_s=10.0, after_s=40.0))
        assert (event.missed, event.notices) == (0, 0)
        assert [stage.texts(user) for user in LANGUAGES] == [[], [], [], []]
        assert len(await waiting(stage)) == 1

    play(story, missed="notify")


# ---- holding ----


@pytest.mark.parametrize(("policy", "is_held"), [("process", False), ("notify", True), ("both", True), ("drop", True)])
def test_what_waited_is_held_until_it_is_settled_unless_it_is_all_handed_on(policy: str, is_held: bool) -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        outages = stage.peik.inbox.outages
        rung: list[tuple[int, bool]] = []
        outages.when_released(lambda bot_id: rung.append((bot_id, outages.holds(bot_id))))
        assert not outages.holds(BOT)
        outages.expect(BOT, "source", stage.clock.wall_ms() - 10_000_000)
        assert outages.holds(BOT) is is_held
        outages.over(BOT, "somebody else")
        await asyncio.sleep(5.0)
        assert (outages.holds(BOT), rung) == (is_held, [])
        outages.over(BOT, "source")
        await settled(stage)
        assert rung == [(BOT, False)]

    play(story, missed=policy)


def test_a_bot_whose_updates_are_turned_off_is_not_held_for_ever() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        stage.peik.inbox.outages.expect(BOT, "source", 0)
        stage.peik.inbox.outages.forget(BOT)
        await settled(stage)
        assert not stage.peik.inbox.outages.holds(BOT)

    play(story, missed="both")


# ---- bounds and faults ----


def test_what_was_left_of_many_bots_is_taken_up_whole_although_the_store_fails_on_the_way() -> None:
    async def story(stage: Stage) -> None:
        service, store = stage.peik.outbox.service, stage.peik.store.inbox
        tokens = [
            Token(f"{BOT + more}:AAE-another-another-another-another-0") for more in range(1, 2 * ASKED_AT_ONCE + 6)
        ]
        bots = [record for record, _ in await asyncio.gather(*map(service.save_bot, tokens))]
        without = bots[ASKED_AT_ONCE]
        began = stage.clock.wall_ms()
        for bot in bots:
            if bot is not without:
                await store.open_outage(bot.bot_id, began_at_ms=began, ended_at_ms=began + 1, last_number=0)
        failing = {bots[0].bot_id, bots[ASKED_AT_ONCE + 5].bot_id, bots[-1].bot_id}

        class Fickle:
            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            async def outages(self, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
                if bot_id in failing:
                    failing.discard(bot_id)
                    raise StoreUnavailable(code="store_unavailable", detail="it comes and goes")
                return await store.outages(bot_id, is_open=is_open)

        async with asyncio.TaskGroup() as group:
            outages = other_outages(stage, store=Fickle())
            outages.open(group, list)
            # As of bots that are polled: nothing is over before their sources have caught up.
            await outages.begin([msgspec.structs.replace(bot, inbound="polling") for bot in bots])
            assert [bot for bot in bots if not outages.holds(bot.bot_id)] == [without]
            assert not failing
            outages.stop()

    play(story, missed="both")


def test_more_chats_than_are_held_in_memory_are_told_in_several_goes() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        users = range(100, 160)
        began = await away(stage, *[deed for _ in range(10) for user in users for deed in writes(stage, user, "hello")])
        async with asyncio.TaskGroup() as group:
            outages = other_outages(stage, chats_max=50)
            outages.open(group, list)
            outages.expect(BOT, "source", began)
            await fetch(stage)
            outages.over(BOT, "source")
            event = await settled(stage)
            outages.stop()
        assert (event.missed, event.handed, event.notices) == (600, 0, 60)
        assert all(len(stage.texts(user)) == 1 for user in users)
        assert await waiting(stage) == []

    play(story, missed="notify", pace="off")


def test_a_bot_that_is_removed_meanwhile_leaves_nothing_behind() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        await stage.peik.outbox.service.remove_bot(BOT)
        stage.peik.inbox.outages.expect(BOT, "source", 0)
        stage.peik.inbox.outages.over(BOT, "source")
        await until(stage, lambda: bool(stage.events_of(OutageSettled)))
        assert (stage.peik.inbox.outages.holds(BOT), stage.events_of(Surprise)) == (False, [])

    play(story, missed="both")


class Flaky:
    """An inbox's store that does not answer for a while."""

    def __init__(self, store: Any, *, failures: int) -> None:
        self._store = store
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        if self._failures and name in ("open_outage", "arrivals_after", "settle_arrivals", "settle_outage"):
            self._failures -= 1
            raise StoreUnavailable(code="store_unavailable", detail="The disk is full.")
        return getattr(self._store, name)


@pytest.mark.parametrize("failures", [1, 2, 7])
def test_a_store_that_does_not_answer_only_delays(failures: int) -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        began = await away(stage, *writes(stage, JOHN, "hello"), *writes(stage, SARA, "hello"))
        await fetch(stage)
        async with asyncio.TaskGroup() as group:
            outages = other_outages(stage, store=Flaky(stage.peik.store.inbox, failures=failures))
            outages.open(group, list)
            outages.expect(BOT, "source", began)
            outages.over(BOT, "source")
            await settled(stage)
            outages.stop()
        assert len(stage.events_of(StoreFailed)) == failures
        assert [len(stage.texts(user)) for user in (JOHN, SARA)] == [1, 1]
        assert await waiting(stage) == []

    play(story, missed="notify")


class Unsure:
    """An inbox's store that opens an outage and then says that it has not, and takes its time to close one."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.lies = 0
        self.close_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open_outage(self, *given: Any, **more: Any) -> Any:
        outage = await self._store.open_outage(*given, **more)
        if self.lies:
            self.lies -= 1
            raise StoreUnavailable(code="store_io", detail="The disk reported an error.")
        return outage

    async def settle_outage(self, *given: Any, **more: Any) -> None:
        await asyncio.sleep(self.close_s)
        await self._store.settle_outage(*given, **more)


def test_an_outage_that_was_opened_though_the_store_said_no_is_settled_too() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        began = await away(stage, *writes(stage, JOHN, "hello"))
        await fetch(stage)
        store = Unsure(stage.peik.store.inbox)
        store.lies = 1
        async with asyncio.TaskGroup() as group:
            outages = other_outages(stage, store=store)
            outages.open(group, list)
            outages.expect(BOT, "source", began)
            outages.over(BOT, "source")
            await settled(stage)
            outages.stop()
        assert await store.outages(BOT, is_open=True) == []
        assert len(stage.texts(JOHN)) == 1

    play(story, missed="notify")


def test_an_outage_that_begins_while_the_last_one_is_closed_is_durable_before_anything_is_fetched() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        store = Unsure(stage.peik.store.inbox)
        store.close_s = 300.0
        async with asyncio.TaskGroup() as group:
            outages = other_outages(stage, store=store)
            outages.open(group, list)
            outages.expect(BOT, "source", stage.clock.wall_ms() - 7_200_000)
            outages.over(BOT, "source")
            await asyncio.sleep(100.0)  # it is being closed
            began = stage.clock.wall_ms() - 90_000
            outages.expect(BOT, "source", began)
            await outages.kept(BOT)
            assert [one.began_at_ms for one in await store.outages(BOT, is_open=True)] == [began]
            outages.over(BOT, "source")
            await settled(stage, 2)
            outages.stop()

    play(story, missed="both")


def test_who_is_turned_off_while_his_last_outage_is_closed_is_not_held_for_ever() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        store = Unsure(stage.peik.store.inbox)
        store.close_s = 300.0
        async with asyncio.TaskGroup() as group:
            outages = other_outages(stage, store=store)
            outages.open(group, list)
            outages.expect(BOT, "source", stage.clock.wall_ms() - 7_200_000)
            outages.over(BOT, "source")
            await asyncio.sleep(100.0)  # it is being closed
            outages.expect(BOT, "source", stage.clock.wall_ms() - 90_000)
            outages.forget(BOT)
            await until(stage, lambda: not outages.holds(BOT))
            outages.stop()

    play(story, missed="both")


# ---- with everything that is real ----


def test_peik_ends_people_write_and_it_comes_back_by_polling() -> None:
    async def story(stage: Stage) -> None:
        for user, language in LANGUAGES.items():
            stage.telegram.user(user, f"User {user}", language)
        async with stage.open():
            stage.telegram.write(TOKEN, SARA, "/start")
            await until(stage, lambda: bool(stage.events_of(Arrived)))
            await over(stage, await waiting(stage))
        await away(stage, *writes(stage, SARA, "یک", "دو"), *writes(stage, IVAN, "один"))
        async with stage.open():
            event = await settled(stage)
            assert (event.missed, event.handed, event.notices) == (3, 3, 2)
            assert [len(stage.texts(user)) for user in (SARA, IVAN)] == [1, 1]
            assert len(await waiting(stage)) == 3
        async with stage.open():
            await asyncio.sleep(600.0)
            assert [len(stage.texts(user)) for user in (SARA, IVAN)] == [1, 1]

    play_closed(story, missed="both", inbound="polling")
