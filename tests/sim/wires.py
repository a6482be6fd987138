"""A client so plain that it sees what really comes over the wire."""

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from typing import Any, Self

from peik.testing import SimServer
from tests.patience import PATIENCE_S
from tests.sim.conftest import TOKEN

BASE = f"/bot{TOKEN}"


def story(play: Coroutine[Any, Any, None]) -> None:
    """Run one test's coroutine, with an end in any case."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await play

    asyncio.run(bounded())


def send_bytes(text: str, chat_id: int = 7) -> bytes:
    body = json.dumps({"chat_id": chat_id, "text": text}).encode()
    return post_bytes(f"{BASE}/sendMessage", "application/json", body)


def post_bytes(path: str, kind: str, body: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: sim\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


class Wire:
    """One connection. `answer` reads one whole answer; `end` says how the connection ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, sim: SimServer) -> "Wire":
        return cls(*await asyncio.open_connection(sim.host, sim.port))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, Any]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        if status == 100:
            return status, None
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await self.reader.readexactly(size)
        return status, json.loads(body) if body[:1] in {b"{", b"["} else body

    async def ask(self, data: bytes) -> tuple[int, Any]:
        await self.say(data)
        return await self.answer()

    async def rest(self) -> bytes | str:
        """All bytes until the end, or "reset"."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return "reset"

    async def is_silent(self) -> bool:
        """Nothing has come, and the connection stands: asked over another request's round trip, not over time."""
        return not self.reader._buffer and not self.reader.at_eof()
