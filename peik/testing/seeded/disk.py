"""The simulated disk: real files that fail, fill up and, when the power is cut, lose what was not synced.

SQLite's files come through `sqlite_files`, those that Peik writes itself through `plain_files`. Nothing is ever really
synced, which is slow and proves nothing here: a sync only moves the line behind which a power cut cannot reach.
"""

import enum
import errno
import os
import random
from collections.abc import Callable, Hashable
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from peik.testing.seeded import plain_files, sqlite_files
from peik.testing.seeded.images import SECTOR_BYTES, Image, Luck
from peik.testing.seeded.names import Names

# SQLite syncs the folder, too, with the first sync of one of these.
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class Verdict(enum.Enum):
    GRANTED = enum.auto()
    BROKEN = enum.auto()  # fails in the middle: a part of it may be made
    FATAL = enum.auto()  # its process dies in the middle of it
    REFUSED = enum.auto()  # fails without effect


class Disk:
    """The files below one folder, as SQLite and Peik write them.

    Enter it before the first of them is opened. `who` says which simulated process opens a file, or syncs one of its own;
    None is the witness, for whom nothing fails. A process that died and comes back is another owner.
    Everything comes from `chance`, SQLite's own chance too. Several threads break nothing but repeatability.
    """

    def __init__(self, folder: Path, chance: random.Random, *, who: Callable[[], Hashable | None]) -> None:
        self.folder = folder.resolve()
        self.chance = chance
        self.fails = 0.0  # how likely each write or sync is to fail
        self.fails_sync_only = False
        self.reads_fail = 0.0  # the same of a reading as a whole; whoever reads asks for it,
        self.reading_fuse = 0  # and one of them fails when so many have been begun; 0: none
        self.room_bytes: int | None = None  # how much more the files may grow; None: plenty
        # As after an error remounted it: what is open cannot be written, what is opened now is opened for reading.
        self.is_read_only = False
        self.writes = self.syncs = 0  # that were made
        self.failed = 0  # that a living process was denied
        self.lost_writes = self.torn_writes = 0  # by power cuts
        self._who = who
        self._dead: set[Hashable] = set()
        self._fuses: dict[Hashable, _Fuse] = {}
        self._open: list[_OpenFile] = []
        self._closed_last: _OpenFile | None = None
        self._names = Names(self.folder)
        self._surprise: BaseException | None = None

    def __enter__(self) -> Self:
        self._names.learn()
        sqlite_files.watch(str(self.folder), self)
        plain_files.watch(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises RuntimeError for what went wrong below SQLite, through which nothing can be raised."""
        plain_files.unwatch(self)
        sqlite_files.unwatch(str(self.folder))
        if self._surprise is not None and error is None:
            raise RuntimeError("the simulated disk itself went wrong") from self._surprise

    # ---- what the world does to it ----

    def reading_failure(self) -> float:
        """How likely the reading that begins now is to fail."""
        self.reading_fuse = max(0, self.reading_fuse - 1)
        return 1.0 if self.reading_fuse == 1 else self.reads_fail

    def kill(self, owner: Hashable) -> None:
        """From now on nothing that `owner` does to its files has an effect. Locks and close still work."""
        self._dead.add(owner)
        self._fuses.pop(owner, None)

    def kill_after(self, owner: Hashable, operations: int, then: Callable[[], None]) -> None:
        """Let `owner` make so many further writes, syncs, truncations and removals, and die in the middle of the next.

        `then` is called once, from below SQLite, and must not raise.
        """
        self._fuses[owner] = _Fuse(operations, then)

    def cut_power(self) -> None:
        """Lose what was not synced: all of it, any part of it in any order, or none.

        Every process is dead by then. Raises RuntimeError if SQLite still has a file open.
        """
        if self._open:
            raise RuntimeError(f"Close every connection first: {self._open[0].path} is open.")
        luck = Luck(self.chance)
        self._names.cut_power(luck)
        self.lost_writes += luck.lost
        self.torn_writes += luck.torn

    # ---- what `sqlite_files` asks ----

    def open_flags(self, flags: int) -> int:
        if not self.is_read_only or self._who() is None:
            return flags
        # What SQLite tries next by itself when the system answers EROFS.
        return flags & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY

    def open(self, path: str, flags: int, content: Callable[[], bytes]) -> "_OpenFile":
        image = self._names.image(Path(path))
        if image.is_plain:
            image.become(content())
            image.is_plain = False
        is_journal = bool(flags & apsw.SQLITE_OPEN_CREATE and flags & _JOURNALS)
        file = _OpenFile(self, path, image, self._who(), does_sync_folder=is_journal)
        self._open.append(file)
        self._closed_last = None
        return file

    def delete(self, path: str, make: Callable[[], int], *, is_folder_synced: bool) -> int:
        # SQLite does not say whose removal this is. But it closes a journal of its own right before.
        closed = self._closed_last
        owner = closed.owner if closed is not None and closed.path == path else self._who()
        if self.judge(owner) is not Verdict.GRANTED:
            return apsw.SQLITE_IOERR_DELETE
        code = make()
        if code == apsw.SQLITE_OK:
            self.give_room(self._names.remove(Path(path)))
            if is_folder_synced:
                self.sync_folder(Path(path).parent)
        return code

    def randomness(self, size_bytes: int) -> bytes:
        return self.chance.randbytes(size_bytes)

    def surprise(self, error: BaseException) -> None:
        self._surprise = self._surprise or error

    # ---- what its open files ask ----

    def judge(self, owner: Hashable | None, *, failure: float = 0.0) -> Verdict:
        """What becomes of an operation that fails by itself as likely as `failure` says."""
        if owner is None:
            return Verdict.GRANTED
        if owner in self._dead:
            return Verdict.REFUSED
        fuse = self._fuses.get(owner)
        if fuse is not None and fuse.is_burnt():
            self.kill(owner)
            fuse.then()
            return Verdict.FATAL
        if self.is_read_only:
            self.failed += 1
            return Verdict.REFUSED
        if failure and self.chance.random() < failure:
            self.failed += 1
            return Verdict.BROKEN
        return Verdict.GRANTED

    def take_room(self, wanted_bytes: int) -> int:
        """How much of it there is. That much is taken."""
        if self.room_bytes is None:
            return wanted_bytes
        taken = min(wanted_bytes, self.room_bytes)
        self.room_bytes -= taken
        self.failed += taken < wanted_bytes
        return taken

    def give_room(self, freed_bytes: int) -> None:
        if self.room_bytes is not None:
            self.room_bytes += freed_bytes

    def sync_folder(self, folder: Path) -> None:
        self._names.sync(folder)

    def forget(self, file: "_OpenFile") -> None:
        self._open.remove(file)
        self._closed_last = file

    # ---- what `plain_files` asks ----

    def sync_plain(self, path: Path) -> None:
        owner = self._who()
        if self.judge(owner, failure=self.fails) is not Verdict.GRANTED:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        if path.is_dir():
            self.sync_folder(path)
        else:
            image = self._names.image_now(path)
            growth = image.size_bytes - image.durable_bytes
            if owner is not None and growth > 0 and self.take_room(growth) < growth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            image.sync()
        self.syncs += 1


class _Fuse:
    def __init__(self, operations: int, then: Callable[[], None]) -> None:
        self._left = operations
        self.then = then

    def is_burnt(self) -> bool:
        self._left -= 1
        return self._left < 0


class _OpenFile:
    """One handle of SQLite's."""

    def __init__(self, disk: Disk, path: str, image: Image, owner: Hashable | None, *, does_sync_folder: bool) -> None:
        self._disk = disk
        self._image = image
        self._does_sync_folder = does_sync_folder
        self.path = path
        self.owner = owner

    def write(self, data: bytes, offset: int, make: Callable[[int], int]) -> int:
        disk, image = self._disk, self._image
        verdict = disk.judge(self.owner, failure=0.0 if disk.fails_sync_only else disk.fails)
        if verdict is Verdict.REFUSED:
            return apsw.SQLITE_IOERR_WRITE
        failure = apsw.SQLITE_OK
        length = len(data)
        if verdict is not Verdict.GRANTED:
            failure = apsw.SQLITE_IOERR_WRITE
            length = min(length, SECTOR_BYTES * disk.chance.randint(0, -(-length // SECTOR_BYTES)))
        growth = max(0, offset + length - image.size_bytes)
        if growth and self.owner is not None:
            lacking = growth - disk.take_room(growth)
            if lacking:
                failure = apsw.SQLITE_FULL
                length = max(0, length - lacking)
        if length:
            code = make(length)
            if code != apsw.SQLITE_OK:
                return code
            image.write(data[:length], offset)
        disk.writes += failure == apsw.SQLITE_OK
        return failure

    def sync(self) -> int:
        disk = self._disk
        verdict = disk.judge(self.owner, failure=disk.fails)
        if verdict is Verdict.BROKEN:  # after a death the system still has what was written
            self._image.fail_sync(Luck(disk.chance))
        if verdict is not Verdict.GRANTED:
            return apsw.SQLITE_IOERR_FSYNC
        self._image.sync()
        if self._does_sync_folder:
            disk.sync_folder(Path(self.path).parent)
            self._does_sync_folder = False
        disk.syncs += 1
        return apsw.SQLITE_OK

    def truncate(self, size_bytes: int, make: Callable[[], int]) -> int:
        disk, image = self._disk, self._image
        if disk.judge(self.owner) is not Verdict.GRANTED:
            return apsw.SQLITE_IOERR_TRUNCATE
        code = make()
        if code == apsw.SQLITE_OK:
            disk.give_room(max(0, image.size_bytes - size_bytes))
            image.truncate(size_bytes)
        return code

    def close(self) -> None:
        self._disk.forget(self)
