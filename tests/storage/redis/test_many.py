"""Work that is cut into steps so that the server's other clients never wait long: every step adds up to the whole."""

import asyncio

from peik.storage.redis import store as module
from tests.storage.acts import accept, draft, front, tally
from tests.storage.inbox_acts import DAY, KEEP, NOW, messages, open_inbox, take
from tests.storage.places import BOT
from tests.storage.redis_place import RedisPlace


async def test_a_long_lane_moves_to_another_chat_in_several_steps(place: RedisPlace) -> None:
    many = 2 * module._MOVED_AT_ONCE + 7
    async with place.open() as store:
        ids = await accept(store, *(draft(-5) for _ in range(many)))
        (between,) = await accept(store, draft(-500))
        await store.readdress(BOT, -5, -500)
        assert [one.id for one in await front(store, -500, letters=many + 1)] == [*ids, between]
        assert await front(store, -5) == []
        assert (await tally(store)).waiting == many + 1


async def test_more_letters_at_once_than_one_commit_takes_are_all_there(place: RedisPlace) -> None:
    async with place.open() as store:
        await asyncio.gather(*(accept(store, *(draft(who) for _ in range(100))) for who in range(35)))
        assert [one.number for one in place.heard.accepted] == list(range(1, 3501))


async def test_a_removed_bots_many_arrivals_go_in_several_steps(place: RedisPlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        for start in range(1, 2500, 500):
            await take(store.inbox, *messages(500, first=start))
        await store.remove_bot(BOT)
        assert await store.inbox.last_arrival_id() == 0


async def test_what_a_removal_left_that_was_cut_short_goes_with_the_next_upkeep(place: RedisPlace) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await take(store.inbox, *messages(50, first=1))
        await store._write("remove_bot", str(BOT))  # and the process died
        assert await store.inbox.last_arrival_id() == 50
        await store.inbox.clean_arrivals(KEEP, at_ms=NOW + DAY, limit=10)
        assert await store.inbox.last_arrival_id() == 0
