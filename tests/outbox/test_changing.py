"""What people change of letters while engines work: another priority, another time, sent now, many taken back."""

import asyncio

import pytest

from peik.core.events import Settled
from peik.core.letter import Priority, State
from peik.core.lifecycle import Move
from peik.errors import BadInput, Conflict
from peik.outbox.store import NOW, LetterFilter
from tests.outbox.story import BOT, Stage, play

CHAT = 5


async def pause(stage: Stage) -> None:
    await stage.peik.outbox.service.change_bot(BOT, paused="to look at it")


async def resume(stage: Stage) -> None:
    await stage.peik.outbox.service.change_bot(BOT, paused=None)


def test_letters_for_a_bot_that_is_paused_wake_nobody_and_go_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        await pause(stage)
        sender, turns = stage.peik.outbox.courier.senders[BOT], list[float]()
        await asyncio.sleep(5)
        turn = sender._turn
        monkeypatch.setattr(sender, "_turn", lambda now: (turns.append(now), turn(now)))
        for n in range(3):
            await stage.text(CHAT, f"{n}")
            await asyncio.sleep(1)
        assert turns == []
        await resume(stage)
        await stage.quiet()
        assert turns
        assert stage.texts(CHAT) == ["0", "1", "2"]

    play(story)


def test_a_letter_of_higher_priority_goes_first_in_the_order_of_acceptance() -> None:
    async def story(stage: Stage) -> None:
        await pause(stage)
        ids = [await stage.text(CHAT, f"{n}") for n in range(5)]
        await asyncio.sleep(5)  # the lane is in memory
        for n in (4, 2):
            await stage.peik.outbox.service.change(ids[n], priority=Priority.CRITICAL)
        await stage.peik.outbox.service.change(ids[0], priority=Priority.BULK)
        await resume(stage)
        await stage.quiet()
        assert stage.texts(CHAT) == ["2", "4", "1", "3", "0"]

    play(story)


def test_a_letter_is_put_off_and_the_rest_of_its_lane_goes_on() -> None:
    async def story(stage: Stage) -> None:
        await pause(stage)
        first, _, _ = [await stage.text(CHAT, f"{n}") for n in range(3)]
        later = stage.clock.wall_ms() + 600_000
        assert (await stage.peik.outbox.service.change(first, send_at_ms=later)).state is State.DELAYED
        await resume(stage)
        await stage.ended(first)
        assert stage.texts(CHAT) == ["1", "2", "0"]
        assert 600_000 <= stage.clock.wall_ms() - later + 600_000 < 605_000

    play(story)


def test_a_scheduled_letter_is_sent_now() -> None:
    async def story(stage: Stage) -> None:
        began = stage.clock.wall_ms()
        letter_id = await stage.text(CHAT, "soon", send_at_ms=began + 3_600_000)
        await stage.peik.outbox.service.change(letter_id, send_at_ms=NOW)
        assert (await stage.ended(letter_id)).state is State.COMPLETED
        assert stage.clock.wall_ms() - began < 60_000

    play(story)


def test_a_letter_that_backs_off_does_not_wait_for_the_end_of_it() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("lose_before", method="sendMessage", count=1)
        began = stage.clock.wall_ms()
        letter_id = await stage.text(CHAT, "again", backoff_ms=3_600_000, attempts=3)
        await asyncio.sleep(60)  # it was tried, and waits for an hour
        assert (await stage.letter(letter_id)).state is State.DELAYED
        await stage.peik.outbox.service.change(letter_id, send_at_ms=NOW)
        assert (await stage.ended(letter_id)).state is State.COMPLETED
        assert stage.clock.wall_ms() - began < 600_000

    play(story)


def test_all_letters_of_a_filter_are_taken_back_and_who_waits_for_them_hears_it() -> None:
    async def story(stage: Stage) -> None:
        await pause(stage)
        ids = [await stage.text(CHAT, f"{n}") for n in range(30)]
        ids += [await stage.text(CHAT, "later", send_at_ms=stage.clock.wall_ms() + 10_000_000)]
        other = await stage.text(CHAT + 1, "stays")
        waiter = asyncio.ensure_future(stage.ended(ids[7]))
        await asyncio.sleep(5)
        assert (await stage.peik.outbox.service.count_open(LetterFilter(chat=CHAT))).letters == 31
        assert await stage.peik.outbox.service.cancel_all(LetterFilter(chat=CHAT)) == 31
        assert (await waiter).state is State.CANCELLED
        told = [one for one in stage.events_of(Settled) if one.move is Move.CANCEL]
        assert sorted(one.letter_id for one in told) == ids
        await resume(stage)
        assert (await stage.ended(other)).state is State.COMPLETED
        assert stage.texts(CHAT) == []
        assert await stage.peik.outbox.service.cancel_all(LetterFilter(state=State.COMPLETED)) == 0

    play(story)


def test_what_makes_no_sense_is_not_changed() -> None:
    async def story(stage: Stage) -> None:
        await pause(stage)
        expires = stage.clock.wall_ms() + 60_000
        letter_id = await stage.text(CHAT, "short", expires_at_ms=expires)
        service = stage.peik.outbox.service
        for terms, code in (
            ({}, "nothing_to_change"),
            ({"priority": 7}, "bad_priority"),
            ({"send_at_ms": expires + 1}, "expires_before_sent"),
        ):
            with pytest.raises(BadInput) as refused:
                await service.change(letter_id, **terms)  # type: ignore[arg-type]
            assert refused.value.code == code
        await service.cancel(letter_id)
        with pytest.raises(Conflict):
            await service.change(letter_id, priority=1)

    play(story)
