"""Hears what other nodes write: every commit that changed something is published with its node's id."""

import asyncio
import contextlib

import redis.asyncio as aioredis
from redis import exceptions

_AGAIN_S = 1.0
_QUIET_S = 10.0  # below the time in which a connection must answer


class Neighbours:
    """Listens from `open` to `close`. After a lost connection it says yes once: what was missed may have been a write."""

    def __init__(self, redis: "aioredis.Redis", *, channel: str, node: str) -> None:
        self._redis = redis
        self._channel = channel
        self._node = node.encode()
        self._has_written = False
        self.heard = 0  # commits, our own among them
        self._listener: asyncio.Task[None] | None = None

    async def open(self) -> None:
        is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listener = asyncio.get_running_loop().create_task(self._listen(is_ready))
        with contextlib.suppress(TimeoutError):  # the first answer then is yes
            await asyncio.wait_for(asyncio.shield(is_ready), _AGAIN_S)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])

    def has_written(self) -> bool:
        """Whether another node has written since this was last asked."""
        heard, self._has_written = self._has_written, False
        return heard

    async def _listen(self, is_ready: "asyncio.Future[None]") -> None:
        while True:
            with contextlib.suppress(exceptions.RedisError, OSError):
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(self._channel)
                    await self._follow(channel, is_ready)
            self._has_written = True
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, channel: "aioredis.client.PubSub", is_ready: "asyncio.Future[None]") -> None:
        while True:
            message = await channel.get_message(timeout=_QUIET_S)
            if message is None:
                continue
            if message["type"] == "subscribe":
                if is_ready.done():
                    self._has_written = True
                else:
                    is_ready.set_result(None)
            else:
                self.heard += 1
                self._has_written = self._has_written or message["data"] != self._node
