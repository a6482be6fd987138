"""The real SQLite archive without threads, for virtual time; and what makes a process die at any of its awaits."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from peik.archive.sqlite.archive import SqliteArchive, connect, migrate, translate
from peik.errors import StoreUnavailable


class _Inline:
    trouble = None

    def __init__(self, connection: Any, archive: "InlineArchive", *, is_writer: bool) -> None:
        self._connection = connection
        self._archive = archive
        self._is_writer = is_writer

    async def ask(self, work: Callable[[Any], Any]) -> Any:
        await asyncio.sleep(0.001)
        if self._archive.is_down:
            raise StoreUnavailable(code="store_gone", detail="The archive is away.")
        try:
            if not self._is_writer:
                return work(self._connection)
            with self._connection:
                return work(self._connection)
        except apsw.Error as error:
            raise translate(error) from None

    def close(self) -> None:
        self._connection.close()


class InlineArchive(SqliteArchive):
    is_down = False

    async def open(self) -> None:
        writing = connect(self._path)
        writing.execute("PRAGMA synchronous = OFF")
        migrate(writing, self._path)
        self._writer = _Inline(writing, self, is_writer=True)  # type: ignore[assignment]
        self._reader = _Inline(connect(self._path, for_reading=True), self, is_writer=False)  # type: ignore[assignment]


async def opened(folder: Path) -> InlineArchive:
    archive = InlineArchive(folder / "a.archive")
    await archive.open()
    return archive


class Fate:
    """When a process dies, counted in its awaits of others. Nothing that it asks for after that is done, or answered."""

    def __init__(self) -> None:
        self.count = 0
        self.die_at: int | None = None
        self.dead = asyncio.Event()

    async def pass_by(self) -> None:
        self.count += 1
        if self.die_at is not None and self.count >= self.die_at:
            self.dead.set()
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()


class Mortal:
    """Somebody as a process sees it that may die before each call, and after it."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._fate.pass_by()
            answer = await found(*args, **kwargs)
            await self._fate.pass_by()
            return answer

        return call
