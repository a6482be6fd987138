"""A way to a server that can be cut, and that can lose answers after the server has done what it was asked."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Way:
    def __init__(self, port: int, chance: random.Random) -> None:
        self._target = port
        self._chance = chance
        self._lines: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.is_cut = False
        self.loses = 0.0  # the share of answers that never arrive
        self.port = 0

    def cut(self) -> None:
        self.is_cut = True
        for line in list(self._lines):
            line.transport.abort()

    def mend(self) -> None:
        self.is_cut = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Way"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            while self._serving:
                self.cut()
                await asyncio.wait(self._serving, timeout=0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            beyond_reader, beyond = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._lines |= {writer, beyond}
        there = asyncio.ensure_future(self._carry(reader, beyond, loses=False))
        back = asyncio.ensure_future(self._carry(beyond_reader, writer, loses=True))
        await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        for line in (writer, beyond):
            line.transport.abort()
            self._lines.discard(line)
        await asyncio.wait([there, back])

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, loses: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if loses and self._chance.random() < self.loses:
                    return
                writer.write(data)
                await writer.drain()
