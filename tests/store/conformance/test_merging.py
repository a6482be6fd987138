"""A waiting edit gives way to a newer one of the same target; what refers to it follows."""

import asyncio

from peik.ports import Stub, Tally
from tests.store.acts import NOW, SENT, accept, attempt, draft, edit, enclosed, find, front, mark, state, tally
from tests.store.places import OTHER_BOT, Place


async def test_a_newer_edit_takes_the_place_of_the_waiting_one(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        others = await accept(store, edit(target="m6"), edit(bot_id=OTHER_BOT), draft())
        (new,) = await accept(store, edit(text="newer"))
        view = await store.letter(old)
        assert view is not None
        assert (str(view.state), view.merged_into, view.settled_at_ms) == ("completed", new, NOW)
        assert [one.id for one in await front(store)] == [others[0], others[2], new]
        assert await tally(store) == Tally(waiting=3, completed=1)
    assert place.heard.removed == [Stub(letter_id=old, bot_id=7, lane=(1, 0), into=new)]


async def test_an_edit_in_flight_is_left_alone(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        await mark(store, await find(store, old))
        (new,) = await accept(store, edit())
        assert (await state(store, old), await state(store, new)) == ("active", "waiting")
    assert place.heard.removed == []


async def test_of_many_edits_in_one_commit_only_the_last_is_offered(place: Place) -> None:
    async with place.open() as store:
        batch, alone, last = await asyncio.gather(
            accept(store, edit(), edit()), accept(store, edit()), accept(store, edit())
        )
        assert [one.id for one in await front(store)] == last
        assert [await state(store, one) for one in batch + alone] == ["completed"] * 3
        assert await tally(store) == Tally(waiting=1, completed=3)
    assert [one.id for one in place.heard.accepted] == last


async def test_the_files_of_a_merged_edit_are_freed(place: Place) -> None:
    async with place.open() as store:
        await accept(store, edit(enclosed=(enclosed("old"),)))
        await accept(store, edit(enclosed=(enclosed("new"),)))
        assert await store.blobs() == {"new"}
    assert place.freed == ["old"]


async def test_what_refers_to_a_merged_edit_waits_for_the_newer_one(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        early, late = await accept(store, draft(2, awaits=old), draft(3, awaits=old))
        await store.park(await find(store, early))
        (new,) = await accept(store, edit())
        await store.park(await find(store, late))
        assert await tally(store) == Tally(waiting=1, delayed=2, completed=1)
        await attempt(store, await find(store, new), SENT)
        assert [one.letter_id for one in place.heard.joined] == [early, late]
        assert await tally(store) == Tally(waiting=2, completed=2)
        assert (await find(store, early)).awaits == new


async def test_an_edit_that_refers_to_another_does_not_replace_it(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (new,) = await accept(store, edit(awaits=old))
        assert [one.id for one in await front(store)] == [old, new]


async def test_a_scheduled_edit_replaces_nothing_before_its_time(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (later,) = await accept(store, edit(send_at_ms=NOW + 5))
        (new,) = await accept(store, edit())
        assert [await state(store, one) for one in (old, later, new)] == ["completed", "delayed", "waiting"]
