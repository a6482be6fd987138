"""Several nodes on one server: one order of numbers, one holder for each bot, and nothing that a crash of the server mixes up."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from peik.core.lifecycle import Move, end_unsent
from peik.core.nodes import CHORES
from peik.core.token import Token
from peik.errors import StoreUnavailable
from peik.outbox.store import BotRecord
from peik.storage.redis import RedisStore
from tests.storage.acts import NOW, SENT, accept, advance, attempt, conclude, draft, find, front, mark, state
from tests.storage.inbox_acts import message, numbers, open_inbox, take
from tests.storage.places import BOT, OTHER_BOT, take_leases
from tests.storage.redis_place import RedisPlace
from tests.storage.redis_server import RedisServer

SHORT_S = 0.2


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a fact; the story's own time limit ends it if it never comes."""
    while not await is_so():  # noqa: ASYNC110  the fact is another's
        await asyncio.sleep(0.01)


# ---- one order ----


async def test_nodes_that_accept_at_once_share_one_order_without_gaps(place: RedisPlace) -> None:
    async def caller(store: RedisStore, who: int) -> list[int]:
        return [letter_id for _ in range(20) for letter_id in await accept(store, draft(who), draft(5))]

    async with place.open() as one, place.open() as two, place.open() as three:
        accepted = await asyncio.gather(*(caller(store, who) for who in range(5) for store in (one, two, three)))
        ids = [letter_id for some in accepted for letter_id in some]
        assert len(set(ids)) == len(ids) == 600
        assert sorted(letter.number for letter in place.heard.accepted) == list(range(1, 601))
        lane = await front(two, 5, letters=1000)
        assert [letter.number for letter in lane] == sorted(letter.number for letter in lane)
        assert len(lane) == 300


async def test_nodes_that_take_in_the_same_updates_store_each_once(place: RedisPlace) -> None:
    async with place.open() as one, place.open() as two:
        default = await open_inbox(one.inbox)
        updates = [message(index) for index in range(1, 41)]
        taken = await asyncio.gather(*(take(store.inbox, update) for update in updates for store in (one, two)))
        assert sum(some.stored for some in taken) == 40
        assert await numbers(two.inbox, default) == list(range(1, 41))


# ---- leases ----


async def test_a_lease_runs_out_by_the_servers_clock_and_its_holder_marks_nothing_more(place: RedisPlace) -> None:
    holder = RedisStore(place.url, clock=place.clock)
    await holder.open()
    async with place.open(is_owner=False) as other:
        first, second = [await find(other, one) for one in await accept(other, draft(1), draft(2))]
        await take_leases(holder)
        assert await mark(holder, first) == [first.id]
        lease_s, holder.nodes.lease_s = holder.nodes.lease_s, SHORT_S
        await holder.nodes.beat()  # its last one

        async def is_over() -> bool:
            return await other.nodes.nodes() == []

        await until(is_over)
        assert await mark(holder, second) == []  # before anybody else came
        await conclude(holder, first, SENT)  # but what it had begun is still its own to settle
        assert await state(other, first.id) == "completed"
        holder.nodes.lease_s = lease_s
        await take_leases(holder)  # nobody took it: it goes on
        assert await mark(holder, second) == [second.id]
    await holder.close()


async def test_a_late_node_ends_no_letter_without_a_try(place: RedisPlace) -> None:
    async with place.open() as zombie:
        (letter_id,) = await accept(zombie, draft(1))
        letter = await find(zombie, letter_id)
        place.expire_leases()
        async with place.open() as owner:
            await advance(zombie, [end_unsent(letter, Move.SHUT_OUT, "blocked", at_ms=NOW)], [])
            assert await state(owner, letter_id) == "waiting"
            await advance(owner, [end_unsent(letter, Move.SHUT_OUT, "blocked", at_ms=NOW)], [])
            assert await state(owner, letter_id) == "failed"


