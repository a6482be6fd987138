"""The files of letters in the store itself, so that any node can send them. What lies on this machine's disk is a copy only."""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

from peik.core.letter import Enclosed
from peik.core.nodes import FileStore
from peik.errors import StoreUnavailable, TooLarge
from peik.storage.spool import ORPHAN_S, FolderSpool, Spooled, gone, opened

PART_BYTES = 512 * 1024  # small beside a database's own bounds, large beside the cost of a round trip
AT_ONCE_MAX = 8  # files on their way to or from the store: each has one part in memory
DROP_RETRY_S = 1.0
DROPS_MAX = 500  # in one question to the store
DOOMED_MAX = 100_000  # while the store is away; what is beyond is left to `sweep`
CLOSE_S_MAX = 5.0
COPIES_BYTES_MAX = 256 * 1024 * 1024
COPIES_MAX = 10_000
# A copy is asked for again before every try, and is opened moments later: no lease outlasts this, and no try its lease.
IN_USE_S = 600.0


class SharedSpool:
    """Files are durable in the store before their letter is accepted, and come to the node that sends it when it is sent.

    Copies here are trusted as long as this process lives and no longer. A copy goes when its letter ends at this node, with
    the process, and when there are too many: the one that was not asked for for the longest time first.
    """

    def __init__(
        self, folder: Path, files: FileStore, *, bytes_max: int, copies_bytes_max: int = COPIES_BYTES_MAX
    ) -> None:
        self._files = files
        self._bytes_max = bytes_max
        self._room = _Room(folder)
        self._copies = FolderSpool(self._room.path, is_lasting=False)
        self._copies_bytes_max = copies_bytes_max
        self._copies_bytes = 0
        # By blob its size and when it was last wanted, the longest ago first.
        self._used: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._coming: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._doomed: dict[str, None] = {}  # to be dropped from the store, the oldest first
        self._dropping: asyncio.Task[None] | None = None
        self._is_closing = False

    def path_of(self, blob: str) -> Path:
        """Where the copy is, if it was kept or brought here. Raises ValueError if this cannot be the name of a blob."""
        return self._copies.path_of(blob)

    # ---- keep ----

    async def keep(self, chunks: AsyncIterator[bytes], *, size_bytes_max: int) -> Spooled:
        """Write a stream to disk, then to the store. It is durable when this returns. Raises TooLarge and StoreUnavailable.

        What a crash, or a store that went away, leaves in the store is removed later: see `remove` and `sweep`.
        """
        with _told():
            await asyncio.to_thread(self._room.enter)
        bounded = self._bounded(chunks) if self._bytes_max < size_bytes_max else chunks
        kept = await self._copies.keep(bounded, size_bytes_max=size_bytes_max)
        try:
            with _told():
                await self._hand_in(kept.blob)
        except BaseException:
            self.remove([kept.blob])
            raise
        self._note_use(kept.blob, kept.size_bytes)
        return kept

    async def _bounded(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > self._bytes_max:
                raise TooLarge(
                    code="file_too_large",
                    detail=f"The file is larger than {self._bytes_max} bytes, the most that is kept in the store. "
                    "Set PEIK_FILES to a folder that all nodes share, or raise PEIK_FILES_IN_STORE.",
                )
            yield chunk

    async def _hand_in(self, blob: str) -> None:
        async with self._turns:
            with await asyncio.to_thread(self.path_of(blob).open, "rb") as file:
                place = 0
                while part := await asyncio.to_thread(file.read, PART_BYTES):
                    await self._files.keep_part(blob, place, part)
                    place += 1

    # ---- bring ----

    async def bring(self, file: Enclosed) -> None:
        """See that the file is here, whole; it is fetched once, however many ask. Raises StoreUnavailable, and NotFound if
        the store does not have it as it was accepted."""
        self._note_use(file.blob, file.size_bytes)  # first: from now on it stays if it is here
        if await asyncio.to_thread(self._copies.size_of, file.blob) == file.size_bytes:
            return
        coming = self._coming.get(file.blob)
        if coming is None:
            coming = self._coming[file.blob] = asyncio.create_task(self._fetch(file))
            coming.add_done_callback(lambda ended: self._came(file, ended))
        await asyncio.shield(coming)  # who gives up does not take it from the others

    def _came(self, file: Enclosed, ended: "asyncio.Task[None]") -> None:
        del self._coming[file.blob]
        # Its error is for those who still wait; if nobody does, nobody misses it.
        if ended.cancelled() or ended.exception() is not None:
            self._forget(file.blob)
        else:
            self._note_use(file.blob, file.size_bytes)  # it may have been on its way for long

    async def _fetch(self, file: Enclosed) -> None:
        path = self.path_of(file.blob)
        unfinished = path.with_suffix(".part")
        try:
            async with self._turns:
                with _told():
                    await asyncio.to_thread(self._room.enter)
                    await self._copy(file, unfinished)
                    unfinished.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error says more
                unfinished.unlink(missing_ok=True)
            raise

    async def _copy(self, file: Enclosed, path: Path) -> None:
        digest = hashlib.blake2b(digest_size=20)
        size = place = 0
        with await opened(path) as copy:
            while size < file.size_bytes:
                part = await self._files.part(file.blob, place)
                if not part:
                    raise gone(file, "is not in the store any more" if place == 0 else "is not whole in the store")
                size += len(part)
                place += 1
                digest.update(part)
                await asyncio.to_thread(copy.write, part)
        if size != file.size_bytes or (file.digest and digest.hexdigest() != file.digest):
            raise gone(file, "is not in the store as it was accepted")

    # ---- copies ----

    def _note_use(self, blob: str, size_bytes: int) -> None:
        """This copy is wanted now. Others make room for it, but for those that may be wanted now as well."""
        self._forget(blob)
        now = asyncio.get_running_loop().time()
        self._used[blob] = (size_bytes, now)
        self._copies_bytes += size_bytes
        while self._copies_bytes > self._copies_bytes_max or len(self._used) > COPIES_MAX:
            oldest, (_, used_at) = next(iter(self._used.items()))
            if now - used_at < IN_USE_S:
                return
            self._forget(oldest)
            self._copies.remove([oldest])

    def _forget(self, blob: str) -> None:
        size_bytes, _ = self._used.pop(blob, (0, 0.0))
        self._copies_bytes -= size_bytes

    # ---- remove ----

    def remove(self, blobs: Iterable[str]) -> None:
        """Remove what nobody needs: here at once, from the store as soon as it can be reached, in a task of its own. What a
        crash or `close` keeps from being removed there is left to `sweep`."""
        named = list(blobs)
        self._copies.remove(named)
        for blob in named:
            self._forget(blob)
        self._doomed.update(dict.fromkeys(named))
        while len(self._doomed) > DOOMED_MAX:
            del self._doomed[next(iter(self._doomed))]
        if self._doomed and (self._dropping is None or self._dropping.done()) and not self._is_closing:
            self._dropping = asyncio.create_task(self._drop())

    async def _drop(self) -> None:
        while self._doomed:
            some = list(self._doomed)[:DROPS_MAX]
            try:
                await self._files.drop_files(some)
            except StoreUnavailable:
                if self._is_closing:
                    return
                await asyncio.sleep(DROP_RETRY_S)
                continue
            for blob in some:
                self._doomed.pop(blob, None)

    async def sweep(self, needed: set[str], *, at_ms: int) -> int:
        """Remove from the store what no letter names and what is not brand-new; how many. Raises StoreUnavailable."""
        # Only the store's clock tells the age of what it keeps, and a new file tells that clock's time.
        now = secrets.token_hex(16)
        await self._files.keep_part(now, 0, b"now")
        kept = await self._files.kept_files()
        oldest_kept_ms = kept.pop(now, 0) - int(ORPHAN_S * 1000)
        orphans = [blob for blob, at_ms in kept.items() if at_ms < oldest_kept_ms and blob not in needed]
        for first in range(0, len(orphans), DROPS_MAX):
            await self._files.drop_files(orphans[first : first + DROPS_MAX])
        await self._files.drop_files([now])
        return len(orphans)

    async def close(self) -> None:
        """Fetch no more, drop what can be dropped now, and leave no copies behind. Before the store is closed."""
        self._is_closing = True
        under_way = list(self._coming.values())
        for coming in under_way:
            coming.cancel()
        if self._dropping is not None:
            _, late = await asyncio.wait([self._dropping], timeout=CLOSE_S_MAX)
            for dropping in late:
                dropping.cancel()
            under_way += late
        if under_way:
            await asyncio.wait(under_way)
        await asyncio.to_thread(self._room.leave)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            code="spool_failed", detail=f"The file cannot be copied on this machine: {error.strerror}."
        ) from error


