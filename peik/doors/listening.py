"""The server's side of every connection: heads and bodies must come in within a time and a size, answers must be taken, idle ones
end, all are counted.

uvicorn bounds none of these by itself; a client that sends a byte an hour would keep its connection, and many would keep
others out.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

import uvicorn

from peik.doors.connection import Awaited, Connection

HEAD_S_MAX = 30.0  # from the first byte, or from the connection, to the end of the headers
BODY_PAUSE_S_MAX = 60.0
BODY_BYTES_PER_S_MIN = 100.0  # after the first minute; a poor mobile uplink has ten times that
ANSWER_PAUSE_S_MAX = 120.0  # in which a client has taken nothing of what waits for it
ADDRESS_SHARE = 0.75  # of all connections: one address, even that of a proxy, leaves some for others
KEEP_ALIVE_S = 75  # bots keep connections in pools; one that we end just as it is used costs them an error
SWEEP_TICKS = 50  # uvicorn ticks every tenth of a second
FILES_SPARE = 512  # descriptors for the store, the spool and the way to Telegram


class GuardedProtocol(Connection):
    """A connection with bounds."""

    connections_max = 1 << 30
    address_connections_max = 1 << 30  # of one address
    addresses: ClassVar[Counter[str]] = Counter()  # how many connections each has open
    _address: str | None = None
    _gone_bytes = 0  # of answers, when it was last looked
    _full_at = 0.0  # when something of an answer was last seen waiting for the client
    _gone_at: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._gone_at = self.heard_at
        if self.client is not None:
            self._address = self.client[0]
            self.addresses[self._address] += 1
        is_greedy = self._address is not None and self.addresses[self._address] > self.address_connections_max
        if len(self.connections) > self.connections_max or is_greedy:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.addresses[self._address] -= 1
            if not self.addresses[self._address]:
                del self.addresses[self._address]
        super().connection_lost(exc)

    def is_overdue(self, now: float) -> bool:
        """Whether the client keeps us waiting for longer than a living one would."""
        if self._is_deaf(now):
            return True
        match self.awaited:
            case Awaited.HEAD:
                return now - self.since > HEAD_S_MAX and not self.is_paused
            case Awaited.BODY:
                took_s = now - self.since
                is_crawling = took_s > BODY_PAUSE_S_MAX and self.taken_bytes < took_s * BODY_BYTES_PER_S_MIN
                is_silent = now - self.heard_at > BODY_PAUSE_S_MAX
                return (is_crawling or is_silent) and not self.is_paused
            case Awaited.REQUEST:
                return False

    def is_left(self, now: float) -> bool:
        """Whether nothing has been asked for longer than a connection is kept."""
        is_between = self.awaited is Awaited.REQUEST and self.is_idle
        return is_between and now - max(self.since, self._full_at) > self.keep_alive_s

    def _is_deaf(self, now: float) -> bool:
        """Whether it takes nothing of what is written to it. Such a connection never closes by itself: what is in the buffer has
        to go first."""
        waiting = self.transport.get_write_buffer_size()
        if waiting:
            self._full_at = now
        gone = self.written_bytes - waiting
        if not waiting or gone != self._gone_bytes:
            self._gone_bytes, self._gone_at = gone, now
            return False
        return now - self._gone_at > ANSWER_PAUSE_S_MAX


class GuardedServer(uvicorn.Server):
    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)


def sweep(connections: Iterable[object], now: float) -> None:
    """End those whose time is over."""
    for connection in list(connections):
        if not isinstance(connection, GuardedProtocol):
            continue
        if connection.is_overdue(now):
            connection.transport.abort()
        elif connection.is_left(now):
            # In peace: TLS does not tell what of the last answer is still on its way to a slow client.
            connection.transport.close()


def raise_file_limit() -> int:
    """As many open files as the system allows; how many connections that leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    return max(limit // 2, limit - FILES_SPARE)
