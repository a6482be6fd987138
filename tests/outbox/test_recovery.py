"""What the next Peik takes up, and a store that says no in the middle of it: everything goes on, in time, and only once."""

import asyncio

import msgspec
import pytest

from peik.core import events
from peik.core.letter import State
from peik.core.pace import PaceLimits
from tests.outbox.receivers import HANGS, Receivers
from tests.outbox.story import BOT, Stage, play, play_closed
from tests.outbox.test_neighbours import neighbour, text
from tests.outbox.test_stories import edit, enclose

GROUP = -1_001_234_567_890
SOON_S = 10.0  # a store that fails is asked again within a few seconds


# ---- taking up ----


def test_a_bot_that_is_held_goes_on_after_a_restart_when_telegram_said() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=100, count=2)
        async with stage.open():
            await stage.text(5, "a")
            await stage.text(6, "b")
            await asyncio.sleep(2)
            assert [event.chat for event in stage.events_of(events.Held)] == [5, None]
        async with stage.open():
            begun = stage.clock.mono()
            await stage.ended(await stage.text(7, "c"))
            assert 90 < stage.clock.mono() - begun < 100
            await stage.quiet()

    play_closed(story)


def test_what_was_in_flight_at_a_crash_counts_in_its_groups_minute() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            for number in range(19):
                await stage.text(GROUP, f"n{number}")
            await stage.quiet()
            stage.telegram.faults.add("hang", after=True, count=1)
            await stage.text(GROUP, "n19")
            await asyncio.sleep(2)
            await stage.text(GROUP, "n20")
        assert len(stage.texts(GROUP)) == 20
        async with stage.open():
            await asyncio.sleep(15)
            assert len(stage.texts(GROUP)) == 20
            await stage.quiet()
        assert stage.telegram.counters.limited == 0
        assert stage.texts(GROUP) == [*(f"n{number}" for number in range(20)), "n19", "n20"]

    play_closed(story, grace="1s")


@pytest.mark.parametrize("method", ["chats", "bot_held_until", "recent_tries", "left_in_flight", "advance"])
def test_whatever_the_store_refuses_while_a_sender_begins_is_taken_up_a_moment_later(method: str) -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=3000, chat=5, count=1)
        async with stage.open():
            held = await stage.text(5, "held")
            await asyncio.sleep(2)
            stage.telegram.faults.add("hang", after=True, count=1)
            doubtful = await stage.text(6, "again")
            await asyncio.sleep(2)
        stage.refuse(method, 3)
        async with stage.open():
            begun = stage.clock.mono()
            again = await stage.ended(doubtful, SOON_S)
            assert (again.state, again.uncertain_tries) == (State.COMPLETED, 1)
            await stage.ended(held)
            assert stage.clock.mono() - begun > 2900
        assert (stage.texts(6), stage.texts(5)) == (["again", "again"], ["held"])
        assert [event.count for event in stage.events_of(events.Recovered)] == [1]
        assert stage.refusals[method] == 0

    play_closed(story, grace="1s")


def test_sends_that_a_clock_which_was_put_back_shows_in_the_future_hold_no_chat() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            for number in range(3):
                await stage.text(5, f"n{number}")
            await stage.quiet()
        stage.clock.wall_offset_s -= 3600
        async with stage.open():
            await stage.ended(await stage.text(5, "n3"), SOON_S)

    play_closed(story)


# ---- reading lanes ----


def test_a_lane_whose_front_could_not_be_read_is_read_again() -> None:
    async def story(stage: Stage) -> None:
        stage.refuse("fronts", 2)
        async with stage.open():
            for number in range(80):
                await stage.text(5, f"n{number}")
            await stage.quiet(3600)
        assert stage.texts(5) == [f"n{number}" for number in range(80)]
        assert stage.refusals["fronts"] == 0

    play_closed(story, pace="off")


def test_lanes_that_could_not_be_looked_for_are_looked_for_again() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.dark(True)
        async with stage.open():
            for chat in range(5, 10):
                await stage.text(chat, "before")
        stage.telegram.dark(False)
        stage.refuse("sweep", 2)
        async with stage.open():
            await stage.quiet(2 * SOON_S)
        assert [stage.texts(chat) for chat in range(5, 10)] == [["before"]] * 5
        assert stage.refusals["sweep"] == 0

    play_closed(story)


def test_a_letter_whose_reference_or_file_could_not_be_looked_up_is_sent_a_moment_later() -> None:
    async def story(stage: Stage) -> None:
        stage.refuse("file_id", 0)
        stage.refuse("letter", 0)
        async with stage.open():
            first = await stage.text(5, "draft")
            message = msgspec.json.decode((await stage.ended(first)).result or "")["message_id"]
            refers = await stage.accept("editMessageText", params=edit({"letter": str(first)}, "final"))
            stage.refuse("letter")  # it was accepted, and the sender asks next
            await asyncio.sleep(SOON_S)
            assert (await stage.letter(refers)).state is State.COMPLETED
            assert stage.telegram.message(BOT, 5, message)["text"] == "final"
            stage.refuse("file_id")
            file = await enclose(stage.peik.spool, b"report", "document")
            sent = await stage.accept("sendDocument", params={"chat_id": 6}, enclosed=(file,))
            assert (await stage.ended(sent, SOON_S)).state is State.COMPLETED
        assert not +stage.refusals

    play_closed(story)


