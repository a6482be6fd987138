"""A SQLite file as a part of a backup: copied page by page while others write, and put in the place of the one that is there."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO

import apsw
import msgspec

from peik.backups.container import sync_file
from peik.backups.model import SNAPSHOTS_MAX, BackupPart, BackupWatch, Hold, broken, on_thread
from peik.errors import Conflict, NotFound, StoreUnavailable
from peik.storage.spool import sync_folder

PAGES = 2000  # in one step: a few milliseconds
BUSY_MS = 5000
FILE = "database.sqlite"
BEFORE = ".before-restore"
# Of letters that may still be sent; as in `peik.storage`.
_BLOBS = "SELECT enclosed FROM letters WHERE enclosed IS NOT NULL AND phase IN (0, 1, 3)"
_TABLES = """SELECT name FROM sqlite_schema
    WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"""


class _Enclosed(msgspec.Struct):
    blob: str


_enclosed = msgspec.json.Decoder(tuple[_Enclosed, ...]).decode

# Opens a file as Peik itself would, in a temporary place: brings its schema up to date, or raises StartError.
TryOut = Callable[[Path], Awaitable[None]]


class SqliteBackupSource:
    """See `Source`. `locks` are the names behind the file's that a process holds which runs on it."""

    kind = "sqlite"

    def __init__(self, path: Path, *, locks: tuple[str, ...], has_letters: bool, try_out: TryOut) -> None:
        self._path = path
        self._locks = locks
        self._has_letters = has_letters
        self._try_out = try_out
        self._is_reserved = False
        self.shown = f"sqlite:///{path}"

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: BackupWatch) -> BackupPart:
        return await on_thread(watch, self._copy, into, name, hold, watch)

    def _copy(self, into: Path, name: str, hold: Hold, watch: BackupWatch) -> BackupPart:
        if not self._path.exists():
            raise NotFound(code="no_store", detail=f"There is no {self._path}: nothing to back up.")
        target = into / FILE
        with _explained(self._path), _opened(self._path) as origin:
            watch.begin(f"Copying the {name}", 0)
            if self._has_letters:
                _snapshot_with_files(origin, hold)
            else:
                _snapshot(origin)
            _copy_pages(origin, target, watch, words=f"Copying the {name}")
        with _explained(target), _opened(target) as copied:
            counts, version = counts_of(copied), _number(copied, "PRAGMA user_version")
        return BackupPart(name=name, kind=self.kind, shown=self.shown, counts=counts, version=version)

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        if self._locks:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._held() as is_free:
            if not is_free:
                raise Conflict(
                    code="in_use", detail=f"A Peik runs on {self._path}. Stop it first. Nothing was changed."
                )
            self._is_reserved = True
            try:
                yield
            finally:
                self._is_reserved = False

    async def used_by(self) -> str | None:
        if self._is_reserved:
            return None
        with self._held() as is_free:
            return None if is_free else f"A Peik runs on {self._path}."

    async def is_empty(self) -> bool:
        return not self._path.exists() or self._path.stat().st_size == 0

    async def check(self, folder: Path, part: BackupPart, watch: BackupWatch) -> dict[str, int]:
        watch.begin(f"Trying out the {part.name}", 0)
        path = folder / FILE
        counts = await on_thread(watch, _sound_counts, path)
        await self._try_out(path)
        return counts

    async def put_back(self, folder: Path, part: BackupPart, watch: BackupWatch) -> None:
        assert self._is_reserved
        await on_thread(watch, self._put_back, folder / FILE)

    def _put_back(self, origin: Path) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        coming = self._path.with_name(f"{self._path.name}.restoring")
        coming.unlink(missing_ok=True)
        shutil.copyfile(origin, coming)
        coming.chmod(0o600)  # it holds tokens
        sync_file(coming)
        self._set_aside()
        coming.replace(self._path)
        sync_folder(self._path.parent)

    def _set_aside(self) -> None:
        """The file that is there gets a second name, and so does its log: it would be taken for the new file's."""
        if not self._path.exists():
            for suffix in ("-wal", "-shm", "-journal"):
                self._beside(suffix).unlink(missing_ok=True)
            return
        # An error here: it may be damaged, which may be why a backup is put back. What its log holds stays with it.
        with contextlib.suppress(apsw.Error), contextlib.closing(apsw.Connection(str(self._path))) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # nothing is written to a damaged file
            connection.set_busy_timeout(BUSY_MS)
            try:
                ((mode,),) = connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            except (apsw.BusyError, apsw.LockedError):
                mode = "busy"
            if mode != "delete":
                raise Conflict(code="in_use", detail=f"Another program has {self._path} open. End it first.")
        before = self._beside(BEFORE)
        if not (before.exists() and before.samefile(self._path)):  # else the one that was killed here goes on
            for suffix in ("", "-wal", "-shm", "-journal"):  # a log of an older one would be taken for this one's
                self._beside(BEFORE + suffix).unlink(missing_ok=True)
            try:
                os.link(self._path, before)
            except OSError:  # no second names on this disk
                shutil.copyfile(self._path, before)
        for suffix in ("-wal", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                self._beside(suffix).replace(self._beside(BEFORE + suffix))
        self._beside("-shm").unlink(missing_ok=True)

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    @contextlib.contextmanager
    def _held(self) -> Iterator[bool]:
        """Whether nobody runs on it; then nobody begins to until the end of the block."""
        with contextlib.ExitStack() as stack:
            is_free = True
            for suffix in self._locks if self._path.parent.is_dir() else ():
                file: IO[str] = stack.enter_context(self._beside(suffix).open("a+", encoding="utf-8"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    is_free = False
            yield is_free


def _snapshot(connection: apsw.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _snapshot_with_files(connection: apsw.Connection, hold: Hold) -> None:
    """A moment of the database whose files of letters are all held. A file goes after its letter has ended: if one is missing,
    its letter ended in this very moment, and is not in the next snapshot. What two snapshots in a row miss was lost before."""
    before: set[str] | None = None
    for _ in range(SNAPSHOTS_MAX):
        _snapshot(connection)
        missing = hold(_blobs(connection))
        if not missing or missing == before:
            return
        before = missing
        connection.execute("COMMIT")
    _snapshot(connection)
    hold(_blobs(connection))


def _blobs(connection: apsw.Connection) -> set[str]:
    ((has_letters,),) = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'letters'")
    if not has_letters:
        return set()
    return {file.blob for (text,) in connection.execute(_BLOBS) for file in _enclosed(_text(text))}


def _text(value: object) -> str:
    assert isinstance(value, str)
    return value


def _copy_pages(connection: apsw.Connection, target: Path, watch: BackupWatch, *, words: str) -> None:
    """The snapshot that `connection` holds keeps the copy from starting over whenever somebody writes."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    copied = apsw.Connection(str(target))
    try:
        watch.begin(words, _number(connection, "PRAGMA page_count"))
        with copied.backup("main", connection, "main") as backup:
            while not backup.done:
                left = backup.remaining
                backup.step(PAGES)
                watch.step(max(0, left - backup.remaining) if left else 0)
        # One file, without a log beside it. Peik turns the log on again.
        copied.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        copied.close()


def counts_of(connection: apsw.Connection) -> dict[str, int]:
    names = [_text(name) for (name,) in connection.execute(_TABLES)]
    return {name: _number(connection, f'SELECT count(*) FROM "{name}"') for name in names}  # noqa: S608  names of tables


def _sound_counts(path: Path) -> dict[str, int]:
    try:
        with _opened(path) as connection:
            ((verdict, *_), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
            if verdict != "ok":
                raise broken(f"the database in it says {verdict}")
            return counts_of(connection)
    except apsw.Error as error:
        raise broken(f"the database in it cannot be read ({error})") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(BUSY_MS)
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.FullError as error:
        raise StoreUnavailable(
            code="disk_full", detail="The disk is full. Free some room, or name another folder in PEIK_BACKUPS."
        ) from error
    except apsw.Error as error:
        raise StoreUnavailable(code="store_error", detail=f"{path} cannot be copied: {error}.") from error


def _number(connection: apsw.Connection, sql: str) -> int:
    ((found,),) = connection.execute(sql).fetchall()
    assert isinstance(found, int)
    return found
