"""What moving asks of a store, the same of all three: read in pages, write in batches, say who uses it."""

import asyncio
import hashlib
import os
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import apsw
import msgspec

from peik.core.nodes import FileStore
from peik.errors import StartError
from peik.storage.moving.records import KINDS, File, MovedInbox, Record
from peik.storage.shared_spool import PART_BYTES
from peik.storage.spool import FolderSpool, make_private_folder, sync_folder
from peik.storage.sqlite.jobs import COLUMNS

# How far a move is. It is kept in the target, in the same commit as what it speaks of, so that a killed move goes on.


_MODULUS = 2**128


class RecordSum(msgspec.Struct, frozen=True):
    """How many records there are, and a sum over all of them that does not depend on their order."""

    count: int = 0
    digest: str = "0" * 32

    def plus(self, kind: str, records: "list[Record]") -> "RecordSum":
        """Digests are added, not mixed by XOR: a record that stands there twice must not undo itself."""
        total = int(self.digest, 16)
        salt = kind.encode()[:16]
        for record in records:
            made = hashlib.blake2b(_encode(record.cells()), digest_size=16, person=salt).digest()
            total += int.from_bytes(made, "big")
        return RecordSum(count=self.count + len(records), digest=f"{total % _MODULUS:032x}")


class KindProgress(msgspec.Struct, frozen=True):
    moved: RecordSum = RecordSum()
    cursor: str | None = None
    is_done: bool = False


class MoveProgress(msgspec.Struct, frozen=True, kw_only=True):
    origin: str  # where it comes from, without a password
    fingerprint: str  # how the origin stood when the move began
    run: str  # the process that moves; one that finds another here has been replaced, and stops
    began_at_ms: int
    kinds: dict[str, KindProgress] = {}
    missing_files: int = 0
    was_in_use: bool = False  # the origin was served meanwhile: this is a rehearsal, and no move
    ended_at_ms: int | None = None  # None: half-moved

    def of(self, kind: str) -> KindProgress:
        return self.kinds.get(kind, KindProgress())

    def with_kind(self, kind: str, progress: KindProgress) -> "MoveProgress":
        return msgspec.structs.replace(self, kinds={**self.kinds, kind: progress})


_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(MoveProgress).decode


def encode(progress: MoveProgress) -> str:
    return _encode(progress).decode()


class RecordPage(msgspec.Struct, frozen=True):
    records: list[Record]
    cursor: str | None  # where the next page begins; None: this was the last


class MoveEnd(Protocol):
    @property
    def shown(self) -> str:
        """Where it is, without a password. Two ends of the same name are the same store."""

    @property
    def files(self) -> FileStore: ...

    async def open(self, *, is_target: bool) -> None:
        """A target is made if it is not there. Raises StartError or Problem."""

    async def close(self) -> None: ...

    async def used_by(self) -> str | None:
        """Who serves it now, as the rest of a sentence; None: nobody."""

    async def lives(self) -> int:
        """Rises whenever somebody begins to serve it."""

    async def look_again(self) -> None:
        """Read from now on what is there now, and not what was there when the end was opened."""

    async def counts(self) -> dict[str, int]:
        """How many records of each kind are here."""

    async def page(self, kind: str, cursor: str | None, limit: int) -> RecordPage:
        """The next records of a kind, about as many as the limit says. Anyone who comes back with a cursor goes on there."""

    async def job_states(self) -> dict[str, int]:
        """How many jobs are in each state in which there are any."""

    async def blobs(self) -> list[str]:
        """The files that letters still need, in order."""

    async def progress(self) -> MoveProgress | None:
        """Of the last move into this store; None: there was none."""

    async def write(self, kind: str, records: Sequence[Record], progress: MoveProgress) -> None:
        """Records and progress in one commit. Raises Conflict if another process has taken the move over."""

    async def begin(self, progress: MoveProgress) -> None:
        """Keep progress, no matter who has kept some before: from now on this process moves."""

    async def moved_to(self) -> str | None:
        """Where everything here was moved to; None: nowhere."""

    async def note_moved(self, target: str | None) -> None:
        """Keep where everything was moved to, so that this store is not served beside that one. None takes it back."""

    def fit(self, record: Record) -> Record:
        """A record as it will be read again from this store."""

    def explain(self, error: BaseException) -> BaseException:
        """This store's errors in our words; anything else as it is."""


# What stores do not keep alike: a record is fitted to its target before it is written and counted.


def fit_dates(record: Record) -> Record:
    """For stores that say when an inbox was last changed: at the latest time that is known of it."""
    if isinstance(record, MovedInbox) and record.updated_at is None:
        known = (record.epoch_at, record.started_at, record.seen_at, record.received_at)
        return msgspec.structs.replace(record, updated_at=max(at for at in known if at is not None))
    return record


def without_nul(record: Record) -> Record:
    """For PostgreSQL, whose texts hold no NUL: the sign for what cannot be shown stands in its place, as in the store itself."""
    cells = record.cells()
    if not any(isinstance(cell, str) and "\0" in cell for cell in cells):
        return record
    shown = [cell.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(cell, str) else cell for cell in cells]
    return record.of(shown)


# The named queries of this folder's `.sql` files, and where a page of each kind begins.


_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_LEAST = -(2**63)

# Fields of keys that are texts. A page begins behind its cursor; before the first page that is the least value of all.
_TEXTS = frozenset({"name", "digest", "kind", "user_id", "shelf", "paper_key"})