class _Room:
    """A folder of one process inside a folder of all processes of this machine. Whoever enters removes the rooms of the dead."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"node-{secrets.token_hex(8)}"
        self._lock: int | None = None
        self._door = threading.Lock()  # for one thread at a time

    def enter(self) -> None:
        """Make it, if it is not there. The lock on it says that its process lives."""
        with self._door:
            while not self._is_mine():
                self._leave()
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Until it is locked it looks like a room of the dead, and may be removed as one. Then it is made again.
                with contextlib.suppress(FileNotFoundError, BlockingIOError):
                    self._lock = locked_folder(self.path)
                if self._lock is not None:
                    self._clear_others()

    def leave(self) -> None:
        with self._door:
            self._leave()

    def _leave(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_mine(self) -> bool:
        if self._lock is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._lock), self.path.stat())
        except FileNotFoundError:
            return False

    def _clear_others(self) -> None:
        for other in self.path.parent.glob("node-*"):
            with contextlib.suppress(OSError):  # it lives, or it is gone already
                lock = locked_folder(other)
                try:
                    shutil.rmtree(other, ignore_errors=True)
                finally:
                    os.close(lock)


def locked_folder(folder: Path) -> int:
    """A handle that holds the lock on a folder until it is closed. Raises BlockingIOError if another one does."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle
