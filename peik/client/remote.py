"""The transport to a Peik far away: a `peik serve` asked over REST, its problems raised again as what they were there."""

import asyncio
import base64
import contextlib
import re
import secrets
import ssl
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik.accounts.feeds import FeedFilter
from peik.archive.api import FeedQuery, MessageApi
from peik.archive.store import LineKind
from peik.client.calls import (
    FileParcel,
    Letter,
    chunks,
)
from peik.client.handlers import Handlers
from peik.client.jobs import GivenKind, QueuedJob
from peik.client.transport import FeedLine, ImportedFile, decoder_of, line_of, until_stopped
from peik.core.letter import Backoff, LetterCall, Priority, State
from peik.core.outcome import Reply
from peik.core.units import rfc3339
from peik.errors import (
    BadInput,
    Conflict,
    Denied,
    Forbidden,
    NotFound,
    Problem,
    StoreUnavailable,
    TooLarge,
    TooMany,
    Unavailable,
)
from peik.jobs.api import JobApi
from peik.jobs.model import JobRequest
from peik.telegram.connect import detail_of, direct
from peik.telegram.http import HEAD_BYTES_MAX, GarbledAnswer, HttpConnection, reason_of
from peik.telegram.push import ConnectionPool, PoolRequest
from peik.web.operations import declared, request_for

# HTTP to one Peik: a few warm connections, each with one request at a time. It repeats nothing by itself.

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


# The transport.

WAIT_TURN_S = 20.0  # one request's share of a long wait: well below what proxies on the way put up with
BACK_S = 0.5  # between two questions to a Peik that does not answer, while somebody waits
BACK_S_MAX = 8.0  # while somebody listens
_LINES = frozenset(LineKind)
BATCH_TIMEOUT_S = 120.0
T = TypeVar("T")


