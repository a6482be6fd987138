"""Makes backups by the clock, and tries each of them out. One node does it for all, under the lease of the chores."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from peik.backups.model import BackupEntry, BackupFailed, BackupLedger, BackupMade, BackupWatch
from peik.backups.service import Backups
from peik.clock import Clock
from peik.core.documents import DocumentStore
from peik.core.events import Events, StoreFailed, Surprise
from peik.errors import Conflict, Problem, StartError, StoreUnavailable, described

LOOK_S_MAX = 600.0  # somebody may make one by hand meanwhile
RETRY_S = 900.0
STORE_RETRY_S = 10.0


class Keeper:
    def __init__(
        self,
        make: Callable[[], Awaitable[Backups]],
        *,
        documents: DocumentStore,
        clock: Clock,
        events: Events,
        every_s: float,
    ) -> None:
        """`make` is asked each time: keys and addresses may be slow to read, or wrong, which is told and tried again."""
        self._make = make
        self._ledger = BackupLedger(documents)
        self._clock = clock
        self._events = events
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        self.stop()
        self._task = group.create_task(self.run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        while True:
            try:
                wait_s = await self._turn()
            except StoreUnavailable as error:
                self._store_failed(error)
                wait_s = STORE_RETRY_S
            except Exception as error:  # noqa: BLE001  whatever happens to a backup, letters go on
                self._failed("keeping to the schedule", error)
                wait_s = RETRY_S
            await asyncio.sleep(wait_s)

    async def _turn(self) -> float:
        """Make one if it is due; after how long to look again."""
        entries = await self._ledger.entries()
        # One of a future that was none, by a clock that was wrong for a while, says nothing of when the next one is due.
        now_ms = self._clock.wall_ms()
        left_s = self._left_s(
            max((one.made_at_ms for one in entries.values() if one.made_at_ms <= now_ms), default=None)
        )
        if left_s > 0:
            return min(left_s, LOOK_S_MAX)
        try:
            backups = await self._make()
            entry = await self._made(backups)
        except Exception as error:  # noqa: BLE001  told, and tried again
            self._failed("making it", error)
            return RETRY_S
        path = Path(entry.path)
        await self._noted(lambda: self._ledger.note(path.name, entry))
        await self._try_out(backups, path)
        await self._rotate(backups)
        return LOOK_S_MAX

    def _left_s(self, last_ms: int | None) -> float:
        return 0.0 if last_ms is None else self._every_s - (self._clock.wall_ms() - last_ms) / 1000

    async def _made(self, backups: Backups) -> BackupEntry:
        """A new one; or one that is in the folder already, and of which the store could not be told before its maker ended.
        Another one would take the place of an older one, and again with each start."""
        found = await asyncio.to_thread(backups.newest_entry)
        if found is not None and 0 < self._left_s(found.made_at_ms) <= self._every_s:
            return found
        made = await backups.create(BackupWatch(), sound=None)
        self._events.tell(BackupMade(path=str(made.path), size_bytes=made.entry.size_bytes))
        return made.entry

    async def _try_out(self, backups: Backups, path: Path) -> None:
        try:
            verified = await backups.verify(path, BackupWatch())
        except Exception as error:  # noqa: BLE001  told; the next one is tried out too
            self._failed("trying it out", error)
            if isinstance(error, Conflict) and error.code == "backup_broken":
                await self._noted(lambda: self._ledger.note_broken(path.name))
            return
        await self._noted(lambda: self._ledger.note_verified(path.name, verified.at_ms))

    async def _rotate(self, backups: Backups) -> None:
        """After the trial, so that the last good one does not go for one that is not."""
        gone = await backups.rotate(sound=await self._ledger.sound())
        await self._noted(lambda: self._ledger.forget(gone))

    async def _noted(self, note: Callable[[], Awaitable[None]]) -> None:
        """As soon as the store can be written to; nothing else is begun before."""
        while True:
            try:
                return await note()
            except StoreUnavailable as error:
                self._store_failed(error)
                await asyncio.sleep(STORE_RETRY_S)

    def _store_failed(self, error: StoreUnavailable) -> None:
        self._events.tell(StoreFailed(what="the schedule of backups", why=error.detail))

    def _failed(self, what: str, error: Exception) -> None:
        if isinstance(error, Problem | StartError):
            self._events.tell(BackupFailed(what=what, why=str(error)))
            return
        self._events.tell(Surprise(where="backups by the clock", error=described(error)))
        self._events.tell(BackupFailed(what=what, why=described(error)))