async def test_a_node_that_was_taken_for_dead_and_comes_back_is_still_asked_to_drain(place: RedisPlace) -> None:
    async with place.open() as one, place.open() as two:
        assert await two.nodes.drain_node(one.nodes.node, is_draining=True)
        assert (await one.nodes.beat()).surplus == 3
        place.expire_leases()
        await two.nodes.beat()
        assert [node.name for node in await two.nodes.nodes()] == [two.nodes.node]
        assert (await one.nodes.beat()).leases == {}
        drains = {node.name: node.is_draining for node in await two.nodes.nodes()}
        assert drains == {one.nodes.node: True, two.nodes.node: False}


async def test_thousands_of_bots_are_shared_and_none_has_two_holders(place: RedisPlace) -> None:
    async with place.open(is_owner=False) as one, place.open(is_owner=False) as two:
        many = range(1000, 3000)
        await asyncio.gather(*(one.save_bot(BotRecord(bot_id=bot, token=Token(f"{bot}:secret"))) for bot in many))
        first = await one.nodes.beat()
        assert len(first.leases) == len(many) + 3
        await two.nodes.beat()
        place.season()
        first = await one.nodes.beat()
        assert first.surplus == 1001
        await one.nodes.release(list(first.leases)[: first.surplus])
        second, first = await two.nodes.beat(), await one.nodes.beat()
        assert (len(first.leases), len(second.leases)) == (1002, 1001)
        assert first.leases.keys() | second.leases.keys() == {*many, CHORES, BOT, OTHER_BOT}
        assert min(second.leases.values()) > max(first.leases.values())


# ---- the server's own troubles ----


async def test_a_dead_node_does_not_live_on_because_the_servers_clock_was_set_back(place: RedisPlace) -> None:
    day_ms = 24 * 3600 * 1000
    async with place.open(is_owner=False) as one, place.open(is_owner=False) as dead:
        await dead.nodes.beat()
        name = dead.nodes.node
        with place.server.client() as client:
            end = client.zscore(place.key("alive"), name)
            record = msgspec.msgpack.decode(client.hget(place.key("nodes"), name))
            later = msgspec.msgpack.encode(record | {"n": record["n"] + day_ms})
            client.hset(place.key("nodes"), name, later)  # as if that day had been now
            client.zadd(place.key("alive"), {name: end + day_ms})
            await one.nodes.beat()
            now, since = client.zscore(place.key("alive"), one.nodes.node), client.zscore(place.key("alive"), name)
            assert since == now


async def test_a_lease_whose_write_was_lost_is_nobodys_and_its_epoch_does_not_come_again(
    durable: RedisServer, tmp_path: Path
) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open(is_owner=False) as store:
        letters = [await find(store, one) for one in await accept(store, draft(1), draft(2))]
        with durable.client() as client:
            kept = {name: client.dump(place.key(name)) for name in ("epoch", "leases", "nodes", "alive")}
            await take_leases(store)
            before = (await store.nodes.beat()).leases
            for name, dump in kept.items():  # as after a crash that lost the last second
                client.delete(place.key(name))
                if dump:
                    client.restore(place.key(name), 0, dump)
        assert await mark(store, letters[0]) == []
        async with place.open() as other:
            now = (await other.nodes.beat()).leases
            assert now.keys() == before.keys()
            assert min(now.values()) > max(before.values())
            assert (await store.nodes.beat()).leases == {}
            assert await mark(other, *letters) == [one.id for one in letters]


async def test_leases_and_marks_outlive_the_server(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        flying, waiting = [await find(store, one) for one in await accept(store, draft(1), draft(2))]
        await mark(store, flying)
        leases = (await store.nodes.beat()).leases
        durable.kill()
        durable.start()
        with pytest.raises(StoreUnavailable):  # its connection is gone
            await store.nodes.beat()
        assert (await store.nodes.beat()).leases == leases
        await conclude(store, flying, SENT)
        await attempt(store, waiting, SENT)
        assert [await state(store, one.id) for one in (flying, waiting)] == ["completed", "completed"]
