"""A Telegram that says yes to everything, as fast as one process can. Run as `python -m bench.stub`; it prints its port.

Each answer is a Message with a rising id and, in `seen_at`, the monotonic time at which the request had arrived, which on
one machine can be compared with the caller's own clock. It ends when its standard input does, so it never outlives a run.
"""

import asyncio
import contextlib
import http.client
import re
import sys
import time
from collections.abc import Iterator

import msgspec
import uvloop

from bench.child import listening

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CHAT = re.compile(rb'"chat_id": ?(-?\d+)')
_ANSWER = (
    b'{"ok":true,"result":{"message_id":%d,"from":{"id":123456789,"is_bot":true,"first_name":"Bench",'
    b'"username":"peik_bench_bot"},"chat":{"id":%b,"first_name":"Reader","username":"reader","type":"private"},'
    b'"date":1763200000,"text":"Your order has left the warehouse.","seen_at":%.6f}}'
)
# What Peik asks of a Telegram by itself: when it sets a webhook, and a bot's name soon after a start. No posts.
_OTHERS = {
    b"getMe": b'{"ok":true,"result":{"id":123456789,"is_bot":true,"first_name":"Bench","username":"peik_bench_bot"}}',
    b"getWebhookInfo": b'{"ok":true,"result":{"url":"","has_custom_certificate":false,"pending_update_count":0}}',
    b"setWebhook": b'{"ok":true,"result":true}',
    b"deleteWebhook": b'{"ok":true,"result":true}',
}
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


class _Posts:
    count = 0


class _Conversation(asyncio.Protocol):
    """One connection; requests may be pipelined."""

    def __init__(self, posts: _Posts) -> None:
        self._posts = posts
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        seen_at = time.monotonic()
        if self._rest:
            data = self._rest + data
        answers: list[bytes] = []
        start = 0
        while (end := data.find(b"\r\n\r\n", start)) >= 0:
            length = _LENGTH.search(data, start, end)
            after = end + 4 + (int(length[1]) if length else 0)
            if after > len(data):
                break
            answers.append(self._answer(data, start, end, after, seen_at))
            start = after
        self._rest = data[start:]
        if answers:
            self._transport.write(b"".join(answers))  # type: ignore[attr-defined]  # uvloop's own transport

    def _answer(self, data: bytes, start: int, end: int, after: int, seen_at: float) -> bytes:
        if data.startswith(b"GET", start):
            body = b'{"posts":%d}' % self._posts.count
            return _HEAD % (len(body), body)
        if data.find(b"/sendMessage", start, start + 128) < 0:
            method = data[start : data.find(b" HTTP", start)].rsplit(b"/", 1)[-1]
            if method in _OTHERS:
                return _HEAD % (len(_OTHERS[method]), _OTHERS[method])
        self._posts.count += 1
        chat = _CHAT.search(data, end, after)
        body = _ANSWER % (self._posts.count, chat[1] if chat else b"1", seen_at)
        return _HEAD % (len(body), body)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    posts = _Posts()
    server = await loop.create_server(lambda: _Conversation(posts), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


# ---- for those who measure ----


class Stub:
    """A running stub as its callers see it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.root = f"http://127.0.0.1:{port}"

    def posts(self) -> int:
        """How many calls it has answered, so that a measurement can prove that none was lost or doubled."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/")
            return int(msgspec.json.decode(connection.getresponse().read(), type=dict[str, int])["posts"])
        finally:
            connection.close()


@contextlib.contextmanager
def running_stub() -> Iterator[Stub]:
    """The stub in a process of its own."""
    with listening("bench.stub") as port:
        yield Stub(port)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())
