"""The carrier to a Bot API server: few warm connections, a queue for whoever finds none free, one clock for all.

It answers every request with one Reply. It never repeats a request of which a byte may have left.
"""

import asyncio
import contextlib
import selectors
import ssl
import time
import urllib.parse
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Generic, TypeVar

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik.core.outcome import NetworkFault, Reply
from peik.core.token import Token
from peik.errors import BadInput
from peik.telegram.connect import Connect, detail_of, direct, fault_of, system_context
from peik.telegram.http import HEAD_BYTES_MAX, HttpConnection, HttpExchange
from peik.telegram.port import Carrier, Interrupted, Request
from peik.telegram.upload import Spoiled, UploadBody, UploadForm

# Which connections have something to read that the loop has not read yet, asked of the kernel once for all of them.
#
# One question each would be as many calls to the system, and with each of them the interpreter may go to another
# thread.


T = TypeVar("T")

# A FIN is on its way for longer than this, and is not seen then by anybody who asks before each request either.
LOOK_S = 0.002


class ReadableSockets(Generic[T]):
    """Knows its connections by their file numbers. What it says is as old as LOOK_S at most."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._numbers: dict[T, int] = {}
        self._found: frozenset[T] = frozenset()
        self._looked_at = float("-inf")

    def add(self, connection: T, number: int) -> None:
        self._selector.register(number, selectors.EVENT_READ, connection)
        self._numbers[connection] = number
        self.forget()

    def discard(self, connection: T) -> None:
        """Before its number is another's."""
        number = self._numbers.pop(connection, None)
        if number is not None:
            self._selector.unregister(number)

    def forget(self) -> None:
        """Something was read: what was found before that says nothing about who is idle only now."""
        self._looked_at = float("-inf")

    def __contains__(self, connection: T) -> bool:
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            self._found = frozenset(key.data for key, _ in self._selector.select(0))
        return connection in self._found

    def close(self) -> None:
        self._selector.close()


# How often time is looked at: every deadline here may be late by this much, and no request has a timer of its own.
SWEEP_S = 0.25
# A dead host must not draw hundreds of connects; a living one is warm within a few round trips.
CONNECTS_MAX = 8
# A peer that answered this recently is alive, and a refused connect means only that it wants no more of them.
ALIVE_S = 1.0
WAITING_MAX = 20_000
HEADS_MAX = 4_096


