"""The simulated disk: real files that fail, fill up and, when the power is cut, lose what was not synced.

SQLite's files come through `files`, those that Peik writes itself through `plain_files`. Nothing is ever really
synced, which is slow and proves nothing here: a sync only moves the line behind which a power cut cannot reach.
"""

import contextlib
import enum
import errno
import os
import random
import shutil
from collections.abc import Callable, Hashable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import apsw

from simulation import files, plain_files

# What of a file is on the platter, and what was written since and may be lost: the part of a disk that a power cut
# decides.


SECTOR_BYTES = 512  # what a disk writes whole or not at all


class Written(NamedTuple):
    offset: int
    data: bytes


class Truncated(NamedTuple):
    size_bytes: int


Change = Written | Truncated


class Image:
    """One file, or one folder, as a name may mean it."""

    __slots__ = ("_durable", "_pending", "inode", "is_folder", "is_plain", "size_bytes")

    def __init__(self, inode: int, *, is_folder: bool = False) -> None:
        self.inode = inode
        self.is_folder = is_folder
        self.is_plain = True  # until SQLite opens it, what is written to it is not seen
        self.size_bytes = 0  # as programs see it
        self._durable = bytearray()
        self._pending: list[Change] = []

    def write(self, data: bytes, offset: int) -> None:
        self._pending.append(Written(offset, data))
        self.size_bytes = max(self.size_bytes, offset + len(data))

    def truncate(self, size_bytes: int) -> None:
        self._pending.append(Truncated(size_bytes))
        self.size_bytes = min(self.size_bytes, size_bytes)

    def become(self, content: bytes) -> None:
        """Somebody wrote it unseen, and this is what it holds now. None of the difference is synced."""
        self._pending = []
        if not content.startswith(self._durable):
            self._pending.append(Truncated(0))
            self._pending.append(Written(0, content))
        elif len(content) > len(self._durable):
            self._pending.append(Written(len(self._durable), content[len(self._durable) :]))
        self.size_bytes = len(content)

    @property
    def durable_bytes(self) -> int:
        return len(self._durable)

    def sync(self) -> None:
        for change in self._pending:
            _apply(self._durable, change)
        self._pending = []

    def fail_sync(self, luck: "Luck") -> None:
        """As Linux does it: what could not be written is forgotten, and the next sync succeeds without it."""
        for change in luck.survivors(self._pending):
            _apply(self._durable, change)
        self._pending = []

    def cut_power(self, luck: "Luck") -> bytes:
        """What is found afterwards; that is durable."""
        survivors = luck.survivors(self._pending)
        for change in survivors:
            _apply(self._durable, change)
        if len(survivors) < len(self._pending) and len(self._durable) < self.size_bytes and luck.coin():
            # The new length had reached the disk before the bytes did.
            self._durable.extend(bytes(self.size_bytes - len(self._durable)))
        self._pending = []
        self.size_bytes = len(self._durable)
        return bytes(self._durable)


class Luck:
    """Decides for each change that was not synced: kept, lost or torn. Any of them may survive without those before it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        # All, none and everything between must be likely, however many changes there are.
        self._kept_share = chance.choice((0.0, 0.2, 0.5, 0.8, 0.95, 1.0))
        self.lost = 0
        self.torn = 0

    def coin(self) -> bool:
        return self._chance.random() < 0.5

    def survivors(self, changes: list[Change]) -> list[Change]:
        return [kept for change in changes if (kept := self._fate(change)) is not None]

    def _fate(self, change: Change) -> Change | None:
        if self._chance.random() < self._kept_share:
            return change
        if isinstance(change, Written) and self._chance.random() < 0.3:
            end = change.offset + len(change.data)
            inner = range(change.offset - change.offset % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES)
            if inner:
                self.torn += 1
                return Written(change.offset, change.data[: self._chance.choice(inner) - change.offset])
        self.lost += 1
        return None


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Truncated):
        del content[change.size_bytes :]
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


# Which files the names in a folder mean, now and as of its last sync: what was made or removed since is for the power
# cut.


# What durability does not matter for: locks, shared memory, and the keys that a first start makes and prints.
SPARED = (".owner", ".server", ".key", "-shm")


class Names:
    """Every name below one folder. A file that was renamed counts as a new one, which was never synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._images: dict[Path, Image] = {}  # what each means now
        self._synced: dict[Path, dict[str, Image]] = {}  # by folder: what its names meant at its last sync

    def image(self, path: Path) -> Image:
        """What a name means. What was written to the file unseen is not in it."""
        inode = path.stat().st_ino
        image = self._images.get(path)
        if image is None or image.inode != inode:
            image = self._images[path] = Image(inode, is_folder=path.is_dir())
        return image

    def image_now(self, path: Path) -> Image:
        """The same with what was written unseen."""
        image = self.image(path)
        if image.is_plain and not image.is_folder:
            image.become(path.read_bytes())
        return image

    def remove(self, path: Path) -> int:
        """How many bytes that frees. Until the folder is synced, the file may come back."""
        image = self._images.pop(path, None)
        return 0 if image is None else image.size_bytes

    def sync(self, folder: Path) -> None:
        """What the names in it mean now they mean after a power cut. What the files hold is another matter."""
        synced = self._synced[folder] = {}
        for path in _entries(folder):
            with contextlib.suppress(FileNotFoundError):  # another thread removed it
                synced[path.name] = self.image(path)

    def learn(self) -> None:
        """Everything that is there is durable."""
        self._images.clear()
        self._synced.clear()
        self._learn(self._folder)

    def cut_power(self, luck: Luck) -> None:
        """Leave in the folder what survives."""
        self._settle(self._folder, luck)
        self.learn()

    def _learn(self, folder: Path) -> None:
        for path in _entries(folder):
            if path.is_dir():
                self._learn(path)
            else:
                self.image_now(path).sync()
        self.sync(folder)

    def _settle(self, folder: Path, luck: Luck) -> None:
        synced = self._synced.get(folder, {})
        present = {path.name: self.image_now(path) for path in _entries(folder)}
        for name in sorted(synced.keys() | present.keys()):
            path = folder / name
            before, after = synced.get(name), present.get(name)
            found = after if before is after or luck.coin() else before
            if path.is_dir():
                if found is None:
                    shutil.rmtree(path)
                else:
                    self._settle(path, luck)
            elif found is None:
                path.unlink(missing_ok=True)
            elif not found.is_folder:  # one that was removed stays so: nobody misses an empty folder
                path.write_bytes(found.cut_power(luck))


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.endswith(SPARED))


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
        files.watch(str(self.folder), self)
        plain_files.watch(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises RuntimeError for what went wrong below SQLite, through which nothing can be raised."""
        plain_files.unwatch(self)
        files.unwatch(str(self.folder))
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

    # ---- what `files` asks ----

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
