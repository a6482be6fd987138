"""What a server keeps when it dies is asked and told."""

from pathlib import Path

import pytest

from peik.storage.redis import RedisStore
from tests.storage.acts import accept, draft
from tests.storage.redis_place import RedisPlace
from tests.storage.redis_server import RedisServer


async def told(place: RedisPlace, url: str | None = None) -> str:
    store = RedisStore(url or place.url, clock=place.clock)
    await store.open()
    try:
        return "\n".join(await store.nodes.durability())
    finally:
        await store.close()


async def test_a_server_that_syncs_before_it_answers_has_no_weakness(durable: RedisServer, tmp_path: Path) -> None:
    assert await told(RedisPlace(tmp_path, durable)) == ""


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("appendonly", "no", "no append-only file"),
        ("appendfsync", "everysec", "appendfsync everysec"),
        ("appendfsync", "no", "appendfsync no"),
        ("maxmemory-policy", "allkeys-lru", "may throw away letters"),
    ],
)
async def test_each_weakness_is_told(
    durable: RedisServer, tmp_path: Path, setting: str, value: str, words: str
) -> None:
    with durable.client() as client:
        client.config_set("maxmemory", "1gb")
        client.config_set(setting, value)
    sentences = (await told(RedisPlace(tmp_path, durable))).splitlines()
    assert len(sentences) == 1
    assert words in sentences[0]


async def test_a_policy_without_a_bound_evicts_nothing(durable: RedisServer, tmp_path: Path) -> None:
    with durable.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    assert await told(RedisPlace(tmp_path, durable)) == ""


async def test_a_policy_that_evicts_what_expires_finds_nothing_of_ours(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        await accept(store, draft(1))
        await store.nodes.take_lock("migration")
        await store.files.keep_part("blob", 0, b"part")
        with durable.client() as client:
            client.config_set("maxmemory", "1gb")
            client.config_set("maxmemory-policy", "volatile-ttl")
            assert {client.ttl(key) for key in client.scan_iter(count=1000)} == {-1}
        assert await store.nodes.durability() == []


async def test_a_replica_is_told(durable: RedisServer, tmp_path: Path) -> None:
    with durable.client() as client:
        client.replicaof("127.0.0.1", "1")
    assert "replica" in await told(RedisPlace(tmp_path, durable))


@pytest.mark.parametrize(("forbidden", "words"), [("config", "may not ask CONFIG"), ("info", "may not ask INFO")])
async def test_what_may_not_be_asked_is_told(durable: RedisServer, tmp_path: Path, forbidden: str, words: str) -> None:
    place = RedisPlace(tmp_path, durable)
    with durable.client() as client:
        client.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "&*", "+@all", f"-{forbidden}")
    assert words in await told(place, place.url.replace("redis://", "redis://narrow:pw@"))
