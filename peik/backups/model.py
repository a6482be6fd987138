"""What a backup says of itself: a head that anybody can read, and a manifest that is sealed with the rest."""

import asyncio
import contextlib
import errno
import hashlib
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from peik.core.documents import DocumentStore, Filing
from peik.core.events import Event
from peik.errors import BadInput, Conflict, Unavailable

MAGIC = b"PEIKBACKUP\n"
FORMAT = 1
HEAD_BYTES_MAX = 4096
MANIFEST = "manifest.json"


class BackupHead(msgspec.Struct, frozen=True, kw_only=True):
    """One line of JSON behind the magic. Nothing secret is in it."""

    format: int
    peik: str  # the version that made it
    made_at_ms: int
    origin: str  # which store it is of, without telling where that is
    salt: str | None = None  # in hexadecimal; None: it is not sealed
    key_id: str | None = None


class BackupMember(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # within the backup: store/…, archive/…, files/…, sessions/…, keys/…
    size_bytes: int
    sha256: str


class BackupPart(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # store, archive, files, sessions, keys, or also-… for a file of the program
    kind: str  # sqlite, postgresql, redis, mongodb or folder
    shown: str  # where it was, without a password
    counts: dict[str, int]  # rows per table, or what comes nearest to it
    version: int = 0  # of its schema; 0: it has none
    label: str = ""  # the schema of PostgreSQL, the prefix of Redis, the database of MongoDB


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    peik: str
    made_at_ms: int
    parts: tuple[BackupPart, ...]
    members: tuple[BackupMember, ...]
    missing_files: tuple[str, ...] = ()  # of letters; they were gone before

    def part(self, name: str) -> BackupPart | None:
        return next((one for one in self.parts if one.name == name), None)


def origin_of(shown: str) -> str:
    return hashlib.sha256(f"peik backup of {shown}".encode()).hexdigest()[:16]


def read_head(line: bytes) -> BackupHead:
    """Raises BadInput if it is none of ours, Conflict if this Peik is too old for it."""
    try:
        head = msgspec.json.decode(line, type=_AnyHead)
    except msgspec.DecodeError:
        raise foreign() from None
    if head.format > FORMAT:
        raise Conflict(
            code="newer_backup",
            detail=f"This backup was made by a newer Peik ({head.peik}). Upgrade this one, and try again.",
        )
    try:
        return msgspec.json.decode(line, type=BackupHead)
    except msgspec.DecodeError:
        raise broken("its beginning was changed") from None


class _AnyHead(msgspec.Struct):
    format: int
    peik: str


def foreign() -> BadInput:
    return BadInput(code="not_a_backup", detail="This file is not a backup that Peik made.")


def read_manifest(text: bytes) -> Manifest:
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise broken(f"its manifest cannot be read: {error}") from None
    for member in manifest.members:
        path = PurePosixPath(member.path)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((), (MANIFEST,)):
            raise broken("a name in it leads out of the backup")
    return manifest


def broken(why: str) -> Conflict:
    return Conflict(code="backup_broken", detail=f"This backup is damaged: {why}. Take another one.")


# How long work is watched, and how it is stopped: what blocks does its work on a thread, in steps, and asks at each.


P = ParamSpec("P")
T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for this work any more. It never leaves the thread's caller."""


class BackupWatch:
    """Who looks on. `begin` a stage with its number of steps, and `step` on; both may be called on any thread."""

    def __init__(
        self,
        begin: Callable[[str, int], None] = lambda words, total: None,
        step: Callable[[int], None] = lambda done: None,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.begin = begin
        self.warn = warn
        self._step = step
        self._is_stopped = threading.Event()

    def step(self, done: int) -> None:
        """Raises Stopped if the work is to end here."""
        if self._is_stopped.is_set():
            raise Stopped
        self._step(done)

    def stop(self) -> None:
        self._is_stopped.set()


async def on_thread(watch: BackupWatch, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Like `asyncio.to_thread`; anyone who is cancelled waits until the work has stopped, so that nothing writes any more where
    things are tidied up."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *given, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        watch.stop()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # its last words are for nobody
        raise


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """What the disk says, in words that help."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(
                code="disk_full",
                detail=f"{doing} failed: the disk is full. Free some room, or name another folder in PEIK_BACKUPS.",
            ) from error
        where = f" ({error.filename})" if error.filename else ""
        raise Unavailable(code="backup_failed", detail=f"{doing} failed: {error.strerror or error}{where}.") from error


# What a backup is made of, and what each part has to be able to do.


# Keeps the files of letters from going, at the moment of a snapshot: those of these names, or all for None. Which are not there.
Hold = Callable[[Collection[str] | None], set[str]]

SNAPSHOTS_MAX = 20  # each beyond the first is for files of letters that ended in the few milliseconds before


class BackupSource(Protocol):
    """A store or an archive. What it raises are Problems and StartErrors."""

    @property
    def kind(self) -> str: ...

    @property
    def shown(self) -> str:
        """Where it is, without a password."""

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: BackupWatch) -> BackupPart:
        """All of it as it was at one moment, as files in this folder. `hold` is asked in that moment."""

    def reserved(self) -> AbstractContextManager[None]:
        """Nobody begins to run on it within the block, where that can be had (SQLite). Raises Conflict (`in_use`)."""

    async def used_by(self) -> str | None:
        """Who runs on it now, as a sentence; None: nobody."""

    async def is_empty(self) -> bool: ...

    async def check(self, folder: Path, part: BackupPart, watch: BackupWatch) -> dict[str, int]:
        """Put it back in a temporary place, and count what is there. Raises Conflict (`backup_broken`)."""

    async def put_back(self, folder: Path, part: BackupPart, watch: BackupWatch) -> None:
        """In place of all that is there: as a whole, or not at all. Only while it is `reserved`."""


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """Files of this node that are no database."""

    files: Path | None  # those of letters; None: they are in the store
    sessions: Path | None
    keys: dict[str, Path]  # by the name in the backup


def hold_none(blobs: Collection[str] | None) -> set[str]:
    """For a part that has no files beside it."""
    return set()


# What is known of backups, on every node: documents on a collection of the store, one for each. And when the store was last
# put back from one: what was done with it between the backup and then, it cannot know.


COLLECTION = "backups"
RESTORES, LAST = "restores", "last"
PAGE = 500


class RestoreMark(msgspec.Struct, frozen=True, kw_only=True):
    at_ms: int


class BackupEntry(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    made_at_ms: int
    size_bytes: int
    is_sealed: bool
    verified_at_ms: int | None = None
    is_broken: bool = False  # it was tried out, and is not what it should be


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    made_at_ms: int | None = None
    verified_at_ms: int | None = None


_decode = msgspec.json.Decoder(BackupEntry).decode


class BackupLedger:
    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def entries(self) -> dict[str, BackupEntry]:
        """By the name of the file. Raises StoreUnavailable."""
        found: dict[str, BackupEntry] = {}
        after: str | None = None
        while True:
            page = await self._documents.documents(COLLECTION, after=after, limit=PAGE)
            found |= {document.key: _decode(document.body) for document in page}
            if len(page) < PAGE:
                return found
            after = page[-1].key

    async def sound(self) -> set[str]:
        """The names of those that were tried out and found good. Raises StoreUnavailable."""
        entries = await self.entries()
        return {name for name, one in entries.items() if one.verified_at_ms is not None and not one.is_broken}

    async def note(self, name: str, entry: BackupEntry) -> None:
        await self._documents.file([Filing(collection=COLLECTION, key=name, body=msgspec.json.encode(entry).decode())])

    async def note_restored(self, at_ms: int, backup: tuple[str, BackupEntry] | None) -> None:
        """The store was put back now, from this backup: what was put back knows of neither."""
        mark = msgspec.json.encode(RestoreMark(at_ms=at_ms)).decode()
        await self._documents.file([Filing(collection=RESTORES, key=LAST, body=mark)])
        if backup is not None:
            await self.note(*backup)

    async def note_verified(self, name: str, at_ms: int) -> None:
        await self._change(name, verified_at_ms=at_ms, is_broken=False)

    async def note_broken(self, name: str) -> None:
        await self._change(name, is_broken=True)

    async def _change(self, name: str, **fields: object) -> None:
        """Nothing, if nobody knows of it: it may be of another store, or older than the ledger."""
        document = await self._documents.document(COLLECTION, name)
        if document is not None:
            await self.note(name, msgspec.structs.replace(_decode(document.body), **fields))

    async def forget(self, names: list[str]) -> None:
        if names:
            await self._documents.file([Filing(collection=COLLECTION, key=name, body=None) for name in names])


async def newest(documents: DocumentStore) -> Newest:
    """Of the good ones; for metrics and alerts. Raises StoreUnavailable."""
    entries = [one for one in (await BackupLedger(documents).entries()).values() if not one.is_broken]
    return Newest(
        made_at_ms=max((one.made_at_ms for one in entries), default=None),
        verified_at_ms=max((one.verified_at_ms for one in entries if one.verified_at_ms is not None), default=None),
    )


async def restored_at_ms(documents: DocumentStore) -> int | None:
    """None: it never was. Raises StoreUnavailable."""
    document = await documents.document(RESTORES, LAST)
    return None if document is None else msgspec.json.decode(document.body, type=RestoreMark).at_ms


async def last_good_ms(documents: DocumentStore) -> int | None:
    """When the newest good one was made; None: there is none. Raises StoreUnavailable."""
    return (await newest(documents)).made_at_ms


# What can be observed of backups that are made by the clock.


class BackupMade(Event, frozen=True, kw_only=True):
    path: str
    size_bytes: int


class BackupFailed(Event, frozen=True, kw_only=True):
    """It is tried again; the last one that was made stays."""

    what: str
    why: str
