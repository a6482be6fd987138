"""A way to the server that breaks at a commit: before the server hears of it, or before its answer comes back."""

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Break(enum.Enum):
    NEVER = "never"
    BEFORE = "before"  # the server never hears of the commit
    AFTER = "after"  # it commits, and nobody hears of that


class Proxy:
    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.breaks = Break.NEVER
        self.is_deaf = False  # nobody new gets through; who is through stays so
        self.answers = asyncio.Event()  # what the server says is held back while this is not set
        self.answers.set()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self
            for task in self._tasks:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.is_deaf:
            writer.transport.abort()
            return
        self._tasks.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self.server_port)
        try:
            async with asyncio.TaskGroup() as group:
                answers = group.create_task(self._copy(there, writer))
                while data := await reader.read(65536):
                    if b"COMMIT" in data and self.breaks is not Break.NEVER:
                        breaks, self.breaks = self.breaks, Break.NEVER
                        answers.cancel()
                        await asyncio.wait([answers])
                        if breaks is Break.AFTER:
                            back.write(data)
                            await there.read(65536)  # the answer: it has committed
                        break
                    back.write(data)
                answers.cancel()
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            back.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self.answers.wait()
            writer.write(data)
        writer.transport.abort()
