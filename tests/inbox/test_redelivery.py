"""What a poller confirmed and did not deal with is handed again if it dies: on a real store, in virtual time."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import msgspec
import pytest

from peik.core.arrival import Arrival, read_update, wire_id
from peik.core.events import Events, HandedAgain
from peik.core.letter import State
from peik.errors import Conflict, StoreUnavailable
from peik.inbox.readers import SETTLE_S
from peik.inbox.service import InboxService
from peik.inbox.store import ArrivalFilter
from tests.inbox.bots import Bots, ok
from tests.inbox.handing import all_over
from tests.inbox.test_service import FIRST, arrive, come, ids, message
from tests.outbox.story import BOT, Stage, play, play_closed

WINDOW_S = 30.0


class Bot:
    """A bot's program as libraries write them: it confirms what it got with its next poll, whatever its handlers do."""

    def __init__(self, stage: Stage, name: str = "default") -> None:
        self._inbox: InboxService = stage.peik.inbox.service
        self._name = name
        self.offset: int | None = None
        self.parked: asyncio.Task[list[Arrival]] | None = None
        self._hung_up = asyncio.Event()

    def through(self, node: InboxService) -> None:
        """From now on it meets this node."""
        self._inbox = node

    async def poll(self, *, timeout_s: float = 0.001, limit: int = 100) -> list[int]:
        """One poll to its end. A timeout so short that nobody waits, and yet no farewell."""
        return self._took(await self._ask(timeout_s, limit))

    async def park(self) -> None:
        """A long poll that waits."""
        self.parked = asyncio.create_task(self._ask(50.0, 100))
        await asyncio.sleep(0.001)

    async def got(self) -> list[int]:
        assert self.parked is not None
        return self._took(await self.parked)

    async def die(self) -> None:
        """Killed: the kernel closes its connection."""
        self._hung_up.set()
        if self.parked is not None:
            with contextlib.suppress(Conflict):
                await self.parked

    async def end(self) -> None:
        """In good order: it asks once more without waiting."""
        await self.die()
        self._hung_up.clear()
        await self.poll(timeout_s=0)

    async def calls(self, method: str = "sendMessage", **params: Any) -> None:
        self._inbox.answered(BOT, self._name, method, json.dumps(params).encode())
        await asyncio.sleep(SETTLE_S * 2)

    async def _ask(self, timeout_s: float, limit: int) -> list[Arrival]:
        async def hangs_up() -> None:
            await self._hung_up.wait()

        return await self._inbox.updates(
            BOT, self._name, offset=self.offset, timeout_s=timeout_s, limit=limit, hangs_up=hangs_up
        )

    def _took(self, found: Sequence[Arrival]) -> list[int]:
        if found:
            self.offset = wire_id(found[-1].number) + 1
        return ids(found)


async def took(stage: Stage, name: str = "default") -> Bot:
    """A bot that has confirmed all that waits, and waits for more."""
    bot = Bot(stage, name)
    await bot.poll()
    await bot.park()
    return bot


async def watermark(stage: Stage) -> int:
    return (await stage.peik.inbox.service.consumer(BOT, "default")).progress.watermark


async def states(stage: Stage) -> dict[int, State]:
    found = await stage.peik.inbox.service.arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=100)
    return {view.arrival.number: view.deliveries[0].state for view in reversed(found)}


def wrote(number: int, *, chat: int = 5, user: int | None = None, **more: Any) -> Any:
    person = {"id": chat if user is None else user, **more.pop("sender", {})}
    body = {"message_id": number, "date": 1_700_000_000, "chat": {"id": chat}, "from": person, "text": "hi", **more}
    return read_update(msgspec.json.encode({"update_id": number, "message": body}))


# ---- death and life ----


def test_what_a_poller_confirmed_and_did_not_deal_with_is_handed_again_after_its_death() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        bot = await took(stage)
        await bot.die()
        await come(stage, 1, first=1004)
        again = Bot(stage)
        assert await again.poll() == [1001], "one alone, until it is survived"
        assert await again.poll() == []
        await asyncio.sleep(2.0)
        assert await again.poll() == [1002, 1003, 1004], "first, in order, under the same ids"
        [told] = stage.events_of(HandedAgain)
        assert (told.count, told.first_number, told.deaths) == (3, 1001, 1)

    play(story)