class BotApiCarrier:
    """Takes calls to one Bot API server. Made inside the running loop that it then belongs to."""

    def __init__(
        self,
        api_root: str,
        *,
        connections_max: int = 256,
        idle_s_max: float = 25.0,
        connect_timeout_s: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._connections_max = connections_max
        self._idle_s_max = idle_s_max
        self._connect_timeout_s = connect_timeout_s
        root = Root(api_root)
        if root.is_tls and ssl_context is None:
            ssl_context = system_context()
        self._connect = connect or direct(
            host=root.host, port=root.port, ssl_context=ssl_context if root.is_tls else None
        )
        self._root = root
        self._heads: dict[tuple[str, str], bytes] = {}

        self._connections: set[HttpConnection] = set()
        self._idle: list[HttpConnection] = []  # the most recently used last
        self._stirring: ReadableSockets[HttpConnection] = ReadableSockets()
        self._waiting: deque[HttpExchange] = deque()
        self._attempts: set[asyncio.Task[None]] = set()
        self._uploads: set[asyncio.Task[None]] = set()
        self._queued = 0  # how many have ever waited; numbers them
        self._attempted = 0  # the number of the last one who waited when an attempt began
        self._has_failed = False  # an attempt failed: no new one until the others ended, or the next sweep
        self._answered_at = float("-inf")
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_due_at = 0.0
        self._is_late = False
        self._is_closing = False
        self._all_lost: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"BotApiCarrier({self._root.host}:{self._root.port})"

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        if self._is_closing:
            self._loop.call_soon(done, _not_tried("closing"))
        elif request.enclosures:
            upload = self._loop.create_task(self._upload(request, done))
            self._uploads.add(upload)
            upload.add_done_callback(self._uploads.discard)
        else:
            params = request.params
            head = self._heads.get((request.token.reveal(), request.method)) or self._head(request)
            payload = b"%bapplication/json\r\nContent-Length: %d\r\n\r\n%b" % (head, len(params), params)
            self._dispatch(HttpExchange(payload=payload, timeout_s=request.timeout_s, done=done))

    async def carry(self, request: Request) -> Reply:
        answer: asyncio.Future[Reply] = self._loop.create_future()

        def settle(reply: Reply) -> None:
            if not answer.done():  # the caller may have stopped waiting
                answer.set_result(reply)

        self.start(request, settle)
        return await answer

    async def close(self) -> None:
        self._is_closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._attempts:
            for attempt in self._attempts:
                attempt.cancel()
            await asyncio.wait(self._attempts)
        self._fail_waiting(_not_tried("closing"), up_to=self._queued)
        for connection in tuple(self._connections):
            if connection.exchange is not None:
                connection.fail(NetworkFault.RESET, "closing")
            else:
                connection.abort()
        if self._uploads:
            await asyncio.wait(self._uploads)
        if self._connections:
            self._all_lost = self._all_lost or self._loop.create_future()
            await self._all_lost
        self._stirring.close()
        await asyncio.sleep(0)  # every `done` was handed to the loop before this

    def _head(self, request: Request) -> bytes:
        """The head up to its content type. It is the same for each call of one bot's method, so it is kept."""
        head = self._root.head(token=request.token.reveal(), method=request.method)
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[request.token.reveal(), request.method] = head
        return head

    async def _upload(self, request: Request, done: Callable[[Reply], None]) -> None:
        try:
            form = UploadForm(request.params, request.enclosures)
            opened = await self._loop.run_in_executor(None, form.open_files)
        except Spoiled as error:
            self._loop.call_soon(done, Reply(fault=NetworkFault.SPOILED, left=False, detail=str(error)))
            return
        with opened:
            if self._is_closing:
                self._loop.call_soon(done, _not_tried("closing"))
                return
            payload = b"%bmultipart/form-data; boundary=%b\r\nContent-Length: %d\r\n\r\n%b" % (
                self._head(request),
                form.boundary,
                form.size_bytes,
                form.opening,
            )
            upload = UploadBody(payload=payload, timeout_s=request.timeout_s, done=done, loop=self._loop)
            self._dispatch(upload)
            await upload.stream(self._loop, form, opened)

    # Finding a connection for each exchange, and an exchange for each connection.

    def _dispatch(self, exchange: HttpExchange) -> None:
        now = self._now()
        if self._sweeper is None:
            self._sweep_later(now)
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.is_usable(now) if connection in self._stirring else connection.is_alive(now):
                connection.send(exchange, now)
                return
            connection.abort()
        if len(self._waiting) >= WAITING_MAX:
            exchange.end(self._loop, _not_tried("too many requests wait for a connection"))
        else:
            self._queued += 1
            exchange.number = self._queued
            exchange.deadline = now + exchange.timeout_s
            self._waiting.append(exchange)
            self._attempt_more()

    def released(self, connection: HttpConnection) -> None:
        now = self._answered_at = self._now()
        if not self._waiting:
            self._idle.append(connection)
            self._stirring.forget()
        elif connection.is_usable(now):
            connection.send(self._waiting.popleft(), now)
        else:
            connection.abort()  # `lost` follows, and finds another for who waits

    def lost(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        self._stirring.discard(connection)
        with contextlib.suppress(ValueError):  # it was busy
            self._idle.remove(connection)
        if self._all_lost is not None and not self._connections and not self._all_lost.done():
            self._all_lost.set_result(None)
        self._attempt_more()

    # Opening connections.

    def _attempt_more(self) -> None:
        """Begin as many attempts as there are requests waiting, within all bounds."""
        wanted = min(
            len(self._waiting),
            CONNECTS_MAX,
            self._connections_max - len(self._connections),
        )
        # After a failure the attempts still under way are seen out first; see `_attempt_failed`.
        while len(self._attempts) < wanted and not self._has_failed and not self._is_closing:
            self._attempted = self._queued
            self._attempts.add(self._loop.create_task(self._attempt()))

    async def _attempt(self) -> None:
        attempt = asyncio.current_task()
        assert attempt is not None, "an attempt is a task"
        try:
            found = await self._open()
        finally:
            self._attempts.discard(attempt)
        if isinstance(found, Reply):
            self._attempt_failed(found)
            return
        # Only now is it ours: uvloop drops a connect that is cancelled late without a word to the protocol.
        self._connections.add(found)
        self._stirring.add(found, found.number)
        self._has_failed = False
        if self._waiting:
            found.send(self._waiting.popleft(), self._now())
        elif found.rest():  # a released connection was quicker, and this one is kept for the next
            self._idle.append(found)
        else:
            found.abort()
        self._attempt_more()

    async def _open(self) -> HttpConnection | Reply:
        """A connection that can be written to, or the reason why there is none."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await self._connect(self._loop, self._new_connection)
        except (OSError, UnicodeError) as error:
            return Reply(fault=fault_of(error), left=False, detail=detail_of(error))
        if connection.is_usable(self._now()):
            return connection
        connection.abort()
        return Reply(
            fault=NetworkFault.REFUSED, left=False, detail="the peer closed the connection as soon as it was open"
        )

    def _new_connection(self) -> HttpConnection:
        return HttpConnection(self._loop, self, idle_s_max=self._idle_s_max)

    def _attempt_failed(self, failure: Reply) -> None:
        """Tell those for whom the attempts were made, once no hope is left for them.

        An attempt is made for all who wait when it begins, not for one: whichever connection comes first takes the
        first in the queue. So while other attempts are under way nobody is told, and no new one begins, or there would
        always be one more to hope for. When the last has failed, all who waited when it began hear so at once, since a
        thousand of them behind a dead host must not learn it eight by eight. Who came later gets attempts of their own.
        """
        self._has_failed = True
        if self._attempts:
            return
        is_busy = len(self._connections) > len(self._idle)
        if is_busy and self._now() - self._answered_at < ALIVE_S:
            return  # the peer only wants no more connections: those it has come free, and the sweep tries again
        self._has_failed = False
        self._fail_waiting(failure, up_to=self._attempted)
        self._attempt_more()

    def _fail_waiting(self, reply: Reply, *, up_to: int) -> None:
        while self._waiting and self._waiting[0].number <= up_to:
            self._waiting.popleft().end(self._loop, reply)

    # Time.

    def _sweep_later(self, now: float) -> None:
        self._sweep_due_at = now + SWEEP_S
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Look at every deadline. The work is bounded by the connections, and by those who wait."""
        now = self._now()
        is_late = now - self._sweep_due_at > SWEEP_S
        if is_late and not self._is_late:
            # The loop was held up, not the peer: answers may lie unread. Once, they are given one more turn.
            self._is_late = True
        else:
            self._is_late = False
            self._end_overdue(now)
        for connection in [idle for idle in self._idle if not idle.is_usable(now)]:
            self._idle.remove(connection)
            connection.abort()
        if not self._attempts:
            self._has_failed = False
        self._attempt_more()
        if self._connections or self._waiting or self._attempts:
            self._sweep_later(now)
        else:
            self._sweeper = None

    def _end_overdue(self, now: float) -> None:
        for connection in tuple(self._connections):
            exchange = connection.exchange
            if exchange is not None and exchange.is_overdue(connection, now):
                what = "no answer came in time" if exchange.is_written else "the upload stood still"
                connection.fail(NetworkFault.TIMEOUT, what)
        if any(now >= exchange.deadline for exchange in self._waiting):
            waiting, self._waiting = self._waiting, deque()
            fault = NetworkFault.CONNECT_TIMEOUT if self._attempts else NetworkFault.NOT_TRIED
            for exchange in waiting:
                if now < exchange.deadline:
                    self._waiting.append(exchange)
                else:
                    exchange.end(self._loop, Reply(fault=fault, left=False, detail="no connection came free in time"))


class Root:
    """Where a Bot API server is: the parts of its URL."""

    def __init__(self, api_root: str) -> None:
        try:
            parts = urllib.parse.urlsplit(api_root)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            self.host = parts.hostname or ""
            # In the Host header a name in another script is written as the DNS knows it.
            named = f"[{self.host}]" if ":" in self.host else self.host
            self._host_header = named.encode("ascii" if named.isascii() else "idna")
        except ValueError:  # UnicodeError is one
            is_url = False
        if not is_url:
            raise BadInput(
                code="malformed_api_root",
                detail="The API root should be a URL like https://api.telegram.org or http://localhost:8081.",
            )
        self.is_tls = parts.scheme == "https"
        usual_port = 443 if self.is_tls else 80
        self.port = parts.port or usual_port
        if self.port != usual_port:
            self._host_header += b":%d" % self.port
        self._path = urllib.parse.quote(parts.path.rstrip("/"), safe="/%:@").encode()

    def head(self, *, token: str, method: str) -> bytes:
        # A method is whatever a caller wrote: quoted, it can be wrong but never a header of the caller's own.
        path = urllib.parse.quote(method, safe="/").encode()
        return b"POST %b/bot%b/%b HTTP/1.1\r\nHost: %b\r\nContent-Type: " % (
            self._path,
            token.encode(),
            path,
            self._host_header,
        )

    def file_head(self, *, token: str, path: str) -> bytes:
        """The head of a download up to its last header, each line ended."""
        quoted = urllib.parse.quote(path, safe="/").encode()
        return b"GET %b/file/bot%b/%b HTTP/1.1\r\nHost: %b\r\nAccept-Encoding: identity\r\nConnection: close\r\n" % (
            self._path,
            token.encode(),
            quoted,
            self._host_header,
        )


def _not_tried(detail: str) -> Reply:
    return Reply(fault=NetworkFault.NOT_TRIED, left=False, detail=detail)


# Two carriers as one: long polls go by connections of their own. Parked polls of thousands of bots, or a thousand
# that connect at once after an outage, never keep a letter waiting for a connection.


_POLL = "getUpdates"


class SplitCarrier:
    def __init__(self, *, letters: Carrier, polls: Carrier) -> None:
        self._letters = letters
        self._polls = polls

    def __repr__(self) -> str:
        return f"SplitCarrier({self._letters!r})"

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        (self._polls if request.method == _POLL else self._letters).start(request, done)

    async def carry(self, request: Request) -> Reply:
        return await self._of(request).carry(request)

    async def close(self) -> None:
        await asyncio.gather(self._letters.close(), self._polls.close())

    def _of(self, request: Request) -> Carrier:
        return self._polls if request.method == _POLL else self._letters


# Files from a Bot API server, streamed: one connection each, read no faster than somebody takes them. Nothing is
# stored.


CONNECT_S_MAX = 10.0
HEAD_S_MAX = 60.0
STALL_S_MAX = 60.0  # as for uploads: a minute without a byte is a dead path
AHEAD_BYTES_MAX = 256 * 1024


class HttpDownloader:
    """Fetches files from a Bot API server. Like a carrier it answers with facts: no answer at all is a Reply."""

    def __init__(
        self, api_root: str, *, connect: Connect | None = None, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._root = Root(api_root)
        if self._root.is_tls and ssl_context is None:
            ssl_context = system_context()
        self._connect = connect or direct(
            host=self._root.host, port=self._root.port, ssl_context=ssl_context if self._root.is_tls else None
        )

    async def open(self, token: Token, path: str, *, headers: Mapping[str, str]) -> "HttpDownload | Reply":
        """The answer once its head is there; or why there is none."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                _, download = await self._connect(loop, HttpDownload)
        except (OSError, UnicodeError) as error:
            return Reply(fault=fault_of(error), left=False, detail=detail_of(error))
        try:
            download.transport.write(self._root.file_head(token=token.reveal(), path=path) + _lines(headers))
            async with asyncio.timeout(HEAD_S_MAX):
                await download.headed
        except TimeoutError:
            download.close()
            return Reply(fault=NetworkFault.TIMEOUT, detail="no answer came in time")
        except BaseException:
            download.close()
            raise
        if not download.status:
            download.close()
            return Reply(fault=NetworkFault.RESET, detail="the connection ended before the answer")
        return download


def _lines(headers: Mapping[str, str]) -> bytes:
    # A value is a client's: what is no plain text is left out, so that no line of its own can be in it.
    plain = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in plain.items()) + b"\r\n"


class HttpDownload(asyncio.Protocol):
    """A file on its way here. Nothing is read ahead of its reader by more than a bound."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.headed: asyncio.Future[None] = loop.create_future()
        self._parser = HttpResponseParser(self)
        self._waiting: deque[bytes] = deque()
        self._ahead_bytes = 0
        self._head_bytes = 0
        self._is_paused = False
        self._is_whole = False
        self._is_framed = False  # by Content-Length or chunks; else the answer ends with the connection
        self._is_lost = False
        self._more = asyncio.Event()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        while True:
            while self._waiting:
                chunk = self._waiting.popleft()
                self._ahead_bytes -= len(chunk)
                if self._is_paused and self._ahead_bytes < AHEAD_BYTES_MAX // 2:
                    self._is_paused = False
                    self.transport.resume_reading()
                yield chunk
            if self._is_whole:
                return
            if self._is_lost:
                raise Interrupted("the connection ended in the middle of the file")
            self._more.clear()
            try:
                async with asyncio.timeout(STALL_S_MAX):
                    await self._more.wait()
            except TimeoutError:
                self.close()
                raise Interrupted("the file stopped in the middle") from None

    def close(self) -> None:
        self.transport.abort()

    # What the transport tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport, so this cannot be asserted.
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._is_whole:
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.close()
            return
        if not self.status:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.close()
        if self._ahead_bytes > AHEAD_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            with contextlib.suppress(RuntimeError):  # it is closing already
                self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self.status and not self._is_framed and exc is None:
            self._is_whole = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        if not self.headed.done():
            self.headed.set_result(None)

    # What the parser tells us.

    def on_message_begin(self) -> None:
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        self._is_framed = self._is_framed or name in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # 100 Continue and its kin come before the answer
            self.status = status
            self._wake()

    def on_body(self, data: bytes) -> None:
        self._waiting.append(data)
        self._ahead_bytes += len(data)
        self._more.set()

    def on_message_complete(self) -> None:
        if self.status:
            self._is_whole = True
            self._more.set()
