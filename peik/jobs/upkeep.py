"""Jobs that ended long ago go. On the node with the chores."""

import asyncio
from collections.abc import Callable

from peik.clock import Clock
from peik.errors import StoreUnavailable
from peik.events import Events, StoreFailed
from peik.job_ports import JobRetention, JobStore

PAGE = 1000
PAUSE_S = 0.05  # between two pages: what runs comes first
CLEAN_S = 300.0


class Upkeep:
    def __init__(
        self, *, store: JobStore, retention: JobRetention, is_ours: Callable[[], bool], clock: Clock, events: Events
    ) -> None:
        self._store = store
        self._retention = retention
        self._is_ours = is_ours
        self._clock = clock
        self._events = events

    async def run(self) -> None:
        is_failing = False
        while True:
            await asyncio.sleep(CLEAN_S)
            try:
                await self.clean()
                is_failing = False
            except StoreUnavailable as error:
                if not is_failing:
                    self._events.tell(StoreFailed(what="the upkeep of jobs", why=error.detail))
                is_failing = True

    async def clean(self) -> None:
        """In small commits."""
        gone = PAGE
        while gone >= PAGE and self._is_ours():
            gone = await self._store.clean(self._retention, at_ms=self._clock.wall_ms(), limit=PAGE)
            await asyncio.sleep(PAUSE_S)
