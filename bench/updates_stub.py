"""A Telegram with updates waiting, as fast as one process can. Run as `python -m bench.updates_stub`; it prints its port.

getUpdates is answered from memory, 100 a page, from the offset that is asked for; nothing is ever deleted, so that every
reader of a run finds the same. A poll beyond the end is left parked. Every other method is answered with `true`.
"""

import asyncio
import contextlib
import re
import sys
from collections.abc import Iterator

import uvloop

from bench.child import listening

UPDATES = 10_000
PAGE = 100
FIRST_ID = 400_000_000
CHATS = 400
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_OFFSET = re.compile(rb'offset"?[=:] ?(\d+)')
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_TEXT = b"Please send me the link to the second part of yesterday's video, the first one was very good. Thank you! " * 2
_UPDATE = (
    b'{"update_id":%d,"message":{"message_id":%d,"from":{"id":%d,"is_bot":false,"first_name":"Reader",'
    b'"username":"reader%d","language_code":"fa"},"chat":{"id":%d,"first_name":"Reader","username":"reader%d",'
    b'"type":"private"},"date":%d,"text":"%b"}}'
)


def updates(date: int, many: int) -> list[bytes]:
    every = []
    for number in range(many):
        user = 1_000_000 + number % CHATS
        every.append(_UPDATE % (FIRST_ID + number, number, user, user, user, user, date, _TEXT))
    return every


class _Conversation(asyncio.Protocol):
    def __init__(self, every: list[bytes], delay_s: float) -> None:
        self._every = every
        self._delay_s = delay_s
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        end = data.find(b"\r\n\r\n")
        length = _LENGTH.search(data, 0, end) if end >= 0 else None
        after = end + 4 + (int(length[1]) if length else 0)
        if end < 0 or len(data) < after:
            self._rest = data
            return
        self._rest = data[after:]
        body = self._answer(data[:after])
        if body is not None:
            answer = _HEAD % (len(body), body)
            asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, answer)  # type: ignore[attr-defined]

    def _answer(self, request: bytes) -> bytes | None:
        if b"/getUpdates" not in request.split(b"\r\n", 1)[0]:
            return b'{"ok":true,"result":true}'
        offset = _OFFSET.search(request)
        start = max(0, int(offset[1]) - FIRST_ID) if offset else 0
        if start >= len(self._every):
            # A poll that may wait is left parked: nobody measures it.
            return b'{"ok":true,"result":[]}' if re.search(rb'timeout"?[=:] ?0', request) else None
        return b'{"ok":true,"result":[%b]}' % b",".join(self._every[start : start + PAGE])


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    every, delay_s = updates(int(sys.argv[1]), int(sys.argv[2])), float(sys.argv[3])
    server = await loop.create_server(lambda: _Conversation(every, delay_s), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


@contextlib.contextmanager
def running_updates_stub(date: int, *, many: int = UPDATES, delay_s: float = 0.0) -> Iterator[str]:
    """The API root of a stub in a process of its own, whose updates were all sent at `date`.

    `delay_s` is as long as an answer takes besides: Telegram is not on this machine.
    """
    with listening("bench.updates_stub", str(date), str(many), str(delay_s)) as port:
        yield f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())
