"""Does recurring work when it is due: each due time once, whatever crashes in between, and however many nodes there are."""

import asyncio
import datetime
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from peik.clock import JUMP_MS, Clock, zone_of
from peik.core.documents import Filing
from peik.core.events import Events, StoreFailed, Surprise
from peik.errors import Conflict, StoreUnavailable, Unavailable, described
from peik.schedules.model import (
    COLLECTION,
    Dropped,
    Firing,
    OverlapPolicy,
    Plan,
    Schedule,
    ScheduleMissed,
    ScheduleRan,
    ScheduleRun,
    ScheduleRunState,
    ScheduleState,
    filled_terms,
    following,
    is_too_late,
    planned,
)
from peik.schedules.service import PAGE_MAX, Fire, Maker, ScheduleBook, ScheduleService, read, run_filing
from peik.wakeup import Wakeup

LOOK_S = 1.0  # what was asked of another node is noticed within this time
IDLE_S = 60.0
RETRY_S = 2.0
SURPRISED_S = 30.0  # a schedule that met something unforeseen rests so long, and the others go on
SWEEP_S = 3600.0
STEPS_MAX = 20  # of one schedule in a row
DUE_PAGE = 200
AFTER_ALL_TIME_MS = 2**53
_UNMADE = (ScheduleRunState.MISSED, ScheduleRunState.SKIPPED)


