"""Opening a SQLite file: durable settings, migrations forward, one owner, and errors in words that help."""

import asyncio
import fcntl
import glob
import os
import re
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO

import apsw

from peik import __version__
from peik.clock import Clock
from peik.core.letter import Letter, cause_of
from peik.core.nodes import Beat, News, NodeRecord
from peik.errors import Problem, StartError, StoreUnavailable

# The two files that a SQLite writer stands on: whether they are still where they were opened, and room in the log
# ahead of it.
#
# A sync that makes a file longer has to store its new length and where its blocks lie as well, which on a journalling
# file system takes as long again as the bytes themselves. SQLite's log gets its full length only by and by after
# every start, one commit at a time. So zeros are written ahead, step by step, and commits go into room that the file
# has already. Zeros are no frames to SQLite: it stops reading its log there, as it does at what is left of an older
# round.


LOG_PAGES = 4096  # 16 MiB of log between checkpoints
# Pages with their headers, and what the commit before a checkpoint may add.
_LOG_BYTES = LOG_PAGES * (4096 + 24) + (1 << 20)
_STEP_BYTES_MIN, _STEP_BYTES_MAX = (
    1 << 18,
    1 << 20,
)  # a card that writes 10 MB a second holds a commit up for a tenth of one
_PIECE = bytes(1 << 16)  # SQLite's own functions write less than 128 KiB at once


class WalGuard:
    """Of one connection, for its writer. `check` is asked in every transaction, before its commit."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._names = (connection.filename, connection.filename_wal)
        self._places, self._log_bytes = self._look()
        self._has_room = True  # on the disk, as far as we know

    def check(self) -> None:
        """Raises CantOpenError unless the files stand where they stood. The write lock is held: nobody else writes the log.

        An open file lives on after it was moved, removed or replaced, and SQLite does not look in WAL mode.
        """
        places, log_bytes = self._look()
        if places != self._places:
            raise apsw.CantOpenError("the file was replaced while it was open: put it back, or start Peik again")
        # It has become longer since: who commits only once, as a command does, shall not pay for room.
        if self._log_bytes < log_bytes < _LOG_BYTES and self._has_room:
            log_bytes = self._make_room(log_bytes)
        self._log_bytes = log_bytes

    def _look(self) -> tuple[list[tuple[int, int]], int]:
        """Which files stand there, and how long the log is. Raises CantOpenError if one is gone."""
        try:
            stats = [os.stat(name) for name in self._names]  # noqa: PTH116  on every commit
        except OSError as error:
            raise apsw.CantOpenError(
                f"{Path(error.filename).name} is gone: put it back, or start Peik again"
            ) from error
        return [(stat.st_dev, stat.st_ino) for stat in stats], stats[1].st_size

    def _make_room(self, log_bytes: int) -> int:
        """Longer by a step, up to what a log needs; no step keeps a commit waiting for long. Its length then."""
        step = min(max(log_bytes, _STEP_BYTES_MIN), _STEP_BYTES_MAX)
        wanted = min(log_bytes + step, _LOG_BYTES)
        made = log_bytes
        try:
            # Through SQLite's own functions, so that whatever stands below them stands below this too.
            log = apsw.VFSFile("", self._names[1], [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0])
            try:
                while made < wanted:
                    log.xWrite(_PIECE, made)
                    made += len(_PIECE)
            except apsw.Error:
                log.xTruncate(log_bytes)
                raise
            finally:
                log.xClose()
        except apsw.Error:
            self._has_room = False  # a disk that is full, or fails, tells so to the commit itself
            return log_bytes
        return made


APPLICATION_ID = 0x5045494B  # "PEIK"
BUSY_MS = 5000
_WAL_RETRY_MS = 10
_MIGRATION = re.compile(r"sqlite_(\d{3})\.sql")


def connect(path: Path, *, for_reading: bool = False, busy_ms: int = BUSY_MS) -> apsw.Connection:
    """A connection with our settings. synchronous=FULL: a commit is on the disk when it returns."""
    connection = apsw.Connection(str(path), statementcachesize=300)
    try:
        connection.set_busy_timeout(busy_ms)
        _turn_on_wal(connection, busy_ms)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # A statement's own undo log would be a new file in /tmp each time: 80 µs per commit, and a full /tmp would stop us.
        connection.execute("PRAGMA temp_store = MEMORY")
        # 2 MiB each: memory must not grow with the file. The system has the file in memory, too; with 8 MiB nothing was faster.
        connection.execute("PRAGMA cache_size = -2048")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        # Else SQLite looks at what is bound to a LIMIT, and prepares the statement again whenever it is bound again: a sweep that
        # takes 25 µs took 300 and more. Our plans do not depend on values.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.create_scalar_function("cause_of", _cause_of, 1, deterministic=True)
        if for_reading:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _cause_of(*values: object) -> str:
    """For people's filters; no index knows it, so that other programs may read the file with whatever SQLite they have."""
    (reason,) = values
    return cause_of(reason if isinstance(reason, str) else None)


