"""SAQ, on Redis or on PostgreSQL, whichever its address says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from bench.payload import fields
from bench.peers.harness import CALLERS, CONCURRENCY, Peer, main
from bench.peers.postgres_room import cleared
from bench.peers.redis_room import bytes_kept, emptied


class Saq(Peer):
    async def open(self) -> None:
        if self.store.startswith("redis"):
            await emptied(self.store)
            self._queue = Queue.from_url(self.store, max_concurrent_ops=CALLERS)
        else:
            await cleared(self.store)
            self._queue = Queue.from_url(self.store, max_size=CALLERS)
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def add(self, number: int) -> None:
        await self._queue.enqueue("send", number=number, wanted=fields(number))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async def send(_: dict[str, Any], *, number: int, wanted: dict[str, Any]) -> None:
            await self.post(number, wanted)

        async def after(_: dict[str, Any]) -> None:
            self.settled()

        worker = Worker(self._queue, functions=[("send", send)], concurrency=CONCURRENCY, after_process=after)
        worker.SIGNALS = []  # type: ignore[misc]
        running = asyncio.ensure_future(worker.start())
        yield
        await worker.stop()
        running.cancel()

    async def bytes_kept(self) -> float | None:
        return await bytes_kept(self.store) if self.store.startswith("redis") else None


if __name__ == "__main__":
    main(Saq)
