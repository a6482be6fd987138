"""Takes updates to bots over HTTP: connections stay open, the answer is read whole and bounded, no redirect is followed.

An address leads no further than it may, whatever its name resolves to when it is called. Who may go far and who may not never
share a connection.
"""

import asyncio
import contextlib
import ssl
import urllib.parse
from collections import defaultdict
from collections.abc import Mapping

from peik import __version__
from peik.carrier.dialling import Connect, PrivateError, Resolve, detail_of, direct, system_resolve
from peik.carrier.http import Connection, Exchange
from peik.carrier.trust import system_context
from peik.core.address import Reach
from peik.core.reply import Fault, Reply
from peik.inbox_ports import Pushed

CONNECT_S = 10.0
IDLE_S_MAX = 30.0
ANSWER_BYTES_MAX = 2 * 1024 * 1024  # a call in it has at most 1 MiB of parameters

_Place = tuple[str, str, int, Reach]  # scheme, host, port, and how far it may lead


class HttpPusher:
    """See `peik.inbox_ports.Pusher`. Made inside the running loop that it then belongs to."""

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        resolve: Resolve = system_resolve,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._resolve = resolve
        self._ssl_context = ssl_context
        self._idle: defaultdict[_Place, list[Connection]] = defaultdict(list)  # the most recently used last
        self._places: dict[Connection, _Place] = {}
        self._all_lost: asyncio.Future[None] | None = None

    async def push(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: Reach
    ) -> Pushed:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        place = (parts.scheme, parts.hostname or "", port, reach)
        try:
            payload = _request(parts, headers, body)
            async with asyncio.timeout(timeout_s):
                return await self._exchange(place, payload)
        except PrivateError as refusal:
            return Pushed(why=f"{refusal}: see PEIK_PUSHES_ALLOW_PRIVATE")
        except TimeoutError:
            return Pushed(why=f"no answer within {timeout_s:g} s")
        except (OSError, UnicodeError) as error:
            return Pushed(why=detail_of(error))

    async def _exchange(self, place: _Place, payload: bytes) -> Pushed:
        kept = self._take_idle(place)
        if kept is not None:
            pushed = await self._over(kept, payload)
            if pushed is not None:
                return pushed
        # A connection that was kept may be closed by the bot at the very moment of its use. Updates are handed on at
        # least once, so one more try on a new connection is better than to call the bot away.
        async with asyncio.timeout(CONNECT_S):
            _, connection = await self._connect(place)(self._loop, self._new)
        self._places[connection] = place
        return await self._over(connection, payload) or Pushed(why="the bot closed the connection before it answered")

    async def _over(self, connection: Connection, payload: bytes) -> Pushed | None:
        """What came back; None if the connection was closed instead."""
        answered: asyncio.Future[Pushed | None] = self._loop.create_future()

        def done(reply: Reply) -> None:
            if not answered.done():
                answered.set_result(_pushed(reply))

        connection.send(Exchange(payload=payload, timeout_s=0.0, done=done), self._loop.time())
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

    def _take_idle(self, place: _Place) -> Connection | None:
        idle = self._idle[place]
        while idle:
            connection = idle.pop()
            if connection.is_usable(self._loop.time()):
                return connection
            connection.abort()
        return None

    def _new(self) -> Connection:
        return Connection(self._loop, self, idle_s_max=IDLE_S_MAX, answer_bytes_max=ANSWER_BYTES_MAX)

    def released(self, connection: Connection) -> None:
        self._idle[self._places[connection]].append(connection)

    def lost(self, connection: Connection) -> None:
        place = self._places.pop(connection, None)
        if place is not None:
            with contextlib.suppress(ValueError):  # it was busy
                self._idle[place].remove(connection)
            if not self._idle[place]:
                del self._idle[place]
        if self._all_lost is not None and not self._places and not self._all_lost.done():
            self._all_lost.set_result(None)


def _pushed(reply: Reply) -> Pushed | None:
    if reply.fault is Fault.RESET:
        return None
    if reply.fault is not None:
        return Pushed(why=reply.detail)
    return Pushed(status=reply.status, body=reply.body, retry_after_s=reply.retry_after_s)


def _request(parts: urllib.parse.SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {parts.netloc.rpartition('@')[2]}",
        f"User-Agent: Peik/{__version__}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body
