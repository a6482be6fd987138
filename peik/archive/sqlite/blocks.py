"""Many rows in few statements: Python's interpreter lock is given back only while SQLite works, so that a row at a time is slow
beside a busy thread."""

from collections.abc import Iterator, Sequence
from functools import cache

import apsw

_SIZES = (256, 64, 16, 4, 1)  # few different statements, so that each is prepared once


def insert(connection: apsw.Connection, sql: str, rows: Sequence[Sequence[object]]) -> None:
    """Run an `INSERT … VALUES (?, …)` for all rows."""
    for size, block in _cut(rows):
        values = [value for row in block for value in row]
        connection.execute(_repeated(sql, size), values)


def returned(connection: apsw.Connection, sql: str, rows: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    """The same of an insert that ends with `RETURNING …`."""
    found: list[tuple[object, ...]] = []
    for size, block in _cut(rows):
        values = [value for row in block for value in row]
        found += connection.execute(_repeated(sql, size), values).fetchall()
    return found


def _cut(rows: Sequence[Sequence[object]]) -> Iterator[tuple[int, Sequence[Sequence[object]]]]:
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            yield size, rows[start : start + size]
            start += size


@cache
def _repeated(sql: str, times: int) -> str:
    head, values, tail = sql.partition("VALUES ")
    row, _, tail = tail.partition(")")
    return f"{head}{values}{', '.join([row + ')'] * times)}{tail}"
