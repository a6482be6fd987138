"""A sender, its lease and its marks, in virtual time: what leaves too late does not leave, and what was lost is found."""

import asyncio
from collections.abc import Callable
from typing import Any

from peik.core.letter import State
from peik.errors import InDoubt
from peik.outbox.store import Marked
from tests.outbox.story import BOT, Stage, play_closed

LATE_S = 5.0


def slowed(stage: Stage) -> None:
    """From now on the store tells of a step some seconds after it is stored."""
    advance = stage.peik.store.advance
    loop = asyncio.get_running_loop()

    def late(*step: Any, done: Callable[[Marked], None], **terms: Any) -> None:
        advance(*step, done=lambda marked: loop.call_later(LATE_S, done, marked), **terms)

    stage.peik.store.advance = late  # type: ignore[method-assign]


def test_what_was_marked_in_time_does_not_leave_after_the_leases_end() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            lease = stage.peik.outbox.leases.of(BOT)
            assert lease is not None
            slowed(stage)
            letter_id = await stage.text(1, "hello")
            await asyncio.sleep(1.0)
            lease.ends_at = stage.clock.mono() + 1.0  # over before the store has answered
            await asyncio.sleep(3 * LATE_S)
            assert stage.texts(1) == []
            lease.ends_at = stage.clock.mono() + 3600.0
            stage.peik.outbox.courier.wake_all()
            view = await stage.ended(letter_id)
            assert (view.state, view.uncertain_tries) == (State.COMPLETED, 0)  # it never left, and that is known
            assert stage.texts(1) == ["hello"]

    play_closed(story)


def test_nothing_is_marked_after_the_leases_end_and_what_came_back_is_settled_still() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            lease = stage.peik.outbox.leases.of(BOT)
            assert lease is not None
            first = await stage.text(1, "before")
            assert (await stage.ended(first)).state is State.COMPLETED
            lease.ends_at = stage.clock.mono()
            second = await stage.text(1, "after")
            await asyncio.sleep(3600)
            assert (await stage.letter(second)).state is State.WAITING
            assert stage.texts(1) == ["before"]

    play_closed(story)


def test_a_mark_whose_answer_was_lost_is_taken_back_and_its_lane_goes_on_in_order() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            advance = stage.peik.store.advance

            def lost(settlements: Any, marks: Any, *, done: Callable[[Marked], None], **terms: Any) -> None:
                error = InDoubt(code="store_gone", detail="the answer was lost")
                if marks:
                    stage.peik.store.advance = advance  # type: ignore[method-assign]  once
                    advance(settlements, marks, done=lambda marked: done(Marked(error=error)), **terms)
                else:
                    advance(settlements, marks, done=done, **terms)

            stage.peik.store.advance = lost  # type: ignore[method-assign]
            ids = [await stage.text(1, f"n{number}") for number in range(3)]
            for letter_id in ids:
                view = await stage.ended(letter_id)
                assert (view.state, view.uncertain_tries) == (State.COMPLETED, 0)
            assert stage.texts(1) == ["n0", "n1", "n2"]

    play_closed(story)


def test_a_lost_mark_is_taken_back_although_the_store_refuses_that_at_first() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            advance, errors = stage.peik.store.advance, ["mark", "take back"]

            def failing(settlements: Any, marks: Any, *, done: Callable[[Marked], None], **terms: Any) -> None:
                error = InDoubt(code="store_gone", detail="the answer was lost")
                if errors[:1] == ["mark"] and marks:
                    errors.pop(0)
                    advance(settlements, marks, done=lambda marked: done(Marked(error=error)), **terms)
                elif errors[:1] == ["take back"] and settlements and not marks:
                    errors.pop(0)
                    asyncio.get_running_loop().call_soon(done, Marked(error=error))
                else:
                    advance(settlements, marks, done=done, **terms)

            stage.peik.store.advance = failing  # type: ignore[method-assign]
            ids = [await stage.text(1, f"n{number}") for number in range(3)]
            for letter_id in ids:
                assert (await stage.ended(letter_id, 60.0)).uncertain_tries == 0
            assert (stage.texts(1), errors) == (["n0", "n1", "n2"], [])

    play_closed(story)