@cache
def load(filename: str) -> dict[str, str]:
    """{job} stands for the columns of a job."""
    text = (files("peik.storage.moving") / "sql" / filename).read_text(encoding="utf-8")
    parts = _NAME.split(text.replace("{job}", ", ".join(COLUMNS)))[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def after(kind: str, cursor: str | None) -> list[int | str]:
    """The key behind which a page begins."""
    if cursor is not None:
        return msgspec.json.decode(cursor, type=list[int | str])
    return ["" if field in _TEXTS else _LEAST for field in KINDS[kind].key]


def cursor_of(record: Record) -> str:
    return msgspec.json.encode([getattr(record, field) for field in record.key]).decode()


# Files of letters on their way: in parts, from one store of files to another, and a folder that is such a store.


class FolderFiles:
    """A folder as a `FileStore`: the one beside a SQLite file, or one that nodes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._spool = FolderSpool(self.folder)

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        """What is not whole has another name, so that nobody takes it for the file; see `finish`."""
        await asyncio.to_thread(self._keep, blob, place, part)

    def _keep(self, blob: str, place: int, part: bytes) -> None:
        path = self._unfinished(blob)
        if place == 0:
            mode = make_private_folder(self.folder)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode))
        with path.open("r+b") as file:
            file.seek(place * PART_BYTES)
            file.write(part)

    async def finish(self, blob: str) -> None:
        """All parts are here: from now on it is the file, and durable."""
        await asyncio.to_thread(self._finish, blob)

    def _finish(self, blob: str) -> None:
        path = self._unfinished(blob)
        with path.open("r+b") as file:
            os.fsync(file.fileno())
        path.rename(self._spool.path_of(blob))
        sync_folder(self.folder)

    async def part(self, blob: str, place: int) -> bytes | None:
        return await asyncio.to_thread(self._part, blob, place)

    def _part(self, blob: str, place: int) -> bytes | None:
        try:
            with self._spool.path_of(blob).open("rb") as file:
                file.seek(place * PART_BYTES)
                return file.read(PART_BYTES) or None
        except FileNotFoundError:
            return None

    async def drop_files(self, blobs: Sequence[str]) -> None:
        self._spool.remove(blobs)

    async def kept_files(self) -> dict[str, int]:
        if not self.folder.is_dir():
            return {}
        return {path.name: int(path.stat().st_mtime * 1000) for path in self.folder.iterdir()}

    def _unfinished(self, blob: str) -> Path:
        return self._spool.path_of(blob).with_suffix(".moving")


async def copy(blob: str, origin: FileStore, target: FileStore) -> File | None:
    """The file as it was read; None if the origin does not have it. Copying again what was copied changes nothing."""
    if isinstance(origin, FolderFiles) and isinstance(target, FolderFiles) and origin.folder == target.folder:
        return await look(blob, origin)
    place = 0
    digest = hashlib.blake2b(digest_size=20)
    size_bytes = 0
    while part := await origin.part(blob, place):
        await target.keep_part(blob, place, part)
        digest.update(part)
        size_bytes += len(part)
        place += 1
    if place and isinstance(target, FolderFiles):
        await target.finish(blob)
    return File(blob=blob, size_bytes=size_bytes, digest=digest.hexdigest()) if place else None


async def look(blob: str, files: FileStore) -> File | None:
    """The file as it stands there."""
    place = 0
    digest = hashlib.blake2b(digest_size=20)
    size_bytes = 0
    while part := await files.part(blob, place):
        digest.update(part)
        size_bytes += len(part)
        place += 1
    return File(blob=blob, size_bytes=size_bytes, digest=digest.hexdigest()) if place else None


# Whether a store holds only a part of what is being moved to it, or was moved away. Such a store must not be served.


KEY = "moving"  # in Redis; elsewhere it is a table of this name
MOVED = "moved"  # in Redis: where everything was moved to; elsewhere it is the table `moved_away`


class _Told(msgspec.Struct):
    origin: str
    ended_at_ms: int | None = None


def refuse_half(progress: str | bytes | None) -> None:
    """Raises StartError if this progress is that of a move that has not ended."""
    if progress is None:
        return
    told = msgspec.json.decode(progress, type=_Told)
    if told.ended_at_ms is None:
        raise StartError(
            f"This store holds only a part of what is being moved to it from {told.origin}. "
            "Let `peik migrate` with the same --from and --to go on to its end; it continues where it stopped."
        )


def refuse_moved(target: str | bytes | None) -> None:
    """Raises StartError if everything in this store was moved to another."""
    if target is None:
        return
    shown = target.decode() if isinstance(target, bytes) else target
    raise StartError(
        f"Everything in this store was moved to {shown}: served beside it, this one would send the same letters again. Set "
        "PEIK_STORE to that one. If this one is to be served all the same: peik migrate --from (this store) --take-back."
    )


def check_sqlite(connection: apsw.Connection) -> None:
    """For `SqliteStore.open`, before the first read."""
    sql = load("sqlite.sql")
    ((has_marker,),) = connection.execute(sql["has_marker"])
    if has_marker:
        refuse_half(next((row[0] for row in connection.execute(sql["progress"])), None))
    ((was_moved,),) = connection.execute(sql["has_moved"])
    if was_moved:
        refuse_moved(next((str(row[0]) for row in connection.execute(sql["moved_to"])), None))


async def check_postgres(connection: Any) -> None:
    """For `PostgresStore.open`, after the schema was brought up to date. `connection` is asyncpg's."""
    sql = load("postgres.sql")
    if await connection.fetchval(sql["has_marker"]):
        refuse_half(await connection.fetchval(sql["progress"]))
    if await connection.fetchval(sql["has_moved"]):
        refuse_moved(await connection.fetchval(sql["moved_to"]))


async def check_redis(redis: Any, prefix: str) -> None:
    """For `RedisStore.open`. `redis` is redis-py's client."""
    refuse_half(await redis.get(prefix + KEY))
    refuse_moved(await redis.get(prefix + MOVED))
