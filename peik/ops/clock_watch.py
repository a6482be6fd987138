"""Watches whether the clock of this machine jumps, tells of it, and keeps settled time on a paper for the next start."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from peik.clock import SettledClock
from peik.core.settled import JUMP_MS, Kept
from peik.errors import StoreUnavailable
from peik.events import ClockJumped, ClockSettled, Events
from peik.paper_ports import Filing, PaperStore

SHELF = "clock"
KEY = "settled"
LOOK_S = 15.0
FILE_S = 600.0  # `peik.core.settled.START_MS` is several times as long
LAST_S = 1.0
OFF_MS = 24 * 3600 * 1000  # whoever starts Peik after a night knows that it was off


class ClockWatch:
    def __init__(
        self,
        *,
        clock: SettledClock,
        papers: PaperStore,
        events: Events,
        settles_s: float,
        has_chores: Callable[[], bool],
    ) -> None:
        """`has_chores`: whether this node destroys by age. Only its time is kept."""
        self._clock = clock
        self._papers = papers
        self._events = events
        self._settles_s = settles_s
        self._has_chores = has_chores
        self._doubted_ms: int | None = None  # what the wall showed when it was last looked at, if it is not believed
        self._is_told = False
        self._file_at = clock.mono() + FILE_S

    async def begin(self) -> None:
        """Before anything destroys. Raises StoreUnavailable."""
        paper = await self._papers.paper(SHELF, KEY)
        kept = None
        if paper is not None:
            with contextlib.suppress(msgspec.DecodeError):  # of a version that is not known here
                kept = msgspec.json.decode(paper.body, type=Kept)
        state = self._clock.begin(kept)
        if state.ahead_ms < OFF_MS:
            self._doubted_ms = state.doubted_ms
        self.look()

    async def run(self) -> None:
        """Until cancelled."""
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # asked: a library can swallow a cancellation on Python 3.11
            self.look()
            if self._clock.mono() >= self._file_at:
                await self._file()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        state, before_ms = self._clock.look(), self._doubted_ms
        self._doubted_ms = state.doubted_ms
        if state.doubted_ms is None:
            if self._is_told:
                self._is_told = False
                self._events.tell(ClockSettled())
        elif before_ms is None or abs(state.doubted_ms - before_ms) > JUMP_MS:
            self._is_told = True
            self._events.tell(ClockJumped(ahead_s=state.ahead_ms / 1000, settles_s=self._settles_s))

    async def close(self) -> None:
        """What is known now, if the store takes it quickly."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._file()

    async def _file(self) -> None:
        if self._has_chores():
            body = msgspec.json.encode(self._clock.keep()).decode()
            with contextlib.suppress(StoreUnavailable):
                await self._papers.file([Filing(shelf=SHELF, key=KEY, body=body)])
                self._file_at = self._clock.mono() + FILE_S
