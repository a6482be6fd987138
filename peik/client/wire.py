"""HTTP to one Peik: a few warm connections, each with one request at a time. It repeats nothing by itself."""

import asyncio
import base64
import contextlib
import re
import ssl
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import cast

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik.core.outcome import Reply
from peik.errors import BadInput, Unavailable
from peik.telegram.connect import detail_of, direct
from peik.telegram.http import HEAD_BYTES_MAX, GarbledAnswer, HttpConnection, reason_of
from peik.telegram.push import ConnectionPool, PoolRequest

# Reading an HTTP/1.1 answer that goes on: bytes in, the body as far as it has come out. It has no socket and never
# waits.


REFUSAL_BYTES_MAX = 1024 * 1024


class StreamedAnswer:
    """`status` is 0 until the head is whole. What a refusal says is kept in `refusal`, since it is to be read as one."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._head_bytes = 0
        self.status = 0
        self.is_over = False
        self.refusal = b""

    def feed(self, data: bytes) -> bytes:
        """What came of the body. Raises GarbledAnswer."""
        if not self.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise GarbledAnswer(f"the answer is not HTTP: {error}") from None
        body = b"".join(self._chunks)
        self._chunks.clear()
        if self.status not in (0, 200):
            self.refusal += body
        if len(self.refusal) > REFUSAL_BYTES_MAX or (not self.status and self._head_bytes > HEAD_BYTES_MAX):
            raise GarbledAnswer("the answer is too large")
        return body

    # What the parser tells us.

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        self.is_over = self.status != 0


ANSWER_TIMEOUT_S = 30.0
STALL_S_MAX = 60.0  # an upload that moves no byte for so long is on a dead path
SILENCE_S_MAX = 50.0  # Peik's streams say something every 15 seconds
READ_BYTES = 64 * 1024


class HttpWire:
    """Made inside the running loop that it then belongs to."""

    def __init__(self, url: str, *, key: str, ssl_context: ssl.SSLContext | None = None) -> None:
        """Raises BadInput if this is not the URL of a server, or cannot be a key."""
        root = _Root(url)
        self.place = f"{root.host}:{root.port}"
        self._loop = asyncio.get_running_loop()
        if root.is_tls and ssl_context is None:
            ssl_context = ssl.create_default_context()
        self._warm = ConnectionPool(
            direct(host=root.host, port=root.port, ssl_context=ssl_context if root.is_tls else None)
        )
        self._path = root.path
        self._head = f"Host: {root.host_header}\r\nAuthorization: Bearer {_checked_key(key)}\r\n".encode()
        self._streams: set[asyncio.Transport] = set()

    async def ask(
        self,
        verb: str,
        path: str,
        *,
        body: bytes = b"",
        stream: AsyncGenerator[bytes, None] | None = None,
        content_type: str = "application/json",
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Reply:
        """The answer. Raises Unavailable: "unreachable" if nothing was asked, "no_answer" if it may have been heard."""
        head = f"{verb} {self._path}{path} HTTP/1.1\r\n".encode() + self._head
        framing = "Transfer-Encoding: chunked" if stream is not None else f"Content-Length: {len(body)}"
        payload = head + f"Content-Type: {content_type}\r\n{framing}\r\n\r\n".encode() + body
        asked = PoolRequest(payload, self._loop, is_written=stream is None)
        try:
            connection = await self._warm.begin(asked)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(error) from error
        try:
            if stream is not None:
                await _pour(stream, connection, asked)
            async with asyncio.timeout(timeout_s):
                reply = await asked.answered
        except TimeoutError:
            raise self._no_answer("it took too long") from None
        finally:
            self._warm.leave(connection, asked)
        if reply.fault is not None:
            raise self._no_answer(reply.detail)
        return reply

    async def stream(
        self, path: str, *, last_id: str | None, problem: Callable[[Reply], Exception]
    ) -> AsyncGenerator[bytes, None]:
        """The body of an answer that goes on, as it comes; it is not read faster than it is taken. Raises what `problem`
        makes of an answer that is not good, and Unavailable when the stream breaks off or falls silent."""
        head = f"GET {self._path}{path} HTTP/1.1\r\n".encode() + self._head + b"Accept: text/event-stream\r\n"
        if last_id is not None:
            head += f"Last-Event-ID: {last_id}\r\n".encode()
        reader = asyncio.StreamReader()
        try:
            transport, _ = await self._warm.dial(lambda: asyncio.StreamReaderProtocol(reader))
        except (OSError, UnicodeError) as error:
            raise self._unreachable(error) from error
        # uvloop's transports do not inherit from asyncio.Transport, so this cannot be asserted.
        writable = cast(asyncio.Transport, transport)
        self._streams.add(writable)
        try:
            writable.write(head + b"\r\n")
            answer = StreamedAnswer()
            while not answer.is_over:
                async with asyncio.timeout(SILENCE_S_MAX):
                    data = await reader.read(READ_BYTES)
                if not data:
                    raise self._broken("the connection ended")
                chunk = answer.feed(data)
                if chunk and answer.status == 200:
                    yield chunk
            if answer.status != 200:
                raise problem(Reply(status=answer.status, body=answer.refusal))
        except (OSError, GarbledAnswer) as error:  # TimeoutError is among them
            raise self._broken(reason_of(error)) from None
        finally:
            self._streams.discard(writable)
            writable.abort()

    def _broken(self, why: str) -> Unavailable:
        return Unavailable(code="stream_broken", detail=f"The stream of Peik at {self.place} broke off: {why}.")

    def _no_answer(self, why: str) -> Unavailable:
        return Unavailable(
            code="no_answer",
            detail=f"Peik at {self.place} did not answer: {why}. It may have heard; a repeat with the same "
            "idempotency_key is safe.",
        )

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(
            code="unreachable",
            detail=f"Peik at {self.place} cannot be reached: {detail_of(error)}. Nothing was accepted.",
        )

    async def close(self) -> None:
        for transport in self._streams:
            transport.abort()
        await self._warm.close()


async def _pour(stream: AsyncGenerator[bytes, None], connection: HttpConnection, asked: PoolRequest) -> None:
    """Write the body as fast as Peik takes it, unless it answers before."""
    async with contextlib.aclosing(stream) as chunks, asyncio.timeout(STALL_S_MAX) as stall:
        async for chunk in chunks:
            if connection.exchange is not asked:
                return
            if chunk:
                connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await connection.drain()
            stall.reschedule(asyncio.get_running_loop().time() + STALL_S_MAX)
        if connection.exchange is asked:
            connection.write(b"0\r\n\r\n")
            asked.is_written = True


class _Root:
    """Where a Peik is: the parts of its URL."""

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_url = False
        if not is_url or parts.username is not None or parts.query or parts.fragment:
            raise BadInput(code="bad_url", detail="The address of Peik looks like http://127.0.0.1:8081, nothing more.")
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        usual_port = 443 if self.is_tls else 80
        self.port = parts.port or usual_port
        named = f"[{self.host}]" if ":" in self.host else self.host.encode("idna").decode()
        self.host_header = named if self.port == usual_port else f"{named}:{self.port}"
        self.path = urllib.parse.quote(parts.path.rstrip("/"), safe="/%:@")


def _checked_key(key: str) -> str:
    if key and key.isascii() and key.isprintable() and " " not in key:
        return key
    raise BadInput(code="bad_key", detail="This is not a key of Peik's API: it is one word of plain characters.")


# Server-sent events as they come in: bytes to frames, and places in feeds to the ids that a stream begins behind.


NOT_PEIK = "not_peik"
FRAME_BYTES_MAX = 16 * 1024 * 1024
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a session id that may stand in an id as it is


class StreamFrame(msgspec.Struct, frozen=True, kw_only=True):
    event: str
    data: str
    id: str | None  # of this frame; None: it had none
    number: int  # the line's own, which is Peik's addition; 0: it has none


async def frames(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[StreamFrame, None]:
    """Also those that only tell an id. A frame that is cut off is none. Raises Unavailable if this cannot be a stream."""
    rest = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n\n")
            for one in whole:
                frame = _frame(one.decode("utf-8", "replace"))
                if frame is not None:
                    yield frame
            if len(rest) > FRAME_BYTES_MAX:
                raise Unavailable(code=NOT_PEIK, detail="What answers at this address is no stream of Peik's.")


def _frame(text: str) -> StreamFrame | None:
    """Peik writes one line of data, and ends lines with LF."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    if "data" not in fields and "id" not in fields:
        return None
    number = fields.get("number", "")
    return StreamFrame(
        event=fields.get("event", ""),
        data=fields.get("data", ""),
        id=fields.get("id"),
        number=int(number) if number.isdecimal() else 0,
    )


def id_of(places: Mapping[str, int], session_id: str | None) -> str:
    """As `peik.accounts.stream` writes them: `session_id:number` of one session, or all places as one word."""
    if session_id is not None:
        number = places.get(session_id, 0)
        if _PLAIN.fullmatch(session_id):
            return f"{session_id}:{number}"
        places = {session_id: number}
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).rstrip(b"=").decode()


def places_of(text: str) -> dict[str, int]:
    """What an id says. Raises Unavailable if it is none of Peik's."""
    name, colon, number = text.rpartition(":")
    try:
        if colon:
            return {name: int(number)}
        return _decode_places(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, msgspec.DecodeError):
        raise Unavailable(code=NOT_PEIK, detail="A stream gave an id that is none of Peik's.") from None


_decode_places = msgspec.json.Decoder(dict[str, int]).decode
