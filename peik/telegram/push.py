"""Takes messages to webhooks: one connection each, only the status of the answer counts, no redirect is followed.

Addresses come from anyone who holds a key, so by default only machines of the open internet are spoken to. The check is made
on what the name resolved to, and the connection goes to that very address: a name that changes in between gains nothing.
"""

import asyncio
import contextlib
import ssl
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik import __version__
from peik.core.address import AddressReach
from peik.core.outcome import NetworkFault, Reply
from peik.inbox.store import PushAnswer
from peik.outbox.store import Posted
from peik.telegram.connect import (
    Connect,
    PrivateError,
    Resolve,
    Spoken,
    detail_of,
    direct,
    first_to_answer,
    interleaved,
    system_context,
    system_resolve,
    within,
)
from peik.telegram.http import ANSWER_BYTES_MAX, HttpConnection, HttpExchange

POST_ANSWER_BYTES_MAX = (
    64 * 1024
)  # of head and body; what a receiver says beyond its status is read for politeness only


class HttpPoster:
    """See `peik.outbox.store.Poster`."""

    def __init__(
        self,
        *,
        may_be_private: bool,
        resolve: Resolve = system_resolve,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._reach = AddressReach.private(may_be_private)
        self._resolve = resolve
        self._ssl_context = ssl_context

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> Posted:
        answer = _Answer()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(url, headers, body, answer)
        except PrivateError as refusal:
            return Posted(why=f"{refusal}, and PEIK_HOOKS_ALLOW_PRIVATE is off")
        except TimeoutError:
            return Posted(status=answer.status, why=f"no answer within {timeout_s:g} s")
        except (OSError, UnicodeError) as error:
            return Posted(status=answer.status, why=detail_of(error))

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes, answer: "_Answer") -> Posted:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        is_tls = parts.scheme == "https"
        found = await self._resolve(host, parts.port or (443 if is_tls else 80))
        loop = asyncio.get_running_loop()
        peer = await first_to_answer(loop, interleaved(within(found, self._reach)))
        tls, name = (self._tls(), host) if is_tls else (None, None)
        transport, _ = await loop.create_connection(lambda: answer, sock=peer, ssl=tls, server_hostname=name)
        try:
            transport.write(_request(parts, headers, body))
            return await answer.ended
        finally:
            transport.abort()

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = system_context()
        return self._ssl_context


