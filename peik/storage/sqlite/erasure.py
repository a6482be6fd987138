"""Forgetting a person in the SQLite store. Removed bytes are overwritten (`secure_delete`), and the write-ahead log is emptied
afterwards; where nobody else has the file, all of it is written again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from peik.erasure.store import Traces
from peik.secrets.seals import KeptSecret, SealChange
from peik.storage import sql
from peik.storage.erasure import SqlForgetting, change_secrets, kept_secrets
from peik.storage.executor import at_once
from peik.storage.sql import SqlSession
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.database import translate
from peik.storage.sqlite.rows import TALLY_COLUMNS
from peik.storage.sqlite.statements import Row, SqliteSession, load, run_many
from peik.storage.sqlite.writer import SqliteWays

T = TypeVar("T")

_SQL = load("sqlite_forgetting.sql")
FREE_SPACE = (
    "Free space of the SQLite file may hold bytes of what was removed or changed earlier, in the ordinary way, until it is used "
    "again. With Peik stopped, `peik forget` rewrites the whole file."
)
BUSY = "The SQLite file could not be rewritten or its log emptied just now: somebody reads it, or the disk is full."
_WIPE_MS = 200  # so long the one writer may wait for readers before the log is emptied


class SqliteForgetting(SqlForgetting):
    """See `peik.erasure.store.Forgetting`. Made by the store when it is opened."""

    sql = sql.load("peik.storage.sqlite", "sqlite_forgetting.sql")

    def __init__(self, ways: SqliteWays, *, busy_ms: int) -> None:
        self._write, self._read, self._alone = ways.write, ways.read, ways.read_alone
        self._busy_ms = busy_ms

    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]]) -> T:
        return await self._read(lambda connection: at_once(work(SqliteSession(connection))))

    async def _in_commit(self, work: Callable[[SqlSession], Awaitable[T]], *, inboxes: Iterable[int] = ()) -> T:
        return await self._write(lambda batch: at_once(work(SqliteSession(batch.connection))))

    # ---- letters ----

    async def drop_letters(self, letter_ids: Sequence[int]) -> int:
        return await self._write(lambda batch: _drop_letters(batch, letter_ids))

    async def drop_traces(self, bot_id: int, chat_id: int) -> Traces:
        bound = {"bot": bot_id, "chat": chat_id}

        def work(batch: SqliteBatch) -> Traces:
            gone: dict[str, int] = {}
            for name in Traces.__struct_fields__:
                gone[name] = _number(batch.connection, _SQL[f"count_{name}"], bound)
                batch.connection.execute(_SQL[f"drop_{name}"], bound)
            return Traces(**gone)

        return await self._write(work)

    # ---- jobs ----

    async def drop_jobs(self, job_ids: Sequence[int]) -> int:
        def work(batch: SqliteBatch) -> int:
            return len(run_many(batch.connection, _SQL["drop_jobs"], [(one,) for one in job_ids]))

        return await self._write(work)

    async def drop_job_days(self, users: Sequence[str], *, is_dry: bool) -> int:
        bound = {"users": msgspec.json.encode(list(users)).decode()}
        count = await self._read(lambda one: _number(one, _SQL["count_job_days"], bound))

        def work(batch: SqliteBatch) -> None:
            batch.connection.execute(_SQL["drop_job_days"], bound)

        if count and not is_dry:
            await self._write(work)
        return count

    # ---- the files ----

    async def overwrite(self, *, is_on: bool) -> None:
        """Off again afterwards: it costs every commit a little."""

        def work(connection: apsw.Connection) -> None:
            connection.execute(f"PRAGMA secure_delete = {'ON' if is_on else 'OFF'}").fetchall()

        await self._alone(work)

    async def wipe(self, *, is_alone: bool) -> list[str]:
        def work(connection: apsw.Connection) -> bool:
            connection.set_busy_timeout(_WIPE_MS)
            try:
                if is_alone:
                    connection.execute("VACUUM")
                rows: list[Any] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except (apsw.BusyError, apsw.FullError):
                return False
            finally:
                connection.set_busy_timeout(self._busy_ms)
            return not rows[0][0]

        notes = [] if is_alone else [FREE_SPACE]
        return notes if await self._alone(work) else [*notes, BUSY]


def _drop_letters(batch: SqliteBatch, letter_ids: Sequence[int]) -> int:
    connection = batch.connection
    ended: list[Any] = list(run_many(connection, _SQL["ended_letters"], [(one,) for one in letter_ids]))
    ids: list[Row] = [(row[0],) for row in ended]
    for name in ("drop_results", "drop_hooks", "drop_keys_of_letters", "drop_letters"):
        run_many(connection, _SQL[name], ids)
    for _, bot_id, phase, enclosed in ended:
        batch.uncount(bot_id, TALLY_COLUMNS[phase])
        files = [] if enclosed is None else msgspec.json.decode(enclosed)
        batch.blobs_freed.extend(one["blob"] for one in files)
        run_many(connection, _SQL["drop_file_ids"], [(bot_id, one["digest"]) for one in files])
    return len(ids)


def _number(connection: apsw.Connection, query: str, bound: dict[str, Any]) -> int:
    rows: list[Any] = connection.execute(query, bound).fetchall()
    return int(rows[0][0])


# What is secret in the SQLite store, as it is stored: read, replaced, and its traces wiped out of the file.


_SEALED_SQL = sql.load("peik.storage.sqlite", "sqlite_sealed.sql")

_CHUNK = 4 << 20
_READ_BY_ANOTHER = "Another process reads the file, so that old bytes are left in its log; the next start wipes them."
TRACES_MAX = 12  # each is looked for by itself: with more of them it is quicker to write the file again


class SqliteSealed:
    """See `peik.secrets.seals.SealStore`. `alone` runs something on the writer's connection between two commits."""

    def __init__(
        self,
        ways: SqliteWays,
        path: Path,
        *,
        alone: Callable[[Callable[[apsw.Connection], str | None]], Awaitable[str | None]],
        claim: Callable[[], Awaitable[int]],
    ) -> None:
        self._path = path
        self._write = ways.write
        self._alone = alone
        self._claim = claim

    async def kept(self) -> list[KeptSecret]:
        # By the writer, so that nothing that was stored before is missing.
        return await self._write(lambda batch: at_once(kept_secrets(SqliteSession(batch.connection), _SEALED_SQL)))

    async def change(self, changes: Sequence[SealChange]) -> int:
        def work(batch: SqliteBatch) -> int:
            # What is replaced is overwritten with zeros, here and now; as a rule that would cost every letter a little.
            batch.connection.execute("PRAGMA secure_delete = ON").fetchall()
            try:
                return at_once(change_secrets(SqliteSession(batch.connection), _SEALED_SQL, changes))
            finally:
                batch.connection.execute("PRAGMA secure_delete = OFF").fetchall()

        return await self._write(work)

    async def is_ours(self) -> bool:
        return await self._claim() > 0

    async def scrub(self, traces: Sequence[str], *, may_rewrite: bool) -> str | None:
        # The log goes first: it holds whole pages as they were.
        left = await self._alone(lambda connection: None if _is_log_empty(connection) else _READ_BY_ANOTHER)
        if left is not None:
            return left
        try:
            # Not on the writer's thread: a large file takes seconds, and nobody is to wait for that.
            if not await asyncio.to_thread(_has_traces, self._path, traces):
                return None
        except OSError as error:
            return f"The file could not be read, and old bytes may be left in it: {error.strerror}"
        if not may_rewrite:
            return "Old bytes are left in free parts of the file; the next start rewrites it."
        return await self._alone(_write_anew)


def _write_anew(connection: apsw.Connection) -> str | None:
    try:
        connection.execute("PRAGMA temp_store = FILE")  # it is a copy of the whole file, which memory may not hold
        try:
            connection.execute("VACUUM")
        finally:
            connection.execute("PRAGMA temp_store = MEMORY")
        return None if _is_log_empty(connection) else _READ_BY_ANOTHER
    except apsw.Error as error:
        return f"The file could not be rewritten, and old bytes may be left in it: {translate(error)}"


def _is_log_empty(connection: apsw.Connection) -> bool:
    ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not is_busy


def _has_traces(path: Path, traces: Sequence[str], *, chunk_bytes: int = _CHUNK) -> bool:
    if len(traces) > TRACES_MAX:
        return True
    wanted = [one.encode() for one in traces]
    overlap = max(map(len, wanted), default=1) - 1
    with path.open("rb") as file:
        last = b""
        while chunk := file.read(chunk_bytes):
            whole = last + chunk
            if any(one in whole for one in wanted):
                return True
            last = whole[-overlap:] if overlap else b""
    return False
