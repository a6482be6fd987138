"""Warm connections to one server, for callers that wait: each carries one request at a time, and none is repeated."""

import asyncio
import contextlib
from collections.abc import Callable

from peik.carrier.answers import ANSWER_BYTES_MAX
from peik.carrier.dialling import Connect, Spoken
from peik.carrier.http import Connection, Exchange
from peik.core.reply import Reply

CONNECT_S = 10.0
# uvicorn closes after 5 idle seconds; a request on a connection that is just being closed would be lost in doubt.
IDLE_S_MAX = 4.0


class Asked(Exchange):
    """A request whose reply is awaited, by no clock of its own."""

    __slots__ = ("answered", "is_written")

    def __init__(self, payload: bytes, loop: asyncio.AbstractEventLoop, *, is_written: bool = True) -> None:
        self.answered: asyncio.Future[Reply] = loop.create_future()
        super().__init__(payload=payload, timeout_s=0.0, done=self._tell)
        self.is_written = is_written

    def _tell(self, reply: Reply) -> None:
        if not self.answered.done():
            self.answered.set_result(reply)


class Warm:
    """Made inside the running loop that it then belongs to."""

    def __init__(self, connect: Connect, *, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect = connect
        self._answer_bytes_max = answer_bytes_max
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []  # the most recently used last
        self._all_lost: asyncio.Future[None] | None = None

    async def begin(self, asked: Asked) -> Connection:
        """Send it on a connection of its own. Raises OSError or UnicodeError if there is no way there; then nothing was sent."""
        connection = await self._take()
        connection.send(asked, self._loop.time())
        return connection

    def leave(self, connection: Connection, asked: Asked) -> None:
        """Nobody waits any more: a connection whose answer is still to come carries nothing else."""
        if connection.exchange is asked:  # else the connection may be another's by now
            connection.abort()

    async def dial(self, protocol: Callable[[], Spoken]) -> tuple[asyncio.BaseTransport, Spoken]:
        """A connection that is not kept here. Raises as `begin` does."""
        async with asyncio.timeout(CONNECT_S):
            return await self._connect(self._loop, protocol)

    async def close(self) -> None:
        """Once no connection is left."""
        for connection in tuple(self._connections):
            connection.abort()
        if self._connections:
            self._all_lost = self._loop.create_future()
            await self._all_lost

    async def _take(self) -> Connection:
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(now):
                return connection
            connection.abort()
        _, connection = await self.dial(self._new)
        self._connections.add(connection)
        return connection

    def _new(self) -> Connection:
        return Connection(self._loop, self, idle_s_max=IDLE_S_MAX, answer_bytes_max=self._answer_bytes_max)

    def released(self, connection: Connection) -> None:
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        with contextlib.suppress(ValueError):  # it was busy
            self._idle.remove(connection)
        if self._all_lost is not None and not self._connections and not self._all_lost.done():
            self._all_lost.set_result(None)
