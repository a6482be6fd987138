"""A place of the conformance suite on a real Redis server: a prefix of its own."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from peik.core.token import Token
from peik.ports import BotRecord, Store
from peik.store.redis import RedisStore
from tests.store.places import BOT, OTHER_BOT, ManualClock, Recorder
from tests.store.redis_server import RedisServer, shared


class RedisPlace:
    def __init__(self, folder: Path, server: RedisServer | None = None) -> None:
        self.server = server or shared()
        self.prefix = f"test-{hashlib.sha1(str(folder).encode()).hexdigest()[:12]}:"
        self.url = f"{self.server.url}?prefix={self.prefix}"
        self.clock = ManualClock()
        self.heard = Recorder()
        self.freed: list[str] = []
        self._crashed: set[int] = set()

    @asynccontextmanager
    async def open(self, *, is_owner: bool = True) -> AsyncIterator[RedisStore]:
        store = RedisStore(self.url, clock=self.clock, is_owner=is_owner, on_blobs_freed=self.freed.extend)
        store.listen(self.heard)
        await store.open()
        for bot_id in (BOT, OTHER_BOT):
            await store.save_bot(BotRecord(bot_id=bot_id, token=Token(f"{bot_id}:secret")))
        try:
            yield store
        finally:
            if id(store) not in self._crashed:
                await store.close()

    async def crash(self, store: Store) -> None:
        assert isinstance(store, RedisStore)
        self._crashed.add(id(store))
        await store._abandon()
        self.unseat()  # the lease of a dead node runs out; here at once

    def unseat(self) -> None:
        with self.server.client() as client:
            client.delete(f"{self.prefix}{{{self.prefix.rstrip(':')}}}:lease")
