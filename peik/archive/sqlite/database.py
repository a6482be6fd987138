"""Opening the archive's SQLite file: durable settings, a schema that is ours, and errors in words that help."""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from peik.archive.rules import folded, words
from peik.archive.sql import migrations
from peik.errors import Problem, StartError, StoreUnavailable

APPLICATION_ID = 0x50454941  # "PEIA": another file than the store's "PEIK"
BUSY_MS = 5000
PACKAGE = "peik.archive.sqlite"


def connect(path: Path, *, for_reading: bool = False) -> apsw.Connection:
    """A connection with our settings. synchronous=FULL: a commit is on the disk when it returns."""
    if not for_reading and not path.exists():
        with contextlib.suppress(OSError):  # what is wrong with the folder SQLite says below
            path.touch(mode=0o600)  # it will hold what people wrote; the files that SQLite puts beside it follow suit
    elif not for_reading:
        _close_to_others(path)
    connection = apsw.Connection(str(path), statementcachesize=200)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -32768")  # 32 MiB: an insert touches a page of each index
        connection.execute("PRAGMA wal_autocheckpoint = 8192")  # 32 MiB of log between checkpoints
        connection.execute("PRAGMA journal_size_limit = 134217728")
        if for_reading:
            connection.execute("PRAGMA query_only = ON")
            connection.create_scalar_function("has_words", _has_words, 2, deterministic=True)
            connection.create_scalar_function("has_text", _has_text, 2, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _close_to_others(path: Path) -> None:
    """An archive of an earlier Peik may be open to everybody on the machine. Rights that somebody gave a group stay."""
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with contextlib.suppress(OSError):  # it is not there, or not ours
            if file.stat().st_mode & 0o007:
                file.chmod(0o600)


def _has_words(*values: Any) -> bool:
    text, asked = values
    return set(words(text)).issuperset(asked.split(" "))


def _has_text(*values: Any) -> bool:
    text, asked = values
    return asked in folded(text)


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the schema up to date, in one transaction. Refuses a file that is newer, or not an archive."""
    steps = migrations(PACKAGE)
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _number(connection, "PRAGMA user_version")
        is_new = _number(connection, "SELECT count(*) FROM sqlite_schema") == 0
        if not is_new and _number(connection, "PRAGMA application_id") != APPLICATION_ID:
            raise StartError(
                f"{path} is a SQLite database, but no archive of Peik's. Name another file in PEIK_ARCHIVE."
            )
        if version > len(steps):
            raise StartError(
                f"{path} was written by a newer Peik (its schema is {version}, this Peik knows {len(steps)}). "
                "Upgrade Peik, or name another file in PEIK_ARCHIVE. Nothing was changed."
            )
        for number, script in enumerate(steps[version:], start=version + 1):
            connection.execute(script)
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def place(connection: apsw.Connection) -> tuple[int, int]:
    """Which file stands where this one was opened: one that was moved or removed lives on, and SQLite does not look."""
    try:
        stat = os.stat(connection.filename)  # noqa: PTH116  on every commit
    except OSError as error:
        raise apsw.CantOpenError(
            f"{Path(connection.filename).name} is gone: put it back, or start Peik anew"
        ) from error
    return stat.st_dev, stat.st_ino


def _number(connection: apsw.Connection, sql: str) -> int:
    found: Any = connection.execute(sql).get
    assert isinstance(found, int)
    return found


_HINTS: tuple[tuple[type[apsw.Error], str, str], ...] = (
    (apsw.BusyError, "store_locked", "The archive is locked by another program. End it, or wait."),
    (apsw.LockedError, "store_locked", "The archive is locked by another program. End it, or wait."),
    (
        apsw.ReadOnlyError,
        "store_read_only",
        "The archive cannot be written. Check the rights of the file and its folder.",
    ),
    (apsw.FullError, "store_full", "The disk is full. Free some room; Peik goes on by itself."),
    (apsw.CorruptError, "store_corrupt", "The archive is damaged. Stop Peik and restore a backup."),
    (apsw.NotADBError, "store_corrupt", "The file is not a SQLite database. Name another one in PEIK_ARCHIVE."),
    (
        apsw.CantOpenError,
        "store_gone",
        "The archive cannot be opened. Check that its folder exists and can be written.",
    ),
    (apsw.IOError, "store_io", "The disk reported an error. Check its health and free room."),
)


def translate(error: BaseException) -> BaseException:
    """SQLite's errors in our words; anything else as it is."""
    if isinstance(error, Problem) or not isinstance(error, apsw.Error):
        return error
    for kind, code, hint in _HINTS:
        if isinstance(error, kind):
            return StoreUnavailable(code=code, detail=f"{hint} Nothing was stored. ({error})")
    return StoreUnavailable(code="store_error", detail=f"SQLite refused: {error}. Nothing was stored.")


# The two threads that a SQLite archive works on: one reads, one writes, and everything that waits to be written at a
# moment goes into one transaction and one fsync.


T = TypeVar("T")

_PER_COMMIT_MAX = 200  # pieces of work; a bound on how long one commit keeps the others waiting

Piece = tuple[Callable[[apsw.Connection], Any], "asyncio.Future[Any]"]


class ReaderThread:
    """One thread, one connection; what it is asked comes one after the other."""

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def ask(self, work: Callable[[apsw.Connection], T]) -> T:
        """Raises what it raises, in our words."""
        if self._is_closed:
            raise StoreUnavailable(code="archive_closed", detail="The archive is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((work, future))
        return await future

    def close(self) -> None:
        """After what was asked before."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (piece := self._queue.get()) is not None:
            self._do([piece])
        self._connection.close()

    def _do(self, pieces: list[Piece]) -> None:
        for work, future in pieces:
            try:
                self._tell([(future, work(self._connection), None)])
            except Exception as error:  # noqa: BLE001  it is raised again where the work was asked for
                self._tell([(future, None, error)])

    def _tell(self, ended: "list[tuple[asyncio.Future[Any], Any, BaseException | None]]") -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, ended)


class WriterThread(ReaderThread):
    """The same in transactions. A piece of work that fails is undone by itself; its neighbours are committed."""

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._place = place(connection)
        self.trouble: BaseException | None = None  # why the last commit was not made
        super().__init__(connection, name)

    def _serve(self) -> None:
        is_open = True
        while is_open:
            pieces: list[Piece] = []
            following = self._queue.get()
            while following is not None:
                pieces.append(following)
                if len(pieces) >= _PER_COMMIT_MAX or self._queue.empty():
                    break
                following = self._queue.get()
            is_open = following is not None
            self._do(pieces)
        self._connection.close()

    def _do(self, pieces: list[Piece]) -> None:
        try:
            ended = self._transaction(pieces)
            self.trouble = None
        except Exception as error:  # noqa: BLE001  every kind of failure is told to whoever asked
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self.trouble = translate(error)
            ended = [(future, None, error) for _, future in pieces]
        self._tell(ended)

    def _transaction(self, pieces: list[Piece]) -> "list[tuple[asyncio.Future[Any], Any, BaseException | None]]":
        ended: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        for work, future in pieces:
            connection.execute("SAVEPOINT piece")
            try:
                ended.append((future, work(connection), None))
            except Exception as error:
                if not connection.in_transaction:  # SQLite has undone everything: the disk failed
                    raise
                connection.execute("ROLLBACK TO piece")
                ended.append((future, None, error))
            connection.execute("RELEASE piece")
        if place(connection) != self._place:
            raise apsw.CantOpenError("the file was replaced while it was open: put it back, or start Peik anew")
        connection.execute("COMMIT")
        return ended


def _settle(ended: "list[tuple[asyncio.Future[Any], Any, BaseException | None]]") -> None:
    for future, value, error in ended:
        if future.done():  # whoever asked has gone
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(translate(error))


# Many rows in few statements: Python's interpreter lock is given back only while SQLite works, so that a row at a
# time is slow beside a busy thread.


_SIZES = (256, 64, 16, 4, 1)  # few different statements, so that each is prepared once


def returned(connection: apsw.Connection, sql: str, rows: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    """Run an `INSERT … VALUES (?, …)` for all rows; what it returns, if anything."""
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


# What is removed from the SQLite archive for good: overwritten in the file, out of the index of words, and out of the
# log.


_MERGED_PAGES = 500  # of the index of words in one commit: some milliseconds
_WORK_DONE = 2  # SQLite says by so many changes that there may be more to merge


def securely(connection: apsw.Connection, work: Callable[[apsw.Connection], T]) -> T:
    """A piece of work whose deleted bytes are overwritten."""
    connection.execute("PRAGMA secure_delete = ON")
    try:
        return work(connection)
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def merge_words(connection: apsw.Connection) -> bool:
    """Some of the index of words is written anew, without the words of messages that are gone. Whether there is more of it."""

    def work(one: apsw.Connection) -> bool:
        before = one.total_changes()
        one.execute("INSERT INTO message_words (message_words, rank) VALUES ('merge', ?)", (-_MERGED_PAGES,))
        return one.total_changes() - before >= _WORK_DONE

    return securely(connection, work)


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
