"""Reading requests of REST: JSON and multipart bodies, bounded, into calls for the service."""

import re
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from peik.core.letter import Enclosed
from peik.core.trace import HEADER, PARENT_HEADER, read_parent, read_trace
from peik.errors import BadInput, Problem, TooLarge
from peik.storage.spool import SpoolPort
from peik.web.access import header_in

# Bodies as they come in, piece by piece and within bounds: what is compressed, and forms with files, which go
# straight to the spool. What cannot be read is said in Telegram's words; another door says it in its own.


FILES_MAX = 50
FIELDS_MAX = 1000
PART_HEAD_BYTES_MAX = 4 * 1024
KIND_BYTES_MAX = 512  # of a Content-Type with its boundary
BOUNDARY_BYTES_MAX = 256  # RFC 2046 allows 70; the parser takes no more than this
STEP_BYTES = 256 * 1024  # inflated at once
RATIO_MAX = 200  # texts shrink to a tenth; what is a thousandth of itself is nothing but repetition,
RATIO_FREE_BYTES = 1024 * 1024  # and so much of it harms nobody

T = TypeVar("T")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class UnreadableBody(Exception):
    """A request that cannot be read; said in Telegram's words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class ClientGone(Exception):
    """The client broke off in the middle of its request. Nothing was accepted, and nobody hears an answer."""


def too_large() -> UnreadableBody:
    return UnreadableBody(413, "Request Entity Too Large")


def not_utf8() -> UnreadableBody:
    return UnreadableBody(400, "Bad Request: strings must be encoded in UTF-8")


async def body_of(receive: Receive, bytes_max: int) -> AsyncIterator[bytes]:
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise too_large()
        if chunk:
            yield chunk
        if not message.get("more_body", False):
            return


async def inflated(chunks: AsyncIterator[bytes], coding: bytes, bytes_max: int) -> AsyncIterator[bytes]:
    """The body without its compression, which Telegram's server takes too. Never more of it than one step in memory."""
    if coding in (b"", b"identity"):
        async for chunk in chunks:
            yield chunk
        return
    if coding not in (b"gzip", b"x-gzip", b"deflate"):
        raise UnreadableBody(415, "Unsupported Media Type: unsupported content-encoding")
    inflater = zlib.decompressobj(47)  # takes gzip and zlib by their headers
    taken = size = 0
    async for chunk in chunks:
        taken += len(chunk)
        rest, is_full = chunk, False
        while rest or is_full:  # what was taken in may fill more steps than one
            try:
                piece = inflater.decompress(rest, STEP_BYTES)
            except zlib.error:
                raise _not_inflated() from None
            rest, is_full = inflater.unconsumed_tail, len(piece) == STEP_BYTES
            size += len(piece)
            if size > min(bytes_max, RATIO_FREE_BYTES + taken * RATIO_MAX):
                raise too_large()
            if piece:
                yield piece
    if not inflater.eof:
        raise _not_inflated()


def _not_inflated() -> UnreadableBody:
    return UnreadableBody(400, "Bad Request: can't decompress the request")


class FormPart(msgspec.Struct, frozen=True):
    """The head of a part; its content follows."""

    name: str
    filename: str | None
    content_type: str


_END = None  # of a part's content

# RFC 5987, as older versions of Python's most used client write names that are not ASCII. Telegram's server does not know it
# and takes such a file for a text; nobody means that.
_EXTENDED_NAME = re.compile(rb";\s*filename\*\s*=\s*utf-8''([^;\s]+)", re.IGNORECASE)