def test_what_a_poller_went_on_asking_after_is_dealt_with() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        bot = Bot(stage)
        await bot.poll()
        await bot.poll()
        await asyncio.sleep(WINDOW_S)
        await come(stage, 1, first=1003)
        assert await bot.poll() == [1003]
        await bot.park()
        await asyncio.sleep(SETTLE_S * 2)
        assert await watermark(stage) == 1002
        await bot.die()
        assert await Bot(stage).poll() == [1003]

    play(story)


def test_a_connection_that_closes_says_that_its_poller_was_there_until_then() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        bot = await took(stage)  # confirms both, and waits
        await asyncio.sleep(WINDOW_S + 10)
        await bot.die()
        assert await Bot(stage).poll() == []

    play(story)


def test_a_poller_that_is_silent_and_not_seen_to_die_loses_nothing() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        bot = Bot(stage)
        await bot.poll()
        await bot.poll()
        await asyncio.sleep(3600.0)
        assert await Bot(stage).poll() == [1001]

    play(story)


@pytest.mark.parametrize("first", [None, 0, 1, 7, 2_000_000_000])
def test_a_poller_starts_afresh_with_no_offset_or_with_one_that_it_cannot_have(first: int | None) -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1)
        bot = await took(stage)
        await bot.die()
        again = Bot(stage)
        again.offset = first
        assert await again.poll() == [1001]
        assert again.offset == 1002
        assert await again.poll() == []

    play(story)


def test_a_bot_that_keeps_its_own_offset_is_handed_what_comes_after_it() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 4)
        bot = await took(stage)
        await bot.die()
        again = Bot(stage)
        again.offset = 1003
        assert await again.poll() == [1003]

    play(story)


def test_a_farewell_completes_what_it_confirms() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        bot = await took(stage)
        await bot.end()
        assert await Bot(stage).poll() == []

    play(story)


def test_a_farewell_is_stored_before_it_is_answered() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        bot = await took(stage)
        await bot.end()
        assert await watermark(stage) == 1003, "as the next one may ask another node, or a Peik that has begun anew"

    play(story)


def test_a_program_that_never_waits_says_no_farewell_by_it() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1)
        bot = Bot(stage)
        assert await bot.poll(timeout_s=0) == [1001]
        assert await bot.poll(timeout_s=0) == []
        assert await Bot(stage).poll(timeout_s=0) == [1001]

    play(story)


def test_off_believes_an_offset() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        bot = await took(stage)
        assert await watermark(stage) == 1002
        await bot.die()
        assert await Bot(stage).poll() == []

    play(story, polling_redelivery="off")


def test_off_can_be_said_of_one_bot() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        await took(stage)
        assert await watermark(stage) == 1002

    play(story, polling_redelivery=f"1m,{BOT}=off,7=10s")


def test_what_is_dropped_or_skipped_by_a_negative_offset_is_not_handed_again() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        bot = await took(stage)
        await bot.die()
        await come(stage, 1, first=1004)
        again = Bot(stage)
        again.offset = -1
        assert await again.poll() == [1004]
        await again.die()
        await stage.peik.inbox.service.acknowledge(BOT, "default", up_to=1004)
        assert await Bot(stage).poll() == []

    play(story)


def test_named_consumers_are_handed_theirs_again_and_no_others() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        one, other = await took(stage), await took(stage, "reports")
        await other.die()
        assert await Bot(stage, "reports").poll() == [1001]
        await come(stage, 1, first=1003)
        assert await one.got() == [1003]

    play(story)


# ---- evidence ----


@pytest.mark.parametrize(
    ("method", "params", "is_evidence"),
    [
        ("sendMessage", {"chat_id": 5, "text": "hello"}, True),
        ("sendPhoto", {"chat_id": "5", "photo": "x"}, True),
        ("editMessageText", {"chat_id": 5, "message_id": 77, "text": "x"}, True),
        ("deleteMessage", {"chat_id": 5, "message_id": 1001}, True),
        ("sendMessage", {"chat_id": 6, "text": "to somebody else"}, False),
        ("setMessageReaction", {"chat_id": 5, "message_id": 1001}, False),
        ("setMyCommands", {"commands": []}, False),
    ],
)
def test_a_call_to_its_chat_shows_that_an_update_was_dealt_with(
    method: str, params: dict[str, Any], is_evidence: bool
) -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1)
        bot = await took(stage)
        await bot.calls(method, **params)
        assert await watermark(stage) == (1001 if is_evidence else 1000), "durably"
        await bot.die()
        assert await Bot(stage).poll() == ([] if is_evidence else [1001])

    play(story)


