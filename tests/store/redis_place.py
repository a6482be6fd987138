"""A place of the conformance suite on a real Redis server: a prefix of its own."""

import hashlib
from pathlib import Path

from peik.ports import Store
from peik.store.redis import RedisStore
from tests.store.places import StorePlace
from tests.store.redis_server import RedisServer, shared


class RedisPlace(StorePlace[RedisStore]):
    def __init__(self, folder: Path, server: RedisServer | None = None) -> None:
        super().__init__()
        self.server = server or shared()
        self.prefix = f"test-{hashlib.sha1(str(folder).encode()).hexdigest()[:12]}:"
        self.url = f"{self.server.url}?prefix={self.prefix}"

    def make(self, *, is_owner: bool) -> RedisStore:
        return RedisStore(self.url, clock=self.clock, is_owner=is_owner, on_blobs_freed=self.freed.extend)

    async def crash(self, store: Store) -> None:
        assert isinstance(store, RedisStore)
        self._crashed.add(id(store))
        await store._abandon()
        self.unseat()  # the lease of a dead node runs out; here at once

    def unseat(self) -> None:
        with self.server.client() as client:
            client.delete(f"{self.prefix}{{{self.prefix.rstrip(':')}}}:lease")
