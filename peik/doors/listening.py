"""The server's side of every connection: heads and bodies must come in within a time and a size, answers must be taken, idle ones
end, all are counted.

uvicorn bounds none of these by itself; a client that sends a byte an hour would keep its connection, and many would keep
others out.
"""

import asyncio
import enum
import resource
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S_MAX = 30.0  # from the first byte, or from the connection, to the end of the headers
HEAD_BYTES_MAX = 256 * 1024  # as Telegram's own server
HEADERS_MAX = 200  # a browser sends about twenty; each of 60,000 small ones would cost us many times its size
BODY_PAUSE_S_MAX = 60.0
BODY_BYTES_PER_S_MIN = 100.0  # after the first minute; a poor mobile uplink has ten times that
ANSWER_PAUSE_S_MAX = 120.0  # in which a client has taken nothing of what waits for it
ADDRESS_SHARE = 0.75  # of all connections: one address, even that of a proxy, leaves some for others
KEEP_ALIVE_S = 75  # bots keep connections in pools; one that we end just as it is used costs them an error
SWEEP_TICKS = 50  # uvicorn ticks every tenth of a second
HELD_BYTES_MAX = 64 * 1024
FILES_SPARE = 512  # descriptors for the store, the spool and the way to Telegram


class Awaited(enum.Enum):
    """What a connection waits for from its client."""

    REQUEST = "the next request"
    HEAD = "the rest of a head"
    BODY = "the rest of a body"


class WholeAnswers:
    """A transport that hands on in one piece what is written in one turn of the loop.

    uvicorn writes head and body apart. A kill between the two leaves half an answer, for whose rest node-fetch (grammY,
    Telegraf) waits for minutes; on a broken connection without any answer it says so at once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.written_bytes = 0  # given to the transport so far

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self.hand_on)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES_MAX:  # else nobody would tell a fast writer to wait
            self.hand_on()

    def close(self) -> None:
        self.hand_on()
        self._transport.close()

    def hand_on(self) -> None:
        """All that is held, now."""
        if not self._held:
            return
        whole = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        if not self._transport.is_closing():
            self.written_bytes += len(whole)
            self._transport.write(whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a memory for time."""

    connections_max = 1 << 30
    address_connections_max = 1 << 30  # of one address
    addresses: ClassVar[Counter[str]] = Counter()  # how many connections each has open
    _address: str | None = None
    _gone_bytes = 0  # of answers, when it was last looked
    _gone_at: float
    _awaited: Awaited
    _since: float  # when it began to be awaited
    _heard_at: float
    _taken_bytes: int

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]  # as uvicorn declares it
        self._answers = WholeAnswers(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, self._answers))
        self._heard_at = self._gone_at = self.loop.time()
        self._await(Awaited.HEAD)
        if self.client is not None:
            self._address = self.client[0]
            self.addresses[self._address] += 1
        is_greedy = self._address is not None and self.addresses[self._address] > self.address_connections_max
        if len(self.connections) > self.connections_max or is_greedy:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.addresses[self._address] -= 1
            if not self.addresses[self._address]:
                del self.addresses[self._address]
        super().connection_lost(exc)

    def _await(self, awaited: Awaited) -> None:
        self._awaited = awaited
        self._since = self._heard_at  # what is awaited changes with what comes in, and with nothing else
        self._taken_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)
        self._taken_bytes += len(data)
        if self._awaited is Awaited.HEAD and self._taken_bytes > HEAD_BYTES_MAX:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._await(Awaited.HEAD)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > HEADERS_MAX:
            raise ValueError("too many headers")  # uvicorn answers 400 then, and closes

    def on_headers_complete(self) -> None:
        self._await(Awaited.BODY)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._await(Awaited.REQUEST)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._answers.hand_on()  # it is whole: why wait for the next turn
        super().on_response_complete()

    def is_overdue(self, now: float) -> bool:
        """Whether the client keeps us waiting for longer than a living one would."""
        if self._is_deaf(now):
            return True
        match self._awaited:
            case Awaited.HEAD:
                return now - self._since > HEAD_S_MAX
            case Awaited.BODY:
                took_s = now - self._since
                is_crawling = took_s > BODY_PAUSE_S_MAX and self._taken_bytes < took_s * BODY_BYTES_PER_S_MIN
                is_silent = now - self._heard_at > BODY_PAUSE_S_MAX
                return (is_crawling or is_silent) and not self.flow.read_paused
            case Awaited.REQUEST:
                # uvicorn ends an idle connection itself; but not one on which empty lines come in.
                is_idle = self.cycle is None or self.cycle.response_complete
                return is_idle and self.timeout_keep_alive_task is None and now - self._since > KEEP_ALIVE_S

    def _is_deaf(self, now: float) -> bool:
        """Whether it takes nothing of what is written to it. Such a connection never closes by itself: what is in the buffer has
        to go first."""
        waiting = self._answers.get_write_buffer_size()
        gone = self._answers.written_bytes - waiting
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
        if isinstance(connection, GuardedProtocol) and connection.is_overdue(now):
            connection.transport.abort()


def raise_file_limit() -> int:
    """As many open files as the system allows; how many connections that leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    return max(limit // 2, limit - FILES_SPARE)
