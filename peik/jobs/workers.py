"""Does the jobs of the kinds that this process knows: takes what may run, keeps its leases alive, and passes on what it cannot
end. One per process; the store sees to it that all of them together stay within the terms of each kind."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

import msgspec

from peik.core.events import StoreFailed, Surprise
from peik.core.letter import State
from peik.core.units import Rate
from peik.errors import InDoubt, StoreUnavailable, described
from peik.jobs.events import JobBegan, JobRan
from peik.jobs.model import JobEnd, JobRecord, Ran
from peik.jobs.model import JobRecord as Record
from peik.jobs.outcome import Stop, raised
from peik.jobs.run import Run, RunTools
from peik.jobs.store import FREE, JobKind, JobKinds, JobStore, KindControl, KindControls, SettledRun
from peik.wakeup import Wakeup

# Puts into the store how runs ended, however long the store is away, and tells of it only after the commit.


RETRY_S = 1.0
PAGE = 100

T = TypeVar("T")


class RunSettlement:
    def __init__(self, store: JobStore, tools: RunTools, *, answer_s: float) -> None:
        self._store = store
        self._tools = tools
        self._answer_s = answer_s
        self._waiting = 0  # runs that are over, and that the store could not be told of yet

    async def settle(self, ran: Ran, *, run_s: float) -> None:
        """Until the store answers. A run that was given up meanwhile cannot be settled: the store knows by its number, so
        that asking late does no harm, and a store that comes back after an hour still hears of work that was done."""
        is_doubtful = is_waiting = False
        try:
            while True:
                try:
                    settled = await self._settled(ran)
                    break
                except StoreUnavailable as error:
                    is_doubtful = is_doubtful or isinstance(error, InDoubt)
                    if not is_waiting:
                        is_waiting = True
                        self._waiting += 1
                        self._tools.events.tell(StoreFailed(what=f"the end of job {ran.job_id}", why=error.detail))
                    await asyncio.sleep(RETRY_S)
        finally:
            self._waiting -= is_waiting
        job = None if settled is None else settled.job
        if job is None and is_doubtful:
            job = await self._as_stored(ran)
        if job is not None:
            self.tell(job, ran, run_s=run_s)

    async def _settled(self, ran: Ran) -> SettledRun | None:
        return (await self.asked(self._store.settle([ran], at_ms=self._tools.clock.wall_ms())))[0]

    async def _as_stored(self, ran: Ran) -> JobRecord | None:
        """A settlement whose answer was lost may be there already."""
        try:
            job = await self.asked(self._store.job(ran.job_id))
        except StoreUnavailable:
            return None
        return job if job is not None and job.run == ran.run and job.state is not State.ACTIVE else None

    async def reap(self) -> int:
        """Give up runs whose workers are dead, whosever they are. How many. Raises StoreUnavailable."""
        if self._waiting:
            return 0  # the store comes back just now, and some of them may be ours: their ends first
        count, gone = 0, PAGE
        while gone >= PAGE:
            at_ms = self._tools.clock.wall_ms()
            reaped = await self.asked(self._store.reap(at_ms=at_ms, limit=PAGE))
            for one in reaped:
                ran = Ran(job_id=one.job.id, run=one.job.run, end=JobEnd.LOST, reason=one.verdict.reason)
                self.tell(one.job, ran, run_s=max(at_ms - (one.job.started_at_ms or at_ms), 0) / 1000)
            gone = len(reaped)
            count += gone
        return count

    def tell(self, job: JobRecord, ran: Ran, *, run_s: float) -> None:
        self._tools.events.tell(
            JobRan(
                bot_id=bot_of(job),
                job_id=job.id,
                kind=job.kind,
                user=job.user,
                run=ran.run,
                end=ran.end,
                state=job.state,
                reason=ran.reason if ran.reason is not None else job.failed_reason,
                run_s=run_s,
            )
        )
        self._tools.teller.changed(job)

    async def asked(self, answer: Awaitable[T]) -> T:
        """A store that hangs is one whose answer was lost. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(self._answer_s):
                return await answer
        except TimeoutError:
            raise InDoubt(code="store_slow", detail="The store does not answer.") from None


class _Notice(msgspec.Struct):
    bot_id: int = 0


