"""The end of a move that is a SQLite file."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from peik.contacts.model import words_of
from peik.core.letter import Enclosed
from peik.errors import Conflict, NotFound
from peik.secrets.seals import PLAIN, Seals, place_of_secret
from peik.storage.moving import ends as progresses
from peik.storage.moving import move
from peik.storage.moving.ends import FolderFiles, MoveProgress, RecordPage, after, cursor_of, fit_dates, load
from peik.storage.moving.records import (
    JOB_LEASE_MS,
    KINDS,
    ApiKey,
    MovedLetter,
    MovedReader,
    Record,
    Secret,
    StoredContact,
    StoredJob,
)
from peik.storage.moving.records import Sequence as LastId
from peik.storage.spool import make_folder
from peik.storage.sqlite import database
from peik.storage.sqlite.statements import Row, run_many

T = TypeVar("T")

_SQL = load("sqlite.sql")
_LETTER_WIDTH = MovedLetter.__struct_fields__.index("result")  # what stands in the table of letters itself
_READER_WIDTH = MovedReader.__struct_fields__.index("spans")
_IS_GONE = StoredContact.__struct_fields__.index("is_gone")  # a number here, and a truth elsewhere

_spans = msgspec.json.Decoder(tuple[tuple[int, int], ...]).decode
_enclosed = msgspec.json.Decoder(tuple[Enclosed, ...]).decode


class SqliteEnd:
    """See `MoveEnd`. An origin is read as it stood at one moment; a target is held with the owner's lock."""

    def __init__(self, path: Path, seals: Seals = PLAIN) -> None:
        self._path = path.resolve()
        self._seals = seals
        self._locks = [database.OwnerLock(self._path, suffix=suffix) for suffix in (".owner", ".server")]
        self._connection: apsw.Connection | None = None
        self.shown = f"sqlite:///{self._path}"
        self.files = FolderFiles(self._path.with_name(self._path.name + ".files"))

    async def open(self, *, is_target: bool) -> None:
        await asyncio.to_thread(self._open, is_target=is_target)

    def _open(self, *, is_target: bool) -> None:
        if is_target:
            make_folder(self._path.parent)
            if not self._path.exists():
                self._path.touch(mode=0o600)  # it will hold tokens
        elif not self._path.exists():
            raise NotFound(code="no_store", detail=f"There is no {self._path}. Look at --from.")
        database.check(self._path)
        connection = database.connect(self._path)
        try:
            database.migrate(connection, self._path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        if not is_target:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")

    async def close(self) -> None:
        self._release()
        if self._connection is not None:
            await asyncio.to_thread(self._connection.close)
            self._connection = None

    async def used_by(self) -> str | None:
        """Until this end is closed nobody else becomes the owner."""
        if all(lock.try_acquire() for lock in self._locks):
            return None
        self._release()
        return f"{self.shown} is in use: a Peik runs on it"

    def _release(self) -> None:
        for lock in self._locks:
            lock.release()

    async def look_again(self) -> None:
        def renew(one: apsw.Connection) -> None:
            if one.in_transaction:
                one.execute("COMMIT")
                one.execute("BEGIN")

        await self._ask(renew)

    async def lives(self) -> int:
        return await self._ask(lambda one: _number(one, _SQL["lives"]))

    async def counts(self) -> dict[str, int]:
        def count(one: apsw.Connection) -> dict[str, int]:
            return {kind: _number(one, _counting(kind)) for kind in KINDS}

        found = await self._ask(count)
        return {**found, "secrets": len((await self._secrets()).records)}

    async def page(self, kind: str, cursor: str | None, limit: int) -> RecordPage:
        if kind == "secrets":
            return await self._secrets()
        records = await self._ask(lambda one: _read(one, kind, (*after(kind, cursor), limit)))
        return RecordPage(records, cursor_of(records[-1]) if len(records) == limit else None)

    async def _secrets(self) -> RecordPage:
        """All of them: they are few."""
        kept = await self._ask(lambda one: _read(one, "secrets", ()))
        admin = await asyncio.to_thread(move.read, self._path)
        return RecordPage(kept if admin is None else [admin, *kept], None)

    async def job_states(self) -> dict[str, int]:
        return await self._ask(lambda one: dict(one.execute(_SQL["job_states"])))

    async def blobs(self) -> list[str]:
        def read(one: apsw.Connection) -> set[str]:
            return {file.blob for (text,) in one.execute(_SQL["blobs"]) for file in _enclosed(text)}

        return sorted(await self._ask(read))

    async def progress(self) -> MoveProgress | None:
        return await self._ask(_progress)

    async def moved_to(self) -> str | None:
        def read(one: apsw.Connection) -> str | None:
            found = one.execute(_SQL["moved_to"]).fetchall() if _number(one, _SQL["has_moved"]) else []
            return None if not found else str(found[0][0])

        return await self._ask(read)

    async def note_moved(self, target: str | None) -> None:
        def keep(one: apsw.Connection) -> None:
            is_origin = one.in_transaction  # of its snapshot
            if is_origin:
                one.execute("COMMIT; PRAGMA query_only = OFF")
            with one:
                one.execute(_SQL["take_back"])
                if target is not None:
                    one.execute(_SQL["make_moved"])
                    one.execute(_SQL["keep_moved"], (target,))
            if is_origin:
                one.execute("PRAGMA query_only = ON; BEGIN")

        await self._ask(keep)

    async def begin(self, progress: MoveProgress) -> None:
        def keep(one: apsw.Connection) -> None:
            with one:
                one.execute(_SQL["make_marker"])
                one.execute(_SQL["keep_progress"], (progresses.encode(progress),))

        await self._ask(keep)

    async def write(self, kind: str, records: Sequence[Record], progress: MoveProgress) -> None:
        for secret in [one for one in records if isinstance(one, Secret) and one.name == move.NAME]:
            await asyncio.to_thread(move.write, self._path, secret)
            records = [one for one in records if one is not secret]

        def keep(one: apsw.Connection) -> None:
            one.execute("BEGIN IMMEDIATE")
            try:
                before = _progress(one)
                if before is None or before.run != progress.run:
                    raise Conflict(code="replaced", detail="Another `peik migrate` has taken this move over.")
                if records:
                    _write(one, kind, records)
                one.execute(_SQL["keep_progress"], (progresses.encode(progress),))
                one.execute("COMMIT")
            except BaseException:
                if one.in_transaction:
                    one.execute("ROLLBACK")
                raise

        await self._ask(keep)

    def fit(self, record: Record) -> Record:
        """Raises StoreUnavailable if the admin key of a server is sealed and there is no key for it: here it lies in a file."""
        if isinstance(record, Secret) and record.name == move.NAME:
            place = place_of_secret(record.name)
            return msgspec.structs.replace(record, value=self._seals.open(record.value, place=place))
        return fit_dates(record)

    def explain(self, error: BaseException) -> BaseException:
        return database.translate(error) if isinstance(error, apsw.Error) else error

    async def _ask(self, work: Callable[[apsw.Connection], T]) -> T:
        """On a thread, so that the other end works meanwhile."""
        assert self._connection is not None
        return await asyncio.to_thread(work, self._connection)


def _counting(kind: str) -> str:
    return _SQL.get(f"count_{kind}") or _SQL["count"].replace("{table}", kind)


def _number(connection: apsw.Connection, sql: str) -> int:
    ((found,),) = connection.execute(sql)
    assert isinstance(found, int)
    return found


def _progress(connection: apsw.Connection) -> MoveProgress | None:
    if not _number(connection, _SQL["has_marker"]):
        return None
    return next((progresses.decode(row[0]) for row in connection.execute(_SQL["progress"])), None)


def _read(connection: apsw.Connection, kind: str, bound: tuple[int | str, ...]) -> list[Record]:
    make = KINDS[kind].of
    rows = connection.execute(_SQL[f"read_{kind}"], bound)
    if kind == "consumers":
        return [make((*row[:-1], _spans(row[-1]))) for row in rows]
    if kind == "contacts":
        return [make((*row[:_IS_GONE], bool(row[_IS_GONE]), *row[_IS_GONE + 1 :])) for row in rows]
    return [make(row) for row in rows]


def _write(connection: apsw.Connection, kind: str, records: Sequence[Record]) -> None:
    if kind == "sequences":
        _write_sequences(connection, [one for one in records if isinstance(one, LastId)])
        return
    run_many(connection, _SQL[f"write_{kind}"], [_row(record) for record in records])
    if kind == "letters":
        _write_beside(connection, records)
    elif kind == "consumers":
        spans: list[Row] = [(one.id, *span) for one in records if isinstance(one, MovedReader) for span in one.spans]
        run_many(connection, _SQL["write_spans"], spans)
    elif kind == "bots":
        connection.execute(_SQL["fill_tallies"])


def _write_sequences(connection: apsw.Connection, sequences: Sequence[LastId]) -> None:
    own = [one for one in sequences if one.name != "job_numbers"]
    run_many(connection, _SQL["forget_sequences"], [(one.name,) for one in own])
    run_many(connection, _SQL["write_sequences"], [_row(one) for one in own])
    for one in sequences:
        if one.name == "job_numbers":
            connection.execute(_SQL["write_job_numbers"], (one.last,))


def _write_beside(connection: apsw.Connection, records: Sequence[Record]) -> None:
    letters: Any = records
    results: list[Row] = [(one.id, one.result) for one in letters if one.result is not None]
    marks: list[Row] = [(one.id, one.bot_id, 0, one.marked_at) for one in letters if one.marked_at is not None]
    run_many(connection, _SQL["write_results"], results)
    run_many(connection, _SQL["write_marks"], marks)


def _row(record: Record) -> Row:
    row: Row = record.cells()
    if isinstance(record, MovedLetter):
        return row[:_LETTER_WIDTH]
    if isinstance(record, MovedReader):
        return row[:_READER_WIDTH]
    if isinstance(record, ApiKey):
        return (*row, record.id)
    if isinstance(record, StoredJob):
        return (*row, None if record.job.ends_at_ms is None else JOB_LEASE_MS)
    if isinstance(record, StoredContact):
        return (*row, words_of(record.name, record.username))
    return row