def _request(parts: urllib.parse.SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {parts.netloc}",
        f"User-Agent: Peik/{__version__}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


class _Answer(asyncio.Protocol):
    """Reads one answer as far as it matters. `status` is known once its head is."""

    def __init__(self) -> None:
        self.status = 0
        self.ended: asyncio.Future[Posted] = asyncio.get_running_loop().create_future()
        self._parser = HttpResponseParser(self)
        self._received = 0

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(Posted(status=self.status, why=why))

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._end("the answer is not HTTP")
        if self._received > POST_ANSWER_BYTES_MAX:
            self._end("the answer is too large")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection ended before the answer")

    # What the parser tells us.

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # 100 Continue and its kin come before the answer
            self.status = status

    def on_message_complete(self) -> None:
        if self.status:
            self._end("")


# Takes updates to bots over HTTP: connections stay open, the answer is read whole and bounded, no redirect is
# followed.
#
# An address leads no further than it may, whatever its name resolves to when it is called. Who may go far and who may
# not never share a connection.


PUSH_CONNECT_S = 10.0
PUSH_IDLE_S_MAX = 30.0
PUSH_ANSWER_BYTES_MAX = 2 * 1024 * 1024  # a call in it has at most 1 MiB of parameters

_Place = tuple[str, str, int, AddressReach]  # scheme, host, port, and how far it may lead


class HttpPusher:
    """See `peik.inbox.store.PushPort`. Made inside the running loop that it then belongs to."""

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        resolve: Resolve = system_resolve,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._resolve = resolve
        self._ssl_context = ssl_context
        self._idle: defaultdict[_Place, list[HttpConnection]] = defaultdict(list)  # the most recently used last
        self._places: dict[HttpConnection, _Place] = {}
        self._all_lost: asyncio.Future[None] | None = None

    async def push(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> PushAnswer:
        headers = {"Content-Type": "application/json", **headers}
        return await self.ask("POST", url, headers, body, timeout_s=timeout_s, reach=reach)

    async def ask(
        self, verb: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> PushAnswer:
        """Any request. What goes on a kept connection that is closed at that moment is sent once more."""
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        place = (parts.scheme, parts.hostname or "", port, reach)
        try:
            payload = _push_request(verb, parts, headers, body)
            async with asyncio.timeout(timeout_s):
                return await self._exchange(place, payload)
        except PrivateError as refusal:
            return PushAnswer(why=f"{refusal}: see PEIK_PUSHES_ALLOW_PRIVATE")
        except TimeoutError:
            return PushAnswer(why=f"no answer within {timeout_s:g} s")
        except (OSError, UnicodeError) as error:
            return PushAnswer(why=detail_of(error))

    async def _exchange(self, place: _Place, payload: bytes) -> PushAnswer:
        kept = self._take_idle(place)
        if kept is not None:
            pushed = await self._over(kept, payload)
            if pushed is not None:
                return pushed
        # A connection that was kept may be closed by the bot at the very moment of its use. Updates are delivered at
        # least once, so one more try on a new connection is better than to call the bot away.
        async with asyncio.timeout(PUSH_CONNECT_S):
            _, connection = await self._connect(place)(self._loop, self._new)
        self._places[connection] = place
        return await self._over(connection, payload) or PushAnswer(
            why="the bot closed the connection before it answered"
        )

    async def _over(self, connection: HttpConnection, payload: bytes) -> PushAnswer | None:
        """What came back; None if the connection was closed instead."""
        answered: asyncio.Future[PushAnswer | None] = self._loop.create_future()
        peer = connection.peer()

        def done(reply: Reply) -> None:
            if not answered.done():
                answered.set_result(_pushed(reply, ip_address=peer))

        connection.send(HttpExchange(payload=payload, timeout_s=0.0, done=done), self._loop.time())
        try:
            return await answered
        finally:
            if not answered.done() or answered.cancelled():
                connection.abort()

    def _connect(self, place: _Place) -> Connect:
        scheme, host, port, reach = place
        if scheme == "https" and self._ssl_context is None:
            self._ssl_context = system_context()
        return direct(
            host=host,
            port=port,
            ssl_context=self._ssl_context if scheme == "https" else None,
            reach=reach,
            resolve=self._resolve,
        )

    async def close(self) -> None:
        for connection in tuple(self._places):
            connection.abort()
        if self._places:
            self._all_lost = self._loop.create_future()
            await self._all_lost

    # ---- connections ----

    def _take_idle(self, place: _Place) -> HttpConnection | None:
        idle = self._idle[place]
        while idle:
            connection = idle.pop()
            if connection.is_usable(self._loop.time()):
                return connection
            connection.abort()
        return None

    def _new(self) -> HttpConnection:
        return HttpConnection(self._loop, self, idle_s_max=PUSH_IDLE_S_MAX, answer_bytes_max=PUSH_ANSWER_BYTES_MAX)

    def released(self, connection: HttpConnection) -> None:
        self._idle[self._places[connection]].append(connection)

    def lost(self, connection: HttpConnection) -> None:
        place = self._places.pop(connection, None)
        if place is not None:
            with contextlib.suppress(ValueError):  # it was busy
                self._idle[place].remove(connection)
            if not self._idle[place]:
                del self._idle[place]
        if self._all_lost is not None and not self._places and not self._all_lost.done():
            self._all_lost.set_result(None)


def _pushed(reply: Reply, *, ip_address: str | None) -> PushAnswer | None:
    if reply.fault is NetworkFault.RESET:
        return None
    if reply.fault is not None:
        return PushAnswer(why=reply.detail, ip_address=ip_address)
    return PushAnswer(status=reply.status, body=reply.body, retry_after_s=reply.retry_after_s, ip_address=ip_address)


def _push_request(verb: str, parts: urllib.parse.SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"{verb} {target} HTTP/1.1",
        f"Host: {parts.netloc.rpartition('@')[2]}",
        f"User-Agent: Peik/{__version__}",
        *((f"Content-Length: {len(body)}",) if verb != "GET" else ()),
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


# Warm connections to one server, for callers that wait: each carries one request at a time, and none is repeated.


CONNECT_S = 10.0
# uvicorn closes after 5 idle seconds; a request on a connection that is just being closed would be lost in doubt.
IDLE_S_MAX = 4.0


class PoolRequest(HttpExchange):
    """A request whose reply is awaited, by no clock of its own."""

    __slots__ = ("answered", "is_written")

    def __init__(self, payload: bytes, loop: asyncio.AbstractEventLoop, *, is_written: bool = True) -> None:
        self.answered: asyncio.Future[Reply] = loop.create_future()
        super().__init__(payload=payload, timeout_s=0.0, done=self._tell)
        self.is_written = is_written

    def _tell(self, reply: Reply) -> None:
        if not self.answered.done():
            self.answered.set_result(reply)


class ConnectionPool:
    """Made inside the running loop that it then belongs to."""

    def __init__(self, connect: Connect, *, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect = connect
        self._answer_bytes_max = answer_bytes_max
        self._connections: set[HttpConnection] = set()
        self._idle: list[HttpConnection] = []  # the most recently used last
        self._all_lost: asyncio.Future[None] | None = None

    async def begin(self, asked: PoolRequest) -> HttpConnection:
        """Send it on a connection of its own. Raises OSError or UnicodeError if there is no way there; then nothing was sent."""
        connection = await self._take()
        connection.send(asked, self._loop.time())
        return connection

    def leave(self, connection: HttpConnection, asked: PoolRequest) -> None:
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

    async def _take(self) -> HttpConnection:
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(now):
                return connection
            connection.abort()
        _, connection = await self.dial(self._new)
        self._connections.add(connection)
        return connection

    def _new(self) -> HttpConnection:
        return HttpConnection(self._loop, self, idle_s_max=IDLE_S_MAX, answer_bytes_max=self._answer_bytes_max)

    def released(self, connection: HttpConnection) -> None:
        self._idle.append(connection)

    def lost(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        with contextlib.suppress(ValueError):  # it was busy
            self._idle.remove(connection)
        if self._all_lost is not None and not self._connections and not self._all_lost.done():
            self._all_lost.set_result(None)
