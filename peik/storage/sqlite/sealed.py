"""What is secret in the SQLite store, as it is stored: read, replaced, and its traces wiped out of the file."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import apsw

from peik.secrets.seals import KeptSecret, SealChange, is_secret
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.database import translate
from peik.storage.sqlite.statements import load

T = TypeVar("T")
_SQL = load("sqlite_sealed.sql")

_CHUNK = 4 << 20
_READ_BY_ANOTHER = "Another process reads the file, so that old bytes are left in its log; the next start wipes them."
TRACES_MAX = 12  # each is looked for by itself: with more of them it is quicker to write the file anew


class SealedWrite(Protocol):
    async def __call__(self, work: Callable[[SqliteBatch], T], /) -> T: ...


class SqliteSealed:
    """See `peik.secrets.seals.SealStore`. `alone` runs something on the writer's connection between two commits."""

    def __init__(
        self,
        path: Path,
        *,
        write: SealedWrite,
        alone: Callable[[Callable[[apsw.Connection], str | None]], Awaitable[str | None]],
        claim: Callable[[], Awaitable[int]],
    ) -> None:
        self._path = path
        self._write = write
        self._alone = alone
        self._claim = claim

    async def kept(self) -> list[KeptSecret]:
        def read(batch: SqliteBatch) -> list[KeptSecret]:
            rows = [
                row for name in ("bots", "keys", "consumers", "secrets") for row in batch.connection.execute(_SQL[name])
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
        connection.execute(_SQL["make_secret"], (name, one.after))
        return connection.changes()
    if kind == "secret" and one.after is None:
        connection.execute(_SQL["drop_secret"], (name, one.before))
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
    connection.execute(_SQL[f"change_{kind}"], bound)
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
