"""A lean HTTP/1.1 client that asks one server as fast as it answers: some connections, one request under way on each.

It counts the time and nothing else, so that on two cores the server that is measured has nearly one for itself.
"""

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
PATIENCE_S = 300.0


def request(path: str, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def hammered(url: str, requests: Sequence[bytes], *, connections: int, status: int = 200) -> float:
    """Requests a second. Raises AssertionError for any other answer."""
    loop = asyncio.get_running_loop()
    address = urlsplit(url)
    left = iter(requests)
    hands = [_Hand(left, status) for _ in range(connections)]
    for hand in hands:
        await loop.create_connection(lambda hand=hand: hand, address.hostname, address.port)  # type: ignore[misc]
    began = time.monotonic()
    for hand in hands:
        hand.go_on()
    await asyncio.wait_for(asyncio.gather(*(hand.ended for hand in hands)), PATIENCE_S)
    return len(requests) / (time.monotonic() - began)


class _Hand(asyncio.Protocol):
    def __init__(self, left: Iterator[bytes], status: int) -> None:
        self._left = left
        self._status = b"HTTP/1.1 %d" % status
        self._heard = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def go_on(self) -> None:
        following = next(self._left, None)
        if following is not None:
            self._transport.write(following)  # type: ignore[attr-defined]  # uvloop's own transport
        elif not self.ended.done():
            self.ended.set_result(None)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        end = self._heard.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._heard, 0, end)
        if len(self._heard) < end + 4 + (int(length[1]) if length else 0):
            return
        heard, self._heard = self._heard, b""
        if not heard.startswith(self._status):
            self._fail(AssertionError(heard[:500]))
        else:
            self.go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionError("the server has closed"))

    def _fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
