"""A Redis whose primary changes: sentinels are asked where it is, and replicas have what is accepted if that is asked for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from peik.clock import SystemClock
from peik.core.token import Token
from peik.errors import InDoubt, StartError, StoreUnavailable
from peik.outbox.store import BotRecord
from peik.settings.config import shown_address
from peik.settings.values import parse_store
from peik.storage.redis import RedisStore
from peik.storage.redis.client import SentinelAddress, blocking_client, split_prefix, split_replicas
from proofs.nodes.databases import Redis, RedisSentinel
from tests.patience import PATIENCE_S
from tests.storage.acts import accept, draft, find, tally

LOOK_S = 0.05


# ---- addresses ----


def test_an_address_names_sentinels_the_primary_and_its_database() -> None:
    address = SentinelAddress.read("redis+sentinel://me:p%40ss@one,two:26380/my-master/3?sentinel_password=hush")
    assert address is not None
    assert address.sentinels == (("one", 26379), ("two", 26380))
    assert (address.name, address.server) == ("my-master", {"db": 3, "username": "me", "password": "p@ss"})
    assert address.sentinel["password"] == "hush"
    assert SentinelAddress.read("redis://one:6379/0") is None


@pytest.mark.parametrize("rest", ["one,two", "one/", "one:port/name", "one,,two/name", "one/name/first"])
def test_what_is_no_such_address_is_told_without_quoting_it(rest: str) -> None:
    with pytest.raises(StartError, match="redis\\+sentinel://:password@one") as told:
        SentinelAddress.read(f"redis+sentinel://:hush@{rest}")
    assert "hush" not in str(told.value)


def test_it_is_shown_without_password_and_options() -> None:
    url = parse_store("redis+sentinel://:hush@one:26379,two:26379/mymaster/0?prefix=own&sentinel_password=hush")
    assert shown_address(url) == "redis+sentinel://one:26379,two:26379/mymaster/0"
    assert "hush" not in shown_address("redis://:hu,sh/hush@one/0")
    assert split_prefix(url)[1] == "own{own}:"


def test_how_many_replicas_is_ours_and_not_of_the_client() -> None:
    assert split_replicas("redis://one:6379/0?replicas=2&protocol=3") == ("redis://one:6379/0?protocol=3", 2)
    with pytest.raises(StartError, match="replicas in PEIK_STORE"):
        split_replicas("redis://one:6379/0?replicas=many")


# ---- a primary and its replicas ----


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[Redis, Redis, RedisSentinel]]:
    """A primary, a replica that follows it, and a sentinel that knows both."""
    primary, replica = Redis(tmp_path / "primary"), Redis(tmp_path / "replica")
    primary.start()
    replica.start()
    with primary.client() as client:
        client.config_set("repl-diskless-sync-delay", 0)
    with replica.client() as client:
        client.slaveof("127.0.0.1", primary.port)
    sentinel = RedisSentinel(tmp_path, primary.port)
    sentinel.start()
    yield primary, replica, sentinel
    for one in (sentinel, primary, replica):
        one.remove()  # once more, if the test has


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(url, clock=SystemClock(), lease_s=10.0)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(is_so):  # noqa: ASYNC110  another process is waited for
            await asyncio.sleep(LOOK_S)


def found(sentinel: RedisSentinel) -> int | None:
    """The port of the primary, once it is known to live."""
    try:
        return int(redis.Sentinel([("127.0.0.1", sentinel.port)]).discover_master(sentinel.NAME)[1])
    except redis.sentinel.MasterNotFoundError:
        return None


async def accepted_in_the_end(store: RedisStore, number: int) -> int:
    """As a caller repeats it while the store is away."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                (letter_id,) = await accept(store, draft(number))
            except StoreUnavailable:
                await asyncio.sleep(LOOK_S)
            else:
                return letter_id


async def ready(replica: Redis, sentinel: RedisSentinel) -> None:
    def follows() -> bool:
        with replica.client() as client:
            return bool(client.info("replication")["master_link_status"] == "up")

    await until(lambda: follows() and sentinel.replicas() == 1)


async def with_a_letter(store: RedisStore) -> int:
    await store.save_bot(BotRecord(bot_id=7, token=Token("7:AAtest")))
    (letter_id,) = await accept(store, draft(1))
    return letter_id


async def test_it_goes_on_at_the_one_that_is_promoted(family: tuple[Redis, Redis, RedisSentinel]) -> None:
    primary, replica, sentinel = family
    await ready(replica, sentinel)
    async with opened(f"{sentinel.store}&replicas=1") as store:
        before = await with_a_letter(store)
        primary.kill()
        await until(lambda: found(sentinel) == replica.port)
    async with opened(sentinel.store) as store:  # nobody is left to have a copy
        after = await accepted_in_the_end(store, 2)
        assert [(await find(store, one)).id for one in (before, after)] == [before, after]
    with blocking_client(sentinel.store.partition("?")[0]) as client:
        assert client.info("server")["tcp_port"] == replica.port


async def test_an_open_store_follows_when_the_primary_is_changed_on_purpose(
    family: tuple[Redis, Redis, RedisSentinel],
) -> None:
    _, replica, sentinel = family
    await ready(replica, sentinel)
    async with opened(f"{sentinel.store}&replicas=1") as store:
        before = await with_a_letter(store)
        with redis.Redis(port=sentinel.port) as client:
            client.sentinel_failover(sentinel.NAME)
        await until(lambda: found(sentinel) == replica.port)
        after = await accepted_in_the_end(store, 2)
        assert [(await find(store, one)).id for one in (before, after)] == [before, after]
        with replica.client() as client:
            assert client.info("replication")["role"] == "master"


async def test_who_is_told_that_this_is_a_replica_connects_again(family: tuple[Redis, Redis, RedisSentinel]) -> None:
    primary, replica, sentinel = family
    await ready(replica, sentinel)
    sentinel.remove()
    async with opened(f"{primary.url}?prefix=own") as store:
        await with_a_letter(store)
        assert await store.nodes.failover_loses()  # nobody waits for the replica
        with primary.client() as client:
            before = client.info("stats")["total_connections_received"]
            client.replicaof("127.0.0.1", replica.port)
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="is a replica"):
                    await accept(store, draft(2))
            assert client.info("stats")["total_connections_received"] > before
            client.replicaof("NO", "ONE")
        await accepted_in_the_end(store, 2)


async def test_what_no_replica_has_is_in_doubt(family: tuple[Redis, Redis, RedisSentinel]) -> None:
    primary, replica, sentinel = family
    await ready(replica, sentinel)
    sentinel.remove()
    async with opened(f"{primary.url}?prefix=own&replicas=1") as store:
        await with_a_letter(store)
        assert not await store.nodes.failover_loses()
        replica.kill()
        with pytest.raises(InDoubt, match="0 of 1 replicas"):
            await accept(store, draft(2))
    async with opened(f"{primary.url}?prefix=own") as store:
        assert (await tally(store)).waiting == 2
