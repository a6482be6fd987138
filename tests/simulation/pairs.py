"""A small SQLite file in which a half commit would show: pairs of rows, each pair one commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from peik.storage.sqlite.database import connect

COMMITS = 12


@contextmanager
def opened(path: Path, *, synchronous: str = "FULL", checkpoint_pages: int = 6) -> Iterator[apsw.Connection]:
    """As the store opens it, but with checkpoints every few commits."""
    connection = connect(path, busy_ms=0)
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
        yield connection
    finally:
        connection.close()


def make_table(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS pairs (number INTEGER, half INTEGER, body BLOB)")


def add_pair(connection: apsw.Connection, number: int) -> None:
    """Two rows in one commit, over one page or several."""
    with connection:
        for half in (0, 1):
            connection.execute(
                "INSERT INTO pairs VALUES (?, ?, zeroblob(?))", (number, half, 300 + number * 1370 % 5000)
            )


def pairs_in(path: Path) -> list[int]:
    """The numbers that are there, each with both halves, in a sound file."""
    with opened(path) as connection:
        assert [row[0] for row in connection.execute("PRAGMA integrity_check")] == ["ok"]
        make_table(connection)
        halves = list(connection.execute("SELECT number, count(*) FROM pairs GROUP BY number ORDER BY number"))
    assert all(count == 2 for _, count in halves), "a commit is half there"
    return [number for number, _ in halves]
