"""BullMQ's own port to Python.

Given an address it makes a client of one connection, on which 50 callers wait for one another, and each add for a sync of its
own. Given a client of redis-py it uses that: so many callers, and a worker with much to do, get one with many connections. A
worker that is idle is quicker with an address, and gets that.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bullmq import Queue, Worker
from redis.asyncio import Redis

from bench.payload import fields
from bench.peers.harness import CALLERS, CONCURRENCY, Peer, main
from bench.peers.redis_room import bytes_kept, emptied


class BullmqPython(Peer):
    has_batches = True

    async def open(self) -> None:
        await emptied(self.store)
        self._client = Redis.from_url(self.store, decode_responses=True, max_connections=CALLERS)
        self._queue = Queue("bench", {"connection": self._client})

    async def close(self) -> None:
        await self._queue.close()
        await self._client.aclose()

    async def add(self, number: int) -> None:
        await self._queue.add("send", {"number": number, "fields": fields(number)})

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._queue.addBulk(
            [{"name": "send", "data": {"number": number, "fields": fields(number)}} for number in numbers]
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async def process(job: Any, _: str) -> None:
            await self.post(job.data["number"], job.data["fields"])

        client = Redis.from_url(self.store, decode_responses=True, max_connections=2 * CONCURRENCY)
        connection = client if self.has_backlog else self.store
        worker = Worker("bench", process, {"connection": connection, "concurrency": CONCURRENCY, "autorun": False})
        worker.on("completed", self.settled)
        running = asyncio.ensure_future(worker.run())
        yield
        await worker.close(force=True)
        running.cancel()
        await client.aclose()

    async def bytes_kept(self) -> float:
        return await bytes_kept(self.store)


if __name__ == "__main__":
    main(BullmqPython)
