"""Server-sent events: arrivals as a stream that a browser or curl can follow. Nothing is read ahead of a slow reader."""

import asyncio
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from peik.core.arrival import Arrival
from peik.errors import Conflict, StoreUnavailable
from peik.inbox.streams import Stream

HEARTBEAT_S = 15.0  # what stands in between may cut off a silent connection
RETRY_MS = 2000
REPLACED_RETRY_MS = 30_000  # two programs that use one consumer must not take it from each other every two seconds
CHUNK_BYTES = 64 * 1024


class EventStream(Response):
    """An answer that goes on until the reader leaves, is replaced, or Peik ends."""

    media_type = "text/event-stream"

    def __init__(self, stream: Stream) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with asyncio.TaskGroup() as group:
            # Only a look at the other end tells that a reader left who is sent nothing.
            leaving = group.create_task(_left(receive))
            writing = group.create_task(self._write(send))
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            writing.cancel()
            leaving.cancel()

    async def _write(self, send: Send) -> None:
        await _put(send, b"retry: %d\n\n" % RETRY_MS)
        with self._stream.seated() as seat:
            try:
                while (page := await self._stream.next(seat, HEARTBEAT_S)) is not None:
                    for chunk in _chunks(page) if page else (b": still here\n\n",):
                        await _put(send, chunk)  # waits while the reader is slow
            except Conflict as replaced:
                code = replaced.code.encode()
                await _put(send, b'retry: %d\nevent: end\ndata: {"code":"%s"}\n\n' % (REPLACED_RETRY_MS, code))
            except StoreUnavailable:
                pass  # the reader comes back, and resumes where it was
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _put(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _chunks(page: Iterable[Arrival]) -> Iterable[bytes]:
    """Events of about one write each. A line break in JSON stands between its parts and never in a string, so that one
    data line can hold any update."""
    lines: list[bytes] = []
    size = 0
    for arrival in page:
        line = arrival.wire().translate(_ONE_LINE)
        event = b"id: %d\nevent: update\ndata: %b\n\n" % (arrival.number, line)
        lines.append(event)
        size += len(event)
        if size >= CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
