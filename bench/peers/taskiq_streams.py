"""taskiq on Redis streams: its broker that acknowledges, so that a crash loses nothing. No results are kept."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.payload import fields
from bench.peers.harness import CONCURRENCY, Peer, main
from bench.peers.redis_room import bytes_kept, emptied

logging.disable(logging.WARNING)  # it tells of every end of its receiver


class Taskiq(Peer):
    async def open(self) -> None:
        await emptied(self.store)
        self._broker = RedisStreamBroker(self.store, consumer_id="0")

        async def send(number: int, wanted: dict[str, Any]) -> None:
            await self.post(number, wanted)

        self._task = self._broker.register_task(send, task_name="send")
        await self._broker.startup()

    async def close(self) -> None:
        await self._broker.shutdown()

    async def add(self, number: int) -> None:
        await self._task.kiq(number, fields(number))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(run_receiver_task(self._broker, max_async_tasks=CONCURRENCY, max_prefetch=100))
        yield
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def settle(self, wanted: int) -> None:
        """Its acknowledgements are not told to anybody, so its group is asked."""
        async with Redis.from_url(self.store) as redis:
            while True:
                (group,) = await redis.xinfo_groups("taskiq")
                if group["entries-read"] == wanted and group["pending"] == 0:
                    return
                await asyncio.sleep(0.01)

    async def bytes_kept(self) -> float:
        return await bytes_kept(self.store)


if __name__ == "__main__":
    main(Taskiq)
