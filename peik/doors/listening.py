"""The server's side of every connection: heads and bodies must come in within a time and a size, answers must be taken, idle ones
end, all are counted.

uvicorn bounds none of these by itself; a client that sends a byte an hour would keep its connection, and many would keep
others out.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from typing import ClassVar

import uvicorn

from peik.core.gate import address_of
from peik.doors.connection import Awaited, Connection

HEAD_S_MAX = 30.0  # from the first byte, or from the connection, to the end of the headers
BODY_PAUSE_S_MAX = 60.0
BODY_BYTES_PER_S_MIN = 100.0  # after the first minute; a poor mobile uplink has ten times that
ANSWER_PAUSE_S_MAX = 120.0  # in which a client has taken nothing of what waits for it
ADDRESS_SHARE = 0.75  # of all connections: one address, even that of a proxy, leaves some for others
CONNECTIONS_MAX = 20_000  # whatever the system allows: each takes 8 to 16 KB of memory
STRANGER_CONNECTIONS_MAX = 2_000  # of an address that has shown nothing valid
HELD_BYTES_MAX = (
    64 << 20
)  # of unfinished heads, of requests behind others, and of answers that strangers do not take; in all
ADDRESS_HELD_BYTES_MAX = 8 << 20  # and for one address
WAITING_BYTES = 2_048  # what a request costs that waits behind another one
HEADER_BYTES = 160  # what a header costs beyond its own bytes
KEEP_ALIVE_S = 75  # bots keep connections in pools; one that we end just as it is used costs them an error
SWEEP_TICKS = 50  # uvicorn ticks every tenth of a second
FILES_SPARE = 512  # descriptors for the store, the spool and the way to Telegram


class Ledger:
    """Who holds how many bytes of our memory: by connection, by address, in all. The connection that has held some for longest is
    the first to go."""

    def __init__(self) -> None:
        self.total = 0
        self.by_address: Counter[str] = Counter()
        self._by_connection: dict[GuardedProtocol, int] = {}

    def set(self, connection: "GuardedProtocol", address: str, size: int) -> None:
        """It holds so much now. Who goes over a bound is ended: one address by itself, and of all the one that is oldest."""
        more = size - self._by_connection.get(connection, 0)
        self.total += more
        self.by_address[address] += more
        if size:
            self._by_connection[connection] = size
        else:
            self._by_connection.pop(connection, None)
        if not self.by_address[address]:
            del self.by_address[address]
        elif more > 0 and self.by_address[address] > ADDRESS_HELD_BYTES_MAX:
            connection.end()
        while self.total > HELD_BYTES_MAX:
            next(iter(self._by_connection)).end()


class GuardedProtocol(Connection):
    """A connection with bounds."""

    connections_max = CONNECTIONS_MAX
    address_connections_max = CONNECTIONS_MAX  # of one address
    stranger_connections_max = STRANGER_CONNECTIONS_MAX
    addresses: ClassVar[Counter[str]] = Counter()  # how many connections each has open
    held: ClassVar[Ledger] = Ledger()
    is_stranger: ClassVar[Callable[[str], bool]] = staticmethod(lambda _: False)
    _address: str | None = None
    _held_bytes = 0  # as the ledger knows it
    _gone_bytes = 0  # of answers, when it was last looked
    _full_at = 0.0  # when something of an answer was last seen waiting for the client
    _gone_at: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._gone_at = self.heard_at
        if self.client is not None:
            self._address = address_of(self.client[0])
            self.addresses[self._address] += 1
        if len(self.connections) > self.connections_max or self._is_greedy():
            self.transport.abort()

    def _is_greedy(self) -> bool:
        if self._address is None:
            return False
        count = self.addresses[self._address]
        if count > self.address_connections_max:
            return True
        return count > self.stranger_connections_max and self._is_strange()

    def _is_strange(self) -> bool:
        return self.client is not None and GuardedProtocol.is_stranger(self.client[0])

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._hold(0)
        if self._address is not None:
            self.addresses[self._address] -= 1
            if not self.addresses[self._address]:
                del self.addresses[self._address]

    # ---- what it holds ----

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.awaited is Awaited.HEAD or self._waiting or self._held_bytes:
            self._hold(self._size())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._hold(self._size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._held_bytes:
            self._hold(self._size())

    def _size(self) -> int:
        """Of what it could hold for nothing. What those hold who have shown a key is theirs: a slow download is one, too."""
        size = len(self._waiting) * WAITING_BYTES
        if self.awaited is Awaited.HEAD:
            size += self.taken_bytes + len(self._headers) * HEADER_BYTES
        if self.is_full and self._is_strange():
            size += self.transport.get_write_buffer_size()
        return size

    def _hold(self, size: int) -> None:
        if size != self._held_bytes and self._address is not None:
            self._held_bytes = size
            self.held.set(self, self._address, size)

    def end(self) -> None:
        """At once, whatever it wanted to say or hear."""
        self._is_broken = True
        self._hold(0)
        self.transport.abort()

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
    return min(CONNECTIONS_MAX, max(limit // 2, limit - FILES_SPARE))