def test_a_call_before_the_offset_confirms_is_evidence_too() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1)
        bot = Bot(stage)
        await bot.poll()
        await bot.calls(chat_id=5, text="at once")
        assert await watermark(stage) == 1000, "nothing is over that no offset has confirmed"
        await bot.park()
        await asyncio.sleep(SETTLE_S * 2)
        assert await watermark(stage) == 1001

    play(story)


def test_of_several_from_one_chat_all_wait_for_as_many_calls() -> None:
    """Libraries handle them at the same time, or one after the other: which of them a call answers nobody knows."""

    async def story(stage: Stage) -> None:
        await come(stage, 3)
        bot = await took(stage)
        await bot.calls(chat_id=5, text="one")
        await bot.calls(chat_id=5, text="two")
        assert await watermark(stage) == 1000
        await bot.calls(chat_id=5, text="three")
        assert await watermark(stage) == 1003

    play(story)


def test_a_reply_clears_what_it_names() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        bot = await took(stage)
        await bot.calls(chat_id=5, text="x", reply_parameters={"message_id": 1002})
        await bot.calls(chat_id=5, text="x", reply_to_message_id="1003")
        await bot.die()
        assert await Bot(stage).poll() == [1001]

    play(story)


def test_in_a_group_a_call_clears_whom_it_names() -> None:
    async def story(stage: Stage) -> None:
        group = -100
        await arrive(
            stage,
            wrote(1001, chat=group, user=11, sender={"username": "Anna"}),
            wrote(1002, chat=group, user=12),
            wrote(1003, chat=group, user=13, message_thread_id=7),
            wrote(1004, chat=group, user=14),
            wrote(1005, chat=group, user=15),
        )
        bot = await took(stage)
        await bot.calls(chat_id=group, text="Welcome, @anna!")
        await bot.calls(chat_id=group, text='<a href="tg://user?id=12">you</a>', parse_mode="HTML")
        await bot.calls(chat_id=group, text="x", message_thread_id=7)
        await bot.calls("banChatMember", chat_id=group, user_id=14)
        assert await watermark(stage) == 1004
        await bot.calls(chat_id=group, text="x", entities=[{"type": "text_mention", "user": {"id": 15}}])
        assert await watermark(stage) == 1005

    play(story)


def test_a_group_bot_that_answers_one_in_a_hundred_is_believed_after_the_window() -> None:
    async def story(stage: Stage) -> None:
        await arrive(stage, *(wrote(FIRST + at, chat=-100, user=at) for at in range(100)))
        bot = await took(stage)
        await bot.calls(chat_id=-100, text="a joke", reply_parameters={"message_id": 1050})
        assert await watermark(stage) == 1000
        await asyncio.sleep(WINDOW_S)
        await come(stage, 1, first=1101)
        assert await bot.got() == [1101]
        await bot.park()
        await asyncio.sleep(SETTLE_S * 2)
        assert await watermark(stage) == 1100

    play(story)


