"""Who is whom: codes that were given out, and the chats that operators linked with them. One SQLite file."""

import asyncio
import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CODE_S = 15 * 60

_TABLES = """
    CREATE TABLE IF NOT EXISTS codes (
        code TEXT PRIMARY KEY, operator TEXT NOT NULL, expires_at REAL NOT NULL, used_by INTEGER
    );
    CREATE TABLE IF NOT EXISTS links (
        operator TEXT PRIMARY KEY, chat_id INTEGER NOT NULL UNIQUE, language TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS results (letter_id TEXT PRIMARY KEY, state TEXT NOT NULL)
"""


@dataclass(frozen=True, kw_only=True)
class Link:
    operator: str
    chat_id: int
    language: str


class Links:
    """What a method wrote is on disk when it returns."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now

    async def new_code(self, operator: str) -> tuple[str, float]:
        """A code for `/start CODE` and when it ends. An older one of the same operator is over."""
        code, expires_at = secrets.token_urlsafe(16), self._now() + CODE_S

        def write(file: sqlite3.Connection) -> None:
            file.execute("DELETE FROM codes WHERE operator = ? AND used_by IS NULL", (operator,))
            file.execute("INSERT INTO codes VALUES (?, ?, ?, NULL)", (code, operator, expires_at))

        await self._do(write)
        return code, expires_at

    async def redeem(self, code: str, *, chat_id: int, language: str) -> bool:
        """Link the chat if the code is good, once. The same message may come twice (a crash before it was acknowledged):
        then the answer is the same as the first time, and nothing is written."""

        def use(file: sqlite3.Connection) -> bool:
            taken = file.execute(
                "UPDATE codes SET used_by = ? WHERE code = ? AND used_by IS NULL AND expires_at > ? RETURNING operator",
                (chat_id, code, self._now()),
            ).fetchone()
            if taken is not None:
                # A chat belongs to one operator: it moves with its person. Hence REPLACE, over both unique columns.
                file.execute("INSERT OR REPLACE INTO links VALUES (?, ?, ?)", (taken[0], chat_id, language))
                return True
            again = (
                "SELECT 1 FROM codes JOIN links USING (operator) WHERE code = ? AND used_by = ? AND chat_id = used_by"
            )
            return file.execute(again, (code, chat_id)).fetchone() is not None

        return await self._do(use)

    async def find(self, operator: str) -> Link | None:
        query = "SELECT operator, chat_id, language FROM links WHERE operator = ?"
        row = await self._do(lambda file: file.execute(query, (operator,)).fetchone())
        return None if row is None else Link(operator=row[0], chat_id=row[1], language=row[2])

    async def note_result(self, letter_id: str, state: str) -> None:
        await self._do(lambda file: file.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (letter_id, state)))

    async def results(self) -> dict[str, str]:
        return dict(await self._do(lambda file: file.execute("SELECT letter_id, state FROM results").fetchall()))

    async def _do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with contextlib.closing(sqlite3.connect(self._path, timeout=15)) as file:
                file.executescript(_TABLES)
                with file:  # one transaction
                    return act(file)

        return await asyncio.to_thread(run)