class Scheduler:
    """Works by the wall clock, as people read schedules, but does not believe one that jumps ahead while it runs before that has
    held for a while: what would be due in a week must not go out because a clock was set wrong for a minute."""

    def __init__(
        self,
        book: ScheduleBook,
        maker: Maker,
        *,
        time: Clock,
        clock: Clock,
        events: Events,
        is_ours: Callable[[], bool],
        is_shared: bool = False,
    ) -> None:
        """`time` says what is due. `is_ours`: whether this node has the chores. `is_shared`: other nodes write to the store, and
        not all that they write is heard here."""
        self._book = book
        self._maker = maker
        self._fire = Fire(book, maker, clock=clock, events=events)
        self._time = time
        self._clock = clock
        self._events = events
        self._is_ours = is_ours
        self._idle_s = LOOK_S if is_shared else IDLE_S
        self._bell = Wakeup()
        self._task: asyncio.Task[None] | None = None
        self._rests_until: dict[str, float] = {}
        self._swept_at = float("-inf")
        self._seen_ms = 0

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin, under the lease of the chores."""
        self.stop()
        self._seen_ms = AFTER_ALL_TIME_MS
        self._task = group.create_task(self._run())

    def stop(self) -> None:
        """End at once. What is half done is finished by the next process."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def look(self) -> None:
        """Something was changed, here or elsewhere."""
        self._bell.ring()

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        is_failing = False
        while not task.cancelling():
            wait_s = RETRY_S
            try:
                wait_s = await self._turn()
                is_failing = False
            except StoreUnavailable as error:
                if not is_failing:
                    self._events.tell(StoreFailed(what="schedules", why=error.detail))
                is_failing = True
            except Exception as error:  # noqa: BLE001  told of; the store may hold what a newer version wrote
                self._events.tell(Surprise(where="schedules", error=described(error)))
                wait_s = SURPRISED_S
            if wait_s > 0:
                await self._bell.wait(self._clock.mono() + wait_s)

    async def _turn(self) -> float:
        """Everything that is due. How long nothing has to be done after it."""
        if not self._is_ours():
            return LOOK_S
        now_ms = self._time.wall_ms()
        if now_ms < self._seen_ms - JUMP_MS:
            await self._rewind(now_ms)
        self._seen_ms = now_ms
        waits = [await self._steps(name) for name in await self._book.due(now_ms, limit=DUE_PAGE)]
        if self._clock.mono() - self._swept_at >= SWEEP_S:
            self._swept_at = self._clock.mono()
            await self._book.sweep()
        next_ms = await self._book.next_due_ms(now_ms)
        if next_ms is not None:
            waits.append(max(0.0, (next_ms - self._time.wall_ms()) / 1000))
        return min([*waits, self._idle_s])

    async def _rewind(self, now_ms: int) -> None:
        """A clock that was wrong is right again: what was decided for times that are still to come is decided anew. What was made
        for one of them is not made twice: its run is there."""
        after: str | None = None
        while page := await self._book.documents.documents(COLLECTION, after=after, limit=PAGE_MAX):
            for document in page:
                after, one = document.key, read(document, Schedule)
                if one.decided_ms > now_ms + JUMP_MS:
                    rewound = replace(one, decided_ms=now_ms)
                    await self._book.write(one, following(rewound, zone_of(one.terms.tz)), document.version)

    async def _steps(self, name: str) -> float:
        rests_s = self._rests_until.pop(name, 0.0) - self._clock.mono()
        if rests_s > 0:
            self._rests_until[name] = self._clock.mono() + rests_s
            return rests_s
        try:
            for _ in range(STEPS_MAX):
                if not await self._step(name):
                    return self._idle_s
                await asyncio.sleep(0)
        except StoreUnavailable:
            raise
        except Conflict:  # somebody else changed it: it is read again
            return 0.001
        except Unavailable:
            self._rests_until[name] = self._clock.mono() + RETRY_S
            return RETRY_S
        except Exception as error:  # noqa: BLE001  others go on
            self._events.tell(Surprise(where=f"schedule {name}", error=described(error)))
            self._rests_until[name] = self._clock.mono() + SURPRISED_S
            return SURPRISED_S
        return 0.001  # the others first

    async def _step(self, name: str) -> bool:
        """One due time. Whether there may be more to do. Raises Conflict."""
        found = await self._book.find(name)
        if found is None:
            return False
        schedule, version = found
        if schedule.firing is not None:
            await self._fire.finish(name)
            return True
        if schedule.state is not ScheduleState.ACTIVE:
            return False
        return await self._decide(schedule, version)

    async def _decide(self, schedule: Schedule, version: int) -> bool:
        """Store what becomes of what is due, before anything is made of it. Whether anything was due. Raises Conflict."""
        now_ms, zone, name = self._time.wall_ms(), zone_of(schedule.terms.tz), schedule.name
        plan = planned(schedule.terms, zone, decided_ms=schedule.decided_ms, now_ms=now_ms)
        new, filings, run = schedule, list[Filing](), None
        if plan.dropped is not None:
            new = replace(new, decided_ms=plan.dropped.last_ms)
            filings.append(run_filing(name, _missed(schedule, plan.dropped, now_ms)))
        if plan.fire_ms is not None:
            new = replace(new, decided_ms=plan.fire_ms)
            known = await self._book.run(name, plan.fire_ms)
            if known is None or known.state in _UNMADE:
                new, run = await self._taken(new, plan, plan.fire_ms, zone, now_ms)
                filings.append(run_filing(name, run, version=0 if known is None else None))
        if new is schedule:
            return False
        await self._book.write(schedule, following(new, zone), version, filings)
        self._tell(schedule, plan, run)
        return True

    async def _taken(
        self, old: Schedule, plan: Plan, due_ms: int, zone: datetime.tzinfo, now_ms: int
    ) -> tuple[Schedule, ScheduleRun]:
        """With the due time in hand; or why it is passed over."""
        terms, kind = old.terms, old.terms.kind
        run = ScheduleRun(
            due_at_ms=due_ms, state=ScheduleRunState.FIRING, at_ms=now_ms, kind=kind, is_late=plan.is_late
        )
        if is_too_late(terms, due_ms, now_ms):
            run = replace(run, state=ScheduleRunState.MISSED, reason="By now it would have expired.")
        elif terms.overlap is OverlapPolicy.SKIP and await self._maker.goes_on(old):
            run = replace(run, state=ScheduleRunState.SKIPPED, reason=f"The {kind} of the time before still goes on.")
        else:
            firing = Firing(due_at_ms=due_ms, terms=filled_terms(old, zone, due_ms), is_late=plan.is_late)
            return replace(old, firing=firing, fired=old.fired + 1), run
        return replace(old, last_due_ms=due_ms, last_state=run.state), run

    def _tell(self, schedule: Schedule, plan: Plan, run: ScheduleRun | None) -> None:
        bot_id, name, dropped = schedule.terms.bot_id, schedule.name, plan.dropped
        is_lost = run is not None and run.state is ScheduleRunState.MISSED
        if dropped is not None or plan.is_late:
            fire_ms = plan.fire_ms or 0
            self._events.tell(
                ScheduleMissed(
                    bot_id=bot_id,
                    schedule=name,
                    count=(0 if dropped is None else dropped.count) + is_lost,
                    is_least=dropped is not None and dropped.is_least,
                    first_ms=fire_ms if dropped is None else dropped.first_ms,
                    last_ms=fire_ms if dropped is None else dropped.last_ms,
                    caught_up=int(plan.is_late and not is_lost),
                )
            )
        if run is not None and run.state is ScheduleRunState.SKIPPED:
            self._events.tell(
                ScheduleRan(bot_id=bot_id, schedule=name, due_at_ms=run.due_at_ms, state=run.state, reason=run.reason)
            )


def _missed(schedule: Schedule, dropped: Dropped, now_ms: int) -> ScheduleRun:
    return ScheduleRun(
        due_at_ms=dropped.last_ms,
        state=ScheduleRunState.MISSED,
        at_ms=now_ms,
        kind=schedule.terms.kind,
        count=dropped.count,
        is_least=dropped.is_least,
        first_ms=dropped.first_ms,
    )


class Schedules(msgspec.Struct, frozen=True, kw_only=True):
    service: ScheduleService
    engine: Scheduler
