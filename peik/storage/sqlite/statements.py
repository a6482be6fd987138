"""The named queries of a `.sql` file, and bulk execution of those that take many rows at once.

Python's lock is given back only while SQLite works, so each step may wait for other threads. Measured: `executemany` writes
228,000 rows a second on a quiet machine and 800 beside a busy thread; in blocks of 256 values it is 67,000 beside it.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any

import apsw
import msgspec

from peik.storage.sql import NamedQuery

Value = None | int | float | str | bytes
Row = tuple[Value, ...]

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

# Exact statements up to SMALL rows and blocks of LARGE above: few texts to prepare, few steps to run.
_SMALL = 64
_LARGE = 256
# What comes in any number, hundreds of times a second, goes in these sizes: as many texts as there are numbers would push each
# other out of the connection's cache, and to prepare one takes longer than to run it.
_SIZES = (1, 4, 8, 16, 32, 48, 56, 64)


@cache
def load(filename: str) -> dict[str, str]:
    """All queries of one file by name."""
    text = (files("peik.storage.sqlite") / "sql" / filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def _many(sql: str, width: int, count: int) -> str:
    one = f"({','.join('?' * width)})"
    return sql.replace("{rows}", ",".join([one] * count))


def run_many(connection: apsw.Connection, sql: str, rows: Sequence[Row]) -> list[tuple[Value, ...]]:
    """Run a query with {rows} over all rows, in as few steps as possible. What it returns, if anything."""
    answers: list[tuple[Value, ...]] = []
    for block in _blocks(rows):
        flat = list(chain.from_iterable(block))
        answers.extend(connection.execute(_many(sql, len(block[0]), len(block)), flat))
    return answers


def run_padded(connection: apsw.Connection, sql: str, rows: Sequence[Row]) -> int:
    """Run a query with {rows} that changes something and passes over a row of nothing but NULL; how many rows it changed."""
    changed = 0
    for block in _blocks(rows):
        width, count = len(block[0]), len(block)
        size = count if count >= _SMALL else _SIZES[bisect_left(_SIZES, count)]
        flat = list(chain.from_iterable(block))
        flat.extend([None] * (width * (size - count)))
        connection.execute(_many(sql, width, size), flat)
        changed += connection.changes()
    return changed


def insert_many(connection: apsw.Connection, sql: str, rows: Sequence[Row]) -> list[int]:
    """Insert all rows; their ids. Those of one INSERT are consecutive, so the last one tells them all."""
    ids: list[int] = []
    for block in _blocks(rows):
        run_many(connection, sql, block)
        last = connection.last_insert_rowid()
        ids.extend(range(last - len(block) + 1, last + 1))
    return ids


def _blocks(rows: Sequence[Row]) -> Iterable[Sequence[Row]]:
    start = 0
    while len(rows) - start >= _LARGE:
        yield rows[start : start + _LARGE]
        start += _LARGE
    while start < len(rows):
        yield rows[start : start + _SMALL]
        start += _SMALL


class SqliteSession:
    """See `peik.storage.sql.SqlSession`. A list is bound as JSON."""

    __slots__ = ("connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    async def rows(self, query: NamedQuery, **named: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.written, _bound(named)).fetchall()

    async def number(self, query: NamedQuery, **named: object) -> int:
        for row in self.connection.execute(query.written, _bound(named)):
            return int(row[0] or 0)
        return 0

    async def text(self, query: NamedQuery, **named: object) -> str | None:
        for row in self.connection.execute(query.written, _bound(named)):
            return None if row[0] is None else str(row[0])
        return None

    async def run(self, query: NamedQuery, **named: object) -> int:
        self.connection.execute(query.written, _bound(named))
        return self.connection.changes()

    async def returned(self, query: NamedQuery, **named: object) -> list[tuple[Any, ...]]:
        return await self.rows(query, **named)

    async def read_many(self, query: NamedQuery, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return run_many(self.connection, query.written, rows)

    async def write_many(self, query: NamedQuery, rows: Sequence[tuple[Any, ...]]) -> int:
        before = self.connection.total_changes()
        run_many(self.connection, query.written, rows)
        return self.connection.total_changes() - before


def _bound(named: dict[str, Any]) -> dict[str, Any]:
    return {
        name: msgspec.json.encode(value).decode() if isinstance(value, list) else value for name, value in named.items()
    }
