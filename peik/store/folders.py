"""Folders that outlast a power cut: a new name is durable only when the folder it stands in was synced."""

import contextlib
import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it. Durable when this returns, also if one who made it before died too early."""
    new = [one for one in (folder, *folder.parents) if not one.is_dir()] or [folder]
    folder.mkdir(parents=True, exist_ok=True)
    for one in new:
        with contextlib.suppress(PermissionError):  # somebody else's, who made ours long ago
            sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
