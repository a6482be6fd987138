"""Letters that refer to others stand apart without blocking their lane, and come back to their old place."""

import asyncio

import pytest

from peik.core.outcome import Outcome
from peik.outbox.store import Stub, Tally
from tests.storage.acts import (
    LATER,
    NEVER,
    NOW,
    SENT,
    accept,
    attempt,
    conclude,
    draft,
    find,
    front,
    mark,
    state,
    tally,
)
from tests.storage.places import Place


@pytest.mark.parametrize("outcome", [SENT, NEVER])
async def test_a_parked_letter_comes_back_to_its_place_when_the_other_has_ended(place: Place, outcome: Outcome) -> None:
    async with place.open() as store:
        (other,) = await accept(store, draft(1))
        parked, behind = await accept(store, draft(2, awaits=other), draft(2))
        await store.park(await find(store, parked))
        assert [one.id for one in await front(store, 2)] == [behind]
        assert await tally(store) == Tally(waiting=2, delayed=1)
        await attempt(store, await find(store, other), LATER)
        assert await state(store, parked) == "delayed"
        await attempt(store, await find(store, other), outcome)
        assert [one.id for one in await front(store, 2)] == [parked, behind]
        assert (await tally(store)).waiting == 2
    assert place.heard.joined == [Stub(letter_id=parked, bot_id=7, lane=(2, 0))]


async def test_a_letter_is_not_parked_for_one_that_has_ended(place: Place) -> None:
    async with place.open() as store:
        (other,) = await accept(store, draft(1))
        (waiting,) = await accept(store, draft(2, awaits=other))
        await attempt(store, await find(store, other), SENT)
        await store.park(await find(store, waiting))
        assert [one.id for one in await front(store, 2)] == [waiting]
        assert await tally(store) == Tally(waiting=1, completed=1)


async def test_a_letter_in_flight_is_not_parked(place: Place) -> None:
    async with place.open() as store:
        (other,) = await accept(store, draft(1))
        (flying,) = await accept(store, draft(2, awaits=other))
        letter = await find(store, flying)
        await mark(store, letter)
        await store.park(letter)
        assert await tally(store) == Tally(waiting=1, active=1)


async def test_parking_and_the_others_end_in_one_commit_leave_nobody_behind(place: Place) -> None:
    async with place.open() as store:
        (other,) = await accept(store, draft(1))
        (waiting,) = await accept(store, draft(2, awaits=other))
        letter, first = await find(store, waiting), await find(store, other)
        await mark(store, first)
        await asyncio.gather(store.park(letter), conclude(store, first, SENT))
        assert await state(store, waiting) == "waiting"
        assert await tally(store) == Tally(waiting=1, completed=1)


async def test_a_scheduled_letter_does_not_come_early_because_the_other_has_ended(place: Place) -> None:
    async with place.open() as store:
        (other,) = await accept(store, draft(1))
        (later,) = await accept(store, draft(2, awaits=other, send_at_ms=NOW + 10))
        await attempt(store, await find(store, other), SENT)
        assert await front(store, 2) == []
        assert await store.join_due(at_ms=NOW + 10, limit=5) == (1, None)
        assert [(one.id, one.due_at_ms) for one in await front(store, 2)] == [(later, 0)]


async def test_an_expired_letter_lets_go_of_those_that_refer_to_it(place: Place) -> None:
    async with place.open() as store:
        late, flying = await accept(store, draft(1, expires_at_ms=NOW + 1), draft(3, expires_at_ms=NOW + 1))
        ids = await accept(store, draft(2, awaits=late), draft(4, awaits=flying))
        for letter_id in ids:
            await store.park(await find(store, letter_id))
        await mark(store, await find(store, flying))
        await store.expire(at_ms=NOW + 1, limit=5)
        assert [await state(store, one) for one in ids] == ["waiting", "delayed"]