def _turn_on_wal(connection: apsw.Connection, busy_ms: int) -> None:
    """Two processes that make a new file at once deny each other this step, and SQLite does not wait by itself here."""
    for is_last in [False] * (busy_ms // _WAL_RETRY_MS) + [True]:
        try:
            # Read to its end: this is a commit of its own, and only the end tells whether the disk took it.
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except apsw.BusyError:
            if is_last:
                raise
            time.sleep(_WAL_RETRY_MS / 1000)
        else:
            return


def data_version(connection: apsw.Connection) -> int:
    """Changes when another connection has written to the file, and never by this one's own commits."""
    return _number(connection, "PRAGMA data_version")


def check(path: Path, *, busy_ms: int = BUSY_MS) -> None:
    """Refuse a file that is newer than this Peik, or not ours, before a single byte of it is changed."""
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        _look(path, apsw.SQLITE_OPEN_READONLY, busy_ms)
    except apsw.ReadOnlyError as error:
        # A process died in the one commit that is not in the WAL: the one that turns it on. The first who opens the file
        # to write undoes it, and nobody can read before that.
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_READONLY_ROLLBACK:
            raise
        _look(path, apsw.SQLITE_OPEN_READWRITE, busy_ms)


def _look(path: Path, flags: int, busy_ms: int) -> None:
    connection = apsw.Connection(str(path), flags=flags)
    try:
        connection.set_busy_timeout(busy_ms)
        _check_ours(connection, path)
    finally:
        connection.close()


def _check_ours(connection: apsw.Connection, path: Path) -> int:
    """The version of the schema, 0 for a new file."""
    known = len(_steps())
    with connection:  # one snapshot: another process may be making the schema right now
        version = _number(connection, "PRAGMA user_version")
        owner = _number(connection, "PRAGMA application_id")
        is_new = _number(connection, "SELECT count(*) FROM sqlite_schema") == 0
    if not is_new and owner != APPLICATION_ID:
        raise StartError(f"{path} is a SQLite database, but not one of Peik's. Name another file in PEIK_STORE.")
    if version > known:
        raise StartError(
            f"{path} was written by a newer Peik (its schema is {version}, this Peik knows {known}). "
            "Upgrade Peik, or name another file in PEIK_STORE. Nothing was changed."
        )
    return version


class SchemaUpgrade:
    """What comes before the steps of a schema: words about them, and a copy of the file as it is."""

    def __init__(
        self, *, is_backed_up: bool = False, tell: Callable[[str], None] = lambda words: None, steps: Sequence[str] = ()
    ) -> None:
        """`tell` is called on the writer's thread. `steps`: other ones than those of this Peik."""
        self._is_backed_up = is_backed_up
        self._tell = tell
        self.steps = steps or _steps()

    def begin(self, connection: apsw.Connection, path: Path, *, version: int, is_beside: bool) -> None:
        """`is_beside`: another process owns the file, and goes on with it. Raises StartError, and nothing was changed."""
        coming = self.steps[version:]
        alone = next((found[1] for step in coming if (found := _ALONE.search(step)) is not None), None)
        if is_beside and alone is not None:
            raise StartError(
                f"The schema of {path.name} has to be brought from {version} to {len(self.steps)}, which the Peik that runs "
                f"cannot live with: {alone}. Stop it first, and start this one then. Nothing was changed."
            )
        what = "; ".join(filter(None, (step.partition("\n")[0].removeprefix("--").strip() for step in coming)))
        self._tell(f"The schema of {path.name} is brought from {version} to {len(self.steps)}: {what}")
        if self._is_backed_up:
            copy = _copy_before(connection, path, version)
            self._tell(f"{path.name} as it was before is in {copy}")


# In a step: the reason why a process that was started before it cannot go on with the file.
_ALONE = re.compile(r"^-- alone: (.+)$", re.MULTILINE)
BEFORE_SCHEMA = ".before-schema-"
_COPY_PAGES = 2000
_SPARE_BYTES = 64 << 20  # for the steps themselves, and for what others write meanwhile


def _copy_before(connection: apsw.Connection, path: Path, version: int) -> Path:
    """A whole file, for its owner alone, durable when this returns; the one of the step before goes then. Another process may
    write all the while: what it writes is not in the copy. Raises StartError if there is no room."""
    size = _number(connection, "PRAGMA page_count") * _number(connection, "PRAGMA page_size")
    free = shutil.disk_usage(path.parent).free
    if free < size + _SPARE_BYTES:
        raise StartError(
            f"Before its schema is changed, {path.name} is copied, which takes {_megabytes(size + _SPARE_BYTES)} MB; "
            f"{path.parent} has {_megabytes(free)} MB free. Free some room, or make a backup elsewhere and set "
            "PEIK_BACKUP_BEFORE_UPGRADE=off. Nothing was changed."
        )
    target = path.with_name(f"{path.name}{BEFORE_SCHEMA}{version + 1}")
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))  # it holds tokens
        _copy_pages(path, unfinished)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    for older in path.parent.glob(f"{glob.escape(path.name + BEFORE_SCHEMA)}*"):
        if older != target:
            older.unlink(missing_ok=True)
    return target


