"""One request and its answer, as ASGI has them. How bytes come and go is its connection's affair.

Head and body of a short answer leave in one piece. A kill between the two would leave half an answer, for whose rest node-fetch
(grammY, Telegraf) waits for minutes; on a broken connection without any answer it says so at once.
"""

import asyncio
import functools
import http
import re
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

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


class Wire(Protocol):
    """What an exchange needs of its connection."""

    is_full: bool  # the client takes less than is written

    def write(self, data: bytes) -> None: ...
    def read_on(self) -> None: ...
    async def taken(self) -> None: ...
    def lines(self) -> bytes:
        """Headers that all answers have."""
        ...

    def answered(self, exchange: "Exchange") -> None: ...


class Head:
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


_kept = functools.lru_cache(maxsize=HEADS_KEPT)(Head)


def head_of(status: int, headers: Headers) -> Head:
    """Validated and put together once: nearly all answers have the head of one before."""
    return _kept(status, headers) if is_short(headers) else Head(status, headers)


def is_short(headers: Headers) -> bool:
    """Whether it may be kept for answers to come: a thousand of what strangers have sent would be a great deal."""
    return sum([len(value) for _, value in headers]) <= KEPT_BYTES_MAX


@functools.lru_cache(maxsize=4)
def lines_of(headers: Headers) -> bytes:
    """Headers as they are written."""
    return b"".join([_line(name, value) for name, value in headers])


class Exchange:
    """`keeps`: whether the connection may go on after it. `is_bare`: the client knows no chunks (HTTP/1.0)."""

    __slots__ = (
        "_awaits_word", "_chunks", "_head", "_held", "_is_bare", "_is_streamed", "_is_told_whole", "_left_bytes", "_news",
        "_wire", "held_bytes", "is_answered", "is_begun", "is_gone", "is_whole", "keeps", "scope",
    )  # fmt: skip

    def __init__(self, wire: Wire, scope: Scope, *, keeps: bool, awaits_word: bool, is_bare: bool) -> None:
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
        self._head: Head | None = None
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
                # What the client would take for the next answer, or wait for in vain.
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