_read_notice = msgspec.json.Decoder(_Notice).decode


def bot_of(job: JobRecord) -> int:
    """The bot that tells of a job; 0: none."""
    return 0 if job.notice is None else _read_notice(job.notice).bot_id


LEASE_S = 30.0
SAFE = 0.9  # of a lease, from before it was asked for: so long we believe in it
BEATS = 3  # in the time of a lease
PROGRESS_S = 2.0  # between two words of a run about how far it is
SLACK_S = 0.001  # timers may ring a hair early
LOOKS = 30  # at leases that may be over, in that time
ANSWERS = 6  # so often could the store answer in that time: what takes longer is lost
LOOK_S = 5.0  # between two looks for work, if no bell rings
HEAR_S = 0.2  # between two looks because of news of others
LOOK_S_MIN = 1.0  # for what is overdue, and for those that somebody wants to end
CONTROLS_S = 1.0  # so old may be what is known of kinds that rest
SETTLE_S = 5.0  # at our own end, for the last words to the store
IN_DOUBT = "It was taken by a node that did not hear of it."


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A run of this process, as others may see it."""

    job_id: int
    kind: str
    user: str
    run_s: float
    bytes_used: int
    is_stopping: bool


class Workers:
    def __init__(
        self,
        *,
        store: JobStore,
        node: str,
        kinds: JobKinds,
        tools: RunTools,
        controls: KindControls | None = None,
        lease_s: float = LEASE_S,
        look_s: float = LOOK_S,
    ) -> None:
        """`controls`: which kinds rest, and how fast they may go. None: all go, as fast as there is room."""
        self._store = store
        self._node = node
        self._kinds = kinds
        self._tools = tools
        self._clock = tools.clock
        self._events = tools.events
        self._lease_s = lease_s
        self._look_s = look_s
        self._settling = RunSettlement(store, tools, answer_s=lease_s / ANSWERS)
        self._bell = Wakeup()
        self._runs: dict[tuple[int, int], Run] = {}
        self._lingering: Counter[str] = Counter()  # by kind: what was given up and did not end yet
        self._kept_controls = controls
        self._controls: dict[str, KindControl] = {}
        self._controls_at: float | None = None  # when they were read
        self._rests_until: dict[str, float] = {}  # kinds that have begun as many as they may
        self._stale: set[str] = set()  # kinds of which something may wait that could run
        self._look_at = 0.0  # at all kinds
        self._wait_s = 0.0  # until the next look, if no bell rings
        self._cancels_at = 0.0
        self._hear_at = 0.0
        self._is_heard = False  # there were news that nobody looked at yet
        self._may_be_cancelled = False  # somebody elsewhere may want one of ours to end
        self._is_in_doubt = False  # something may have been taken that we do not know of
        self._is_stopping = False
        self._unanswered_at: float | None = None  # the first beat of those that got no answer
        self._taking: asyncio.Task[None] | None = None
        self._keeping: list[asyncio.Task[None]] = []
        self._playing: set[asyncio.Task[None]] = set()

    # ---- what others ask ----

    def ring(self, kind: str | None = None) -> None:
        """Jobs (of a kind) were queued or ended here, or came to wait again."""
        names = [name for name in self._kinds.by_name if kind in (None, name)]
        if names:  # else it is done elsewhere
            self._stale.update(names)
            self._bell.ring()

    def hear(self) -> None:
        """Another process wrote of jobs: they may have come, ended, or be wanted to end. Where much happens, news come far
        more often than it is worth to look."""
        self._may_be_cancelled = True
        now = self._clock.mono()
        if now >= self._hear_at:
            self._hear_at = now + HEAR_S
            self.ring()
        else:
            self._is_heard = True
            self._bell.ring()

    def control(self, kind: str, control: KindControl) -> None:
        """Somebody has said here how a kind is to go, and the store knows."""
        self._controls[kind] = control
        self._rests_until.pop(kind, None)
        self.ring(kind)

    def cancel(self, job_id: int) -> None:
        """Somebody wants it to end, and the store knows. If it runs here it hears now; elsewhere with the next beat."""
        for run in self._runs.values():
            if run.record.id == job_id:
                run.stop(Stop.CANCELLED)

    def running(self) -> list[WorkerPlace]:
        now = self._clock.mono()
        return [
            WorkerPlace(
                job_id=run.record.id,
                kind=run.kind.name,
                user=run.record.user,
                run_s=now - run.began_at,
                bytes_used=run.bytes_used,
                is_stopping=run.is_stopping,
            )
            for run in self._runs.values()
        ]

    # ---- running ----

    def start(self, group: asyncio.TaskGroup) -> None:
        if self._is_stopping:
            return  # it was stopped before it began
        self._group = group
        self._taking = group.create_task(self._take_all(), name="jobs: taking")
        every = self._lease_s / BEATS
        chores: list[Coroutine[None, None, None]] = [
            self._beat_all(),
            self._again("the leases of jobs", self._lease_s / LOOKS, self._cut_off),
            self._again("the folders of jobs", every, self._measure_all),
            self._again("jobs of dead workers", self._lease_s / 2, self._reap),
        ]
        self._keeping = [group.create_task(one) for one in chores]

    async def stop(self, grace_s: float) -> None:
        """Take nothing more, and wait for what runs. What is not done after the grace is ended, and another node goes on
        with it. What the store cannot be told is found by its lease."""
        self._is_stopping = True
        self._bell.ring()
        if self._taking is not None:
            await asyncio.wait([self._taking])
        await self._wait_for_runs(grace_s)
        for run in self._runs.values():
            run.stop(Stop.HANDED_ON)
        await self._wait_for_runs(self._tools.give_up_s + SETTLE_S)
        for task in [*self._keeping, *self._playing]:
            task.cancel()

    async def _wait_for_runs(self, timeout_s: float) -> None:
        deadline = self._clock.mono() + timeout_s
        while self._runs and self._clock.mono() < deadline:
            timeout = deadline - self._clock.mono()
            await asyncio.wait(self._playing, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _again(self, what: str, every_s: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self._surely(what, act)

    async def _surely(self, what: str, act: Callable[[], Awaitable[None]]) -> bool:
        """Whether it went well. Nothing that fails here may keep the rest from going on."""
        try:
            await act()
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(what=what, why=error.detail))
        except Exception as error:  # noqa: BLE001  told, and tried again
            self._events.tell(Surprise(where=what, error=described(error)))
        else:
            return True
        return False

    # ---- taking ----

    async def _take_all(self) -> None:
        while not self._is_stopping:
            is_well = await self._surely("a look for jobs", self._look)
            await self._bell.wait(self._clock.mono() + (self._wait_s if is_well else RETRY_S))

    async def _look(self) -> None:
        now = self._clock.mono()
        if now >= self._look_at or (self._is_heard and now >= self._hear_at):
            self._is_heard = False
            self._hear_at = now + HEAR_S
            self._stale.update(self._kinds.by_name)
        if self._is_in_doubt:
            await self._give_back()
        await self._read_controls()
        if self._may_be_cancelled and self._runs and now >= self._cancels_at:
            await self._hear_cancels()
        for kind in list(self._kinds.by_name.values()):
            if kind.name in self._stale and not self._is_stopping:
                self._stale.discard(kind.name)
                try:
                    await self._take(kind)
                except BaseException:
                    self._stale.add(kind.name)
                    raise
        if now >= self._look_at:
            self._look_at = now + self._look_s
        self._wait_s = await self._next_look_s()

    async def _read_controls(self) -> None:
        """Once a second at most: others may have said something."""
        now = self._clock.mono()
        if self._kept_controls is None or (self._controls_at is not None and now - self._controls_at < CONTROLS_S):
            return
        found = await self._settling.asked(self._kept_controls.all())
        for name in self._kinds.by_name:
            if found.get(name, FREE) != self._controls.get(name, FREE):
                self._rests_until.pop(name, None)
                self._stale.add(name)
        self._controls, self._controls_at = found, now

    async def _take(self, kind: JobKind) -> None:
        places = self._free(kind)
        if places <= 0:
            return  # whatever ends rings
        control = self._controls.get(kind.name, FREE)
        if control.rate is None:
            await self._take_up_to(kind, places)
        else:
            await self._take_at_rate(kind, control.rate, places)

    async def _take_at_rate(self, kind: JobKind, rate: Rate, places: int) -> None:
        """As many as may begin now. They are set aside first, so that several nodes begin no more together; what a crash
        leaves set aside is a pause, and never one too many."""
        assert self._kept_controls is not None
        standing = (await self._settling.asked(self._store.tallies())).get(kind.name)
        if standing is None or not standing.waiting + standing.delayed:
            return  # whatever comes rings
        at_ms = self._clock.wall_ms()
        count, wait_s = await self._settling.asked(self._kept_controls.begin(kind.name, rate, most=places, at_ms=at_ms))
        if not count:
            self._rests_until[kind.name] = self._clock.mono() + wait_s
            return
        taken = await self._take_up_to(kind, count)
        if taken < count:
            giving = self._kept_controls.give_back(kind.name, rate, count=count - taken, at_ms=self._clock.wall_ms())
            await self._settling.asked(giving)

    async def _take_up_to(self, kind: JobKind, places: int) -> int:
        """How many were taken."""
        asked_at = self._clock.mono()
        lease_ms = int(self._lease_s * 1000)
        try:
            taking = self._store.take(
                kind.name, kind.terms, limit=places, lease_ms=lease_ms, at_ms=self._clock.wall_ms()
            )
            taken = await self._settling.asked(taking)
        except InDoubt:
            self._is_in_doubt = True
            raise
        for record in taken:
            self._begin(Run(record, kind, self._tools, ends_at=asked_at + self._lease_s * SAFE))
        return len(taken)

    def _free(self, kind: JobKind) -> int:
        """How many of it could begin here now."""
        if self._controls.get(kind.name, FREE).is_paused or self._rests_until.get(kind.name, 0.0) > self._clock.mono():
            return 0
        busy = sum(run.kind.name == kind.name for run in self._runs.values()) + self._lingering[kind.name]
        return kind.terms.concurrency - busy

    async def _next_look_s(self) -> float:
        now = self._clock.mono()
        wait_s = max(self._look_at - now, 0.0)
        rests = [until for name, until in self._rests_until.items() if name in self._kinds.by_name and until > now]
        if rests:
            wait_s = min(wait_s, min(rests) + SLACK_S - now)
            self._look_at = min(self._look_at, now + wait_s)
        names = [kind.name for kind in self._kinds.by_name.values() if self._free(kind) > 0]
        due_at_ms: int | None = None
        if names:
            due_at_ms = await self._settling.asked(self._store.next_due(names))
        if due_at_ms is not None:
            due_s = (due_at_ms - self._clock.wall_ms()) / 1000
            if due_s < wait_s:
                wait_s = due_s if due_s > 0 else min(wait_s, LOOK_S_MIN)
                self._look_at = min(self._look_at, now + wait_s)
        if self._is_heard:
            wait_s = min(wait_s, max(self._hear_at - now, 0.0))
        if self._may_be_cancelled and self._runs:
            wait_s = min(wait_s, max(self._cancels_at - now, 0.0))
        return wait_s

    async def _hear_cancels(self) -> None:
        """By reading: a beat would be a write, of which other processes would hear in turn."""
        self._may_be_cancelled = False
        self._cancels_at = self._clock.mono() + LOOK_S_MIN
        for record in await self._settling.asked(self._store.active(self._node)):
            run = self._runs.get((record.id, record.run))
            if run is not None and record.is_cancelling:
                run.stop(Stop.CANCELLED)

    async def _give_back(self) -> None:
        """Jobs that were taken for us by a question whose answer was lost: nobody has begun them."""
        found = await self._settling.asked(self._store.active(self._node))
        unknown = [one for one in found if (one.id, one.run) not in self._runs]
        at_ms = self._clock.wall_ms()
        put_off = [
            Ran(job_id=one.id, run=one.run, end=JobEnd.PUT_OFF, reason=IN_DOUBT, due_at_ms=at_ms) for one in unknown
        ]
        if put_off:
            await self._settling.asked(self._store.settle(put_off, at_ms=at_ms))
        self._is_in_doubt = False
        self.ring()

    # ---- one run ----

    def _begin(self, run: Run) -> None:
        self._runs[run.record.id, run.record.run] = run
        if self._is_stopping:
            run.stop(Stop.HANDED_ON)
        task = self._group.create_task(self._play(run), name=f"run of job {run.record.id}")
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)

    async def _play(self, run: Run) -> None:
        record = run.record
        try:
            self._tell_began(record)
            try:
                ran = await run.play()
            except Exception as error:  # noqa: BLE001  ours: the job has an end all the same
                self._events.tell(Surprise(where=f"job {record.id}", error=described(error)))
                ran = raised(record, error, at_ms=self._clock.wall_ms())
            if ran is not None:
                await self._settling.settle(ran, run_s=self._clock.mono() - run.began_at)
        except Exception as error:  # noqa: BLE001  its lease ends, and it is found
            self._events.tell(Surprise(where=f"the end of job {record.id}", error=described(error)))
        finally:
            self._runs.pop((record.id, record.run), None)
            self.ring(record.kind)
        await self._linger(run)

    async def _linger(self, run: Run) -> None:
        """Work that was given up takes its place, and keeps its folder, until it ends."""
        if run.lingers() is None:
            return
        self._lingering[run.kind.name] += 1
        try:
            while (lingering := run.lingers()) is not None:
                await asyncio.wait([lingering])
            await run.tidy()
        finally:
            self._lingering[run.kind.name] -= 1
            self.ring(run.kind.name)

    def _tell_began(self, record: Record) -> None:
        since_ms = record.due_at_ms or record.created_at_ms
        waited_ms = (record.started_at_ms or since_ms) - since_ms
        self._events.tell(
            JobBegan(
                bot_id=bot_of(record),
                job_id=record.id,
                kind=record.kind,
                user=record.user,
                run=record.run,
                waited_s=max(waited_ms, 0) / 1000,
            )
        )
        self._tools.teller.changed(record)

    # ---- keeping ----

    async def _beat_all(self) -> None:
        """Beats go on until the last run is settled. Between two of them, runs that came further say so by one of their own:
        people look on."""
        every_s = self._lease_s / BEATS
        beat_at = self._clock.mono() + every_s
        while True:
            await asyncio.sleep(min(PROGRESS_S, every_s))
            if self._clock.mono() + SLACK_S < beat_at:
                await self._surely("the progress of jobs", self._tell_progress)
                continue
            is_well = await self._surely("a beat of jobs", self._beat)
            beat_at = self._clock.mono() + (every_s if is_well else RETRY_S)

    async def _beat(self) -> None:
        runs = list(self._runs.values())
        if not runs:
            return
        asked_at = self._clock.mono()
        self._unanswered_at = asked_at if self._unanswered_at is None else self._unanswered_at
        await self._say(runs, asked_at)
        self._unanswered_at = None

    async def _tell_progress(self) -> None:
        runs = [run for run in self._runs.values() if run.has_news]
        if runs:
            await self._say(runs, self._clock.mono())

    async def _say(self, runs: list[Run], asked_at: float) -> None:
        news = [run.news() for run in runs]
        beaten = await self._settling.asked(self._store.beat(news, lease_ms=int(self._lease_s * 1000)))
        for run, said in zip(runs, news, strict=True):
            run.said(said)
        for run, answer in zip(runs, beaten, strict=True):
            if not answer.is_ours:
                run.stop(Stop.LOST)
            elif answer.is_cancelling:
                run.stop(Stop.CANCELLED)
            run.ends_at = asked_at + self._lease_s * SAFE

    async def _cut_off(self) -> None:
        """Leases that may be over: another node may begin these, and nothing runs twice at once. If no beat waits for its
        answer, we only were asleep for a while: the next one says whose they are."""
        now = self._clock.mono()
        if self._unanswered_at is None or now < self._unanswered_at + RETRY_S:
            return
        for run in self._runs.values():
            if run.ends_at <= now and not run.is_stopping:
                run.stop(Stop.CUT_OFF)

    async def _measure_all(self) -> None:
        for run in list(self._runs.values()):
            await self._surely(f"the folder of job {run.record.id}", run.measure)

    async def _reap(self) -> None:
        await self._beat()  # first: we may have been asleep, and live all the same
        if await self._settling.reap():
            self.ring()