class RequestForm:
    """A multipart body, part by part as it comes in: never more of it in memory than one piece."""

    def __init__(self, content_type: bytes, chunks: AsyncIterator[bytes]) -> None:
        is_short = len(content_type) <= KIND_BYTES_MAX
        boundary = parse_options_header(content_type)[1].get(b"boundary") if is_short else None
        if not boundary or len(boundary) > BOUNDARY_BYTES_MAX:
            raise UnreadableBody(400, "Bad Request: boundary not found")
        self.is_whole = False  # its last boundary was seen
        self._chunks = chunks
        self._events: deque[FormPart | bytes | None] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._field = bytearray()
        self._value = bytearray()
        self._head_bytes = 0
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._on_field,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header,
                "on_headers_finished": self._on_head,
                "on_part_data": self._on_data,
                "on_part_end": self._on_end,
                "on_end": self._on_last,
            },
        )

    async def parts(self) -> AsyncIterator[FormPart]:
        """Every part. The content of each must be read before the next is asked for."""
        while await self._fill():
            event = self._events.popleft()
            if isinstance(event, FormPart):
                yield event

    async def content(self) -> AsyncIterator[bytes]:
        while await self._fill():
            event = self._events.popleft()
            if event is _END:
                return
            assert isinstance(event, bytes)
            yield event
        raise UnreadableBody(400, "Bad Request: the form ends in the middle of a part")

    async def _fill(self) -> bool:
        while not self._events:
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                return False
            try:
                self._parser.write(chunk)
            except FormParserError:
                raise UnreadableBody(400, "Bad Request: can't parse the form") from None
        return True

    # What the parser tells us.

    def _begin(self) -> None:
        self._headers = {}
        self._head_bytes = 0

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._count(end - start)

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._count(end - start)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > PART_HEAD_BYTES_MAX:
            raise UnreadableBody(431, "Request Header Fields Too Large")

    def _on_header(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field, self._value = bytearray(), bytearray()

    def _on_head(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        options = parse_options_header(disposition)[1]
        name = _text(options.get(b"name", b""))
        if not name:
            raise UnreadableBody(400, "Bad Request: field name in multipart/form-data not found")
        filename = options.get(b"filename")
        if (extended := _EXTENDED_NAME.search(disposition)) is not None:
            filename = unquote_to_bytes(extended[1])
        kind = self._headers.get(b"content-type", b"application/octet-stream").decode("latin-1")
        self._events.append(FormPart(name, None if filename is None else _text(filename), kind))

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(data[start:end])

    def _on_end(self) -> None:
        self._events.append(_END)

    def _on_last(self) -> None:
        self.is_whole = True


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise not_utf8() from None


async def read_form(
    form: RequestForm, *, spool: SpoolPort, file_bytes_max: int, room: int, fields_max: int = FIELDS_MAX
) -> tuple[dict[str, str], list[Enclosed]]:
    """The texts, which have `room` bytes in all, and the files, which are durable in the spool when this returns; of a name the
    first counts. Raises Unreadable, Gone, and what the spool raises; leaves no file behind then."""
    fields: dict[str, str] = {}
    enclosed: dict[str, Enclosed] = {}
    spare: list[str] = []  # a second file of the same name does not count
    count = 0
    try:
        async for part in form.parts():
            if part.filename is None:
                count += 1
                if count > fields_max:
                    raise UnreadableBody(413, "Request Entity Too Large: too much parameters")
                value = await _field(form, room)
                room -= len(value)
                fields.setdefault(part.name, _text(value))
                continue
            if len(enclosed) + len(spare) >= FILES_MAX:
                raise UnreadableBody(413, "Request Entity Too Large: too much files attached")
            kept = await spool.keep(form.content(), size_bytes_max=file_bytes_max)
            if part.name in enclosed:
                spare.append(kept.blob)
                continue
            enclosed[part.name] = kept.as_enclosed(
                part.name, filename=part.filename or "file", content_type=part.content_type
            )
    except BaseException:
        spool.remove([one.blob for one in enclosed.values()] + spare)
        raise
    if spare:
        spool.remove(spare)
    return fields, list(enclosed.values())


async def _field(form: RequestForm, room: int) -> bytes:
    value = bytearray()
    async for chunk in form.content():
        value += chunk
        if len(value) > room:
            raise UnreadableBody(413, "Request Entity Too Large: too much parameters in form data")
    return bytes(value)


LETTER_FIELDS_MAX = 100
FIELDS_BYTES_MAX = 1024 * 1024


_HEADER = HEADER.lower().encode()
_PARENT_HEADER = PARENT_HEADER.lower().encode()


async def read_body(request: Request, *, bytes_max: int) -> bytes:
    """The whole body, or TooLarge before more than the bound was taken."""
    _refuse_announced(request, bytes_max)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


def _refuse_announced(request: Request, bytes_max: int) -> None:
    for name, value in request.scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > bytes_max:
            raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(code="body_too_large", detail=f"The request is larger than {bytes_max} bytes. Send less at once.")


def read_traced(request: Request) -> str | None:
    """What the headers say that this answers: ours counts before `traceparent`. Raises BadInput."""
    own = header_in(request.scope, _HEADER)
    if own:
        return read_trace(own)
    parent = header_in(request.scope, _PARENT_HEADER)
    return None if parent is None else read_parent(parent)


# ---- multipart: the letter as JSON in the field `letter`, and files under the names of their parameters ----


async def read_multipart(
    request: Request, spool: SpoolPort, letter_of: Callable[[dict[str, str]], T], *, file_bytes_max: int
) -> tuple[T, tuple[Enclosed, ...]]:
    """The letter and its files, which are durable in the spool when this returns."""
    bound = file_bytes_max + 2 * FIELDS_BYTES_MAX
    _refuse_announced(request, bound)
    kind = header_in(request.scope, b"content-type") or ""
    enclosed: list[Enclosed] = []
    try:
        form = RequestForm(kind.encode("latin-1"), body_of(request.receive, bound))
        fields, enclosed = await read_form(
            form, spool=spool, file_bytes_max=file_bytes_max, room=FIELDS_BYTES_MAX, fields_max=LETTER_FIELDS_MAX
        )
        if not form.is_whole:  # a letter must not be accepted without half of its files
            raise UnreadableBody(400, "it breaks off before its last boundary")
        return letter_of(fields), tuple(enclosed)
    except BaseException as error:
        spool.remove([one.blob for one in enclosed])
        if isinstance(error, UnreadableBody):
            raise _bad_form(error) from None
        if isinstance(error, ClientGone):
            raise ClientDisconnect from None
        raise


def _bad_form(error: UnreadableBody) -> Problem:
    detail = f"The form cannot be read: {error.words.removeprefix('Bad Request: ')}."
    kind = TooLarge if error.status == 413 else BadInput
    return kind(code="body_too_large" if error.status == 413 else "bad_multipart", detail=detail)
