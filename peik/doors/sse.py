"""Server-sent events: what all streams share, and arrivals as a stream that a browser or curl can follow."""

from collections.abc import AsyncGenerator

from peik.core.arrival import Arrival
from peik.doors.flowing import Flow, joined
from peik.errors import Conflict, StoreUnavailable
from peik.inbox.streams import Stream

HEARTBEAT_S = 15.0  # what stands in between may cut off a silent connection
HEARTBEAT = b": still here\n"
RETRY_MS = 2000
REPLACED_RETRY_MS = 30_000  # two programs that use one consumer must not take it from each other every two seconds


class ServerSentEvents(Flow):
    """Frames until the reader leaves, or there are no more."""

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)


class EventStream(ServerSentEvents):
    """Arrivals until the reader leaves, is replaced, or Peik ends."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(_arrivals(stream))


def frame(event: bytes, data: bytes, *, id: bytes | None = None) -> bytes:  # noqa: A002  as the standard calls it
    """One event. A line break in JSON stands between its parts and never in a string, so that one data line can hold any."""
    head = b"" if id is None else b"id: %b\n" % id
    return b"%bevent: %b\ndata: %b\n\n" % (head, event, data.translate(_ONE_LINE))


_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


async def _arrivals(stream: Stream) -> AsyncGenerator[bytes, None]:
    yield b"retry: %d\n\n" % RETRY_MS
    with stream.seated() as seat:
        try:
            while (page := await stream.next(seat, HEARTBEAT_S)) is not None:
                for chunk in joined(map(_update, page)) if page else (HEARTBEAT + b"\n",):
                    yield chunk
        except Conflict as replaced:
            yield b"retry: %d\n" % REPLACED_RETRY_MS + frame(b"end", b'{"code":"%b"}' % replaced.code.encode())
        except StoreUnavailable:
            return  # the reader comes back, and resumes where it was


def _update(arrival: Arrival) -> bytes:
    return frame(b"update", arrival.wire(), id=b"%d" % arrival.number)