def test_what_stands_in_a_long_line_behind_others_is_handed_again() -> None:
    """python-telegram-bot fetches a hundred at once and handles them one after the other."""

    async def story(stage: Stage) -> None:
        await arrive(stage, *(wrote(FIRST + at, chat=10 + at) for at in range(60)))
        bot = await took(stage)
        for at in range(45):  # with a call a second
            await asyncio.sleep(1.0 - SETTLE_S * 2)
            await bot.calls(chat_id=10 + at, text="answer")
            if at % 10 == 9:
                await come(stage, 1, first=1061 + at // 10)  # so that it asks again
                await bot.got()
                await bot.park()
        await bot.die()
        again = Bot(stage)
        assert await again.poll() == [1046]
        await again.calls(chat_id=10 + 45, text="answer")
        assert await again.poll() == [*range(1047, 1065)]

    play(story)


def test_a_line_that_does_not_move_is_believed_after_the_window() -> None:
    async def story(stage: Stage) -> None:
        await arrive(stage, *(wrote(FIRST + at, chat=10 + at) for at in range(3)))
        bot = await took(stage)
        await asyncio.sleep(20.0)
        await bot.calls(chat_id=11, text="the second is answered")
        await asyncio.sleep(15.0)
        await come(stage, 1, first=1004)
        await bot.got()
        await bot.park()
        await bot.calls("getMe")
        assert await watermark(stage) == 1002, "the first long ago, and the third came after what was answered lately"
        await asyncio.sleep(20.0)
        await come(stage, 1, first=1005)
        await bot.got()
        await bot.park()
        await bot.calls("getMe")
        assert await watermark(stage) == 1003

    play(story)


@pytest.mark.parametrize(
    ("kind", "method", "name"),
    [
        ("callback_query", "answerCallbackQuery", "callback_query_id"),
        ("inline_query", "answerInlineQuery", "inline_query_id"),
        ("shipping_query", "answerShippingQuery", "shipping_query_id"),
        ("pre_checkout_query", "answerPreCheckoutQuery", "pre_checkout_query_id"),
    ],
)
def test_the_answer_to_a_query_names_it(kind: str, method: str, name: str) -> None:
    async def story(stage: Stage) -> None:
        asked = [{"update_id": 1001 + at, kind: {"id": f"q{at}", "from": {"id": 5}}} for at in range(2)]
        await arrive(stage, *(read_update(msgspec.json.encode(one)) for one in asked))
        bot = await took(stage)
        await bot.calls(method, **{name: "q0"})
        assert await watermark(stage) == 1001
        await bot.calls(method, **{name: "q1"})
        assert await watermark(stage) == 1002

    play(story)


def test_what_nobody_answers_does_not_keep_a_message_from_being_cleared() -> None:
    async def story(stage: Stage) -> None:
        joined = {"chat": {"id": 5}, "from": {"id": 5}, "date": 1, "new_chat_member": {"status": "member"}}
        await arrive(
            stage,
            read_update(msgspec.json.encode({"update_id": 1001, "my_chat_member": joined})),
            wrote(1002, text="/start"),
        )
        bot = await took(stage)
        await bot.calls(chat_id=5, text="Welcome")
        await bot.die()
        assert await Bot(stage).poll() == [1001]

    play(story)


# ---- several pollers ----


def test_two_pollers_that_take_turns_are_handed_nothing_twice() -> None:
    async def story(stage: Stage) -> None:
        one, other = Bot(stage), Bot(stage)
        await come(stage, 1)
        got = await one.poll()
        await one.park()
        await other.park()  # sends the first away
        with pytest.raises(Conflict):
            await one.got()
        for number in range(1002, 1012):
            await come(stage, 1, first=number)
            mine, theirs = (other, one) if number % 2 == 0 else (one, other)
            got += await mine.got()
            await mine.park()
            await theirs.park()
            with pytest.raises(Conflict):
                await mine.got()
        assert sorted(got) == list(range(1001, 1012))

    play(story)


def test_in_a_rolling_deploy_the_old_one_keeps_its_own_until_it_has_gone_silent() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        old = await took(stage)
        new = Bot(stage)
        await new.park()
        with pytest.raises(Conflict):
            await old.got()
        await come(stage, 1, first=1003)
        assert await new.got() == [1003], "the old one may still be at work on the others"
        await old.calls(chat_id=5, text="x", reply_to_message_id=1001)
        await new.park()
        await asyncio.sleep(11.0)  # the old one is gone
        assert await new.got() == [1002]
        await new.poll()
        await new.calls(chat_id=5, text="x", reply_to_message_id=1002)
        await new.calls(chat_id=5, text="x", reply_to_message_id=1003)
        assert await watermark(stage) == 1003

    play(story)


def test_a_poll_that_is_asked_again_is_the_same_poller() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        bot = await took(stage)
        for _ in range(5):  # a network that cuts connections
            await bot.die()
            bot._hung_up.clear()
            await bot.park()
        await come(stage, 1, first=1003)
        assert await bot.got() == [1003]
        assert not stage.events_of(HandedAgain)

    play(story)


# ---- deaths in a row ----


def test_an_update_that_was_alone_in_hand_at_three_deaths_in_a_row_is_given_up() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        await (await took(stage)).die()
        for _ in range(3):
            bot = Bot(stage)
            assert await bot.poll() == [1001]
            await bot.park()
            await bot.die()
        bot = Bot(stage)
        assert await bot.poll() == [1002], "the others go on"
        assert (await states(stage))[1001] is State.FAILED
        [view] = await stage.peik.inbox.service.arrivals(
            ArrivalFilter(bot_id=BOT, consumer="default", state=State.FAILED), before=None, limit=10
        )
        [delivery] = view.deliveries
        assert delivery.failed_reason == "its poller died 3 times in a row with only this update in hand"
        assert [line["outcome"] for line in json.loads(delivery.history or "")] == ["handed again"] * 3 + [
            "poller died"
        ]

    play(story)


def test_a_store_that_fails_when_an_update_is_given_up_loses_nothing() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1)
        for _ in range(3):
            bot = await took(stage)
            await bot.die()
        refusing = stage.peik.store.inbox.settle_arrivals

        async def full(*arguments: Any, **more: Any) -> Any:
            raise StoreUnavailable(code="store_full", detail="The disk is full.")

        stage.peik.store.inbox.settle_arrivals = full  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await Bot(stage).poll()
        stage.peik.store.inbox.settle_arrivals = refusing  # type: ignore[method-assign]
        assert await Bot(stage).poll() == [1001]

    play(story)


