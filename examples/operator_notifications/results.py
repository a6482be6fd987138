"""How letters ended, as Peik has told it. One SQLite file."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Results:
    """What a method wrote is on disk when it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def note(self, letter_id: str, state: str) -> None:
        await self._do(lambda file: file.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (letter_id, state)))

    async def all(self) -> dict[str, str]:
        return dict(await self._do(lambda file: file.execute("SELECT letter_id, state FROM results").fetchall()))

    async def _do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with contextlib.closing(sqlite3.connect(self._path, timeout=15)) as file:
                file.execute("CREATE TABLE IF NOT EXISTS results (letter_id TEXT PRIMARY KEY, state TEXT NOT NULL)")
                with file:  # one transaction
                    return act(file)

        return await asyncio.to_thread(run)
