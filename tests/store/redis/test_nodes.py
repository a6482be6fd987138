"""Several nodes on one server: one order of numbers, one owner, and each hears that others write."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from peik.errors import StartError
from peik.store.redis import RedisStore
from tests.store.acts import accept, draft, find, front, mark
from tests.store.inbox_acts import message, numbers, open_inbox, take
from tests.store.places import BOT
from tests.store.redis_place import RedisPlace

SHORT_S = 0.3


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a fact; the story's own time limit ends it if it never comes."""
    while not await is_so():  # noqa: ASYNC110  the fact is another node's
        await asyncio.sleep(0.01)


async def test_nodes_that_accept_at_once_share_one_order_without_gaps(place: RedisPlace) -> None:
    async def caller(store: RedisStore, who: int) -> list[int]:
        return [letter_id for _ in range(20) for letter_id in await accept(store, draft(who), draft(5))]

    async with place.open() as one, place.open(is_owner=False) as two, place.open(is_owner=False) as three:
        accepted = await asyncio.gather(*(caller(store, who) for who in range(5) for store in (one, two, three)))
        ids = [letter_id for some in accepted for letter_id in some]
        assert len(set(ids)) == len(ids) == 600
        assert sorted(letter.number for letter in place.heard.accepted) == list(range(1, 601))
        lane = await front(two, 5, letters=1000)
        assert [letter.number for letter in lane] == sorted(letter.number for letter in lane)
        assert len(lane) == 300


async def test_nodes_that_take_in_the_same_updates_store_each_once(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        default = await open_inbox(one.inbox)
        updates = [message(index) for index in range(1, 41)]
        taken = await asyncio.gather(*(take(store.inbox, update) for update in updates for store in (one, two)))
        assert sum(some.stored for some in taken) == 40
        assert await numbers(two.inbox, default) == list(range(1, 41))


async def has_heard(store: RedisStore, commits: int) -> bool:
    """Whether it has heard of another node's writes among so many commits, once it has heard of all of them."""

    async def of_all() -> bool:
        return store._neighbours.heard >= commits

    await until(of_all)
    assert store._neighbours.heard == commits
    return await store.has_foreign_writes()


async def test_a_node_hears_that_another_has_written_and_not_that_it_did_itself(place: RedisPlace) -> None:
    async with place.open() as one:
        assert not await has_heard(one, 2)  # two bots were saved
        async with place.open(is_owner=False) as two:
            assert await has_heard(one, 4)
            assert not await one.has_foreign_writes()
            await accept(two, draft(1))
            assert await has_heard(one, 5)
            await accept(one, draft(1))
            assert not await has_heard(one, 6)


async def test_upkeep_that_found_nothing_is_no_news(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await two.join_due(at_ms=1, limit=9)
        await two.expire(at_ms=1, limit=9)
        await two.inbox.touch_consumers({})
        await two.inbox.note_seen(BOT, at_ms=1)
        await accept(one, draft(1))
        assert await has_heard(one, 5)  # four bots, one letter


async def test_a_second_owner_is_refused_and_told_what_to_do(place: RedisPlace) -> None:
    async with place.open() as owner:
        with pytest.raises(StartError, match="Another Peik already sends"):
            await RedisStore(place.url, clock=place.clock).open()
        assert owner.is_owner


async def test_another_node_becomes_the_owner_when_the_first_one_has_closed(place: RedisPlace) -> None:
    async with place.open(is_owner=False) as other:
        assert (other.is_owner, other.epoch) == (False, 0)
        async with place.open() as owner:
            assert not await other.claim()
            first = owner.epoch
        assert await other.claim()
        assert await other.claim()
        assert (other.is_owner, other.epoch) == (True, first + 1)


async def test_a_lease_that_nobody_renews_runs_out_and_its_holder_marks_nothing_more(place: RedisPlace) -> None:
    owner = RedisStore(place.url, clock=place.clock, lease_s=SHORT_S)
    await owner.open()
    async with place.open(is_owner=False) as other:
        first, second = [await find(other, one) for one in await accept(other, draft(1), draft(2))]
        assert await mark(owner, first) == [first.id]
        await owner._lease.abandon()  # as if it were frozen

        async def is_over() -> bool:
            return not await owner._client.redis.exists(owner._client.prefix + "lease")

        await until(is_over)
        assert await mark(owner, second) == []  # before anybody else came
        assert await other.claim()
        assert not owner.is_owner
        assert await mark(owner, second) == []
        assert await other.left_in_flight(BOT) == [first]
        assert await mark(other, second) == [second.id]
    await owner.close()


async def test_a_lease_is_renewed_while_its_holder_lives(place: RedisPlace) -> None:
    owner = RedisStore(place.url, clock=place.clock, lease_s=SHORT_S)
    await owner.open()
    key = owner._client.prefix + "lease"
    left: list[int] = []

    async def was_renewed() -> bool:
        left.append(await owner._client.redis.pttl(key))
        return any(later > earlier for earlier, later in pairwise(left))

    await until(was_renewed)
    epoch = owner.epoch
    await owner._client.redis.delete(key)  # it ran out for a moment, and nobody came between

    async def is_back() -> bool:
        return bool(await owner._client.redis.exists(key))

    await until(is_back)
    assert (owner.is_owner, owner.epoch) == (True, epoch)
    await owner.close()


async def test_an_owner_that_was_followed_by_another_knows_it_in_the_end(place: RedisPlace) -> None:
    owner = RedisStore(place.url, clock=place.clock, lease_s=SHORT_S)
    await owner.open()
    place.unseat()
    async with place.open() as next_one:

        async def has_lost() -> bool:
            return owner.epoch == 0

        await until(has_lost)
        assert next_one.is_owner
        assert not await owner.claim()
        await owner.close()
        assert next_one.is_owner
        assert await next_one._client.redis.exists(next_one._client.prefix + "lease")