def _copy_pages(path: Path, target: Path) -> None:
    origin, copied = connect(path, for_reading=True), apsw.Connection(str(target))
    try:
        # One snapshot: else the copy would begin again whenever somebody writes.
        origin.execute("BEGIN")
        origin.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with copied.backup("main", origin, "main") as backup:
            while not backup.done:
                backup.step(_COPY_PAGES)
        copied.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log beside it
    finally:
        copied.close()
        origin.close()


def _megabytes(size_bytes: int) -> int:
    return -(-size_bytes // 1_000_000)


def migrate(
    connection: apsw.Connection, path: Path, upgrade: SchemaUpgrade | None = None, *, is_beside: bool = False
) -> None:
    """Bring the schema up to date, each step in its own transaction. Refuses a file that is newer, or not ours."""
    upgrade = upgrade or SchemaUpgrade()
    version = _check_ours(connection, path)
    steps = upgrade.steps
    if 0 < version < len(steps):
        upgrade.begin(connection, path, version=version, is_beside=is_beside)
    for number, script in enumerate(steps[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have done it while we waited for the lock.
            if _number(connection, "PRAGMA user_version") < number:
                connection.execute(script)
                connection.execute(f"PRAGMA user_version = {number}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself has ended it if the disk failed; the first error says why
                connection.execute("ROLLBACK")
            raise


def _steps() -> list[str]:
    scripts = sorted(
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in (files("peik.storage.sqlite") / "sql").iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    )
    assert [number for number, _ in scripts] == list(range(1, len(scripts) + 1)), "migrations are numbered without gaps"
    return [script for _, script in scripts]


def _number(connection: apsw.Connection, sql: str) -> int:
    for row in connection.execute(sql):
        value = row[0]
        assert isinstance(value, int)
        return value
    raise AssertionError(sql)


class OwnerLock:
    """The right to send for the bots of one file. The operating system takes it back when the process dies.

    Another `suffix` is another right: the one server of a file holds ".server", whether or not it is the one that sends.
    """

    def __init__(self, path: Path, *, suffix: str = ".owner") -> None:
        self._path = path.with_name(path.name + suffix)
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Raises StartError, with the process that has it, if another does."""
        if not self.try_acquire():
            holder = self._path.read_text(encoding="utf-8").strip() or "unknown"
            raise StartError(
                f"Another Peik (process {holder}) already owns {self._path.with_suffix('').name}. "
                "Stop it, or give this one a file of its own in PEIK_STORE."
            )

    def try_acquire(self) -> bool:
        """Whether it is ours now."""
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        self.name_holder()
        return True

    def name_holder(self) -> None:
        """Write this process into it, for whoever asks who has the right."""
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def adopt(self, handle: int) -> None:
        """It was handed on by the process that has it, open: now both have it, and it is free when neither does."""
        self._file = os.fdopen(handle, "a+", encoding="utf-8")

    @property
    def handle(self) -> int:
        assert self._file is not None
        return self._file.fileno()

    def is_taken(self) -> bool:
        """Whether some process has it, this one included."""
        try:
            with self._path.open("r", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


# The archive has the same errors, and says them of itself.
_HINTS: tuple[tuple[type[apsw.Error], str, str], ...] = (
    (apsw.BusyError, "store_locked", "The {what} is locked by another program. End it, or wait."),
    (apsw.LockedError, "store_locked", "The {what} is locked by another program. End it, or wait."),
    (
        apsw.ReadOnlyError,
        "store_read_only",
        "The {what} cannot be written. Check the rights of the file and its folder.",
    ),
    (apsw.FullError, "store_full", "The disk is full. Free some room; Peik goes on by itself."),
    (apsw.CorruptError, "store_corrupt", "The {what} is damaged. Stop Peik and restore a backup."),
    (apsw.NotADBError, "store_corrupt", "The file is not a SQLite database. Name another one in {setting}."),
    (
        apsw.CantOpenError,
        "store_gone",
        "The {what} cannot be opened. Check that its folder exists and can be written.",
    ),
    (apsw.IOError, "store_io", "The disk reported an error. Check its health and free room."),
)


def is_unavailable(error: BaseException) -> bool:
    """Whether the store itself has failed, and not just the rows that it was given."""
    return isinstance(error, tuple(kind for kind, _, _ in _HINTS))


def translate(
    error: BaseException, *, what: str = "database", setting: str = "PEIK_STORE", lost: str = "Nothing was accepted."
) -> BaseException:
    """SQLite's errors in our words; anything else as it is."""
    if isinstance(error, Problem) or not isinstance(error, apsw.Error):
        return error
    for kind, code, hint in _HINTS:
        if isinstance(error, kind):
            said = hint.format(what=what, setting=setting)
            return StoreUnavailable(code=code, detail=f"{said} {lost} ({error})")
    return StoreUnavailable(code="store_error", detail=f"SQLite refused: {error}. {lost}")


# The processes on one SQLite file, as nodes: the one that holds the file's lock acts for all bots, until it ends.


OWNER_LOOK_S = 0.5  # the owner notices within a second
GUEST_LOOK_S = 0.2  # somebody may wait for what the owner is about to settle


class SqliteNodes:
    """See `peik.core.nodes.NodeStore`."""

    lease_s = None

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        claim: Callable[[], Awaitable[int]],
        has_news: Callable[[], Awaitable[bool]],
    ) -> None:
        self._path = path
        self._clock = clock
        self._claim = claim
        self._has_news = has_news
        self._epoch = 0
        self._started_at_ms = clock.wall_ms()
        self._locks: dict[str, OwnerLock] = {}
        self.node = f"{socket.gethostname()}-{os.getpid()}"

    async def beat(self, *, is_draining: bool = False) -> Beat:
        self._epoch = await self._claim()
        return Beat(leases={}, is_whole=self._epoch > 0, epoch=self._epoch)

    async def release(self, bot_ids: Sequence[int]) -> None:
        """They end with the process."""

    async def take_lock(self, name: str) -> bool:
        lock = self._lock(name)
        if not lock.try_acquire():
            return False
        self._locks[name] = lock
        return True

    async def drop_lock(self, name: str) -> None:
        lock = self._locks.pop(name, None)
        if lock is not None:
            lock.release()

    async def is_locked(self, name: str) -> bool:
        return self._lock(name).is_taken()

    def _lock(self, name: str) -> OwnerLock:
        return OwnerLock(self._path, suffix=f".{name}")

    async def nodes(self) -> list[NodeRecord]:
        """This process. Others on the file leave no sign of themselves."""
        now = self._clock.wall_ms()
        return [
            NodeRecord(
                name=self.node, version=__version__, address=None, started_at_ms=self._started_at_ms, seen_at_ms=now
            )
        ]

    async def drain_node(self, name: str, *, is_draining: bool) -> bool:
        return False

    async def news(self) -> News:
        while True:
            await asyncio.sleep(OWNER_LOOK_S if self._epoch else GUEST_LOOK_S)
            if await self._has_news():
                return News(is_all=True)

    async def new_letters(self, ranges: Sequence[tuple[int, int, int]]) -> list[Letter]:
        return []  # its news are never so exact

    async def last_numbers(self) -> dict[int, int]:
        return {}  # every look at the file sees what was written before

    async def durability(self) -> list[str]:
        return []  # `synchronous=FULL` is set by ourselves, on every connection

    async def failover_loses(self) -> bool:
        return False
