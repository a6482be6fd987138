"""One HTTP connection to the simulated Telegram: bytes to requests, and answers or worse back. Knows nothing of bots."""

import asyncio
import socket
import struct
from collections import deque
from http import HTTPStatus
from typing import Protocol, cast
from urllib.parse import parse_qsl

import httptools
import msgspec
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from peik.testing.answer import Answer, Params, UploadedFile
from peik.testing.faults import MIB

HEADERS_BYTES_MAX = 256 << 10
PIPELINE_MAX = 64
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_RST_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, zero seconds: close() resets instead of ending in good order


class SimRequest(msgspec.Struct, frozen=True):
    """One whole request."""

    verb: bytes
    path: bytes
    query: bytes
    content_type: bytes
    body: bytes
    keeps_alive: bool
    span: bytes = b""  # the Range header


class Host(Protocol):
    """Who answers. `respond` must lead to exactly one of `answer`, `drop`, `cut` and silence."""

    @property
    def body_bytes_max(self) -> int: ...
    def arrived(self, connection: "SimConnection") -> None: ...
    def respond(self, connection: "SimConnection", request: SimRequest) -> None: ...
    def answered(self, connection: "SimConnection") -> None: ...
    def left(self, connection: "SimConnection") -> None: ...


class SimConnection(asyncio.Protocol):
    """Answers go out in the order of the requests: the next is not looked at before the last is answered."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[SimRequest] = deque()
        self._is_busy = False
        self._is_going_on = False
        self._is_paused = False
        self._keeps_alive = True
        self._begin()
        self.served = 0  # answers given on this connection
        self.idle_timer: asyncio.TimerHandle | None = None

    def _begin(self) -> None:
        self._url = b""
        self._content_type = b""
        self._span = b""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._headers_bytes = 0
        self._expects = False

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour, not by class
        self._host.arrived(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._stop_idling()
        self._host.left(self)

    def data_received(self, data: bytes) -> None:
        if self.idle_timer is not None:
            self._stop_idling()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # we stay with HTTP/1.1, and the request has been taken in
        except httptools.HttpParserError:
            self.refuse(400)

    def _stop_idling(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    # From the parser

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_headers(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_headers(len(name) + len(value))
        length = len(name)
        # By length first: this runs for every header of every request.
        if length == 12 and name.lower() == b"content-type":
            self._content_type = value
        elif length == 5 and name.lower() == b"range":
            self._span = value
        elif length == 6 and name.lower() == b"expect":
            self._expects = value.lower() == b"100-continue"

    def _count_headers(self, size: int) -> None:
        self._headers_bytes += size
        if self._headers_bytes > HEADERS_BYTES_MAX:
            self.refuse(431)

    def on_headers_complete(self) -> None:
        if self._expects and not self._is_busy and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._host.body_bytes_max:
            self._body.clear()
            self.refuse(413)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        path, _, query = self._url.partition(b"?")
        parts = self._body
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        keeps_alive = self._parser.should_keep_alive()
        request = SimRequest(self._parser.get_method(), path, query, self._content_type, body, keeps_alive, self._span)
        if self._is_busy:
            self._waiting.append(request)
            if len(self._waiting) >= PIPELINE_MAX and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
        else:
            self._take(request)

    def _take(self, request: SimRequest) -> None:
        self._is_busy = True
        self._keeps_alive = request.keeps_alive
        self._host.respond(self, request)

    def _go_on(self) -> None:
        """Take the requests that wait, one after another. A loop, since each is mostly answered within its own taking."""
        if self._is_going_on:
            return
        self._is_going_on = True
        while self._waiting and not self._is_busy and self.is_open:
            self._take(self._waiting.popleft())
        self._is_going_on = False
        if self._is_paused and len(self._waiting) < PIPELINE_MAX and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # From the host

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def answer(self, answer: Answer) -> None:
        """Send a whole answer and go on to the next request."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(rendered(answer, keeps_alive=self._keeps_alive))
        self.served += 1
        self._is_busy = False
        self._host.answered(self)
        if not self._keeps_alive:
            transport.close()
        elif self._waiting:
            self._go_on()

    def refuse(self, status: int) -> None:
        """Say no below the API: a bare status without a body, and the end (docs/telegram.md, Uncertain sends)."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(rendered(Answer(status, b"", ()), keeps_alive=False))
            self._transport.close()

    def cut(self, data: bytes) -> None:
        """Send these bytes as they are, then the end."""
        if self._transport is not None:
            self._transport.write(data)
            self._transport.close()

    def end(self) -> None:
        """Close in good order (FIN)."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Drop the connection at once; the client sees a reset."""
        if self._transport is not None:
            peer = self._transport.get_extra_info("socket")
            if peer is not None:
                reset_on_close(peer)
            self._transport.abort()


