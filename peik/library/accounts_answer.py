"""Reading an HTTP/1.1 answer that goes on: bytes in, the body as far as it has come out. It has no socket and never waits."""

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from peik.carrier.answers import HEAD_BYTES_MAX, Garbled

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
        """What came of the body. Raises Garbled."""
        if not self.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise Garbled(f"the answer is not HTTP: {error}") from None
        body = b"".join(self._chunks)
        self._chunks.clear()
        if self.status not in (0, 200):
            self.refusal += body
        if len(self.refusal) > REFUSAL_BYTES_MAX or (not self.status and self._head_bytes > HEAD_BYTES_MAX):
            raise Garbled("the answer is too large")
        return body

    # What the parser tells us.

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        self.is_over = self.status != 0
