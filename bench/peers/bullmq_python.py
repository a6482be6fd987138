"""BullMQ's own port to Python."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bullmq import Queue, Worker

from bench.payload import fields
from bench.peers.harness import CONCURRENCY, Peer, main
from bench.peers.redis_room import bytes_kept, emptied


class BullmqPython(Peer):
    has_batches = True

    async def open(self) -> None:
        await emptied(self.store)
        self._queue = Queue("bench", {"connection": self.store})

    async def close(self) -> None:
        await self._queue.close()

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

        worker = Worker("bench", process, {"connection": self.store, "concurrency": CONCURRENCY, "autorun": False})
        worker.on("completed", self.settled)
        running = asyncio.ensure_future(worker.run())
        yield
        await worker.close(force=True)
        running.cancel()

    async def bytes_kept(self) -> float:
        return await bytes_kept(self.store)


if __name__ == "__main__":
    main(BullmqPython)
