"""Reading HTTP/1.1 answers: bytes in, whole answers out. It has no socket and never waits."""

import re
import zlib

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik.core.reply import Reply

# getUpdates answers stop at 4 MiB and nothing else of the Bot API comes near it; what is larger is no answer.
ANSWER_BYTES_MAX = 64 * 1024 * 1024
HEAD_BYTES_MAX = 256 * 1024
# The peer's own idle time runs from its last byte, ours from the moment that byte was read.
_KEEP_ALIVE_MARGIN_S = 1.0
_LENGTHS = frozenset({10, 11, 14, 16, 17})  # of the names that `on_header` knows
_KEEP_ALIVE = re.compile(rb"timeout\s*=\s*(\d{1,6})", re.IGNORECASE)


class Garbled(Exception):
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
        """The answer, once it is whole. Raises Garbled."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._status:
                raise Garbled(f"the answer is not HTTP: {error}") from None
            self.may_continue = False  # a whole answer, and then rubbish
        if self._status:
            return self._reply()
        if self._received > self._received_max:
            raise Garbled(f"the answer is larger than {self._received_max} bytes")
        return None

    def finish(self) -> Reply | None:
        """The answer that ends because the connection did; None if it was cut off. Raises Garbled."""
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
        raise Garbled("the answer is compressed in a way nobody asked for")
    # 47 takes gzip and zlib by their headers; some peers mean a raw stream when they say deflate.
    is_raw = coding == b"deflate" and body[0] & 0x0F != 8
    inflater = zlib.decompressobj(-15 if is_raw else 47)
    try:
        plain = inflater.decompress(body, ANSWER_BYTES_MAX)
    except zlib.error:
        raise Garbled("the answer cannot be decompressed") from None
    if not inflater.eof:
        raise Garbled("the compressed answer is cut off or too large")
    return plain
