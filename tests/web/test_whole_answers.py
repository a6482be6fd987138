"""An answer leaves in one piece. One that is cut by a crash leaves bots hanging: node-fetch waits for the rest for minutes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from peik.testing import SimServer
from tests.processes.programs import TOKEN, served


@contextlib.asynccontextmanager
async def wire(folder: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection to a real Peik."""
    async with SimServer() as sim, aiohttp.ClientSession() as http, served(folder, sim.url, http) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), limit=1 << 22)
        try:
            yield reader, writer
        finally:
            writer.close()
            await writer.wait_closed()


def request(path: str, body: bytes = b"", *, more: str = "") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: peik\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}"
    )
    return head.encode() + b"\r\n" + body


def test_head_and_body_of_an_answer_come_in_one_piece(tmp_path: Path) -> None:
    async def story() -> None:
        async with wire(tmp_path) as (reader, writer):
            for number in range(20):
                writer.write(request(f"/bot{TOKEN}/sendMessage", b'{"chat_id": %d, "text": "tea"}' % (number + 1)))
                piece = await reader.read(1 << 16)
                head, _, body = piece.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                assert body.startswith(b'{"ok":true')
                assert body.endswith(b"}")

    asyncio.run(story())


def test_requests_sent_together_are_answered_in_their_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with wire(tmp_path) as (reader, writer):
            asked = b"".join(request(f"/bot{TOKEN}/getMe") + request(f"/bot{TOKEN}/nonsense!") for _ in range(5))
            writer.write(asked)
            said = b""
            while said.count(b"HTTP/1.1 ") < 10:
                said += await reader.read(1 << 16)
            statuses = [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]]
            assert statuses == [b"200", b"404"] * 5

    asyncio.run(story())


def test_an_answer_before_the_end_of_the_connection_is_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with wire(tmp_path) as (reader, writer):
            writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: peik\r\nConnection: close\r\n\r\n")
            said = await reader.read()
            head, _, body = said.partition(b"\r\n\r\n")
            assert f"content-length: {len(body)}" in head.decode().lower()
            assert len(body) > 1 << 16  # more than is ever held back

    asyncio.run(story())
