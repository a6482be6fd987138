"""A seam below `os.fsync`: whoever watches a folder is told instead of the disk. Other files are synced as ever."""

import os
from pathlib import Path
from typing import Protocol


class SyncWatch(Protocol):
    folder: Path

    def sync_plain(self, path: Path) -> None:
        """Raises OSError if the sync is to fail."""


def watch(watcher: SyncWatch) -> None:
    _watchers.append(watcher)
    vars(os)["fsync"] = _fsync  # where everybody looks it up


def unwatch(watcher: SyncWatch) -> None:
    _watchers.remove(watcher)
    if not _watchers:
        vars(os)["fsync"] = _real_fsync


def _fsync(file: object) -> None:
    handle = file if isinstance(file, int) else file.fileno()  # type: ignore[attr-defined]
    for watcher in tuple(_watchers):
        path = _path_of(handle, watcher.folder)
        if path is not None:
            watcher.sync_plain(path)
            return
    _real_fsync(handle)


def _path_of(handle: int, folder: Path) -> Path | None:
    """Where an open file lies below a folder. Found by its inode: not every system can say a handle's path."""
    wanted = os.fstat(handle)
    for path in (folder, *folder.rglob("*")):
        try:
            found = path.stat()
        except FileNotFoundError:  # another thread removed it
            continue
        if os.path.samestat(wanted, found):
            return path
    return None


_real_fsync = os.fsync
_watchers: list[SyncWatch] = []
