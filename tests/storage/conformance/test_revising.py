"""A letter that was never tried takes other parameters where it stands; whoever has it as it was cannot send that any more."""

import asyncio

import msgspec
import pytest

from peik.core.outcome import Limited, Uncertain, Unsent
from peik.errors import Conflict, NotFound
from tests.storage.acts import NOW, SENT, accept, attempt, draft, find, front, mark, state
from tests.storage.conformance.test_people_more import Engine, order
from tests.storage.places import Place

CHANGED = '{"chat_id":1,"text":"changed"}'


async def test_a_revised_letter_keeps_its_place_and_is_not_marked_as_it_was(place: Place) -> None:
    async with place.open() as store:
        engine = Engine(store)
        first, second = await accept(store, draft(1), draft(1))
        as_read = await find(store, first)
        await store.revise(first, params=CHANGED, seen=0, at_ms=NOW)
        assert engine.stands == [first]
        assert await order(store) == [first, second]
        assert await mark(store, as_read) == [], "the old text would go out after the edit was answered"
        anew = await find(store, first)
        assert (anew.params, anew.tries_made) == (CHANGED, 0)
        await attempt(store, anew, SENT)
        view = await store.letter(first)
        assert view is not None
        assert (view.state, view.params, view.attempts_made) == ("completed", CHANGED, 1)
        assert "changed it before" in (view.history or "")


async def test_of_two_who_change_a_letter_at_once_the_second_looks_again(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        both = [store.revise(letter_id, params=CHANGED, seen=0, at_ms=NOW) for _ in range(2)]
        ended = await asyncio.gather(*both, return_exceptions=True)
        (refused,) = [one for one in ended if one is not None]
        assert isinstance(refused, Conflict)
        assert refused.code == "changed"
        await store.revise(letter_id, params='{"chat_id":1,"text":"again"}', seen=-1, at_ms=NOW)
        assert '"again"' in (await find(store, letter_id)).params


async def test_a_revised_letter_goes_on_through_tries_that_did_not_arrive(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        await store.revise(letter_id, params=CHANGED, seen=0, at_ms=NOW)
        for outcome in (Unsent(why="dark"), Limited(retry_after_s=1.0)):
            await attempt(store, await find(store, letter_id), outcome)
        await store.revise(letter_id, params=CHANGED, seen=-1, at_ms=NOW)
        await attempt(store, await find(store, letter_id), SENT)
        assert await state(store, letter_id) == "completed"


async def test_a_parked_letter_is_revised_where_it_stands(place: Place) -> None:
    async with place.open() as store:
        (other,) = await accept(store, draft(1))
        (parked,) = await accept(store, draft(2, awaits=other))
        await store.park(await find(store, parked))
        await store.revise(parked, params=CHANGED, seen=0, at_ms=NOW)
        await attempt(store, await find(store, other), SENT)
        assert [(one.id, one.params) for one in await front(store, 2)] == [(parked, CHANGED)]


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_what_was_tried_or_is_in_flight_or_over_is_neither_revised_nor_taken_back(
    place: Place, is_cancelled: bool
) -> None:
    async with place.open() as store:
        flying, doubtful, ended = await accept(store, draft(1), draft(2), draft(3))
        await mark(store, await find(store, flying))
        await attempt(store, await find(store, doubtful), Uncertain(why="reset", code=0))
        await attempt(store, await find(store, ended), SENT)
        for letter_id, code in ((flying, "in_flight"), (doubtful, "tried"), (ended, "already_ended")):
            act = (
                store.cancel(letter_id, at_ms=NOW, is_untried=True)
                if is_cancelled
                else store.revise(letter_id, params=CHANGED, seen=0, at_ms=NOW)
            )
            with pytest.raises(Conflict) as refused:
                await act
            assert refused.value.code == code
        with pytest.raises(NotFound):
            await store.revise(99_999, params=CHANGED, seen=0, at_ms=NOW)


async def test_a_letter_that_waits_for_several_is_parked_for_each_in_turn(place: Place) -> None:
    async with place.open() as store:
        first, second = await accept(store, draft(1), draft(3))
        (waiting,) = await accept(store, draft(2, awaits=second))
        await store.park(await find(store, waiting))
        await attempt(store, await find(store, second), SENT)
        (again,) = await front(store, 2)
        await store.park(msgspec.structs.replace(again, awaits=first))
        assert await front(store, 2) == []
        await attempt(store, await find(store, first), SENT)
        assert [one.id for one in await front(store, 2)] == [waiting]
