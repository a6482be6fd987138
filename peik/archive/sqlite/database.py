"""Opening the archive's SQLite file: durable settings, a schema that is ours, and errors in words that help."""

import contextlib
import os
from pathlib import Path
from typing import Any

import apsw

from peik.archive.feeding import folded
from peik.archive.folding import words
from peik.archive.queries import migrations
from peik.errors import Problem, StartError, StoreUnavailable

APPLICATION_ID = 0x50454941  # "PEIA": another file than the store's "PEIK"
BUSY_MS = 5000
PACKAGE = "peik.archive.sqlite"


def connect(path: Path, *, for_reading: bool = False) -> apsw.Connection:
    """A connection with our settings. synchronous=FULL: a commit is on the disk when it returns."""
    if not for_reading and not path.exists():
        with contextlib.suppress(OSError):  # what is wrong with the folder SQLite says below
            path.touch(mode=0o600)  # it will hold what people wrote; the files that SQLite puts beside it follow suit
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
