"""A chat gets another key: what waits for the old one waits for the new one, in order, and so does what comes later."""

import asyncio

from tests.storage.acts import NOW, SENT, accept, all_lanes, attempt, draft, find, front, left_in_flight, mark
from tests.storage.places import BOT, OTHER_BOT, Place


async def test_both_lanes_become_one_in_the_order_of_acceptance(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, draft("@a"), draft(500), draft("@a", rank=0), draft("@a", thread=3), draft(500))
        (theirs,) = await accept(store, draft("@a", bot_id=OTHER_BOT))
        await store.readdress(BOT, "@a", 500)
        assert [one.id for one in await front(store, 500)] == [ids[2], ids[0], ids[1], ids[4]]
        assert [one.is_moved for one in await front(store, 500)] == [True, True, False, False]
        assert [one.id for one in await front(store, 500, 3)] == [ids[3]]
        assert await front(store, "@a") == []
        assert (await find(store, theirs)).chat == "@a"


async def test_later_letters_to_the_old_key_go_to_the_new_lane(place: Place) -> None:
    async with place.open() as store:
        await store.readdress(BOT, -5, -500)
        async with place.open(is_owner=False) as other:  # it does not know, and need not
            first, second = await accept(other, draft(-5), draft(-500))
        assert [(one.id, one.chat, one.is_moved) for one in await front(store, -500)] == [
            (first, -500, True),
            (second, -500, False),
        ]
    assert [one.chat for one in place.heard.accepted] == [-500, -500]


async def test_a_letter_and_a_move_in_one_commit_end_in_the_new_lane(place: Place) -> None:
    async with place.open() as store:
        (before,), _, (after,) = await asyncio.gather(
            accept(store, draft(-5)), store.readdress(BOT, -5, -500), accept(store, draft(-5))
        )
        assert await all_lanes(store) == {(-500, 0): [before, after]}


async def test_scheduled_and_parked_letters_follow_when_they_join(place: Place) -> None:
    async with place.open() as store:
        (other,) = await accept(store, draft(1))
        scheduled, parked = await accept(store, draft("@a", send_at_ms=NOW + 5), draft("@a", awaits=other))
        await store.park(await find(store, parked))
        await store.readdress(BOT, "@a", 5)
        await store.readdress(BOT, 5, -1005)  # and the group became a supergroup
        await attempt(store, await find(store, other), SENT)
        await store.join_due(at_ms=NOW + 5, limit=5)
        assert [(one.id, one.is_moved) for one in await front(store, -1005)] == [(parked, True), (scheduled, True)]
    assert [stub.lane for stub in place.heard.joined] == [(-1005, 0)]


async def test_a_chat_that_moves_back_is_no_circle(place: Place) -> None:
    async with place.open() as store:
        await store.readdress(BOT, 5, 6)
        await store.readdress(BOT, 6, 5)
        (letter_id,) = await accept(store, draft(6))
        assert [one.id for one in await front(store, 5)] == [letter_id]
        assert {one.chat: one.same_as for one in await store.chats(BOT)} == {6: 5}


async def test_a_letter_in_flight_during_the_move_is_settled_as_any_other(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(5))
        letter = await find(store, letter_id)
        await mark(store, letter)
        await store.readdress(BOT, 5, 6)
        await place.crash(store)
    async with place.open() as store:
        (left,) = await left_in_flight(store)
        assert (left.id, left.chat) == (letter_id, 6)
