"""The server's side of every connection: heads and bodies must come in within a time and a size, idle ones end, all are counted.

uvicorn bounds none of these by itself; a client that sends a byte an hour would keep its connection, and many would keep
others out.
"""

import asyncio
import enum
import resource
from collections.abc import Iterable
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S_MAX = 30.0  # from the first byte, or from the connection, to the end of the headers
HEAD_BYTES_MAX = 256 * 1024  # as Telegram's own server
BODY_PAUSE_S_MAX = 60.0
BODY_BYTES_PER_S_MIN = 100.0  # after the first minute; a poor mobile uplink has ten times that
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

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._hand_on)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES_MAX:  # else nobody would tell a fast writer to wait
            self._hand_on()

    def close(self) -> None:
        self._hand_on()
        self._transport.close()

    def _hand_on(self) -> None:
        if not self._held:
            return
        whole = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        if not self._transport.is_closing():
            self._transport.write(whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a memory for time."""

    connections_max = 1 << 30
    _awaited: Awaited
    _since: float  # when it began to be awaited
    _heard_at: float
    _taken_bytes: int

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]  # as uvicorn declares it
        super().connection_made(cast(asyncio.Transport, WholeAnswers(transport, self.loop)))
        self._await(Awaited.HEAD)
        if len(self.connections) > self.connections_max:
            transport.abort()

    def _await(self, awaited: Awaited) -> None:
        self._awaited = awaited
        self._since = self._heard_at = self.loop.time()
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

    def on_headers_complete(self) -> None:
        self._await(Awaited.BODY)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._await(Awaited.REQUEST)
        super().on_message_complete()

    def is_overdue(self, now: float) -> bool:
        """Whether the client keeps us waiting for longer than a living one would."""
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
