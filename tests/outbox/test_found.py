"""What the seeded world found in the way of a letter: each was a life that went wrong before it was a test."""

import asyncio
from typing import Any

import apsw
import pytest

from peik.core import events
from peik.core.lifecycle import Move
from peik.core.token import Token
from peik.errors import BadInput, InDoubt
from peik.outbox.store import Marked
from peik.testing import Limits, Options
from tests.outbox.story import Stage, play, play_closed

OTHER_TOKEN = "7000002:AAother"
DAY_S = 86_400.0


def test_a_repeat_under_a_key_is_answered_even_after_its_letter_has_expired() -> None:
    """The first answer was lost on the way, and the sender asks again when the time is over."""

    async def story(stage: Stage) -> None:
        until_ms = stage.clock.wall_ms() + 5_000
        first = await stage.text(5, "in time", idempotency_key="k", expires_at_ms=until_ms)
        await stage.ended(first)
        await asyncio.sleep(60)
        assert await stage.text(5, "in time", idempotency_key="k", expires_at_ms=until_ms) == first
        assert stage.texts(5) == ["in time"]

    play(story)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_letter_that_comes_too_late_is_refused_with_and_without_a_key(key: str | None) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(BadInput) as caught:
            await stage.text(5, "late", idempotency_key=key, expires_at_ms=stage.clock.wall_ms() - 1)
        assert caught.value.code == "already_expired"
        assert (await stage.peik.outbox.service.tallies())[7000001].failed == 0

    play(story)


def test_a_clock_that_was_put_back_holds_up_no_chat_after_a_restart() -> None:
    """Yesterday's sends seemed to be tomorrow's, and the chat waited for them."""

    async def story(stage: Stage) -> None:
        stage.clock.wall_offset_s = DAY_S
        async with stage.open():
            for number in range(3):
                await stage.ended(await stage.text(5, f"before {number}"))
        stage.clock.wall_offset_s = 0.0
        async with stage.open():
            await stage.ended(await stage.text(5, "after"), timeout_s=10)

    play_closed(story, options=Options(limits=Limits(on=False)))  # its clock is ours in these stories


def test_a_store_that_fails_while_a_sender_starts_is_asked_again_and_is_no_surprise() -> None:
    async def story(stage: Stage) -> None:
        def broken(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
            raise apsw.IOError("simulated")

        stage.telegram.bot(OTHER_TOKEN)
        stage.peik.store._reader.exec_trace = broken
        await stage.peik.outbox.service.save_bot(Token(OTHER_TOKEN), inbound="off")
        await asyncio.sleep(10)
        stage.peik.store._reader.exec_trace = None
        letter = await stage.accept(params={"chat_id": 5, "text": "hello"}, bot_id=7000002)
        await stage.ended(letter, timeout_s=30)
        assert stage.events_of(events.StoreFailed)
        assert not stage.events_of(events.Surprise)

    play(story)


def test_a_settlement_whose_answer_was_lost_does_not_undo_the_next_try_when_it_is_stored_again() -> None:
    """A letter was told to wait, and marked anew before the store had answered. That answer was lost; the settlement was stored
    again, over the mark of a try that was on its way by then."""

    async def story(stage: Stage) -> None:
        loop, inner = asyncio.get_running_loop(), stage.peik.store.advance
        lost: list[object] = []

        def advance(settlements: Any, marks: Any, *, done: Any, **terms: Any) -> None:
            def late(marked: Marked) -> None:
                loop.call_later(3.0, done, Marked(error=InDoubt(code="store_gone", detail="The answer was lost.")))

            if not lost and any(one.move is Move.RETURN for one in settlements):
                lost.append(settlements)
                inner(settlements, marks, done=late, **terms)
            else:
                inner(settlements, marks, done=done, **terms)

        stage.peik.store.advance = advance
        stage.telegram.faults.add("flood", retry_after=1, chat=5, count=1)
        letter = await stage.text(5, "once")
        await asyncio.sleep(0.5)
        stage.telegram.faults.add("slow", least_s=10, method="sendMessage", count=1)
        view = await stage.ended(letter, timeout_s=120)
        await asyncio.sleep(60)
        assert lost
        assert (stage.texts(5), view.uncertain_tries) == (["once"], 0)

    play(story)
