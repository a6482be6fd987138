"""Folders that outlast a power cut: a new name is durable only when the folder it stands in was synced. And who may read them."""

import contextlib
import os
from pathlib import Path


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make a folder and what is missing above it. Durable when this returns, also if one who made it before died too early."""
    new = [one for one in (folder, *folder.parents) if not one.is_dir()] or [folder]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for one in new:
        with contextlib.suppress(PermissionError):  # somebody else's, who made ours long ago
            sync_folder(one.parent)


def make_private_folder(folder: Path) -> int:
    """The same for what people wrote. The mode that files in it are to have: nodes that run as several users share a folder by
    its group; all others are for their owner alone. One that an earlier version made for everybody to read is closed."""
    make_folder(folder, mode=0o700)
    found = folder.stat()
    if found.st_mode & 0o020:
        return 0o660
    is_ours = folder.name.endswith(".files") and found.st_uid == os.geteuid()  # and not a place that somebody chose
    if is_ours and found.st_mode & 0o077:
        with contextlib.suppress(OSError):  # of a file system without modes
            folder.chmod(0o700)
    return 0o600


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