# ---- time ----


@pytest.mark.parametrize("method", ["join_due", "expire"])
def test_a_look_at_the_clock_that_failed_is_made_again_soon(method: str) -> None:
    async def story(stage: Stage) -> None:
        stage.refuse(method, 0)
        async with stage.open():
            due = await stage.text(5, "in time", send_at_ms=stage.clock.wall_ms() + 20_000)
            await stage.peik.outbox.service.change_bot(BOT, paused="by hand")
            late = await stage.text(6, "late", expires_at_ms=stage.clock.wall_ms() + 20_000)
            await asyncio.sleep(19)
            stage.refuse(method)
            await asyncio.sleep(SOON_S)
            assert stage.refusals[method] == 0
            assert (await stage.letter(due)).state is State.WAITING
            assert (await stage.letter(late)).failed_reason == "expired"

    play_closed(story)


# ---- telling ----


@pytest.mark.parametrize("method", ["hooks_due", "hook_content", "settle_hooks"])
def test_a_webhook_is_told_once_and_soon_whatever_the_store_refuses_meanwhile(method: str) -> None:
    async def story(stage: Stage) -> None:
        stage.poster = receivers = Receivers(stage.clock, lambda heard: 200)
        stage.refuse(method, 0)
        async with stage.open():
            await asyncio.sleep(1)
            stage.refuse(method, 2)
            letter_id = await stage.text(5, "hello", hook="https://shop.example/hook")
            await stage.ended(letter_id)
            await asyncio.sleep(SOON_S)
            assert [one.letter_id for one in receivers.heard] == [letter_id]
            await asyncio.sleep(86_400)
            assert len(receivers.heard) == len(stage.events_of(events.HookTold)) == 1
        assert stage.refusals[method] == 0

    play_closed(story)


def test_webhooks_that_waited_here_when_the_chores_went_are_told_when_they_come_back() -> None:
    async def story(stage: Stage) -> None:
        stage.poster = receivers = Receivers(stage.clock, lambda heard: HANGS)
        async with stage.open():
            for number in range(2):
                await stage.ended(await stage.text(5 + number, "hello", hook="https://shop.example/hook"))
            await asyncio.sleep(1)
            hooks = stage.peik.outbox.hooks
            hooks.stop()
            await asyncio.sleep(1)
            receivers.answer = lambda heard: 200
            async with asyncio.TaskGroup() as group:
                hooks.start(group)
                await asyncio.sleep(60)
                assert len(stage.events_of(events.HookTold)) == 2
                hooks.stop()

    play_closed(story)


# ---- two of a thing at once ----


def test_a_chat_that_somebody_opened_by_another_process_is_open_here_too() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            words = "Forbidden: bot was blocked by the user"
            stage.telegram.faults.add("error", status=403, words=words, chat=5, count=1)
            assert (await stage.ended(await stage.text(5, "refused"))).state is State.FAILED
            await guest.outbox.service.open_chat(BOT, 5)
            await asyncio.sleep(2)
            assert (await stage.ended(await stage.text(5, "welcome"), SOON_S)).state is State.COMPLETED

    play_closed(story)


def test_a_short_hold_outlives_what_a_neighbour_writes() -> None:
    """Holds of a few seconds are not stored; what is stored of an older one must not take their place."""

    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            stage.telegram.faults.add("flood", retry_after=6, chat=5, count=1)
            await stage.ended(await stage.text(5, "first"))
            await asyncio.sleep(60)
            stage.telegram.faults.add("flood", retry_after=4, chat=5, count=1)
            held = await stage.text(5, "second")
            await asyncio.sleep(0.2)
            begun = stage.clock.mono()
            await text(guest, 6, "from a neighbour")
            await stage.ended(held)
            assert stage.clock.mono() - begun > 3
            assert (await stage.letter(held)).attempts_made == 1

    play_closed(story)


def test_other_limits_undo_no_hold_and_begin_no_minute_anew() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=600, chat=5, count=1)
        held = await stage.text(5, "held")
        for number in range(20):
            await stage.text(GROUP, f"n{number}")
        await stage.ended(await stage.text(6, "free"))
        await asyncio.sleep(25)
        begun = stage.clock.mono()
        await stage.peik.outbox.service.change_bot(BOT, limits=PaceLimits(bulk_per_s=20.0))
        await stage.text(GROUP, "n20")
        await asyncio.sleep(20)
        assert len(stage.texts(GROUP)) == 20
        await stage.ended(held)
        assert stage.clock.mono() - begun > 500
        assert stage.telegram.counters.limited == 0

    play(story)
