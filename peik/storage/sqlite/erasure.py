"""Forgetting a person in the SQLite store. Removed bytes are overwritten (`secure_delete`), and the write-ahead log is emptied
afterwards; where nobody else has the file, all of it is written anew."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from peik.core.arrival import FORGOTTEN_LANE
from peik.erasure.model import ErasedPerson
from peik.erasure.store import Blank, KeptKey, LoggedLine, Traces
from peik.secrets.seals import KeptSecret, SealChange, is_secret
from peik.storage.rules import scrubbed_story
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.database import translate
from peik.storage.sqlite.rows import TALLY_COLUMNS
from peik.storage.sqlite.statements import Row, load, run_many
from peik.storage.sqlite.writer import SqliteWays

T = TypeVar("T")

_SQL = load("sqlite_forgetting.sql")
_DEAD = 3  # the phase of a story: nothing is done with it any more but to look at it
FREE_SPACE = (
    "Free space of the SQLite file may hold bytes of what was removed or changed earlier, in the ordinary way, until it is used "
    "anew. With Peik stopped, `peik forget` writes the whole file anew."
)
BUSY = "The SQLite file could not be written anew or its log emptied just now: somebody reads it, or the disk is full."
_WIPE_MS = 200  # so long the one writer may wait for readers before the log is emptied


class SqliteForgetting:
    """See `peik.erasure.store.Forgetting`. Made by the store when it is opened."""

    def __init__(self, ways: SqliteWays, *, busy_ms: int) -> None:
        self._write, self._read, self._alone = ways.write, ways.read, ways.read_alone
        self._busy_ms = busy_ms

    # ---- letters ----

    async def drop_letters(self, letter_ids: Sequence[int]) -> int:
        return await self._write(lambda batch: _drop_letters(batch, letter_ids))

    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedLine], str | None]:
        bound = {"after": int(cursor or 0), "limit": limit}
        rows: list[Any] = await self._read(lambda one: one.execute(_SQL["logged"], bound).fetchall())
        lines = [LoggedLine(id=row[0], bot_id=row[1], chat=row[2], user_id=row[3], error=row[4]) for row in rows]
        return lines, str(lines[-1].id) if len(lines) == limit else None

    async def drop_logged(self, ids: Sequence[int]) -> int:
        return await self._removed("drop_logged", [(one,) for one in ids])

    async def kept_keys(self, cursor: str | None, limit: int) -> tuple[list[KeptKey], str | None]:
        bot, key = (-(2**63), "") if cursor is None else msgspec.json.decode(cursor, type=tuple[int, str])
        bound = {"bot": bot, "key": key, "limit": limit}
        rows: list[Any] = await self._read(lambda one: one.execute(_SQL["kept_keys"], bound).fetchall())
        keys = [KeptKey(bot_id=row[0], key=row[1]) for row in rows]
        return keys, msgspec.json.encode(rows[-1]).decode() if len(rows) == limit else None

    async def drop_keys(self, keys: Sequence[KeptKey]) -> int:
        return await self._removed("drop_keys", [(one.bot_id, one.key) for one in keys])

    # ---- arrivals ----

    async def blank_arrivals(self, blanks: Sequence[Blank], *, person: ErasedPerson) -> int:
        def work(batch: SqliteBatch) -> int:
            return sum(_blank(batch.connection, one, person) for one in blanks)

        return await self._write(work)

    # ---- what a bot knows of a chat ----

    async def traces(self, bot_id: int, chat_id: int) -> Traces:
        bound = {"bot": bot_id, "chat": chat_id}

        def work(connection: apsw.Connection) -> Traces:
            count = {name: _number(connection, _SQL[f"count_{name}"], bound) for name in Traces.__struct_fields__}
            return Traces(**count)

        return await self._read(work)

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

    async def _removed(self, name: str, rows: list[Row]) -> int:
        def work(batch: SqliteBatch) -> int:
            before = batch.connection.total_changes()
            run_many(batch.connection, _SQL[name], rows)
            return batch.connection.total_changes() - before

        return await self._write(work)


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


def _blank(connection: apsw.Connection, one: Blank, person: ErasedPerson) -> int:
    rows = connection.execute(_SQL["arrival"], (one.arrival_id,)).fetchall()
    if not rows:
        return 0
    bot_id, number, only_for = rows[0]
    blank = {"id": one.arrival_id, "payload": one.payload, "lane": FORGOTTEN_LANE}
    connection.execute(_SQL["blank_theirs" if one.is_theirs else "blank_named"], blank)
    asked = {"bot": bot_id, "number": number, "only_for": only_for}
    stories: list[Any] = connection.execute(_SQL["stories"], asked).fetchall()
    for consumer, phase, reason, history in stories:
        story = {"consumer": consumer, "number": number}
        if one.is_theirs and phase == _DEAD:
            connection.execute(_SQL["drop_story"], story)
        else:
            reason, history = scrubbed_story(person, reason, history, is_theirs=one.is_theirs)
            connection.execute(_SQL["blank_story"], story | {"reason": reason, "history": history})
    return 1


def _number(connection: apsw.Connection, query: str, bound: dict[str, Any]) -> int:
    rows: list[Any] = connection.execute(query, bound).fetchall()
    return int(rows[0][0])


# What is secret in the SQLite store, as it is stored: read, replaced, and its traces wiped out of the file.


_SEALED_SQL = load("sqlite_sealed.sql")

_CHUNK = 4 << 20
_READ_BY_ANOTHER = "Another process reads the file, so that old bytes are left in its log; the next start wipes them."
TRACES_MAX = 12  # each is looked for by itself: with more of them it is quicker to write the file anew


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
        def read(batch: SqliteBatch) -> list[KeptSecret]:
            rows = [
                row
                for name in ("bots", "keys", "consumers", "secrets")
                for row in batch.connection.execute(_SEALED_SQL[name])
            ]
            return [KeptSecret(place=row[0], text=row[1]) for row in rows if is_secret(row[1])]

        return await self._write(read)  # by the writer, so that nothing that was stored before is missing

    async def change(self, changes: Sequence[SealChange]) -> int:
        def work(batch: SqliteBatch) -> int:
            # What is replaced is overwritten with zeros, here and now; as a rule that would cost every letter a little.
            batch.connection.execute("PRAGMA secure_delete = ON").fetchall()
            try:
                return sum(_change(batch.connection, one) for one in changes)
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
            return "Old bytes are left in free parts of the file; the next start writes it anew."
        return await self._alone(_write_anew)


def _change(connection: apsw.Connection, one: SealChange) -> int:
    kind, _, name = one.place.partition(":")
    if kind == "secret" and one.before is None:
        connection.execute(_SEALED_SQL["make_secret"], (name, one.after))
        return connection.changes()
    if kind == "secret" and one.after is None:
        connection.execute(_SEALED_SQL["drop_secret"], (name, one.before))
        return connection.changes()
    bound: tuple[str | int | bytes | None, ...]
    match kind:
        case "bot":
            bound = (one.after, int(name), one.before)
        case "key":
            bound = (one.after, bytes.fromhex(name), one.before)
        case "consumer":
            bot_id, _, whose = name.partition("@")
            bound = (one.after, int(bot_id), whose, one.before)
        case _:
            bound = (one.after, name, one.before)
    connection.execute(_SEALED_SQL[f"change_{kind}"], bound)
    return connection.changes()


def _write_anew(connection: apsw.Connection) -> str | None:
    try:
        connection.execute("PRAGMA temp_store = FILE")  # it is a copy of the whole file, which memory may not hold
        try:
            connection.execute("VACUUM")
        finally:
            connection.execute("PRAGMA temp_store = MEMORY")
        return None if _is_log_empty(connection) else _READ_BY_ANOTHER
    except apsw.Error as error:
        return f"The file could not be written anew, and old bytes may be left in it: {translate(error)}"


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
