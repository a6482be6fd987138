"""Little servers that do to bytes exactly what a test says, and the requests that are sent to them."""

import asyncio
import contextlib
import re
import select
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from peik.core.token import Token
from peik.telegram.client import BotApiCarrier
from peik.telegram.port import Enclosure, Request
from tests.patience import PATIENCE_S

SECRET = "AAE-a_secret"
TOKEN = Token(f"42:{SECRET}")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b'{"ok":true}'

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def call(
    params: bytes = b"{}",
    *,
    method: str = "getMe",
    timeout_s: float = PATIENCE_S,
    enclosures: tuple[Enclosure, ...] = (),
) -> Request:
    return Request(token=TOKEN, method=method, params=params, timeout_s=timeout_s, enclosures=enclosures)


@contextlib.asynccontextmanager
async def peer(talk: Talk, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server on loopback that talks as told on each connection; gives its API root."""
    talks: set[asyncio.Task[None]] = set()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            talks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=tls)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    finally:
        server.close()
        for task in tuple(talks):
            task.cancel()
        if talks:
            await asyncio.wait(talks)
        await server.wait_closed()


def answering(*answers: bytes) -> Talk:
    """Each connection answers its requests with these bytes, one after another, the last for ever."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = 0
        while True:
            await read_request(reader)
            writer.write(answers[min(number, len(answers) - 1)])
            number += 1

    return talk


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\nContent-Length: (\d+)\r\n", head)
    assert length is not None
    return head, await reader.readexactly(int(length[1]))


@contextlib.asynccontextmanager
async def carrier_to(api_root: str, **settings: object) -> AsyncIterator[BotApiCarrier]:
    carrier = BotApiCarrier(api_root, **settings)  # type: ignore[arg-type]
    try:
        yield carrier
    finally:
        await carrier.close()


async def until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 — the facts of a pool ring no bell
        await asyncio.sleep(0)


def wait_for_fin(carrier: BotApiCarrier) -> None:
    """Blocks, and the loop with it, until the kernel has seen the peer close the carrier's idle connection."""
    (idle,) = carrier._idle
    poller = select.poll()
    poller.register(idle._socket.fileno(), select.POLLIN)
    assert poller.poll(PATIENCE_S * 1000), "the peer has not closed"
