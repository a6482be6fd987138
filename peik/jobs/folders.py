"""A folder of its own for each run of a job: new and empty at its beginning, gone after its end, whatever happens.

What cannot be removed is told of and tried again. What another process left behind when it died is swept away.
"""

import asyncio
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from peik.clock import Clock
from peik.core.events import Events, Surprise
from peik.errors import StartError, described
from peik.jobs.disk import Account, Space, floor_of, lacking, remove, shown, size_of, space_of
from peik.jobs.events import DiskBack, DiskShort, FolderLeft
from peik.jobs.model import JobRecord as Record
from peik.jobs.outcome import FolderOver, NoRoom
from peik.wakeup import Wakeup

# Which process a work folder belongs to. Several share one base folder, and each must only ever remove what nobody
# needs.
#
# `peik-….owner` is locked by its process for as long as it lives (the system lets go of the lock however it dies),
# and says how much it has set aside; `peik-…` beside it holds its folders. Nothing else in the base folder is ever
# touched.


_LOCK = "peik.lock"
_NAME = re.compile(r"peik-[0-9a-f]{16}")
_MODE = 0o600
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Owner:
    """One process in a base folder. All methods block, for a moment."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.name = f"peik-{secrets.token_hex(8)}"
        self.folder = base / self.name
        self._file: int | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While this is held nobody else comes, goes, or sets anything aside."""
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._base / _LOCK
        file = os.open(path, _OPEN, _MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            while not _is_same(path, file):  # the last one to leave took it away as we waited
                os.close(file)
                file = os.open(path, _OPEN, _MODE)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def settle_in(self) -> None:
        """Be there, under the lock. Also again, should somebody have tidied the base folder."""
        path = _owner_file(self._base, self.name)
        if self._file is not None and not _is_same(path, self._file):
            os.close(self._file)
            self._file = None
        if self._file is None:
            file = os.open(path, _OPEN, _MODE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
            self._file = file
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, account: Account) -> None:
        if self._file is not None:
            _write(self._file, account)

    def others(self) -> Account:
        """What all the others have set aside, under the lock. What a dead one had may still lie there."""
        total = Account()
        for name in _names(self._base):
            if name != self.name:
                total += _read(_owner_file(self._base, name))
        return total

    def dead(self) -> "list[Dead]":
        """Those whose process has ended, under the lock. Nobody else deals with them until each is let go."""
        names = [name for name in _names(self._base) if name != self.name]
        claims = [(name, _claimed(_owner_file(self._base, name))) for name in names]
        return [Dead(self, self._base, name, file) for name, file in claims if file is not None]

    def leave(self) -> None:
        """Nothing is ours any more. What could not be removed is found by the next one."""
        with self.locked():
            if self._file is None:
                return
            with suppress(OSError):
                self.folder.rmdir()
                _owner_file(self._base, self.name).unlink(missing_ok=True)
                if not _names(self._base):
                    (self._base / _LOCK).unlink()
            os.close(self._file)
            self._file = None


class Dead:
    """What an ended process left behind."""

    def __init__(self, by: Owner, base: Path, name: str, file: int) -> None:
        self._by = by
        self._owner_file = _owner_file(base, name)
        self.folder = base / name
        self._file = file

    def folders(self) -> list[Path]:
        is_folder = self.folder.is_dir() and not self.folder.is_symlink()
        return list(self.folder.iterdir()) if is_folder else []

    def let_go(self, *, left_bytes: int | None) -> None:
        """None: nothing is left of it."""
        try:
            if left_bytes is not None:
                _write(self._file, Account(held=left_bytes))
                return
            with self._by.locked():
                self._owner_file.unlink(missing_ok=True)
        finally:
            os.close(self._file)


def _names(base: Path) -> list[str]:
    """Of all owners: by their file, or by a folder whose file is gone."""
    names = {entry.name.removesuffix(".owner") for entry in base.iterdir()}
    return sorted(name for name in names if _NAME.fullmatch(name))


def _owner_file(base: Path, name: str) -> Path:
    return base / f"{name}.owner"


def _claimed(path: Path) -> int | None:
    """None: it lives, or nobody can tell."""
    try:
        file = os.open(path, _OPEN, _MODE)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _is_same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _write(file: int, account: Account) -> None:
    os.pwrite(file, f"{account.held:>20} {account.unwritten:>20}\n".encode(), 0)


def _read(path: Path) -> Account:
    try:
        held, unwritten = path.read_text().split()
        return Account(held=int(held), unwritten=int(unwritten))
    except (OSError, ValueError):  # it has only just come
        return Account()


SWEEP_S = 600.0
SLACK_S = 0.001  # timers may ring a hair early
RETRY_S = 1.0
RETRY_S_MAX = 300.0
LOOK_S = 10.0  # for room, while there is none
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
END_S = 30.0  # a disk that hangs holds up nobody for longer
_THREADS = 3

T = TypeVar("T")


class FoldersView(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands, for metrics and people."""

    live: int
    left: int  # that could not be removed yet
    failed_removals: int  # since Peik started here
    held_bytes: int  # set aside, or lying there
    bytes_max: int | None
    short: str | None  # why there is no room


class _Live(msgspec.Struct):
    path: Path
    aside: int
    size: int = 0


class _Left(msgspec.Struct):
    """A folder that has to go."""

    job_id: int
    due_at: float
    tries: int = 0
    size: int = 0
    is_being_removed: bool = False


class Folders:
    """A folder of its own for each run of a job of this process. `open`, then `start`; at the end `close`."""

    def __init__(
        self,
        base: Path,
        *,
        events: Events,
        clock: Clock,
        bytes_max: int | None = None,  # of all folders together, also those of other processes
        free_min: int | None = None,  # that has to stay free on the disk; None: see peik.jobs.disk.floor_of
        remove: Callable[[Path], None] = remove,
        space_of: Callable[[Path], Space] = space_of,
    ) -> None:
        self._base = base.absolute()
        self._owner = Owner(self._base)
        self._events = events
        self._clock = clock
        self._bytes_max = bytes_max
        self._free_min = free_min
        self._remove = remove
        self._space_of = space_of
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="work-folders")
        self._one = asyncio.Lock()  # who sets aside, or looks for strays
        self._bell = Wakeup()
        self._live: dict[tuple[int, int], _Live] = {}
        self._left: dict[Path, _Left] = {}
        self._failed = 0
        self._short: str | None = None
        self._short_of = 0  # bytes
        self._sweep_at = 0.0
        self._sweeps_failed = 0
        self._removals: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_open = False

    async def open(self) -> None:
        """Nothing is on the disk before this. What dead processes left there goes, if it can. Raises StartError."""
        try:
            await self._do(self._settle_in)
        except OSError as error:
            if error.errno not in FULL:
                raise StartError(
                    f"The folder for work {self._base} cannot be used ({described(error)}). Set PEIK_WORK."
                ) from None
            # Letters need no such folder, and what fills the disk may be what a dead process left: see the sweep.
            self._tell_short(f"The folder for work cannot be used ({error.strerror}).", 0)
        self._is_open = True
        await self.sweep()

    def start(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._keep(), name="work folders")

    async def close(self) -> None:
        """After the last run. What cannot be removed now is swept by the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for (job_id, _), live in self._live.items():
            self._left[live.path] = _Left(job_id=job_id, due_at=0.0, size=live.size)
        self._live.clear()
        for path in list(self._left):
            await self._try(path)
        if self._removals:
            await asyncio.wait(self._removals, timeout=END_S)
        try:
            if self._is_open:
                await self._do(self._owner.leave)
        except OSError as error:
            self._events.tell(Surprise(where="the work folders", error=described(error)))
        self._threads.shutdown(wait=False)

    def view(self) -> FoldersView:
        return FoldersView(
            live=len(self._live),
            left=len(self._left),
            failed_removals=self._failed,
            held_bytes=self._account().held,
            bytes_max=self._bytes_max,
            short=self._short,
        )

    # ---- the port ----

    async def begin(self, job: Record, bytes_max: int) -> Path:
        """An empty folder that nobody else has. Raises NoRoom, and FolderOver if there can never be room for it."""
        if self._bytes_max is not None and bytes_max > self._bytes_max:
            # No news of the disk: nobody can ever make room for this one.
            raise FolderOver(
                f"It needs {shown(bytes_max)}, and work folders may hold {shown(self._bytes_max)} together."
            )
        async with self._one:
            try:
                path = await self._do(self._begin, f"{job.id}-{job.run}", bytes_max, self._account())
            except NoRoom as error:
                self._tell_short(str(error), bytes_max)
                raise
            except OSError as error:
                why = f"The folder for work cannot be used ({error.strerror or described(error)})."
                self._tell_short(why, bytes_max)
                raise NoRoom(why) from None
            except asyncio.CancelledError:
                self._sweep_at = self._clock.mono() + RETRY_S  # for the folder that it may just be making
                self._bell.ring()
                raise
            self._live[job.id, job.run] = _Live(path=path, aside=bytes_max)
        return path

    async def size(self, job: Record) -> int:
        """How many bytes lie there now."""
        live = self._live.get((job.id, job.run))
        if live is None:
            return 0
        live.size = await self._do(size_of, live.path)
        return live.size

    async def end(self, job: Record) -> None:
        """It is removed: now, or (told as an event) as soon as it can be. Never raises."""
        live = self._live.pop((job.id, job.run), None)
        if live is None:
            return
        left = self._left[live.path] = _Left(job_id=job.id, due_at=self._clock.mono() + END_S, size=live.size)
        removal = asyncio.create_task(self._try(live.path))  # which goes on, should we be cancelled
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        await asyncio.wait([removal], timeout=END_S)
        if not removal.done():
            self._tell_left(left, "it takes very long")
            self._bell.ring()

    # ---- in threads ----

    async def _do(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def _settle_in(self) -> None:
        with self._owner.locked():
            self._owner.settle_in()
            self._owner.write(Account())

    def _begin(self, name: str, wanted: int, mine: Account) -> Path:
        owner = self._owner
        with owner.locked():
            owner.settle_in()
            why = self._lacking(wanted, mine)
            if why is not None:
                raise NoRoom(why)
            owner.write(mine + Account(held=wanted, unwritten=wanted))
            path = owner.folder / name
            tries = 1
            while True:
                with suppress(FileExistsError):  # an older one that could not be removed
                    path.mkdir(mode=0o700)
                    return path
                tries += 1
                path = owner.folder / f"{name}-{tries}"

    def _lacking(self, wanted: int, mine: Account) -> str | None:
        space = self._space_of(self._base)
        floor = floor_of(space, self._free_min)
        return lacking(wanted, self._owner.others() + mine, space, bytes_max=self._bytes_max, floor=floor)

    def _is_room(self, wanted: int, mine: Account) -> bool:
        with self._owner.locked():
            return self._lacking(wanted, mine) is None

    def _publish(self, mine: Account) -> None:
        with self._owner.locked():
            self._owner.settle_in()
            self._owner.write(mine)

    def _strays(self) -> list[Path]:
        with self._owner.locked():  # so that nobody is just making one
            return list(self._owner.folder.iterdir()) if self._owner.folder.is_dir() else []

    def _dead(self) -> list[Dead]:
        with self._owner.locked():
            return self._owner.dead()

    def _bury(self, dead: Dead) -> list[tuple[Path, OSError]]:
        """What is left of a process that has ended goes."""
        failed: list[tuple[Path, OSError]] = []
        try:
            for path in dead.folders():
                try:
                    self._remove(path)
                except OSError as error:
                    failed.append((path, error))
            if not failed:
                self._remove(dead.folder)
        except OSError as error:
            failed.append((dead.folder, error))
        dead.let_go(left_bytes=size_of(dead.folder) if failed else None)
        return failed

    # ---- what has to go ----

    async def _try(self, path: Path) -> None:
        """Once. Never raises."""
        left = self._left[path]
        if left.is_being_removed:
            return
        left.is_being_removed = True
        try:
            await self._do(self._remove, path)
        except OSError as error:
            left.size = await self._do(size_of, path)
            self._tell_left(left, error.strerror or described(error))
        except asyncio.CancelledError:
            left.due_at = self._clock.mono() + RETRY_S
            raise
        else:
            self._left.pop(path, None)
            await self._told_all()
        finally:
            left.is_being_removed = False
            self._bell.ring()

    def _tell_left(self, left: _Left, why: str) -> None:
        left.tries += 1
        left.due_at = self._clock.mono() + min(RETRY_S * 2 ** (left.tries - 1), RETRY_S_MAX)
        self._failed += 1
        self._events.tell(
            FolderLeft(job_id=left.job_id, why=f"A work folder cannot be removed ({why}).", tries=left.tries)
        )

    async def _told_all(self) -> None:
        """The others may know that there is more room. If they cannot be told, they hear of it with our next folder."""
        with suppress(OSError):
            async with self._one:
                await self._do(self._publish, self._account())

    def _account(self) -> Account:
        """Of this process, by what was measured last."""
        return Account(
            held=sum(max(live.aside, live.size) for live in self._live.values())
            + sum(left.size for left in self._left.values()),
            unwritten=sum(max(live.aside - live.size, 0) for live in self._live.values()),
        )

    # ---- time passes ----

    async def _keep(self) -> None:
        while True:
            await self._bell.wait(self._next_at())
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001  the next look may go well, and Peik has other things to do
                self._events.tell(Surprise(where="the work folders", error=described(error)))
                await asyncio.sleep(RETRY_S)

    async def _look(self) -> None:
        now = self._clock.mono() + SLACK_S
        for path in [path for path, left in self._left.items() if left.due_at <= now and not left.is_being_removed]:
            await self._try(path)
        if self._sweep_at <= now:
            await self.sweep()
        if self._short is not None:
            await self._look_for_room()

    def _next_at(self) -> float:
        dues = [left.due_at for left in self._left.values() if not left.is_being_removed]
        if self._short is not None:
            dues.append(self._clock.mono() + LOOK_S)
        return min([self._sweep_at, *dues])

    async def sweep(self) -> None:
        """Folders of no live run go: those of processes that have ended, and any of our own that nobody knows."""
        failed: list[tuple[Path, OSError]] = []
        try:
            for dead in await self._do(self._dead):
                failed += await self._do(self._bury, dead)
            await self._find_strays()
        except OSError as error:
            failed.append((self._base, error))
        self._sweeps_failed = self._sweeps_failed + 1 if failed else 0
        for path, met in failed:
            self._failed += 1
            why = f"{path.name} of a process that has ended cannot be removed ({met.strerror or described(met)})."
            self._events.tell(FolderLeft(job_id=_job_id(path), why=why, tries=self._sweeps_failed))
        wait_s = min(RETRY_S * 2 ** (self._sweeps_failed - 1), RETRY_S_MAX) if failed else SWEEP_S
        self._sweep_at = self._clock.mono() + wait_s

    async def _find_strays(self) -> None:
        async with self._one:
            found = await self._do(self._strays)
            known = {live.path for live in self._live.values()} | set(self._left)
        for path in found:
            if path not in known:
                self._left[path] = _Left(job_id=_job_id(path), due_at=0.0)
                await self._try(path)

    # ---- room ----

    def _tell_short(self, why: str, wanted: int) -> None:
        if self._short is None:
            self._events.tell(DiskShort(why=why))
            self._bell.ring()
        self._short = why
        self._short_of = wanted

    async def _look_for_room(self) -> None:
        try:
            is_room = await self._do(self._is_room, self._short_of, self._account())
        except OSError:
            return
        if is_room:
            self._short = None
            self._events.tell(DiskBack())


def _job_id(path: Path) -> int:
    head = path.name.partition("-")[0]
    return int(head) if head.isdecimal() and len(head) < 20 else 0
