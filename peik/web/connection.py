"""HTTP/1.1 on one connection: requests in, answers out in the same order. It notes what it waits for and since when; whether that
is too long is judged in `peik.web.server`.

It stands where uvicorn's own protocol would: uvicorn opens, counts and ends connections. What is ours is the way of a request,
which costs half as much: an answer is one write, idle connections have no timer each, and a request that is whole
when its head is read need not wait for its body, nor for a task if the application takes it at once (`take_at_once`).
"""

import asyncio
import contextvars
import enum
import functools
import http
import logging
import re
import select
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.server import ServerState

# One request and its answer, as ASGI has them. How bytes come and go is its connection's affair.
#
# Head and body of a short answer leave in one piece. A kill between the two would leave half an answer, for whose
# rest node-fetch (grammY, Telegraf) waits for minutes; on a broken connection without any answer it says so at once.


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Headers = tuple[tuple[bytes, bytes], ...]

HELD_BYTES_MAX = 64 * 1024  # of a body that nobody has asked for yet
PIECES_MAX = 256  # of it; one of two bytes takes twenty times as much by itself
HEADS_KEPT = 1024  # answers differ in little but their length
KEPT_BYTES_MAX = 2048  # of one; a longer one is mostly a client's own words, as in a redirect to where he wanted to go

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_BODILESS = (204, 304)


class RequestHead:
    """The head of an answer as it is written, but for what depends on the connection."""

    __slots__ = ("closes", "is_chunked", "length", "lines", "status_line")

    def __init__(self, status: int, headers: Headers) -> None:
        self.status_line = b"HTTP/1.1 %d %b\r\n" % (status, _phrase(status))
        self.lines = b"".join([_line(name, value) for name, value in headers])
        said = {name.lower(): value for name, value in headers}
        self.is_chunked = said.get(b"transfer-encoding", b"").lower() == b"chunked"
        length = said.get(b"content-length")
        self.length = None if length is None or self.is_chunked else int(length)
        self.closes = b"close" in [word.strip() for word in said.get(b"connection", b"").lower().split(b",")]
        if self.length is None and status in _BODILESS:
            self.length = 0


_kept = functools.lru_cache(maxsize=HEADS_KEPT)(RequestHead)


def head_of(status: int, headers: Headers) -> RequestHead:
    """Validated and put together once: nearly all answers have the head of one before."""
    return _kept(status, headers) if is_short(headers) else RequestHead(status, headers)


def is_short(headers: Headers) -> bool:
    """Whether it may be kept for answers to come: a thousand of what strangers have sent would be a great deal."""
    return sum([len(value) for _, value in headers]) <= KEPT_BYTES_MAX


@functools.lru_cache(maxsize=4)
def lines_of(headers: Headers) -> bytes:
    """Headers as they are written."""
    return b"".join([_line(name, value) for name, value in headers])


