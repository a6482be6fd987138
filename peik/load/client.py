"""HTTP to one server for many callers at once: warm connections, one request at a time on each. It repeats nothing."""

import asyncio
import ssl
import urllib.parse

import msgspec

from peik.carrier.dialling import detail_of, direct, fault_of
from peik.carrier.http import Connection, Exchange
from peik.core.reply import Fault, Reply
from peik.errors import BadInput

ANSWER_S = 30.0
CONNECT_S = 10.0
IDLE_S_MAX = 4.0  # uvicorn closes after 5 idle seconds; what meets a connection that is being closed would be in doubt


class Client:
    """Made inside the running loop. What goes wrong on the way is in the reply, as a fault."""

    def __init__(self, url: str, *, key: str = "") -> None:
        """Raises BadInput if this is not the URL of a server."""
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in ("http", "https"):
            raise BadInput(code="bad_url", detail=f"{url!r} is no address; one looks like http://127.0.0.1:8081.")
        is_tls = parts.scheme == "https"
        self.url = url.rstrip("/")
        self._loop = asyncio.get_running_loop()
        context = ssl.create_default_context() if is_tls else None
        self._connect = direct(host=host, port=port or (443 if is_tls else 80), ssl_context=context)
        self._path = parts.path.rstrip("/")
        self._head = f"Host: {parts.netloc}\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")
        self._idle: list[Connection] = []  # the most recently used last
        self._all: set[Connection] = set()
        self._none_left: asyncio.Future[None] | None = None

    async def ask(self, verb: str, path: str, body: object = None, *, timeout_s: float = ANSWER_S) -> Reply:
        """What was answered, whatever its status."""
        payload = b"" if body is None else msgspec.json.encode(body)
        kind = "Content-Type: application/json\r\n" if payload else ""
        head = f"{verb} {self._path}{path} HTTP/1.1\r\n{self._head}{kind}Content-Length: {len(payload)}\r\n\r\n"
        try:
            connection = await self._take()
        except (OSError, UnicodeError) as error:
            return Reply(fault=fault_of(error), left=False, detail=detail_of(error))
        answered: asyncio.Future[Reply] = self._loop.create_future()

        def done(reply: Reply) -> None:
            if not answered.done():
                answered.set_result(reply)

        connection.send(Exchange(payload=head.encode() + payload, timeout_s=timeout_s, done=done), self._loop.time())
        try:
            async with asyncio.timeout(timeout_s):
                return await answered
        except TimeoutError:
            return Reply(fault=Fault.TIMEOUT, left=True, detail=f"no answer within {timeout_s:g} s")
        finally:
            if not answered.done() or answered.cancelled():
                connection.abort()

    async def close(self) -> None:
        """Once no connection is left."""
        for connection in tuple(self._all):
            connection.abort()
        if self._all:
            self._none_left = self._loop.create_future()
            await self._none_left

    # ---- connections ----

    async def _take(self) -> Connection:
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(now):
                return connection
            connection.abort()
        async with asyncio.timeout(CONNECT_S):
            _, connection = await self._connect(
                self._loop, lambda: Connection(self._loop, self, idle_s_max=IDLE_S_MAX, answer_bytes_max=1 << 28)
            )
        self._all.add(connection)
        return connection

    def released(self, connection: Connection) -> None:
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._none_left is not None and not self._all and not self._none_left.done():
            self._none_left.set_result(None)
