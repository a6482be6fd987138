"""What is removed from the SQLite archive for good: overwritten in the file, out of the index of words, and out of the log."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from peik.archive.sqlite.database import connect

A = TypeVar("A")
T = TypeVar("T")

_MERGED_PAGES = 500  # of the index of words in one commit: some milliseconds
_WORK_DONE = 2  # SQLite says by so many changes that there may be more to merge


def securely(connection: apsw.Connection, work: Callable[[apsw.Connection, A], T], about: A) -> T:
    """A piece of work whose deleted bytes are overwritten."""
    connection.execute("PRAGMA secure_delete = ON")
    try:
        return work(connection, about)
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def merge_words(connection: apsw.Connection) -> bool:
    """Some of the index of words is written anew, without the words of messages that are gone. Whether there is more of it."""

    def work(one: apsw.Connection, pages: int) -> bool:
        before = one.total_changes()
        one.execute("INSERT INTO message_words (message_words, rank) VALUES ('merge', ?)", (-pages,))
        return one.total_changes() - before >= _WORK_DONE

    return securely(connection, work, _MERGED_PAGES)


def empty_log(path: Path) -> None:
    """By a connection of its own, since it cannot be done inside a commit. Somebody who reads just now keeps it from that: then a
    later commit does it."""
    connection = connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except apsw.BusyError:
        return
    finally:
        connection.close()
