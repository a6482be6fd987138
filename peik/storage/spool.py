"""The files of letters, beside the database: written and synced before their letter is accepted, removed when it has ended."""

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from peik.core.letter import Enclosed
from peik.errors import NotFound, StoreUnavailable, TooLarge

# Folders that outlast a power cut: a new name is durable only when the folder it stands in was synced. And who may
# read them.


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


_BLOB = re.compile(r"[0-9a-f]{32}")  # the only names that this folder knows; nothing else can be reached by one
ORPHAN_S = 3600.0  # a file that no letter names may belong to a letter that is being accepted right now


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    blob: str
    size_bytes: int
    digest: str

    def as_enclosed(self, field: str, *, filename: str, content_type: str) -> Enclosed:
        """The file as one of a call."""
        return Enclosed(
            field=field,
            blob=self.blob,
            filename=filename,
            content_type=content_type,
            size_bytes=self.size_bytes,
            digest=self.digest,
        )


class SpoolPort(Protocol):
    """Where the files of letters lie until their letters have ended."""

    def path_of(self, blob: str) -> Path: ...

    async def bring(self, file: Enclosed) -> None:
        """See that the file can be read at its path on this node. Raises StoreUnavailable if that cannot be said or done
        now, and NotFound if it never can: the file is gone, or is not what was accepted."""

    async def keep(self, chunks: AsyncIterator[bytes], *, size_bytes_max: int) -> Spooled:
        """A stream as a file, durable when this returns. Raises TooLarge and StoreUnavailable, and leaves nothing behind then."""

    def remove(self, blobs: Iterable[str]) -> None:
        """Nobody needs these any more."""

    async def sweep(self, needed: set[str], *, at_ms: int) -> int:
        """Remove what a crash left behind: blobs that no letter names and that are not brand-new, by this settled time or by
        the clock of a store that keeps them. Raises StoreUnavailable."""

    async def close(self) -> None:
        """Before the store is closed."""


class FolderSpool:
    """One folder, one file per blob. Nodes may share it, if it lies where all of them can read it.

    If it is not `is_lasting`, its files need not outlive a power cut: somebody else keeps them, too.
    """

    def __init__(self, folder: Path, *, is_lasting: bool = True) -> None:
        self._folder = folder
        self._is_lasting = is_lasting
        self._is_made = False  # and durable, as far as this process knows
        self._mode = 0o600  # of files
        self._stuck: set[str] = set()  # what could not be removed; it is tried again with the next

    def path_of(self, blob: str) -> Path:
        """Raises ValueError if this cannot be the name of a blob, so that no name leads out of the folder."""
        if _BLOB.fullmatch(blob) is None:
            raise ValueError(f"{blob[:80]!r} is not the name of a blob")
        return self._folder / blob

    async def keep(self, chunks: AsyncIterator[bytes], *, size_bytes_max: int) -> Spooled:
        """Write a stream to disk. It is durable when this returns. Raises TooLarge, and leaves nothing behind then."""
        blob = secrets.token_hex(16)
        path = self.path_of(blob)
        digest = hashlib.blake2b(digest_size=20)
        size = 0
        try:
            await asyncio.to_thread(self._make_folder)
            with await opened(path, mode=self._mode) as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > size_bytes_max:
                        raise TooLarge(
                            code="file_too_large",
                            detail=f"The file is larger than {size_bytes_max} bytes, the most that this API root takes.",
                        )
                    digest.update(chunk)
                    await asyncio.to_thread(file.write, chunk)
                file.flush()
                if self._is_lasting:
                    await asyncio.to_thread(os.fsync, file.fileno())
            if self._is_lasting:
                await asyncio.to_thread(sync_folder, self._folder)
        except BaseException as error:
            with contextlib.suppress(OSError):  # the first error says more; `sweep` removes what is left
                path.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            raise StoreUnavailable(
                code="spool_failed", detail=f"The file could not be stored: {error.strerror}. Nothing was accepted."
            ) from error
        return Spooled(blob=blob, size_bytes=size, digest=digest.hexdigest())

    async def bring(self, file: Enclosed) -> None:
        """Look whether the file is here. Raises NotFound if it is gone or changed, StoreUnavailable if the folder is away."""
        size_bytes = await asyncio.to_thread(self.size_of, file.blob)
        if size_bytes is None:
            raise gone(file, "is not in the folder of files any more")
        if size_bytes != file.size_bytes:
            raise gone(file, f"has {size_bytes} bytes, and had {file.size_bytes}")

    def size_of(self, blob: str) -> int | None:
        """In bytes; None if it is not here. Raises StoreUnavailable."""
        try:
            return self.path_of(blob).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # the way there is blocked or broken; the file itself is not even asked
            raise StoreUnavailable(
                code="spool_failed", detail=f"The folder of files cannot be read: {error.strerror}."
            ) from error

    def remove(self, blobs: Iterable[str]) -> None:
        """Remove what nobody needs. What cannot be removed now is tried again next time, and at the next start."""
        wanted = self._stuck.union(blobs)
        self._stuck.clear()
        for blob in wanted:
            try:
                self.path_of(blob).unlink(missing_ok=True)
            except OSError:
                self._stuck.add(blob)

    async def sweep(self, needed: set[str], *, at_ms: int) -> int:
        """Remove what a crash left behind: blobs that no letter names and that are not brand-new."""
        return await asyncio.to_thread(self._sweep, needed, at_ms / 1000 - ORPHAN_S)

    def _sweep(self, needed: set[str], oldest_kept: float) -> int:
        if not self._folder.is_dir():
            return 0
        removed = 0
        for path in self._folder.iterdir():
            if path.name in needed or _BLOB.fullmatch(path.name) is None:
                continue
            with contextlib.suppress(OSError):  # gone meanwhile, or not ours to remove
                if path.stat().st_mtime < oldest_kept:
                    path.unlink()
                    removed += 1
        return removed

    async def close(self) -> None:
        """Nothing is under way."""

    def _make_folder(self) -> None:
        if not self._is_made or not self._folder.is_dir():
            self._mode = make_private_folder(self._folder)  # one that is not durable itself keeps nothing
            self._is_made = True


def gone(file: Enclosed, why: str) -> NotFound:
    """What `bring` raises if no waiting helps: the letter cannot be sent as it was accepted."""
    return NotFound(code="file_gone", detail=f"the file {file.filename!r} {why}")


async def opened(path: Path, *, mode: int = 0o600) -> BinaryIO:
    """A new file. Anyone who is cancelled while it is opened leaves neither the file nor a handle behind."""
    opening = asyncio.ensure_future(asyncio.to_thread(_open, path, mode))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda ended: _discard(ended, path))
        raise


def _open(path: Path, mode: int) -> BufferedWriter:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb")


def _discard(opened: asyncio.Future[BufferedWriter], path: Path) -> None:
    with contextlib.suppress(OSError, asyncio.CancelledError):
        opened.result().close()
        path.unlink(missing_ok=True)
