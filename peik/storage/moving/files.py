"""Files of letters on their way: in parts, from one store of files to another, and a folder that is such a store."""

import asyncio
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from peik.core.nodes import FileStore
from peik.storage.moving.records import File
from peik.storage.shared_spool import PART_BYTES
from peik.storage.spool import FolderSpool, make_private_folder, sync_folder


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