def test_one_that_was_survived_is_never_given_up() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1)
        for number in range(1001, 1011):
            bot = await took(stage)
            await bot.calls(chat_id=5, text="x")
            await come(stage, 1, first=number + 1)
            assert await bot.got() == [number + 1]
            await bot.park()
            await bot.die()
        assert State.FAILED not in (await states(stage)).values()

    play(story)


def test_a_program_that_asks_now_and_then_without_waiting_is_held_up_by_nothing_and_believed_in_the_end() -> None:
    async def story(stage: Stage) -> None:
        seen = []
        for run in range(5):
            await come(stage, 2, first=FIRST + 2 * run)
            program = Bot(stage)
            seen.append(await program.poll(timeout_s=0))
            await program.poll(timeout_s=0)  # with its offset: it is done
            await asyncio.sleep(600.0)
        assert seen == [[*range(max(FIRST, FIRST + 2 * run - 4), FIRST + 2 * run + 2)] for run in range(5)]
        assert State.FAILED not in (await states(stage)).values()
        assert await watermark(stage) == FIRST + 3

    play(story)


def test_a_slow_poison_is_found_as_well() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 5)
        await (await took(stage)).die()
        for _ in range(10):
            bot = Bot(stage)
            await bot.poll()
            await bot.park()
            await asyncio.sleep(3.0)  # it dies of the first one, seconds later
            if bot.parked is not None and bot.parked.done():
                bot._took(await bot.parked)
                await bot.park()
            if (await states(stage))[1001] is State.FAILED:
                break
            await bot.die()
        assert [state for state in (await states(stage)).values() if state is State.FAILED] == [State.FAILED]

    play(story)


# ---- several nodes ----


@pytest.mark.parametrize("first", [0, 1])
def test_behind_a_balancer_nothing_is_lost_nor_handed_twice_to_one_that_lives(first: int) -> None:
    async def story(stage: Stage) -> None:
        async with asyncio.TaskGroup() as group:
            other = InboxService(
                store=stage.peik.store.inbox, clock=stage.clock, events=Events(), missed_after_s=3600.0,
                redelivery_s=lambda _: WINDOW_S,
            )  # fmt: skip
            other.open(group)
            nodes = cycle([stage.peik.inbox.service, other])
            bot = Bot(stage)
            got: list[int] = []
            for number in range(FIRST, FIRST + 12):
                await arrive(stage, wrote(number, chat=number))
                bot.through(next(nodes))
                got += await bot.poll()
                bot.through(next(nodes))
                if number % 2:
                    await bot.calls(chat_id=number, text="x")
            bot.through(next(nodes))
            got += await bot.poll()
            assert got == list(range(FIRST, FIRST + 12)), "once each"
            for _ in range(first):
                next(nodes)
            anew, again = Bot(stage), []
            for _ in range(60):
                anew.through(next(nodes))
                again += await anew.poll()
                await asyncio.sleep(0.5)
            assert set(again) >= {number for number in got if number % 2 == 0}, "it died with these in hand"
            await asyncio.sleep(WINDOW_S)
            for _ in range(4):
                anew.through(next(nodes))
                assert await anew.poll() == []
                await asyncio.sleep(WINDOW_S)
            assert await watermark(stage) == got[-1]
            await other.close()

    play(story)


# ---- Peik ends, and begins anew ----


