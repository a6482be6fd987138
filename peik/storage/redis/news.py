"""News between nodes on a channel of the server: told after a commit by a message of its own, heard while a store is open."""

import asyncio
import contextlib
from collections.abc import Callable

import redis.asyncio as aioredis
from redis import exceptions

from peik.core.nodes import News
from peik.storage.news import NodeNews
from peik.storage.redis.client import RedisClient
from peik.wakeup import heeding

_AGAIN_S = 1.0
_QUIET_S = 10.0  # below the time in which a connection must answer
_PAUSE_S = 0.005  # between two messages: a busy node is heard two hundred times a second, and pays for no more
_ALONE_S = 0.05  # the same while nobody else listens; whoever comes then hears of it so much later
_UNREAD_MAX = 1000  # lines that nobody asked for; then only that there was something is kept


class RedisNews:
    """Tells and hears from `open` to `close`. What was told in vain is made good by the next message, which says "all"; what was
    missed while the connection was lost, by one "all" when it is back."""

    def __init__(self, client: RedisClient, *, node: str) -> None:
        self._client = client
        self._node = node
        self._channel = client.prefix + "news"
        self._unsaid = NodeNews()
        self._saying: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()
        self._heard = NodeNews()
        self._unread = 0
        self._has_heard = asyncio.Event()
        self._is_listening = asyncio.Event()
        self._may_have_missed = False
        self._listener: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._listen())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                await self._is_listening.wait()
        self._may_have_missed = True  # whenever it subscribes from now on

    async def close(self, *, is_told: bool) -> None:
        """`is_told`: what is still to be said is said first."""
        self._is_closing.set()
        for task, is_over in ((self._saying, not is_told), (self._listener, True)):
            if task is not None:
                if is_over:
                    task.cancel()
                await asyncio.wait([task])

    # ---- telling ----

    def tell(self, say: Callable[[NodeNews], None]) -> None:
        """Add to the next message. It goes out at once, or a moment after the one before; not after `close`: nobody would end
        the connection that it made."""
        say(self._unsaid)
        is_idle = self._saying is None or self._saying.done()
        if self._unsaid and is_idle and not self._is_closing.is_set():
            self._saying = asyncio.get_running_loop().create_task(self._say())

    async def _say(self) -> None:
        while self._unsaid:
            said, self._unsaid = self._unsaid, NodeNews()
            try:
                listeners = await heeding(self._client.redis.publish(self._channel, said.line(self._node)))
            except (exceptions.RedisError, OSError):
                self._unsaid.everything()
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S if listeners > 1 else _ALONE_S):
                    await self._is_closing.wait()

    # ---- hearing ----

    async def news(self) -> News:
        await self._has_heard.wait()
        heard, self._heard, self._unread = self._heard, NodeNews(), 0
        self._has_heard.clear()
        return heard.news()

    def _note(self, line: bytes) -> None:
        self._unread += 1
        if self._unread > _UNREAD_MAX:
            self._heard, self._unread = NodeNews(), 0
            self._heard.everything()
        self._heard.hear(line, besides=self._node)
        if self._heard:
            self._has_heard.set()

    async def _listen(self) -> None:
        while not self._is_closing.is_set():
            with contextlib.suppress(exceptions.RedisError, OSError):
                async with self._client.redis.pubsub() as channel:
                    await heeding(channel.subscribe(self._channel))
                    await self._follow(channel)
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, channel: "aioredis.client.PubSub") -> None:
        while not self._is_closing.is_set():
            message = await heeding(channel.get_message(timeout=_QUIET_S))
            if message is None:
                continue
            if message["type"] == "message":
                self._note(message["data"])
                continue
            self._is_listening.set()  # it is subscribed; redis-py does that again by itself when it can
            if self._may_have_missed:
                self._heard.everything()
                self._has_heard.set()