def reset_on_close(peer: socket.socket) -> None:
    """When this socket is closed, the other side sees a reset instead of an end."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)


_HEADS: dict[tuple[int, tuple[tuple[str, str], ...], bool], bytes] = {}


def rendered(answer: Answer, *, keeps_alive: bool) -> bytes:
    """The answer as it goes over the wire."""
    key = (answer.status, answer.headers, keeps_alive)
    head = _HEADS.get(key)
    if head is None:
        lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}", "Server: peik-sim"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        lines += [f"Connection: {'keep-alive' if keeps_alive else 'close'}", "Content-Length: "]
        head = "\r\n".join(lines).encode("latin-1")
        if len(_HEADS) < 10_000:
            _HEADS[key] = head
    return b"%b%d\r\n\r\n%b" % (head, len(answer.body), answer.body)


# Parameters and files out of a request: query string, form, JSON or multipart, whichever a library sends.
#
# See docs/telegram.md, Requests and responses.


PARAMS_BYTES_MAX = MIB
FILES_MAX = 50

NO_FILES: dict[str, UploadedFile] = {}


class UnreadableRequest(Exception):
    """A request that is refused below the API: a bare status, no body, and the connection closed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def read(query: bytes, content_type: bytes, body: bytes) -> tuple[Params, dict[str, UploadedFile]]:
    """The parameters and files of a request. Raises Unreadable."""
    params: Params = {}
    if query:
        params.update(parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True))
    if not body:
        return params, NO_FILES
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"multipart/form-data":
        return _multipart(params, content_type, body)
    if len(body) > PARAMS_BYTES_MAX:
        raise UnreadableRequest(413)
    if kind == b"application/json":
        found = _json(body)
        return (found if not params else {**params, **found}), NO_FILES
    if kind == b"application/x-www-form-urlencoded":
        params.update(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    return params, NO_FILES


def _json(body: bytes) -> Params:
    """An object; nothing, or null, is one without fields, as several libraries send it for a method that takes none."""
    if not body.strip():
        return {}
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise UnreadableRequest(400) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UnreadableRequest(400)
    return found


class _Part:
    """One part while it is read."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.field = bytearray()
        self.value = bytearray()
        self.data: list[bytes] = []


def _multipart(params: Params, content_type: bytes, body: bytes) -> tuple[Params, dict[str, UploadedFile]]:
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise UnreadableRequest(400)
    parts: list[_Part] = []

    def begin() -> None:
        parts.append(_Part())

    def header_field(data: bytes, start: int, end: int) -> None:
        parts[-1].field += data[start:end]

    def header_value(data: bytes, start: int, end: int) -> None:
        parts[-1].value += data[start:end]

    def header_end() -> None:
        part = parts[-1]
        part.headers[bytes(part.field).lower()] = bytes(part.value)
        part.field, part.value = bytearray(), bytearray()

    def part_data(data: bytes, start: int, end: int) -> None:
        parts[-1].data.append(data[start:end])

    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": begin,
            "on_header_field": header_field,
            "on_header_value": header_value,
            "on_header_end": header_end,
            "on_part_data": part_data,
        },
    )
    try:
        parser.write(body)
        parser.finalize()
    except MultipartParseError:
        raise UnreadableRequest(400) from None
    return _sorted_out(params, parts)


def _sorted_out(params: Params, parts: list[_Part]) -> tuple[Params, dict[str, UploadedFile]]:
    files: dict[str, UploadedFile] = {}
    params_bytes = 0
    for part in parts:
        options = parse_options_header(part.headers.get(b"content-disposition", b""))[1]
        name = options.get(b"name", b"").decode("utf-8", "replace")
        content = b"".join(part.data)
        if b"filename" in options or b"filename*" in options:
            filename = options.get(b"filename", b"file").decode("utf-8", "replace")
            kind = part.headers.get(b"content-type", b"application/octet-stream").decode("latin-1")
            files[name] = UploadedFile(filename=filename, content=content, content_type=kind)
        else:
            params_bytes += len(content)
            params[name] = content.decode("utf-8", "replace")
    if params_bytes > PARAMS_BYTES_MAX or len(files) > FILES_MAX:
        raise UnreadableRequest(413)
    return params, files
