"""The parameters of a gateway call: query string, form, JSON or multipart, read as Telegram's own server reads them.

The first value of a name counts, and the query string comes first. JSON that comes alone is not touched: its bytes are the
bytes that go to Telegram. Files are durable in the spool before anything is promised.
"""

import re
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from peik.core.call import PARAMS_BYTES_MAX
from peik.core.letter import Enclosed
from peik.store.spool import Spool

FILES_MAX = 50
FIELDS_MAX = 1000
PART_HEAD_BYTES_MAX = 16 * 1024
BOUNDARY_BYTES_MAX = 256  # RFC 2046 allows 70; the parser takes no more than this
KEY_PARAMETER = "peik_idempotency_key"
_KEY_BYTES = KEY_PARAMETER.encode()

Headers = Iterable[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Unreadable(Exception):
    """A request that cannot be read; said in Telegram's words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class Gone(Exception):
    """The client broke off in the middle of its request. Nothing was accepted, and nobody hears an answer."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a call brought along."""

    params: bytes = b"{}"  # a JSON object, or what a client took for one
    enclosed: tuple[Enclosed, ...] = ()
    key: str | None = None
    trace: str | None = None  # what the call says that it answers: X-Peik-Trace,
    parent: str | None = None  # and traceparent

    def fields(self) -> dict[str, object]:
        """The parameters by name. Raises Unreadable."""
        return _object(self.params)


def given_of(fields: dict[str, str], enclosed: tuple[Enclosed, ...]) -> Given:
    """What a call from within this process brings along; its fields as a form would carry them."""
    return _of_fields(fields, None, enclosed)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The few headers that matter here."""

    content_type: bytes = b""
    coding: bytes = b""
    key: str | None = None
    size_bytes: int | None = None  # as announced
    has_body: bool = False
    trace: str | None = None
    parent: str | None = None


def read_head(headers: Headers) -> Head:
    content_type, coding, key = b"", b"", None
    trace: str | None = None
    parent: str | None = None
    size: int | None = None
    has_body = False
    for name, value in headers:
        match name:
            case b"content-type":
                content_type = value
            case b"content-length":
                size = int(value) if value.isdigit() else None
                has_body = size != 0
            case b"transfer-encoding":
                has_body = True
            case b"content-encoding":
                coding = value.strip().lower()
            case b"idempotency-key":
                key = value.decode("latin-1").strip() or None
            case b"x-peik-trace":
                trace = value.decode("latin-1").strip() or None
            case b"traceparent":
                parent = value.decode("latin-1")
    return Head(
        content_type=content_type,
        coding=coding,
        key=key,
        size_bytes=size,
        has_body=has_body,
        trace=trace,
        parent=parent,
    )


async def read_given(headers: Headers, query: bytes, receive: Receive, *, spool: Spool, file_bytes_max: int) -> Given:
    """Everything that a call brought along. Raises Unreadable, Gone, and what the spool raises; leaves no file behind then."""
    head = read_head(headers)
    given = await _read_given(head, query, receive, spool=spool, file_bytes_max=file_bytes_max)
    if head.trace is None and head.parent is None:
        return given
    return msgspec.structs.replace(given, trace=head.trace, parent=head.parent)


async def _read_given(head: Head, query: bytes, receive: Receive, *, spool: Spool, file_bytes_max: int) -> Given:
    if not head.has_body and not query:
        return Given(key=head.key)
    asked = _pairs(query) if query else {}
    kind = head.content_type.partition(b";")[0].strip().lower()
    if not head.has_body:
        return _of_fields(asked, head.key)
    if kind == b"multipart/form-data":
        bound = file_bytes_max + 2 * PARAMS_BYTES_MAX
        _refuse_announced(head, bound)
        form = _Form(head.content_type, _plain(_body(receive, bound), head.coding, bound))
        return await _read_form(form, asked, head.key, spool=spool, file_bytes_max=file_bytes_max)
    _refuse_announced(head, PARAMS_BYTES_MAX)
    body = b"".join([chunk async for chunk in _plain(_body(receive, PARAMS_BYTES_MAX), head.coding, PARAMS_BYTES_MAX)])
    if kind == b"application/json":
        return _of_json(body, asked, head.key)
    if kind == b"application/x-www-form-urlencoded":
        return _of_fields({**_pairs(body), **asked}, head.key)
    return _of_fields(asked, head.key)  # the body of any other kind means nothing to Telegram


def _refuse_announced(head: Head, bytes_max: int) -> None:
    if head.size_bytes is not None and head.size_bytes > bytes_max:
        raise _too_large()


def _too_large() -> Unreadable:
    return Unreadable(413, "Request Entity Too Large")


async def _body(receive: Receive, bytes_max: int) -> AsyncIterator[bytes]:
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large()
        if chunk:
            yield chunk
        if not message.get("more_body", False):
            return


async def _plain(chunks: AsyncIterator[bytes], coding: bytes, bytes_max: int) -> AsyncIterator[bytes]:
    """The body without its compression, which Telegram's server takes too."""
    if coding in (b"", b"identity"):
        async for chunk in chunks:
            yield chunk
        return
    if coding not in (b"gzip", b"x-gzip", b"deflate"):
        raise Unreadable(415, "Unsupported Media Type: unsupported content-encoding")
    inflater = zlib.decompressobj(47)  # takes gzip and zlib by their headers
    size = 0
    async for chunk in chunks:
        try:
            inflated = inflater.decompress(chunk, bytes_max - size + 1)
        except zlib.error:
            raise Unreadable(400, "Bad Request: can't decompress the request") from None
        size += len(inflated)
        if size > bytes_max:
            raise _too_large()
        yield inflated
    if not inflater.eof:
        raise Unreadable(400, "Bad Request: can't decompress the request")


# ---- texts ----


def _pairs(text: bytes) -> dict[str, str]:
    if len(text) > PARAMS_BYTES_MAX:
        raise _too_large()
    try:
        pairs = parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except UnicodeDecodeError:
        raise _not_utf8() from None
    except ValueError:
        raise Unreadable(413, "Request Entity Too Large: too much parameters") from None
    return dict(reversed(pairs))  # the first of a name counts


def _not_utf8() -> Unreadable:
    return Unreadable(400, "Bad Request: strings must be encoded in UTF-8")


def _object(text: bytes) -> dict[str, object]:
    if not text.strip():
        return {}
    try:
        return _decode_object(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unreadable(400, "Bad Request: can't parse JSON: an object is expected") from None


_decode_object = msgspec.json.Decoder(dict[str, object]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def _of_json(body: bytes, asked: dict[str, str], key: str | None) -> Given:
    if not asked and _KEY_BYTES not in body:
        return Given(params=body if body.strip() else b"{}", key=key)
    _object(body)  # whatever it says must be whole: parts of it are about to be written anew
    fields: dict[str, object] = {**(_decode_raw(body) if body.strip() else {}), **asked}
    named = fields.pop(KEY_PARAMETER, None)
    if isinstance(named, msgspec.Raw):
        named = msgspec.json.decode(named)
    return Given(params=_encode(fields), key=str(named) if named else key)


def _of_fields(fields: dict[str, str], key: str | None, enclosed: tuple[Enclosed, ...] = ()) -> Given:
    named = fields.pop(KEY_PARAMETER, None)
    return Given(params=_encode(fields), key=named or key, enclosed=enclosed)


# ---- multipart ----


class _Part(msgspec.Struct, frozen=True):
    """The head of a part; its content follows."""

    name: str
    filename: str | None
    content_type: str


_END = None  # of a part's content

# RFC 5987, as older versions of Python's most used client write names that are not ASCII. Telegram's server does not know it
# and takes such a file for a text; nobody means that.
_EXTENDED_NAME = re.compile(rb";\s*filename\*\s*=\s*utf-8''([^;\s]+)", re.IGNORECASE)


class _Form:
    """A multipart body, part by part as it comes in: never more of it in memory than one piece."""

    def __init__(self, content_type: bytes, chunks: AsyncIterator[bytes]) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary or len(boundary) > BOUNDARY_BYTES_MAX:
            raise Unreadable(400, "Bad Request: boundary not found")
        self._chunks = chunks
        self._events: deque[_Part | bytes | None] = deque()
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
            },
        )

    async def parts(self) -> AsyncIterator[_Part]:
        """Every part. The content of each must be read before the next is asked for."""
        while await self._fill():
            event = self._events.popleft()
            if isinstance(event, _Part):
                yield event

    async def content(self) -> AsyncIterator[bytes]:
        while await self._fill():
            event = self._events.popleft()
            if event is _END:
                return
            assert isinstance(event, bytes)
            yield event
        raise Unreadable(400, "Bad Request: the form ends in the middle of a part")

    async def _fill(self) -> bool:
        while not self._events:
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                return False
            try:
                self._parser.write(chunk)
            except FormParserError:
                raise Unreadable(400, "Bad Request: can't parse the form") from None
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
            raise Unreadable(431, "Request Header Fields Too Large")

    def _on_header(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field, self._value = bytearray(), bytearray()

    def _on_head(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        options = parse_options_header(disposition)[1]
        name = _text(options.get(b"name", b""))
        if not name:
            raise Unreadable(400, "Bad Request: field name in multipart/form-data not found")
        filename = options.get(b"filename")
        if (extended := _EXTENDED_NAME.search(disposition)) is not None:
            filename = unquote_to_bytes(extended[1])
        kind = self._headers.get(b"content-type", b"application/octet-stream").decode("latin-1")
        self._events.append(_Part(name, None if filename is None else _text(filename), kind))

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(data[start:end])

    def _on_end(self) -> None:
        self._events.append(_END)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _not_utf8() from None


async def _read_form(
    form: _Form, asked: dict[str, str], key: str | None, *, spool: Spool, file_bytes_max: int
) -> Given:
    fields = dict(asked)
    enclosed: dict[str, Enclosed] = {}
    spare: list[str] = []  # a second file of the same name does not count
    room = PARAMS_BYTES_MAX
    try:
        async for part in form.parts():
            if part.filename is None:
                value = await _field(form, room)
                room -= len(value)
                if len(fields) > FIELDS_MAX:
                    raise Unreadable(413, "Request Entity Too Large: too much parameters")
                fields.setdefault(part.name, _text(value))
                continue
            if len(enclosed) + len(spare) >= FILES_MAX:
                raise Unreadable(413, "Request Entity Too Large: too much files attached")
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
    return _of_fields(fields, key, tuple(enclosed.values()))


async def _field(form: _Form, room: int) -> bytes:
    value = bytearray()
    async for chunk in form.content():
        value += chunk
        if len(value) > room:
            raise Unreadable(413, "Request Entity Too Large: too much parameters in form data")
    return bytes(value)
