"""Makes backups by the clock, and tries each of them out. One node does it for all, under the lease of the chores."""

import asyncio
from collections.abc import Awaitable, Callable

from peik.backup_events import BackupFailed, BackupMade
from peik.backups.desk import Backups
from peik.backups.ledger import Ledger
from peik.backups.watching import Watch
from peik.clock import Clock
from peik.errors import Conflict, Problem, StartError, StoreUnavailable
from peik.events import Events, StoreFailed
from peik.paper_ports import PaperStore

LOOK_S_MAX = 600.0  # somebody may make one by hand meanwhile
RETRY_S = 900.0
STORE_RETRY_S = 10.0


class Keeper:
    def __init__(
        self,
        make: Callable[[], Awaitable[Backups]],
        *,
        papers: PaperStore,
        clock: Clock,
        events: Events,
        every_s: float,
    ) -> None:
        """`make` is asked each time: keys and addresses may be slow to read, or wrong, which is told and tried again."""
        self._make = make
        self._ledger = Ledger(papers)
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
                await asyncio.sleep(await self._turn())
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the schedule of backups", why=error.detail))
                await asyncio.sleep(STORE_RETRY_S)

    async def _turn(self) -> float:
        """Make one if it is due; after how long to look again."""
        entries = await self._ledger.entries()
        last_ms = max((one.made_at_ms for one in entries.values()), default=None)
        left_s = 0.0 if last_ms is None else self._every_s - (self._clock.wall_ms() - last_ms) / 1000
        if left_s > 0:
            return min(left_s, LOOK_S_MAX)
        try:
            backups = await self._make()
            made = await backups.create(Watch())
        except (Problem, StartError) as error:
            self._events.tell(BackupFailed(what="making it", why=str(error)))
            return RETRY_S
        name = made.path.name
        # If the store cannot be told, another one is made soon after: better one too many.
        await self._ledger.note(name, made.entry)
        await self._ledger.forget(made.rotated)
        self._events.tell(BackupMade(path=str(made.path), size_bytes=made.entry.size_bytes))
        try:
            verified = await backups.verify(made.path, Watch())
        except (Problem, StartError) as error:
            self._events.tell(BackupFailed(what="trying it out", why=str(error)))
            if isinstance(error, Conflict):
                await self._ledger.note_broken(name)
            return LOOK_S_MAX
        await self._ledger.note_verified(name, verified.at_ms)
        return LOOK_S_MAX
