"""Looks four times a minute at what no event tells: the disks and the memory of this machine on each node, and the overview on
the one node that does the chores. What it finds goes to the alerts; it tells nobody itself, and never fails."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from peik.alerts import looks
from peik.alerts.looks import Disk, Memory, Thresholds, disks_of, memory_of
from peik.alerts.rules import CALM_S, Noticed
from peik.alerts.service import AlertService
from peik.clock import JUMP_MS, Clock, KeptTime, SettledClock
from peik.core.documents import DocumentStore, Filing
from peik.core.events import ClockJumped, ClockSettled, Events, Surprise
from peik.errors import StoreUnavailable, Unavailable, described
from peik.monitoring.counts import Answering
from peik.monitoring.values import OverviewView

LOOK_S = 15.0
ANSWER_S = 5.0  # for the store
MACHINE_S = 10.0  # for a disk to answer; one that is mounted from far away may never
SELDOM_S = 300.0  # so often it is looked for the last backup, and at the settings of the store

Machine = Callable[[], tuple[Sequence[Disk], Memory | None]]
# What a rule is found in: if the store did not tell that part just now, what was found before still counts.
PARTS = {
    "dead-letters": {"letters"},
    "stuck": {"letters", "oldest_waiting"},
    "failures": {"figures"},
    "delays": {"figures"},
    "slow": {"inbox"},
    "jobs-stuck": {"jobs"},
}
GLOBAL = (*PARTS, "backup", "store-weak")


def machine_of(folders: Sequence[Path]) -> Machine:
    return lambda: (disks_of(folders), memory_of())


class Watching:
    def __init__(
        self,
        *,
        alerts: AlertService,
        overview: Callable[[], Awaitable[OverviewView]],
        machine: Machine,
        clock: Clock,
        node: str,
        has_chores: Callable[[], bool],
        is_shared: bool,
        thresholds: Thresholds,
        answering: Answering | None = None,
        backup_every_s: float | None = None,
        last_backup_ms: Callable[[], Awaitable[int | None]] | None = None,
        durability: Callable[[], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        self._alerts = alerts
        self._overview = overview
        self._machine = machine
        self._clock = clock
        self._node = node
        self._has_chores = has_chores
        self._is_shared = is_shared
        self._most = thresholds
        self._answering = answering
        self._backup_every_s = backup_every_s
        self._last_backup_ms = last_backup_ms
        self._started_ms = clock.wall_ms()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="peik-disks")
        self._asking: asyncio.Future[tuple[Sequence[Disk], Memory | None]] | None = None
        self._was_whole = False
        self._found: list[Noticed] = []
        self._oldest: dict[
            int, tuple[int, float]
        ] = {}  # per bot: when its oldest letter came, and since when that is so
        self._seldom = [
            _Seldom(clock, self._look_at_backup),
            *([] if durability is None else [_Seldom(clock, lambda: _look_at_settings(durability))]),
        ]

    async def run(self) -> None:
        """Until cancelled."""
        try:
            late_s = 0.0
            while True:
                try:
                    await self.look(late_s)
                except Exception as error:  # noqa: BLE001  a look must never end Peik
                    self._alerts([Surprise(where="a look for alerts", error=described(error))])
                began_at = self._clock.mono()
                await asyncio.sleep(LOOK_S)
                late_s = self._clock.mono() - began_at - LOOK_S
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def look(self, late_s: float = 0.0) -> None:
        found = [*looks.late(late_s, self._node), *await self._look_at_machine()]
        if self._answering is not None:
            found += looks.slow_doors(self._answering.lately(), self._node, self._most)
        if self._has_chores():
            self._found = await self._look_at_all()
            found += self._found
            self._was_whole = True
        elif self._was_whole:
            self._was_whole, self._found = False, []
            self._oldest.clear()
            self._alerts.matters.leave(GLOBAL)
        self._alerts.notice(found)
        if self._is_shared:
            self._alerts.look_again()

    async def _look_at_machine(self) -> list[Noticed]:
        """In a thread: a disk that hangs must hold up nobody. While it does, nothing is known of any."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().run_in_executor(self._thread, self._machine)
        asking = self._asking
        done, _ = await asyncio.wait([asking], timeout=MACHINE_S)
        if not done:
            return []
        self._asking = None
        disks, memory = asking.result()
        return [*looks.disks(disks, self._most), *looks.memory(memory, self._most)]

    async def _look_at_all(self) -> list[Noticed]:
        view, most = await self._overview(), self._most
        found = [
            *looks.dead_letters(view, most),
            *looks.stuck(view, self._unchanged_s(view), most, calm_s=CALM_S),
            *looks.failures(view, most),
            *looks.delays(view, most),
            *looks.slow_calls(view, most),
            *looks.slow_consumers(view, most),
            *looks.jobs_stuck(view),
            *[one for seldom in self._seldom for one in await seldom.now()],
        ]
        missing = set(view.missing)
        unknown = {rule for rule, parts in PARTS.items() if parts & missing}
        before = [one for one in self._found if one.rule in unknown]
        return [one for one in found if one.rule not in unknown] + before

    def _unchanged_s(self, view: OverviewView) -> dict[int, float]:
        now = self._clock.mono()
        oldest = {}
        for bot in view.bots:
            if bot.oldest_waiting_ms is not None:
                before = self._oldest.get(bot.bot_id)
                is_same = before is not None and before[0] == bot.oldest_waiting_ms
                oldest[bot.bot_id] = before if before is not None and is_same else (bot.oldest_waiting_ms, now)
        self._oldest = oldest
        return {bot_id: now - since for bot_id, (_, since) in oldest.items()}

    async def _look_at_backup(self) -> list[Noticed]:
        if self._backup_every_s is None or self._last_backup_ms is None:
            return []
        last_ms, now_ms = await self._last_backup_ms(), self._clock.wall_ms()
        return list(looks.backup(last_ms, every_s=self._backup_every_s, started_ms=self._started_ms, now_ms=now_ms))


