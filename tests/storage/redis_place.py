"""A place of the conformance suite on a real Redis server: a prefix of its own."""

import hashlib
from pathlib import Path

import msgspec

from peik.outbox.store import Store
from peik.storage.redis import RedisStore
from tests.storage.places import LEASE_S, StorePlace
from tests.storage.redis_server import RedisServer, shared, wanted


class RedisPlace(StorePlace[RedisStore]):
    skip_if_missing = staticmethod(wanted)

    def __init__(self, folder: Path, server: RedisServer | None = None) -> None:
        super().__init__()
        self.server = server or shared()
        self.prefix = f"test-{hashlib.sha1(str(folder).encode()).hexdigest()[:12]}:"
        self.url = f"{self.server.url}?prefix={self.prefix}"

    def make(self, *, is_owner: bool) -> RedisStore:
        return RedisStore(
            self.url, clock=self.clock, lease_s=LEASE_S, on_blobs_freed=self.freed.extend, seals=self.seals
        )

    async def crash(self, store: Store) -> None:
        assert isinstance(store, RedisStore)
        self._crashed.add(id(store))
        await store.abandon()
        self.expire_leases()  # those of a dead node run out; here at once

    def unseat(self) -> None:
        self.expire_leases()

    def expire_leases(self) -> None:
        """All leases, locks and nodes run out now."""
        with self.server.client() as client:
            for node in client.zrange(self.key("alive"), 0, -1):
                client.zadd(self.key("alive"), {node: 1})
            for name, lock in client.hgetall(self.key("locks")).items():
                client.hset(self.key("locks"), name, b"1 " + lock.partition(b" ")[2])

    def season(self) -> None:
        """Every node has lived for an hour."""
        with self.server.client() as client:
            for name, raw in client.hgetall(self.key("nodes")).items():
                node = msgspec.msgpack.decode(raw)
                client.hset(self.key("nodes"), name, msgspec.msgpack.encode(node | {"s": node["n"] - 3_600_000}))

    def free_for_long(self) -> None:
        """What is known to be free has been so for hours."""
        with self.server.client() as client:
            for bot in client.hgetall(self.key("freed")):
                client.hset(self.key("freed"), bot, 1)

    def key(self, name: str) -> str:
        return f"{self.prefix}{{{self.prefix.rstrip(':')}}}:{name}"