def test_what_is_in_hand_outlives_peik() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await come(stage, 3)
            bot = await took(stage)
            await bot.calls(chat_id=5, text="x", reply_to_message_id=1002)
            bot.parked.cancel()  # type: ignore[union-attr]
        async with stage.open():
            going_on = Bot(stage)
            going_on.offset = bot.offset
            assert await going_on.poll() == [], "a poller that goes on is given nothing twice"
            await going_on.park()
            await going_on.calls(chat_id=5, text="x", reply_to_message_id=1001)
            assert await watermark(stage) == 1002
            await going_on.die()
        async with stage.open():
            assert await Bot(stage).poll() == [1003]

    play_closed(story)


def test_what_is_in_hand_is_active_and_neither_old_nor_pending() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        bot = Bot(stage)
        await bot.poll(limit=2)
        await come(stage, 1, first=1004)
        await bot.poll(limit=1)
        await bot.calls(chat_id=5, text="x", reply_to_message_id=1002)
        assert await states(stage) == {
            1001: State.ACTIVE,
            1002: State.COMPLETED,
            1003: State.WAITING,
            1004: State.WAITING,
        }
        [tally] = await stage.peik.inbox.service.tallies(BOT)
        assert (tally.open, tally.handed) == (3, 1)

    play(story)


def test_what_a_poller_that_is_gone_had_in_hand_waits_and_grows_old() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        bot = await took(stage)
        [tally] = await stage.peik.inbox.service.tallies(BOT)
        assert (tally.open, tally.handed, tally.oldest_open_at_ms) == (2, 2, None)
        await bot.die()
        [tally] = await stage.peik.inbox.service.tallies(BOT)
        assert (tally.open, tally.handed) == (2, 0)
        assert tally.oldest_open_at_ms is not None
        assert set((await states(stage)).values()) == {State.WAITING}

    play(story)


def test_a_webhook_gets_what_a_poller_had_in_hand() -> None:
    async def story(stage: Stage) -> None:
        stage.pusher = bots = Bots(stage.clock, ok)
        async with stage.open():
            await come(stage, 2)
            bot = await took(stage)
            await bot.calls(chat_id=5, text="x", reply_to_message_id=1001)
            await stage.peik.inbox.service.set_consumer(BOT, "default", url="http://127.0.0.1:9000/hook")
            with pytest.raises(Conflict):
                await bot.got()
            await all_over(stage)
            assert [push.update["update_id"] for push in bots.got] == [1002]

    play_closed(story)


def test_a_consumer_that_is_removed_takes_what_it_had_in_hand_with_it() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        bot = await took(stage, "reports")
        consumer = await stage.peik.inbox.service.consumer(BOT, "reports")
        await stage.peik.store.inbox.remove_consumer(consumer.id)  # as another node does
        await bot.calls(chat_id=5, text="x")
        await bot.calls(chat_id=5, text="x")
        await bot.die()
        assert await Bot(stage, "reports").poll() == [1001, 1002], "made anew, it begins with the oldest"

    play(story)


def test_types_that_nobody_wants_are_over_with_what_stands_around_them() -> None:
    async def story(stage: Stage) -> None:
        kinds = ("message", "chat_member", "message", "chat_member")
        await arrive(stage, *(message(FIRST + at, kind=kind) for at, kind in enumerate(kinds)))
        bot = Bot(stage)
        assert await bot.poll() == [1001, 1003]
        assert await bot.poll() == []
        await bot.calls(chat_id=5, text="x")
        await bot.calls(chat_id=5, text="x")
        assert await watermark(stage) == 1004

    play(story)


def test_polling_costs_no_commit_of_its_own() -> None:
    async def story(stage: Stage) -> None:
        settled: list[Any] = []
        store = stage.peik.store.inbox
        settle = store.settle_arrivals

        async def counted(*arguments: Any, **more: Any) -> Any:
            settled.append(more)
            return await settle(*arguments, **more)

        store.settle_arrivals = counted  # type: ignore[method-assign]
        bot = Bot(stage)
        for number in range(FIRST, FIRST + 50):
            await come(stage, 1, first=number)
            assert await bot.poll() == [number]
        assert not settled
        await asyncio.sleep(WINDOW_S)
        await bot.poll()
        await asyncio.sleep(SETTLE_S * 2)
        assert len(settled) == 1
        assert await watermark(stage) == FIRST + 48, "the last one was confirmed just now"

    play(story)