class ServerExchange:
    """`keeps`: whether the connection may go on after it. `is_bare`: the client knows no chunks (HTTP/1.0)."""

    __slots__ = (
        "_awaits_word", "_chunks", "_head", "_held", "_is_bare", "_is_streamed", "_is_told_whole", "_left_bytes", "_news",
        "_wire", "held_bytes", "is_answered", "is_begun", "is_gone", "is_whole", "keeps", "scope",
    )  # fmt: skip

    def __init__(
        self, wire: "ServerConnection", scope: Scope, *, keeps: bool, awaits_word: bool, is_bare: bool
    ) -> None:
        self.scope = scope
        self.keeps = keeps
        self.is_begun = False
        self.is_gone = False  # the client is
        self.is_whole = False  # its request is
        self.is_answered = False
        self.held_bytes = 0
        self._wire = wire
        self._is_bare = is_bare
        self._awaits_word = awaits_word  # the client sends its body only when it is told to
        self._chunks: list[bytes] = []
        self._is_told_whole = False
        self._news: asyncio.Event | None = None
        self._head: RequestHead | None = None
        self._held: bytes | None = None  # the head, which leaves with the first bytes of the body
        self._is_streamed = False  # nobody knows how long it will be
        self._left_bytes = 0  # to come of an answer whose length was said

    # ---- the request, as it comes in ----

    def take(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        if len(self._chunks) > PIECES_MAX:
            self._chunks = [b"".join(self._chunks)]
        self.held_bytes += len(chunk)
        self._tell()

    def end(self) -> None:
        self.is_whole = True
        self._tell()

    def lose(self) -> None:
        self.is_gone = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()

    @property
    def body(self) -> bytes:
        """What is here of it and was not received yet."""
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    async def receive(self) -> Message:
        if self._awaits_word:
            self._awaits_word = False
            if not self._chunks and not self.is_whole and self._head is None:
                self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self.is_gone and not self.is_answered:
            if self._chunks or (self.is_whole and not self._is_told_whole):
                self._is_told_whole = self.is_whole
                body, self._chunks, self.held_bytes = self.body, [], 0
                return {"type": "http.request", "body": body, "more_body": not self.is_whole}
            self._news = self._news or asyncio.Event()
            self._news.clear()
            self._wire.read_on()
            await self._news.wait()
        return {"type": "http.disconnect"}

    # ---- the answer ----

    @property
    def is_started(self) -> bool:
        """Whether something of the answer has left, or may have."""
        return self._head is not None and self._held is None

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """All of it at once."""
        if not self.is_gone:
            self._start(status, headers)
            self._go_on(body, is_last=True)

    async def send(self, message: Message) -> None:
        if self._wire.is_full and not self.is_gone:
            await self._wire.taken()
        if self.is_gone:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"An answer has no {message['type']}.")

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._head is not None and self._held is None:
            raise RuntimeError("This request is being answered already.")
        self._head = head = head_of(status, tuple(headers))
        self._awaits_word = False
        text = head.status_line + self._wire.lines() + head.lines
        is_streamed = self._is_streamed = head.length is None
        if is_streamed and self._is_bare:
            self.keeps = False  # then its end is the end of the connection
        elif is_streamed and not head.is_chunked and self.scope["method"] != "HEAD":
            text += b"transfer-encoding: chunked\r\n"
        if head.closes:
            self.keeps = False
        elif not self.keeps:
            text += b"connection: close\r\n"
        self._left_bytes = head.length or 0
        self._held = text + b"\r\n"
        if is_streamed:  # its first bytes may be long in coming, and clients want to know that it has begun
            asyncio.get_running_loop().call_soon(self._let_go)

    def _let_go(self) -> None:
        if self._held is not None and not self.is_gone:
            held, self._held = self._held, None
            self._wire.write(held)

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        if self._head is None or self.is_answered:
            raise RuntimeError("A body without its head, or after its end.")
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._is_streamed:
            body = body if self._is_bare else _chunked(body, is_last=is_last)
        else:
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (is_last and self._left_bytes):
                # What the client would take for the next answer, or wait for without end.
                raise RuntimeError("The answer is not as long as its head has said.")
        if self._held is not None:
            body, self._held = self._held + body, None
        if body:
            self._wire.write(body)
        if is_last:
            self.is_answered = True
            self._tell()
            self._wire.answered(self)


def _chunked(body: bytes, *, is_last: bool) -> bytes:
    piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return piece + b"0\r\n\r\n" if is_last else piece


def _line(name: bytes, value: bytes) -> bytes:
    if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        raise RuntimeError(f"{name!r} cannot be a header, or its value cannot.")
    return b"%b: %b\r\n" % (name.lower(), value)


def _phrase(status: int) -> bytes:
    try:
        return http.HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""


HEAD_BYTES_MAX = 32 * 1024  # browsers and bots send a tenth of it
# Of a call at the gateway, whose parameters may stand in its address: a text of 4,096 characters takes up to 36 KB there.
CALL_HEAD_BYTES_MAX = 64 * 1024
SLICE_BYTES = 16 * 1024  # read at once, so that a head is measured before much of it is kept
HEADERS_MAX = 200  # a browser sends about twenty; each of 60,000 small ones would cost us many times its size
QUERY_FIELDS_MAX = 1000  # as Telegram's own server; each costs twenty times its size to read
WAITING_MAX = 1000  # requests behind one; a packet could hold 15,000, each of which costs us fifty times its size
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_REFUSALS = {
    400: b"Invalid HTTP request received.",
    414: b"The address of this request has too many parameters.",
    431: b"The head of this request is too long, or has too many headers.",
}
_log = logging.getLogger("uvicorn.error")  # a name that people's filters know


class Awaited(enum.Enum):
    """What a connection waits for from its client."""

    REQUEST = "the next request"
    HEAD = "the rest of a head"
    BODY = "the rest of a body"


