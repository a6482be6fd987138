"""Plain files: where a backup is put together, the files of letters, sessions of Telethon, and keys."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from peik.backups.model import BackupWatch
from peik.errors import Unavailable

_BLOB = re.compile(r"[0-9a-f]{32}")
_WORK = ".making-"
_SESSION = ".session"
SESSION_S = 10.0
_BESIDE = ("-wal", "-shm", "-journal")


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """A folder to work in, that goes when the work is done. What a process that was killed left behind goes first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in folder.glob(f"{_WORK}*"):
        with contextlib.suppress(OSError):  # somebody works there, or it is gone already
            handle = _locked(other)
            shutil.rmtree(other, ignore_errors=True)
            os.close(handle)
    place, handle = _entered(folder)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(handle)


def _entered(folder: Path) -> tuple[Path, int]:
    """A new one, and the lock on it. Until it is locked it looks like that of a dead one, and may be removed as such."""
    while True:
        place = folder / f"{_WORK}{secrets.token_hex(6)}"
        place.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            handle = _locked(place)
            if place.is_dir():
                return place, handle
            os.close(handle)


def _locked(folder: Path) -> int:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def put_file(origin: Path, target: Path, *, is_shared: bool = False) -> None:
    """A file that is there as a whole or not at all, durable when this returns. It is for its owner alone; one that is shared is
    for its group as well, where its folder is."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o660 if is_shared and target.parent.stat().st_mode & 0o020 else 0o600
    unfinished = target.with_name(f"{target.name}.restoring")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with origin.open("rb") as content, os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(content, file)
    sync_file(unfinished)
    unfinished.replace(target)
    sync_folder(target.parent)


# ---- files of letters ----


class Letterfiles:
    """Keeps files of letters from going while they are backed up: a second name of a file outlives the first."""

    def __init__(self, folder: Path, into: Path, watch: BackupWatch) -> None:
        self._folder = folder
        self._into = into
        self._watch = watch
        self.missing: set[str] = set()  # of those asked for the last time

    def hold(self, blobs: Collection[str] | None) -> set[str]:
        """See `parts.Hold`. What was held for a moment that did not count stays, and does no harm."""
        self._into.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.missing = {blob for blob in self._named(blobs) if not self._hold_one(blob)}
        return self.missing

    def _named(self, blobs: Collection[str] | None) -> Collection[str]:
        if blobs is not None:
            return [blob for blob in blobs if _BLOB.fullmatch(blob)]
        return (
            [path.name for path in self._folder.iterdir() if _BLOB.fullmatch(path.name)]
            if self._folder.is_dir()
            else []
        )

    def _hold_one(self, blob: str) -> bool:
        held = self._into / blob
        if held.exists():
            return True
        self._watch.step(0)
        try:
            os.link(self._folder / blob, held)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            return _copied(self._folder / blob, held)
        return True


def _copied(origin: Path, target: Path) -> bool:
    """Where no second name can be had: on another disk."""
    try:
        shutil.copyfile(origin, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)
        return False
    return True


# ---- sessions and keys ----


def copy_sessions(folder: Path, into: Path, watch: BackupWatch) -> int:
    """Every file of the folder; how many. A session is copied as it is at one moment, whoever writes to it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    paths = [path for path in paths if not path.name.endswith(_BESIDE)]
    for path in paths:
        target = into / path.relative_to(folder)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.suffix == _SESSION:
            _copy_session(path, target)
        else:
            shutil.copyfile(path, target)
        watch.step(0)
    return len(paths)


def _copy_session(path: Path, target: Path) -> None:
    """By the SQLite of Python, which Telethon uses too: another one in the same process would undo its locks, as would
    opening the file in any other way."""
    import sqlite3  # a megabyte, for the few who have sessions

    try:
        with (
            contextlib.closing(sqlite3.connect(path, timeout=SESSION_S)) as origin,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            origin.backup(copy)
    except sqlite3.Error as error:
        raise Unavailable(code="backup_failed", detail=f"{path} cannot be copied: {error}.") from error


def put_sessions(origin: Path, folder: Path, watch: BackupWatch) -> None:
    """In place of those of the same names. Others stay: they may belong to accounts that were added since."""
    for path in sorted(path for path in origin.rglob("*") if path.is_file()):
        target = folder / path.relative_to(origin)
        for suffix in _BESIDE:
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        put_file(path, target)
        watch.step(1)