class RemoteTransport:
    def __init__(self, url: str, key: str, ssl_context: ssl.SSLContext | None) -> None:
        self._url = url
        self._key = key
        self._ssl_context = ssl_context
        self._wire: HttpWire | None = None

    async def open(self) -> None:
        """Nothing is asked yet: a Peik that is not up now may be later."""
        self._wire = HttpWire(self._url, key=self._key, ssl_context=self._ssl_context)

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    # ---- updates ----

    def serve(self, handlers: Handlers) -> None:
        raise BadInput(
            code="handlers_need_open",
            detail="Handlers run in a program on Peik.open. From here, read the stream of arrivals over REST, or have "
            "them pushed to an address.",
        )

    async def until_stopped(self) -> None:
        await until_stopped()

    # ---- jobs ----

    def work(self, kind: GivenKind) -> None:
        raise BadInput(
            code="jobs_need_open",
            detail=f"Jobs of the kind {kind.kind.name} are done by a program on Peik.open. From here they are queued.",
        )

    async def queue_job(self, request: JobRequest) -> QueuedJob:
        return await self.ask(JobApi.queue, into=QueuedJob, body=_job_body(request))

    # ---- letters in ----

    async def accept(self, calls: Sequence[LetterCall]) -> list[Letter]:
        if len(calls) == 1:
            reply = await self.exchange("POST", "/v1/letters", body=encode(_body(calls[0])))
            return [read(_decode_letter, reply)]
        reply = await self.exchange(
            "POST",
            "/v1/letters/batch",
            body=encode({"letters": [_body(call) for call in calls]}),
            timeout_s=BATCH_TIMEOUT_S,
        )
        ids = read(_decode_ids, reply).ids
        # The answer tells ids only: to see how a repeat under an idempotency key stands, ask for it.
        states = (State.WAITING if call.send_at_ms is None else State.DELAYED for call in calls)
        return [Letter(id=letter_id, state=state) for letter_id, state in zip(ids, states, strict=True)]

    async def accept_with_files(self, call: LetterCall, parcels: Sequence[FileParcel]) -> Letter:
        boundary = f"peik-{secrets.token_hex(16)}"
        async with contextlib.AsyncExitStack() as begun:
            # Each is opened and tried first: a file that cannot be read must not cost a request that breaks off.
            opened = [(parcel, *await _begin(parcel, begun)) for parcel in parcels]
            reply = await self.exchange(
                "POST",
                "/v1/letters",
                stream=_form(boundary, encode(_body(call)), opened),
                content_type=f"multipart/form-data; boundary={boundary}",
                timeout_s=BATCH_TIMEOUT_S,
            )
        return read(_decode_letter, reply)

    # ---- accounts ----

    def import_files(
        self, paths: Sequence[Path], *, agent_id: str, check: bool, keep_files: bool
    ) -> AsyncGenerator[ImportedFile, None]:
        raise BadInput(
            code="import_needs_open",
            detail="Session files are taken in where Peik runs: with Peik.open, or with `peik sessions import` over there.",
        )

    async def listen(
        self, wanted: FeedFilter, *, after: Mapping[str, int] | None, reader: str | None
    ) -> AsyncGenerator[FeedLine, None]:
        """A stream that is taken up again after a break."""
        if reader is not None:
            after = (await self.ask(MessageApi.get_reader, into=_Reader, name=reader)).places
        query = FeedQuery(
            session_id=wanted.session_id,
            agent_id=wanted.agent_id,
            chat_id=wanted.chat_id,
            kinds=_LINES if wanted.kinds is None else wanted.kinds,
        )
        path = request_for(declared(MessageApi.stream_messages), {"query": query}).target
        places = None if after is None else dict(after)  # up to where everything was told; None: from now on
        is_begun = False
        pause_s = BACK_S
        while self.is_open:
            last_id = None if places is None else id_of(places, wanted.session_id)
            try:
                async with aclosing(frames(self.stream(path, last_id=last_id))) as found:
                    async for frame in found:
                        is_begun, pause_s = True, BACK_S
                        line = _line(frame)
                        if line is not None:
                            yield line
                        # A caller that asks for the next one is done with this one.
                        passed = _passed(frame, line, places or {})
                        if reader is not None and passed:
                            await self._confirm(reader, passed)
                        places = {**(places or {}), **passed}
            except Unavailable as error:
                # Once it has begun, a Peik that goes away is waited for; one that cannot be understood is not.
                if self.is_open and (not is_begun or error.code == NOT_PEIK):
                    raise
            if self.is_open:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, BACK_S_MAX)

    async def _confirm(self, reader: str, places: Mapping[str, int]) -> None:
        pause_s = BACK_S
        while True:
            try:
                await self.ask(MessageApi.set_reader, into=_Reader, name=reader, body={"places": places})
                return
            except Unavailable:
                if not self.is_open:
                    return  # closed: it is told again
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, BACK_S_MAX)

    # ---- asking ----

    @property
    def is_open(self) -> bool:
        return self._wire is not None

    async def ask(
        self,
        handler: Callable[..., Awaitable[object]],
        *,
        into: type[T],
        timeout_s: float = ANSWER_TIMEOUT_S,
        **given: Any,
    ) -> T:
        """What an operation of an API answers, asked by the method that does it there, as a value of the library."""
        asked = request_for(declared(handler), given)
        reply = await self.exchange(asked.verb, asked.target, body=asked.body or b"", timeout_s=timeout_s)
        return decoder_of(into)(b"null") if reply.status == 204 else read(decoder_of(into), reply)

    async def ask_ended(
        self,
        handler: Callable[..., Awaitable[object]],
        *,
        into: type[T],
        is_over: Callable[[T], bool],
        timeout_s: float,
        **given: Any,
    ) -> T:
        """The same of something that ends, once it has ended, or as it stands when the time is over."""
        path = request_for(declared(handler), given).target
        return await self.watch(path, decoder_of(into), is_over=is_over, timeout_s=timeout_s)

    async def exchange(
        self,
        verb: str,
        path: str,
        *,
        body: bytes = b"",
        stream: AsyncGenerator[bytes, None] | None = None,
        content_type: str = "application/json",
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Reply:
        """The answer if it is a good one. Raises the problem that it tells otherwise."""
        reply = await self._open_wire().ask(
            verb, path, body=body, stream=stream, content_type=content_type, timeout_s=timeout_s
        )
        if 200 <= reply.status < 300:
            return reply
        raise _problem(reply)

    async def watch(
        self, path: str, decode: Callable[[bytes], T], *, is_over: Callable[[T], bool], timeout_s: float
    ) -> T:
        """In turns, so that no proxy gives up on a long one; and on through a restart of the Peik over there."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        while True:
            turn_s = max(min(deadline - now(), WAIT_TURN_S), 0.0)
            waiting = path + (f"?wait={turn_s * 1000:.0f}ms" if turn_s > 0 else "")
            try:
                reply = await self.exchange("GET", waiting, timeout_s=turn_s + ANSWER_TIMEOUT_S)
            except Unavailable:
                if now() + BACK_S >= deadline:
                    raise
                await asyncio.sleep(BACK_S)
                continue
            answer = read(decode, reply)
            if is_over(answer) or now() >= deadline:
                return answer

    def stream(self, path: str, *, last_id: str | None) -> AsyncGenerator[bytes, None]:
        """An answer that goes on, as it comes, behind the last event. Raises the problem that it tells instead."""
        return self._open_wire().stream(path, last_id=last_id, problem=_problem)

    def _open_wire(self) -> HttpWire:
        if self._wire is None:
            raise Unavailable(code="closed", detail="This connection to Peik is closed. Connect again.")
        return self._wire


# ---- what is said ----

encode = msgspec.json.Encoder().encode


def _body(call: LetterCall) -> dict[str, object]:
    """`POST /v1/letters` of a call: only what differs from the defaults."""
    terms: dict[str, object] = {
        "bot_id": call.bot_id,
        "priority": call.priority if call.priority != Priority.NORMAL else None,
        "attempts": call.attempts,
        "backoff_ms": call.backoff_ms,
        "backoff": {"type": call.backoff} if call.backoff is not Backoff.EXPONENTIAL else None,
        "timeout_ms": call.timeout_ms,
        "send_at": rfc3339(call.send_at_ms),
        "expires_at": rfc3339(call.expires_at_ms),
        "on_uncertain": call.on_uncertain,
        "idempotency_key": call.idempotency_key,
        "metadata": None if call.metadata is None else msgspec.Raw(call.metadata),
        "webhook_url": call.hook,
        "trace": call.trace,
    }
    given = {name: value for name, value in terms.items() if value is not None}
    return {"method": call.method, "params": msgspec.Raw(call.params), **given}


def _job_body(request: JobRequest) -> dict[str, object]:
    """`POST /v1/jobs` of a request: only what was given."""
    told = msgspec.structs.asdict(request)
    timeout_s, run_at_ms, key = (told.pop(name) for name in ("timeout_s", "run_at_ms", "key"))
    told |= {
        "timeout_ms": None if timeout_s is None else max(int(timeout_s * 1000), 1),
        "run_at": rfc3339(run_at_ms),
        "idempotency_key": key,
    }
    given = {name: value for name, value in told.items() if value is not None}
    return given | {name: _raw(given[name], name) for name in ("params", "metadata", "notice") if name in given}


def _raw(value: object, name: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name} cannot be written as JSON: {error}.") from None


def with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


async def _begin(parcel: FileParcel, begun: contextlib.AsyncExitStack) -> tuple[bytes, AsyncGenerator[bytes, None]]:
    """The first chunk of a file, and the rest. Raises BadInput if it cannot be read."""
    rest = await begun.enter_async_context(contextlib.aclosing(chunks(parcel)))
    return await anext(rest, b""), rest


_Opened = Sequence[tuple[FileParcel, bytes, AsyncGenerator[bytes, None]]]


async def _form(boundary: str, letter: bytes, opened: _Opened) -> AsyncGenerator[bytes, None]:
    """The letter as JSON in the field `letter`, then the files."""
    yield f'--{boundary}\r\nContent-Disposition: form-data; name="letter"\r\n\r\n'.encode() + letter + b"\r\n"
    for parcel, first, rest in opened:
        names = f'name="{_quoted(parcel.field)}"; filename="{_quoted(parcel.filename)}"'
        head = f"Content-Disposition: form-data; {names}\r\nContent-Type: {parcel.content_type}\r\n\r\n"
        yield f"--{boundary}\r\n{head}".encode("utf-8", "replace")
        yield first
        async for chunk in rest:
            yield chunk
        yield b"\r\n"
    yield f"--{boundary}--\r\n".encode()


def _quoted(text: str) -> str:
    """A name inside quotes as browsers write it: with only what would end the quotes or the line escaped."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


# ---- what is answered ----


class _Ids(msgspec.Struct):
    ids: list[str]


class _Reader(msgspec.Struct):
    places: dict[str, int]


class _Told(msgspec.Struct):
    """RFC 9457, as `peik.web.responses` writes it."""

    code: str
    detail: str


_decode_letter = msgspec.json.Decoder(Letter).decode
_decode_ids = msgspec.json.Decoder(_Ids).decode
_decode_problem = msgspec.json.Decoder(_Told).decode


def read(decode: Callable[[bytes], T], reply: Reply) -> T:
    try:
        return decode(reply.body or b"null")  # there is no body where nothing is to be said
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(code=NOT_PEIK, detail=f"What answers at this address is no Peik: {error}.") from None


def _line(frame: StreamFrame) -> FeedLine | None:
    """None: it tells only a place."""
    if frame.event not in _LINES:
        return None
    try:
        return line_of(LineKind(frame.event), frame.data, number=frame.number)
    except msgspec.DecodeError as error:
        raise Unavailable(code=NOT_PEIK, detail=f"What answers at this address is no Peik: {error}.") from None


def _passed(frame: StreamFrame, line: FeedLine | None, places: Mapping[str, int]) -> dict[str, int]:
    """Which places are others behind this frame. Its id names all of them, but not every line has one."""
    if frame.id is not None:
        return {name: number for name, number in places_of(frame.id).items() if places.get(name) != number}
    return {line.session_id: line.number} if line is not None and line.number else {}


_KINDS: dict[int, type[Problem]] = {
    kind.status: kind for kind in (BadInput, Conflict, Denied, Forbidden, NotFound, TooLarge)
}


def _problem(reply: Reply) -> Problem:
    try:
        told = _decode_problem(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Told(
            code=f"http_{reply.status}", detail=f"The answer was HTTP {reply.status}, and not in Peik's words."
        )
    if reply.status >= 500:
        is_store = told.code.startswith(("store_", "spool_"))
        return (StoreUnavailable if is_store else Unavailable)(code=told.code, detail=told.detail)
    if reply.status == TooMany.status:
        return TooMany(code=told.code, detail=told.detail, wait_s=reply.retry_after_s or TooMany.retry_after_s)
    return _KINDS.get(reply.status, Problem)(code=told.code, detail=told.detail)