class ServerConnection(asyncio.Protocol):
    transport: asyncio.Transport
    client: tuple[str, int] | None = None
    _server: tuple[str, int] | None = None
    _scheme = "http"
    _url = b""
    _awaits_word = False
    is_full = False
    is_paused = False  # nothing is read
    _paused_at = 0.0
    _is_broken = False  # what came is no HTTP
    _is_leaving = False  # this process ends: the next answer is the last one here
    awaited = Awaited.HEAD
    taken_bytes = 0  # of what is awaited
    _loose_bytes = 0  # of a head, or beside a body: the parser keeps a header, and a trailer, until its end
    _refusal = 400  # the status for what is not taken
    written_bytes = 0  # given to the transport so far

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self.loop = _loop or asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self.keep_alive_s: float = config.timeout_keep_alive
        self.connections = server_state.connections
        self._state = server_state
        self._app = config.loaded_app
        # An application may take some requests at once, without a task. True: it has, and answers later, but not before it has
        # returned. False: nothing was done, and the request goes the usual way.
        self._prompt: Callable[[ServerExchange], bool] | None = getattr(config.loaded_app, "take_at_once", None)
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._current: ServerExchange | None = None  # is being answered
        self._incoming: ServerExchange | None = None  # its request comes in
        self._waiting: deque[ServerExchange] = deque()  # asked before the one before them was answered
        self._room: asyncio.Event | None = None

    # ---- bytes in ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own are none of asyncio's
        self.connections.add(self)  # type: ignore[arg-type]  # a set of uvicorn's own kinds
        self.client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self.heard_at = self.since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        for exchange in (self._current, self._incoming, *self._waiting):
            if exchange is not None and not exchange.is_answered:
                exchange.lose()
        self._waiting.clear()
        self.resume_writing()
        # The parser and exchanges know us: without this only the collector, which comes seldom, would free any of us.
        self._current = self._incoming = None
        del self._parser

    def data_received(self, data: bytes) -> None:
        if self._is_broken:
            return
        self.heard_at = self.loop.time()
        if len(data) <= SLICE_BYTES:
            self._feed(data)
        else:
            whole = memoryview(data)
            for at in range(0, len(data), SLICE_BYTES):
                if not self._is_broken:
                    self._feed(whole[at : at + SLICE_BYTES])
        current = self._current
        if current is not None and not current.is_begun:
            self._begin(current)

    def _feed(self, data: bytes | memoryview) -> None:
        self._loose_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(memoryview(data)[offer.args[0] :])
        except httptools.HttpParserError:
            self._break()
        self.taken_bytes += len(data)
        if self._loose_bytes > self._head_bytes_max() and not self._is_broken:
            if self.awaited is Awaited.BODY:
                self.transport.abort()
            self._refusal = 431
            self._break()

    def _head_bytes(self) -> int:
        """Of a head that is whole."""
        return len(self._url) + sum([len(name) + len(value) + 4 for name, value in self._headers])

    def _head_bytes_max(self) -> int:
        return CALL_HEAD_BYTES_MAX if self._url.startswith(b"/bot") else HEAD_BYTES_MAX

    def _decline(self, rest: memoryview) -> None:
        """Nothing but HTTP/1.1 is spoken here, and a client who offers something else goes on in it. The parser takes all after
        such a head for the other protocol, the body of the request too; what it would make of the bytes that come later is
        another request. So the head is read once more, without the offer, by a parser that has not heard of it."""
        while True:
            asked = b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())
            lines = [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
            self._parser = httptools.HttpRequestParser(self)
            try:
                self._parser.feed_data(b"\r\n".join([asked, *lines, b"", b""]))
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            except httptools.HttpParserError:
                self._break()
                return
            else:
                return

    def _break(self) -> None:
        """What came is no HTTP, and nothing after it can be understood. What came before it is answered first."""
        self._is_broken = True
        if self._waiting and self._waiting[-1] is self._incoming:
            self._waiting.pop()
        if self._current is None or self._current is self._incoming:
            self._refuse()

    def _await(self, awaited: Awaited) -> None:
        self.awaited = awaited
        self.since = self.heard_at  # what is awaited changes with what comes in, and with nothing else
        self.taken_bytes = self._loose_bytes = 0

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._await(Awaited.HEAD)
        self._url = b""
        self._headers = []
        self._awaits_word = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        headers = self._headers
        headers.append((name, value))
        if name == b"expect":
            self._awaits_word = value.lower() == b"100-continue"
        if len(headers) > HEADERS_MAX:
            self._refusal = 431
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():
            if parser.get_method() == b"CONNECT":
                raise ValueError("no proxy")
            return  # see _decline
        if len(self._waiting) >= WAITING_MAX:
            raise ValueError("too many requests at once")
        if self._loose_bytes + SLICE_BYTES > HEAD_BYTES_MAX and self._head_bytes() > self._head_bytes_max():
            self._refusal = 431
            raise ValueError("too long a head")
        self._await(Awaited.BODY)
        version = parser.get_http_version()
        raw_path, query = _parts(self._url)
        if len(query) > QUERY_FIELDS_MAX and query.count(b"&") >= QUERY_FIELDS_MAX:
            self._refusal = 414
            raise ValueError("too many parameters")
        path = raw_path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self._scheme,
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self.client,
            "server": self._server,
            "state": {},
        }
        self._headers = []  # for trailers: who looked at the headers did not see them, so that they must not pass for some
        is_bare = version == "1.0"
        keeps = not is_bare and parser.should_keep_alive() and not self._is_leaving
        awaits_word = self._awaits_word and not is_bare  # HTTP/1.0 has no such word, and would take it for the answer
        exchange = ServerExchange(self, scope, keeps=keeps, awaits_word=awaits_word, is_bare=is_bare)
        self._incoming = exchange
        if self._current is None:
            self._current = exchange
        else:
            self._waiting.append(exchange)
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        exchange = self._incoming
        if exchange is None or exchange.is_answered:
            return  # what is not read of a request that was answered early
        exchange.take(body)
        if exchange.held_bytes > HELD_BYTES_MAX:
            self.pause_reading()

    def on_message_complete(self) -> None:
        if self._incoming is None:
            return  # see _decline
        self._await(Awaited.REQUEST)
        self._incoming.end()
        self._incoming = None

    # ---- requests, one after the other ----

    def _begin(self, exchange: ServerExchange) -> None:
        exchange.is_begun = True
        # Who does not take his answers has to wait, and only a task can.
        if self._prompt is not None and exchange.is_whole and not self.is_full:
            try:
                if self._prompt(exchange):
                    return
            except Exception:  # noqa: BLE001  as any other of the application's
                _log.exception("Exception in ASGI application")
                self._fail(exchange)
                return
        # In a context of its own: this may run in that of the task that has answered the request before.
        task = self.loop.create_task(self._run(exchange), context=self._context.copy())
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    async def _run(self, exchange: ServerExchange) -> None:
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
            if exchange.is_answered or exchange.is_gone:
                return
            _log.error("The application has returned before it had answered.")
        except asyncio.CancelledError:
            self.transport.close()
            raise
        except Exception:  # noqa: BLE001  told of, and answered
            _log.exception("Exception in ASGI application")
            if exchange.is_answered or exchange.is_gone:
                return
        self._fail(exchange)

    def _fail(self, exchange: ServerExchange) -> None:
        if exchange.is_started:
            self.transport.close()
        else:
            exchange.keeps = False
            exchange.answer(500, (_TEXT, (b"content-length", b"21")), b"Internal Server Error")

    def answered(self, exchange: ServerExchange) -> None:
        self._state.total_requests += 1
        if not exchange.keeps:
            self.transport.close()
            return
        if self._waiting:
            self._current = self._waiting.popleft()
            self._begin(self._current)
            return
        self._current = None
        self.read_on()
        if self.awaited is Awaited.REQUEST:
            self.since = self.loop.time()  # it is idle from here on
        if self._is_broken:
            self._refuse()

    def leave(self, *, is_patient: bool) -> None:
        """The process ends: the next answer here is the last one, and says so. A connection on which nothing is asked stays while
        `is_patient`: a client that asks just when it is closed gets an error in place of an answer."""
        self._is_leaving = True
        if self._current is not None:
            last = self._waiting[-1] if self._waiting else self._current
            last.keeps = False
        elif not is_patient and not self._is_heard():
            self.transport.close()

    def _is_heard(self) -> bool:
        """Whether a request has begun to come in, read by us or still with the system."""
        if self.awaited is Awaited.HEAD and self.taken_bytes:
            return True
        look = select.poll()
        look.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(look.poll(0))

    @property
    def is_idle(self) -> bool:
        return self._current is None

    def _refuse(self) -> None:
        broken = self._incoming
        if broken is not None and (broken.is_started or broken.is_answered):
            self.transport.close()  # it has its answer; a second one would pass for a part of it, or for that to the next
            return
        if self._current is not None:
            self._current.lose()
            self._current = None
        words = _REFUSALS[self._refusal]
        _log.warning(words.decode())
        refused = ServerExchange(self, {"method": "GET"}, keeps=False, awaits_word=False, is_bare=False)
        refused.answer(self._refusal, (_TEXT, (b"content-length", b"%d" % len(words))), words)

    # ---- bytes out, and how fast ----

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.written_bytes += len(data)
            self.transport.write(data)

    def lines(self) -> bytes:
        return lines_of(tuple(self._state.default_headers))

    def pause_reading(self) -> None:
        if not self.is_paused and not self.transport.is_closing():
            self.is_paused = True
            self._paused_at = self.loop.time()
            self.transport.pause_reading()

    def read_on(self) -> None:
        if self.is_paused and not self.transport.is_closing():
            self.is_paused = False
            self.heard_at = self.loop.time()
            self.since += self.heard_at - self._paused_at  # the client could not help that
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.is_full = True
        self._room = asyncio.Event()

    def resume_writing(self) -> None:
        self.is_full = False
        if self._room is not None:
            self._room.set()

    async def taken(self) -> None:
        if self._room is not None:
            await self._room.wait()


def _parts(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of what was asked for. Raises for what is no path at all: the parser makes a 400 of it."""
    if url[:1] == b"/" and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    if parsed.path is None:
        raise ValueError("no path")
    return parsed.path, parsed.query or b""


def _address(name: Any) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else None
