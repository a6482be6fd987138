"""One HTTP/1.1 connection that carries one request at a time.

It knows exactly whether a byte of a request had left. It keeps no queue and repeats nothing: that is its owner's part.
"""

import asyncio
import fcntl
import os
import re
import select
import socket
import struct
import termios
import zlib
from collections.abc import Callable
from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik.core.outcome import NetworkFault, Reply

# Reading HTTP/1.1 answers: bytes in, whole answers out. It has no socket and never waits.


# getUpdates answers stop at 4 MiB and nothing else of the Bot API comes near it; what is larger is no answer.
ANSWER_BYTES_MAX = 64 * 1024 * 1024
HEAD_BYTES_MAX = 256 * 1024
# The peer's own idle time runs from its last byte, ours from the moment that byte was read.
_KEEP_ALIVE_MARGIN_S = 1.0
_LENGTHS = frozenset({10, 11, 14, 16, 17})  # of the names that `on_header` knows
_KEEP_ALIVE = re.compile(rb"timeout\s*=\s*(\d{1,6})", re.IGNORECASE)


class GarbledAnswer(Exception):
    """What came back is not an HTTP answer, or not one of ours."""


class AnswerReader:
    """Bytes in, whole answers out; it has no socket."""

    __slots__ = (
        "_body",
        "_bytes_max",
        "_chunks",
        "_coding",
        "_is_framed",
        "_is_headed",
        "_parser",
        "_received",
        "_received_max",
        "_retry_after",
        "_status",
        "keep_alive_s",
        "may_continue",
    )

    def __init__(self, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._parser = HttpResponseParser(self)
        self._bytes_max = bytes_max
        self._body = b""
        self.keep_alive_s = float("inf")
        self.expect()

    def expect(self) -> None:
        """The next bytes belong to the next answer."""
        self._received = 0
        self._received_max = HEAD_BYTES_MAX
        self._status = 0
        self.may_continue = True
        self._retry_after: int | None = None
        self._chunks: list[bytes] = []
        self._coding = b""
        self._is_framed = False  # by Content-Length or chunks; else the answer ends with the connection
        self._is_headed = False

    def feed(self, data: bytes) -> Reply | None:
        """The answer, once it is whole. Raises GarbledAnswer."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._status:
                raise GarbledAnswer(f"the answer is not HTTP: {error}") from None
            self.may_continue = False  # a whole answer, and then rubbish
        if self._status:
            return self._reply()
        if self._received > self._received_max:
            raise GarbledAnswer(f"the answer is larger than {self._received_max} bytes")
        return None

    def finish(self) -> Reply | None:
        """The answer that ends because the connection did; None if it was cut off. Raises GarbledAnswer."""
        if self._status or not self._is_headed or self._is_framed:
            return None
        self._status = self._parser.get_status_code()
        self._body = b"".join(self._chunks)
        return self._reply()

    @property
    def how_far(self) -> str:
        return "in the middle of its answer" if self._received else "before it answered"

    def _reply(self) -> Reply:
        body, self._body = self._body, b""  # not kept: the next answer may be a poll's, which comes a minute later
        if self._coding and body:
            body = _decoded(body, self._coding)
        return Reply(status=self._status, body=body, retry_after_s=self._retry_after)

    # What the parser tells us.

    def on_message_begin(self) -> None:
        if self._status:
            self.may_continue = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        # Five names matter, and their lengths tell them from nearly all others: cheaper than lower-casing each.
        if len(name) not in _LENGTHS:
            return
        match len(name):
            case 10 if name.lower() == b"keep-alive":
                if (found := _KEEP_ALIVE.search(value)) is not None:
                    self.keep_alive_s = int(found[1]) - _KEEP_ALIVE_MARGIN_S
            case 11 if name.lower() == b"retry-after":
                self._retry_after = int(value) if value.isdigit() and len(value) < 10 else None
            case 14 if name.lower() == b"content-length":
                self._is_framed = True
            case 16 if name.lower() == b"content-encoding":
                self._coding = value.strip().lower()
            case 17 if name.lower() == b"transfer-encoding":
                self._is_framed = value.strip().lower().endswith(b"chunked")

    def on_headers_complete(self) -> None:
        self._is_headed = True
        self._received_max = self._bytes_max

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        if self._status:
            return
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue, 103 Early Hints: the answer itself is still to come
            self._chunks, self._coding = [], b""
            self._is_framed = self._is_headed = False
            return
        self._status = status
        self._body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self.may_continue = self._parser.should_keep_alive()


def _decoded(body: bytes, coding: bytes) -> bytes:
    """We never ask for compression, but a proxy on the way may think it helps."""
    if coding == b"identity":
        return body
    if coding not in (b"gzip", b"x-gzip", b"deflate"):
        raise GarbledAnswer("the answer is compressed in a way nobody asked for")
    # 47 takes gzip and zlib by their headers; some peers mean a raw stream when they say deflate.
    is_raw = coding == b"deflate" and body[0] & 0x0F != 8
    inflater = zlib.decompressobj(-15 if is_raw else 47)
    try:
        plain = inflater.decompress(body, ANSWER_BYTES_MAX)
    except zlib.error:
        raise GarbledAnswer("the answer cannot be decompressed") from None
    if not inflater.eof:
        raise GarbledAnswer("the compressed answer is cut off or too large")
    return plain


# POLLRDHUP is a FIN that the kernel has and nobody read yet. Only Linux tells it apart; elsewhere a FIN is POLLIN.
_POLL_HANGUP = select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)


class HttpExchange:
    """One request, and the caller that waits for its reply."""

    __slots__ = ("deadline", "done", "number", "payload", "timeout_s")

    # False while a body is still being streamed; then the connection cannot carry anything else.
    is_written = True

    def __init__(self, *, payload: bytes, timeout_s: float, done: Callable[[Reply], None]) -> None:
        self.payload = payload
        self.timeout_s = timeout_s
        self.done = done
        self.deadline = 0.0
        self.number = 0

    def begin(self, connection: "HttpConnection", now: float) -> None:
        """The first bytes were just written: from here the time for the answer runs."""
        self.deadline = now + self.timeout_s

    def end(self, loop: asyncio.AbstractEventLoop, reply: Reply) -> None:
        # Through the loop, so that `done` never runs inside `start`, and its surprises never inside a transport.
        loop.call_soon(self.done, reply)

    def answer(self, loop: asyncio.AbstractEventLoop, reply: Reply) -> None:
        """The same for an answer as it is read: the loop itself has called, so that nobody is in the middle of `start`, and a
        turn of the loop is saved for each of them."""
        try:
            self.done(reply)
        except Exception as error:  # noqa: BLE001  as the loop does with what it calls
            loop.call_exception_handler({"message": "whoever waited for an answer failed", "exception": error})

    def is_overdue(self, connection: "HttpConnection", now: float) -> bool:
        return now >= self.deadline


class HttpPool(Protocol):
    """Who owns connections, and is told what becomes of them."""

    def released(self, connection: "HttpConnection") -> None:
        """Its answer is whole, and the connection can carry the next request."""

    def lost(self, connection: "HttpConnection") -> None: ...


class HttpConnection(asyncio.Protocol):
    """One connection: idle, or busy with one exchange that ends exactly once."""

    __slots__ = (
        "_answers",
        "_drained",
        "_exchange",
        "_idle_s_max",
        "_idle_until",
        "_is_new",
        "_is_paused",
        "_is_tls",
        "_loop",
        "_number",
        "_poll",
        "_pool",
        "_socket",
        "_transport",
    )
    _transport: asyncio.Transport
    _socket: socket.socket
    _number: int
    _poll: Callable[[int], list[tuple[int, int]]]

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: HttpPool,
        *,
        idle_s_max: float,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._idle_s_max = idle_s_max
        self._idle_until = float("inf")
        self._is_new = True
        self._answers = AnswerReader(answer_bytes_max)
        self._exchange: HttpExchange | None = None
        self._is_paused = False
        self._is_tls = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def exchange(self) -> HttpExchange | None:
        return self._exchange

    @property
    def number(self) -> int:
        """Of its file, as the system knows it."""
        return self._number

    def is_alive(self, now: float) -> bool:
        """Whether it may still be used, as far as the loop knows."""
        return now < self._idle_until and not self._transport.is_closing()

    def is_usable(self, now: float) -> bool:
        """Whether a request may be written now, as far as anyone on this machine can know.

        The loop may not have read a FIN yet that the kernel already holds, so the socket itself is asked. A request
        written after that FIN would be uncertain for no reason.
        """
        if not self.is_alive(now):
            return False
        events = self._poll(0)
        if not events:
            return True
        # Nobody asked for bytes on an idle connection: TLS close_notify, FIN or rubbish. One exception: a TLS peer
        # sends session tickets right after the handshake, so before its first answer only a hang-up counts.
        return self._is_tls and self._is_new and not events[0][1] & _POLL_HANGUP

    def send(self, exchange: HttpExchange, now: float) -> None:
        assert self._exchange is None, "a connection carries one exchange at a time"
        self._exchange = exchange
        self._is_new = False
        self._answers.expect()
        self._transport.write(exchange.payload)
        exchange.begin(self, now)

    def rest(self) -> bool:
        """Whether it may be kept for another request; from now its idle time runs."""
        idle_s = min(self._answers.keep_alive_s, self._idle_s_max)
        self._idle_until = self._loop.time() + idle_s
        return idle_s > 0

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    async def drain(self) -> None:
        """Returns when more may be written, or when there is no one left to write for."""
        if self._is_paused and self._exchange is not None:
            self._drained = self._loop.create_future()
            await self._drained

    def unacknowledged_bytes(self) -> int:
        """What the peer's machine has not confirmed: our buffer and the kernel's, which may hold megabytes."""
        try:
            queued = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        except (OSError, ValueError):  # not known on this system, or already closed
            return self._transport.get_write_buffer_size()
        return int(struct.unpack("i", queued)[0]) + self._transport.get_write_buffer_size()

    def fail(self, fault: NetworkFault, detail: str) -> None:
        """End the exchange without an answer. Bytes have left, or it would not be here."""
        self._end(Reply(fault=fault, left=True, detail=detail), keep=False)

    def abort(self) -> None:
        self._transport.abort()

    def _end(self, reply: Reply, *, keep: bool) -> None:
        exchange = self._exchange
        assert exchange is not None, "an exchange ends once"
        self._exchange = None
        if self._drained is not None:
            self._wake()
        if keep and self.rest():
            self._pool.released(self)
            exchange.answer(self._loop, reply)
        else:
            exchange.end(self._loop, reply)
            self.abort()

    def _ended_by_peer(self) -> None:
        try:
            reply = self._answers.finish()
        except GarbledAnswer as error:
            self.fail(NetworkFault.GARBLED, str(error))
            return
        if reply is not None:
            self._end(reply, keep=False)
        else:
            self.fail(NetworkFault.RESET, f"the peer closed the connection {self._answers.how_far}")

    def peer(self) -> str | None:
        """The address of the other end."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else None

    # What the transport tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport, so this cannot be asserted.
        self._transport = transport  # type: ignore[assignment]
        self._socket = transport.get_extra_info("socket")
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._number = self._socket.fileno()
        poller = select.poll()
        poller.register(self._number, select.POLLIN | _POLL_HANGUP)
        self._poll = poller.poll

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.abort()  # nobody asked; whatever it is, the next answer could not be told from it
            return
        try:
            reply = self._answers.feed(data)
        except GarbledAnswer as error:
            self.fail(NetworkFault.GARBLED, str(error))
            return
        if reply is not None:
            # An answer to a request that is not yet wholly written is taken, but the rest would follow on the wire.
            is_flushed = exchange.is_written and not self._transport.get_write_buffer_size()
            self._end(reply, keep=self._answers.may_continue and is_flushed)

    def eof_received(self) -> None:
        if self._exchange is not None:
            self._ended_by_peer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._exchange is not None and exc is not None:
            self._read_remains()
        if self._exchange is not None:
            if exc is None:  # TLS peers that leave without close_notify end up here and not in eof_received
                self._ended_by_peer()
            else:
                self.fail(NetworkFault.RESET, f"the connection broke {self._answers.how_far}: {reason_of(exc)}")
        self._wake()
        self._pool.lost(self)

    def _read_remains(self) -> None:
        """Take an answer that came before the reset.

        A server that refuses a large upload answers (413) and closes while we still write. Our write then fails first,
        and the loop gives the connection up without reading; but the answer is in the kernel, and it is a verdict.
        """
        if self._is_tls:
            return
        try:
            while self._exchange is not None and (data := os.read(self._socket.fileno(), 65536)):
                self.data_received(data)
        except OSError:
            return

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None


def reason_of(error: Exception) -> str:
    """A few words for people; never more than they can read."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text[:200]
