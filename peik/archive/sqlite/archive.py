"""The archive in a SQLite file: nothing to install, one machine."""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from peik.archive.rules import Key, folded, key_of, words
from peik.archive.sql import load, message_of, migrations
from peik.archive.sql_archive import SqlArchive
from peik.archive.store import FeedRecord, Message, MessageFilter
from peik.errors import StartError, StoreUnavailable
from peik.storage.executor import at_once
from peik.storage.sqlite import database

T = TypeVar("T")

APPLICATION_ID = 0x50454941  # "PEIA": another file than the store's "PEIK"
BUSY_MS = 5000
PACKAGE = "peik.archive.sqlite"
_SQL = load(PACKAGE, "queries.sql")
_COMMON = 20_000  # hits of a search; from here on it is quicker to walk messages by date than to sort hits


class FileSession:
    """See `peik.archive.sql_archive.ArchiveSession`. A list is bound as JSON."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    async def rows(self, query: str, **named: object) -> list[Any]:
        return self._connection.execute(query, _bound(named)).fetchall()

    async def value(self, query: str, **named: object) -> Any:
        return self._connection.execute(query, _bound(named)).get

    async def run(self, query: str, **named: object) -> int:
        self._connection.execute(query, _bound(named))
        return self._connection.changes()

    async def many(self, query: str, rows: Sequence[Sequence[object]]) -> list[Any]:
        return returned(self._connection, query, rows)


def _bound(named: dict[str, Any]) -> dict[str, Any]:
    return {
        name: msgspec.json.encode(value).decode() if isinstance(value, list) else value for name, value in named.items()
    }


class SqliteArchive(SqlArchive[FileSession]):
    """The port `Archive`. Several processes may have the same file open."""

    sql = _SQL
    taken = apsw.ConstraintError

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def open(self) -> None:
        try:
            connection = connect(self._path)
            try:
                migrate(connection, self._path)
                reading = connect(self._path, for_reading=True)
            except BaseException:
                connection.close()
                raise
        except apsw.Error as error:
            told = translate(error)
            assert isinstance(told, StoreUnavailable)
            raise StartError(f"Cannot use {self._path} as the archive: {told.detail}") from error
        self._writer = WriterThread(connection, "peik-archive-writer")
        self._reader = ReaderThread(reading, "peik-archive-reader")

    async def close(self) -> None:
        await self._messages.drained()
        self._reader.close()
        self._writer.close()

    def trouble(self) -> str | None:
        return None if self._writer.trouble is None else str(self._writer.trouble)

    async def durability(self) -> list[str]:
        return []  # we set everything ourselves

    # ---- the ways in ----

    async def _read(self, work: Callable[[FileSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        def piece(connection: apsw.Connection) -> T:
            snapshot: AbstractContextManager[object, None] = connection if is_whole else nullcontext()  # type: ignore[assignment]
            with snapshot:
                return at_once(work(FileSession(connection)))

        return await self._reader.ask(piece)

    async def _write(self, work: Callable[[FileSession], Awaitable[T]]) -> T:
        return await self._writer.ask(lambda connection: at_once(work(FileSession(connection))))

    async def _erase(self, work: Callable[[FileSession], Awaitable[T]]) -> T:
        return await self._writer.ask(
            lambda connection: securely(connection, lambda one: at_once(work(FileSession(one))))
        )

    async def _erased(self, messages: int) -> None:
        while messages and await self._writer.ask(merge_words):
            pass
        await asyncio.to_thread(empty_log, self._path)

    def _is_phone(self, error: Exception) -> bool:
        return "phone" in str(error)

    # ---- messages ----

    async def _add(self, one: FileSession, messages: Sequence[Message]) -> set[Key]:
        known = {tuple(row) for row in await one.rows(_SQL["known_messages"], keys=[key_of(each) for each in messages])}
        new = [message for message in messages if key_of(message) not in known]
        if new:
            first = await one.value(_SQL["highest_message"])
            rows = [(place, *msgspec.structs.astuple(message)) for place, message in enumerate(new, start=first + 1)]
            await one.many(_SQL["add_message"], rows)
            texts = [(row[0], _words(each)) for row, each in zip(rows, new, strict=True) if each.text]
            await one.many(_SQL["add_words"], texts)
        return {key_of(message) for message in new}

    async def _current(self, one: FileSession, keys: Sequence[Key]) -> list[Message]:
        rows = await one.rows(_SQL["messages_by_keys"], keys=list(keys)) if keys else []
        return [message_of(row) for row in rows]

    async def _replace(self, one: FileSession, message: Message) -> None:
        await self._fill(one, message)
        session_id, chat_id, message_id = key_of(message)
        row = await one.value(_SQL["id_of_message"], session_id=session_id, chat_id=chat_id, message_id=message_id)
        await one.run(_SQL["remove_words"], id=row)
        if message.text:
            await one.many(_SQL["add_words"], [(row, _words(message))])

    async def _fill(self, one: FileSession, message: Message) -> None:
        await one.run(_SQL["replace_message"], **msgspec.structs.asdict(message))

    async def _remove_messages(self, one: FileSession, which: str, **bound: int) -> tuple[int, int]:
        versions = 0
        rows = await one.rows(_SQL[which], **bound)
        for row, session_id, chat_id, message_id in rows:
            await one.run(_SQL["remove_message"], id=row)
            await one.run(_SQL["remove_words"], id=row)
            key = {"session_id": session_id, "chat_id": chat_id, "message_id": message_id}
            versions += await one.run(_SQL["remove_versions"], **key)
        return len(rows), versions

    async def _where(
        self, one: FileSession, wanted: MessageFilter, *, is_count: bool
    ) -> tuple[str, dict[str, Any], bool]:
        bound: dict[str, Any] = {}
        parts: list[str] = []
        is_rare = False
        # The first of these decides which index is walked; a plus before the others keeps the planner from theirs.
        plus = ""
        if wanted.text is not None:
            asked = words(wanted.text)
            matched = " AND ".join(f'"{word}"' for word in asked)
            if not asked:
                parts.append(_SQL["nothing"])
            elif is_count or await one.value(_SQL["how_common"], words=matched, limit=_COMMON) < _COMMON:
                parts.append(_SQL["with_words"])
                bound["words"] = matched
                is_rare, plus = True, "+"
            else:
                parts.append(_SQL["with_common_words"])
                bound["words"] = " ".join(asked)
        for name in ("chat_id", "sender_id", "session_id", "agent_id", "direction", "kind", "since_ms", "until_ms"):
            value = getattr(wanted, name)
            if value is not None:
                bound[name] = value
                parts.append(_SQL[name].replace("{plus}", plus))
                plus = "+"
        if wanted.is_deleted is not None:
            parts.append(_SQL["deleted" if wanted.is_deleted else "not_deleted"])
        return " ".join(parts), bound, is_rare

    # ---- feeds ----

    async def _feed(self, one: FileSession, lines: Sequence[FeedRecord]) -> int:
        """One connection writes at a time: nobody else takes a number meanwhile."""
        session_id = lines[0].session_id
        keys = [line.key for line in lines]
        known = {row[0] for row in await one.rows(_SQL["known_keys"], session_id=session_id, keys=keys)}
        new = [line for line in lines if line.key not in known]
        if new:
            last = await one.value(_SQL["use_numbers"], session_id=session_id, count=len(new))
            numbered = (
                msgspec.structs.replace(line, number=number)
                for number, line in enumerate(new, start=last - len(new) + 1)
            )
            await one.many(_SQL["add_lines"], [msgspec.structs.astuple(line) for line in numbered])
        return len(new)

    async def _remove_lines(self, one: FileSession, query: str, **bound: int) -> int:
        rows = await one.rows(_SQL[query], **bound)
        await one.run(_SQL["settle_firsts"], session_ids=sorted({row[0] for row in rows}))
        return len(rows)


def _words(message: Message) -> str:
    return " ".join(words(message.text))


# Opening the file: durable settings, a schema that is ours, and errors in words that help.


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
            f"{Path(connection.filename).name} is gone: put it back, or start Peik again"
        ) from error
    return stat.st_dev, stat.st_ino


def _number(connection: apsw.Connection, sql: str) -> int:
    found: Any = connection.execute(sql).get
    assert isinstance(found, int)
    return found


def translate(error: BaseException) -> BaseException:
    """SQLite's errors in our words; anything else as it is."""
    return database.translate(error, what="archive", setting="PEIK_ARCHIVE", lost="Nothing was stored.")


# The two threads that a SQLite archive works on: one reads, one writes, and everything that waits to be written at a
# moment goes into one transaction and one fsync.


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
        except Exception as error:  # noqa: BLE001  every kind of failure is reported to the caller
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
            raise apsw.CantOpenError("the file was replaced while it was open: put it back, or start Peik again")
        connection.execute("COMMIT")
        return ended


def _settle(ended: "list[tuple[asyncio.Future[Any], Any, BaseException | None]]") -> None:
    for future, value, error in ended:
        if future.done():  # the caller has gone
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
_WORK_DONE = 2  # SQLite says by this many changes that there may be more to merge


def securely(connection: apsw.Connection, work: Callable[[apsw.Connection], T]) -> T:
    """A piece of work whose deleted bytes are overwritten."""
    connection.execute("PRAGMA secure_delete = ON")
    try:
        return work(connection)
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def merge_words(connection: apsw.Connection) -> bool:
    """Some of the index of words is written again, without the words of messages that are gone. Whether there is more of it."""

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