async def _look_at_settings(durability: Callable[[], Awaitable[Sequence[str]]]) -> list[Noticed]:
    # What the store does not let us ask is for `peik doctor`: nobody knows that anything is weak.
    return list(looks.weak([one for one in await durability() if "cannot be told" not in one]))


class _Seldom:
    """A look for which the store is asked, and which can wait: what it found counts until it finds something else."""

    def __init__(self, clock: Clock, look: Callable[[], Awaitable[list[Noticed]]]) -> None:
        self._clock = clock
        self._look = look
        self._found: list[Noticed] = []
        self._look_at = float("-inf")

    async def now(self) -> list[Noticed]:
        if self._clock.mono() >= self._look_at:
            try:
                async with asyncio.timeout(ANSWER_S):
                    self._found = await self._look()
            except (Unavailable, TimeoutError):
                return self._found  # as it was
            self._look_at = self._clock.mono() + SELDOM_S
        return self._found


# Watches whether the clock of this machine jumps, tells of it, and keeps settled time on a document for the next start.


COLLECTION = "clock"
KEY = "settled"
CLOCK_LOOK_S = 15.0
FILE_S = 600.0  # `peik.clock.START_MS` is several times as long
LAST_S = 1.0
OFF_MS = 24 * 3600 * 1000  # anyone who starts Peik after a night knows that it was off


class ClockWatch:
    def __init__(
        self,
        *,
        clock: SettledClock,
        documents: DocumentStore,
        events: Events,
        settles_s: float,
        has_chores: Callable[[], bool],
    ) -> None:
        """`has_chores`: whether this node destroys by age. Only its time is kept."""
        self._clock = clock
        self._documents = documents
        self._events = events
        self._settles_s = settles_s
        self._has_chores = has_chores
        self._doubted_ms: int | None = None  # what the wall showed when it was last looked at, if it is not believed
        self._is_told = False
        self._file_at = clock.mono() + FILE_S

    async def begin(self) -> None:
        """Before anything destroys. Raises StoreUnavailable."""
        document = await self._documents.document(COLLECTION, KEY)
        kept = None
        if document is not None:
            with contextlib.suppress(msgspec.DecodeError):  # of a version that is not known here
                kept = msgspec.json.decode(document.body, type=KeptTime)
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
            await asyncio.sleep(CLOCK_LOOK_S)

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
                await self._documents.file([Filing(collection=COLLECTION, key=KEY, body=body)])
                self._file_at = self._clock.mono() + FILE_S
