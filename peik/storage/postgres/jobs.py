"""The jobs of the PostgreSQL store. What is asked goes into commits of their own; the work itself is in the modules beside
this one."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar, get_args, get_type_hints

import msgspec

from peik.core.letter import RANKS, Backoff, State
from peik.errors import Problem
from peik.jobs import store
from peik.jobs.model import JobDraft, JobFilter, JobRecord, Ran
from peik.jobs.store import (
    STANDING_COUNTED_MAX,
    Beaten,
    JobRetention,
    JobsStanding,
    JobTally,
    KindTerms,
    Queued,
    Quota,
    RunNews,
    SettledRun,
)
from peik.storage.executor import Finished
from peik.storage.news import NodeNews, answer, fail
from peik.storage.postgres import queries
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.errors import translate
from peik.storage.postgres.queries import NamedQuery, filled, load
from peik.storage.postgres.session import PostgresSession
from peik.storage.postgres.writer import PostgresOperation, PostgresWays, PostgresWriter
from peik.storage.sql import Row
from peik.storage.sqlite.jobs import COLUMNS, DRAFTED, NEW_COLUMNS, conditions_of, job_from_row, row_of_draft

# The writer of jobs: in commits of its own, so that no letter ever waits for the lock of a kind.


T = TypeVar("T")

_SQL = load("jobs.sql")


class JobOperation(PostgresOperation[T]):
    """`kinds`: whose jobs it writes; `jobs`: which ones, if their kinds are not known. All of these kinds are locked before."""

    __slots__ = ("jobs", "kinds")

    def __init__(
        self,
        prepare: Callable[[PostgresBatch], Awaitable[Callable[[], T]]],
        done: Callable[[Finished[T]], None],
        *,
        kinds: Iterable[str] = (),
        jobs: Iterable[int] = (),
        weight: int = 1,
    ) -> None:
        super().__init__(prepare, done, weight=weight)
        self.kinds = frozenset(kinds)
        self.jobs = frozenset(jobs)


class JobWriter(PostgresWriter):
    """Takes `JobOperation` only. It has no connection before the first."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[PostgresSession]],
        *,
        tell: Callable[[NodeNews], None],
        on_doubt: Callable[[], None],
    ) -> None:
        super().__init__(lambda: _seeking(connect), tell=tell, on_doubt=on_doubt)

    async def _transaction(self, operations: list[PostgresOperation[object]]) -> list[object]:
        """The kinds of all operations are locked together: two nodes with the same kinds never wait in a circle."""
        asked = [one for one in operations if isinstance(one, JobOperation)]
        kinds = frozenset[str]().union(*(one.kinds for one in asked))
        jobs = frozenset[int]().union(*(one.jobs for one in asked))

        async def lock(batch: PostgresBatch) -> Callable[[], object]:
            await _lock(batch.session, kinds=kinds, jobs=jobs)
            return lambda: None

        first: PostgresOperation[object] = PostgresOperation(lock, lambda ended: None)
        return (await super()._transaction([first, *operations]))[1:]


async def _seeking(connect: Callable[[], Awaitable[PostgresSession]]) -> PostgresSession:
    session = await connect()
    try:
        await session.rows(_SQL["seek"], is_local=False)
    except BaseException:
        session.connection.terminate()
        raise
    return session


async def _lock(session: PostgresSession, *, kinds: frozenset[str], jobs: frozenset[int]) -> None:
    wanted = set(kinds)
    if jobs:
        wanted.update(row[0] for row in await session.rows(_SQL["kinds_of"], jobs=list(jobs)))
    if kinds:
        await session.run(_SQL["keep_kinds"], kinds=list(kinds))
    if wanted:
        await session.rows(_SQL["lock_kinds"], kinds=list(wanted))


# What changes besides the jobs themselves when jobs change: lines, counts, days, means. Collected, then written at
# once.


_STATES = tuple(State)  # in the order of the columns of `count`

Line = tuple[str, int, str]  # kind, rank, user


class _Left(msgspec.Struct):
    count: int = 0
    ticket: int | None = None  # a new one, if it was one that began


class JobLedger:
    """Belongs to one operation, under the locks of its kinds."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._joined: dict[Line, list[int]] = defaultdict(list)
        self._left: dict[Line, _Left] = defaultdict(_Left)
        self._counts: dict[str, Counter[State]] = defaultdict(Counter)
        self._means: dict[str, int | None] = {}
        self._days: dict[tuple[str, str, int], tuple[int, int]] = {}

    async def numbers(self, count: int) -> list[int]:
        """New numbers, rising: for places and tickets."""
        if not count:
            return []
        return sorted(row[0] for row in await self._session.rows(_SQL["draw_numbers"], count=count))

    # ---- what happened ----

    def move(self, kind: str, before: State | None, after: State | None, jobs: int = 1) -> None:
        """Jobs went from one state to another; None: they came, or are gone."""
        if before is not None:
            self._counts[kind][before] -= jobs
        if after is not None:
            self._counts[kind][after] += jobs

    def join(self, line: Line, place: int) -> None:
        """A line that was empty gets the number of its first job as its ticket: nobody else was given it."""
        self._joined[line].append(place)

    def leave(self, line: Line, *, ticket: int | None = None) -> None:
        left = self._left[line]
        left.count += 1
        left.ticket = ticket

    def use(self, kind: str, user: str, *, at_ms: int, jobs: int = 0, size_bytes: int = 0) -> None:
        day = (kind, user, store.day_of(at_ms))
        known_jobs, known_bytes = self._days.get(day, (0, 0))
        self._days[day] = (known_jobs + jobs, known_bytes + size_bytes)

    async def done(self, jobs: list[JobRecord], *, at_ms: int) -> None:
        """These runs were done: they count for the means of their kinds."""
        kinds = sorted({job.kind for job in jobs} - self._means.keys())
        if kinds:
            self._means |= {row[0]: row[1] for row in await self._session.rows(_SQL["means"], kinds=kinds)}
        for job in jobs:
            self._means[job.kind] = store.new_mean_ms(self._means[job.kind], store.run_ms(job, at_ms=at_ms))

    # ---- writing ----

    async def write(self) -> None:
        """Write what was told until now."""
        if self._joined:
            rows = [(*line, min(places), len(places)) for line, places in self._joined.items()]
            await self._session.run(_SQL["join_lines"], *zip(*rows, strict=True))
            self._joined.clear()
        if self._left:
            gone = [(*line, left.ticket, left.count) for line, left in self._left.items()]
            await self._session.run(_SQL["leave_lines"], *zip(*gone, strict=True))
            self._left.clear()
        if self._days:
            used = [(*day, jobs, size_bytes) for day, (jobs, size_bytes) in self._days.items()]
            await self._session.run(_SQL["use_days"], *zip(*used, strict=True))
            self._days.clear()
        if self._counts:
            counts = [
                (kind, *(count[state] for state in _STATES), self._means.get(kind))
                for kind, count in self._counts.items()
            ]
            await self._session.run(_SQL["count"], *zip(*counts, strict=True))
            self._counts.clear()


def line_of(job: JobRecord) -> Line:
    return (job.kind, job.rank, job.user)


# New jobs in the PostgreSQL store: all of one question or none.


Key = tuple[str, str]  # kind, idempotency key

_ARRAYS = {str: "text[]", Backoff: "text[]", int: "bigint[]"}  # PostgreSQL makes a number as narrow as its column


def _arrays() -> str:
    """The parameters of the query `queue` behind the id, each with the type of its field, or of what the store adds."""
    hints = get_type_hints(JobDraft)
    kinds = [next(iter(get_args(hints[field])), hints[field]) for field in DRAFTED]  # of `int | None` the int
    types = [_ARRAYS[kind] for kind in (*kinds, str, int, int, int)]
    return ", ".join(f"${place}::{array}" for place, array in enumerate(types, start=2))


_QUEUE = filled(_SQL["queue"], new=", ".join(NEW_COLUMNS), values=_arrays())


async def queue(
    batch: PostgresBatch, drafts: Sequence[JobDraft], quotas: Mapping[str, Quota], at_ms: int
) -> list[Queued]:
    """Raises Conflict before it writes anything."""
    known = await _known(batch.session, drafts)
    new: list[JobDraft] = []
    places: dict[Key, int] = {}  # of new ones with a key, among the new
    found: list[Queued | int] = []  # for each draft the job that it was before, or its place among the new
    for draft in drafts:
        key = None if draft.key is None else (draft.kind, draft.key)
        if key is not None and key in known:
            digest, before = known[key]
            store.check_same_job(draft, digest)
            found.append(before)
        elif key is not None and key in places:
            store.check_same_job(draft, new[places[key]].digest)
            found.append(places[key])
        else:
            if key is not None:
                places[key] = len(new)
            found.append(len(new))
            new.append(draft)
    fresh: list[Queued] = []
    if new:
        await _check_quotas(batch.session, new, quotas, at_ms)
        fresh = await _write(batch, new, at_ms)
        batch.telling.jobs()
    answers: list[Queued] = []
    seen: set[int] = set()
    for one in found:
        if isinstance(one, Queued):
            answers.append(one)
        else:
            answers.append(msgspec.structs.replace(fresh[one], is_repeat=True) if one in seen else fresh[one])
            seen.add(one)
    return answers


async def _known(session: PostgresSession, drafts: Sequence[JobDraft]) -> dict[Key, tuple[str, Queued]]:
    """The jobs that these keys made before, each with the digest of what was asked for then."""
    keys = {(draft.kind, draft.key) for draft in drafts if draft.key is not None}
    if not keys:
        return {}
    kinds, names = zip(*keys, strict=True)
    return {
        (kind, key): (digest, Queued(job_id=job_id, state=State(state), is_repeat=True))
        for kind, key, digest, job_id, state in await session.rows(_SQL["find_keys"], kinds=kinds, keys=names)
    }


async def _check_quotas(
    session: PostgresSession, new: Sequence[JobDraft], quotas: Mapping[str, Quota], at_ms: int
) -> None:
    asked = Counter((draft.kind, draft.user) for draft in new if draft.kind in quotas)
    if asked:
        kinds, users = zip(*asked, strict=True)
        rows = await session.rows(_SQL["used"], kinds=kinds, users=users, day=store.day_of(at_ms))
        store.check_quotas(quotas, {(row[0], row[1]): (row[2], row[3]) for row in rows}, asked)


async def _write(batch: PostgresBatch, new: Sequence[JobDraft], at_ms: int) -> list[Queued]:
    ledger = JobLedger(batch.session)
    ids = sorted(row[0] for row in await batch.session.rows(_SQL["draw_ids"], count=len(new)))
    firsts = [store.drafted(draft, at_ms=at_ms) for draft in new]
    numbers = iter(await ledger.numbers(sum(state is State.WAITING for state, _ in firsts)))
    rows: list[tuple[object, ...]] = []
    for job_id, draft, (state, due_at_ms) in zip(ids, new, firsts, strict=True):
        place = None
        if state is State.WAITING:
            place = next(numbers)
            ledger.join((draft.kind, draft.rank, draft.user), place)
        ledger.move(draft.kind, None, state)
        ledger.use(draft.kind, draft.user, at_ms=at_ms, jobs=1)
        rows.append((job_id, *row_of_draft(draft, state, due_at_ms=due_at_ms, place=place, at_ms=at_ms)))
    await batch.session.run(_QUEUE, *zip(*rows, strict=True))
    await ledger.write()
    return [Queued(job_id=job_id, state=state) for job_id, (state, _) in zip(ids, firsts, strict=True)]


# What the PostgreSQL store reads of jobs. Functions on a session, no state.


_JOB = ", ".join(f"j.{column}" for column in COLUMNS)


def filled_with_job(query: NamedQuery, **parts: str) -> NamedQuery:
    return filled(query, job=_JOB, **parts)


def job_of(row: Row) -> JobRecord:
    return job_from_row(tuple(row))


JOB = filled_with_job(_SQL["job"])
THOSE = filled_with_job(_SQL["those"])
ACTIVE = filled_with_job(_SQL["active"])


async def seek(session: PostgresSession, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
    """Ask on a connection that others use as well, by plans that do not read everything."""
    async with session.connection.transaction(readonly=True):
        await session.rows(_SQL["seek"], is_local=True)
        return await work(session)


async def those(session: PostgresSession, job_ids: Sequence[int]) -> dict[int, JobRecord]:
    return {row[0]: job_of(row) for row in await session.rows(THOSE, jobs=list(job_ids))}


async def job(session: PostgresSession, job_id: int) -> JobRecord | None:
    row = await session.row(JOB, job=job_id)
    return None if row is None else job_of(row)


# Said twice for the planner. Once PostgreSQL has counted a table in which all jobs wait, it takes any state for that of nearly
# all, and walks the ids. The second half makes a state look rare enough that the index of states is the cheaper walk.
OF_STATE = "j.state = :state AND j.state >= :state"


async def find(session: PostgresSession, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
    given = conditions_of(wanted, before=before, of_state=OF_STATE)
    query = filled_with_job(_SQL["find"], where=" AND ".join(["true", *(sql for _, _, sql in given)]))
    bound = {name: value for name, value, _ in given}
    return [job_of(row) for row in await session.rows(query, **bound, limit=limit)]


async def next_due(session: PostgresSession, kinds: Sequence[str]) -> int | None:
    return await session.number(_SQL["next_due"], kinds=list(kinds)) or None


async def standing(session: PostgresSession, job_id: int) -> JobsStanding | None:
    row = await session.row(_SQL["standing"], job=job_id, most=STANDING_COUNTED_MAX)
    if row is None:
        return None
    return JobsStanding(ahead=row["ahead"], running=row["running"], mean_run_ms=row["mean_run_ms"])


async def tallies(session: PostgresSession) -> dict[str, JobTally]:
    return {
        kind: JobTally(
            waiting=waiting, delayed=delayed, active=active, completed=completed, failed=failed, cancelled=cancelled
        )
        for kind, waiting, delayed, active, completed, failed, cancelled in await session.rows(_SQL["tallies"])
    }


async def used(session: PostgresSession, kind: str, user: str, at_ms: int) -> tuple[int, int]:
    row = await session.row(_SQL["used"], kinds=[kind], users=[user], day=store.day_of(at_ms))
    return (0, 0) if row is None else (row["jobs"], row["bytes"])


async def active(session: PostgresSession, node: str | None) -> list[JobRecord]:
    return [job_of(row) for row in await session.rows(ACTIVE, node=node)]


async def lost_jobs(session: PostgresSession, limit: int) -> list[int]:
    return [row[0] for row in await session.rows(_SQL["lost"], limit=limit)]


async def over_jobs(session: PostgresSession, retention: JobRetention, *, at_ms: int, limit: int) -> list[int]:
    bound = {"done_at": at_ms - retention.completed_ms, "failed_at": at_ms - retention.failed_ms, "limit": limit}
    return [row[0] for row in await session.rows(_SQL["over"], **bound)]


# How jobs begin in the PostgreSQL store: in turns, within the terms of their kind, no matter who asks.


BEGIN = filled_with_job(_SQL["begin"])
DUE_MAX = 10_000  # that join their lines in one step: a bound on how long the others of their kind wait


class WaitingLine(msgspec.Struct):
    rank: int
    user: str
    waiting: int


async def is_worth_it(session: PostgresSession, kind: str, terms: KindTerms, at_ms: int) -> bool:
    """Whether there may be something to take. Asked without a lock: who comes a moment later rings."""
    bound = {"kind": kind, "at": at_ms, "concurrency": terms.concurrency}
    return bool(await session.number(_SQL["is_worth_taking"], **bound))


async def take(
    batch: PostgresBatch, kind: str, terms: KindTerms, *, node: str, limit: int, lease_ms: int, at_ms: int
) -> list[JobRecord]:
    session, ledger = batch.session, JobLedger(batch.session)
    await _join_due(session, ledger, kind, at_ms)
    running = {row[0]: row[1] for row in await session.rows(_SQL["running"], kind=kind)}
    room = min(limit, terms.concurrency - sum(running.values()))
    if room <= 0 or terms.per_user <= 0:
        return []
    lines, is_cut = await _lines(session, kind, terms, running, room)
    turns = take_turns(lines, running, per_user=terms.per_user, room=room, is_cut=is_cut)
    if not turns:
        return []
    ids = await _heads(session, kind, turns)
    for turn, ticket in zip(turns, await ledger.numbers(len(turns)), strict=True):
        ledger.leave((kind, *turn), ticket=ticket)
    rows = await session.returned(BEGIN, jobs=ids, node=node, lease_ms=lease_ms, at=at_ms)
    begun = {row[0]: job_of(row) for row in rows}
    ledger.move(kind, State.WAITING, State.ACTIVE, len(begun))
    await ledger.write()
    return [begun[job_id] for job_id in ids]


async def _join_due(session: PostgresSession, ledger: JobLedger, kind: str, at_ms: int) -> None:
    due = await session.rows(_SQL["due"], kind=kind, at=at_ms, most=DUE_MAX)
    if not due:
        return
    places = await ledger.numbers(len(due))
    await session.run(_SQL["join_due"], jobs=[row[0] for row in due], places=places)
    for (_, rank, user), place in zip(due, places, strict=True):
        ledger.join((kind, rank, user), place)
    ledger.move(kind, State.DELAYED, State.WAITING, len(due))
    await ledger.write()


async def _lines(
    session: PostgresSession, kind: str, terms: KindTerms, running: Mapping[str, int], room: int
) -> tuple[list[WaitingLine], bool]:
    """The lines that may go now, and whether there are more of them. These are enough: each that is looked at goes, or
    its user has got full by another of its lines, of which there is one for each rank."""
    full = [user for user, count in running.items() if count >= terms.per_user]
    most = room * RANKS
    rows = await session.rows(_SQL["lines"], kind=kind, full=full, most=most)
    return [WaitingLine(*row) for row in rows], len(rows) == most


def take_turns(
    lines: Sequence[WaitingLine], running: Mapping[str, int], *, per_user: int, room: int, is_cut: bool
) -> list[tuple[int, str]]:
    """Which lines (rank, user) begin a job, one after the other. `lines` are in order. If they were cut off, nobody of the
    last rank goes twice: those behind the cut would go before."""
    counts = Counter(running)
    turns: list[tuple[int, str]] = []
    for rank, group in groupby(lines, key=lambda line: line.rank):
        waiting = deque((line.user, line.waiting) for line in group)
        may_repeat = not (is_cut and rank == lines[-1].rank)
        while waiting and len(turns) < room:
            user, left = waiting.popleft()
            if counts[user] >= per_user:
                continue
            counts[user] += 1
            turns.append((rank, user))
            if left > 1 and may_repeat:
                waiting.append((user, left - 1))
    return turns


async def _heads(session: PostgresSession, kind: str, turns: Sequence[tuple[int, str]]) -> list[int]:
    """The jobs that begin, in the order of the turns. A line that holds fewer than it says (somebody deleted rows) loses its
    turn, and so is put right."""
    wanted = Counter(turns)
    ranks, users = zip(*wanted, strict=True)
    found: dict[tuple[int, str], deque[int]] = {turn: deque() for turn in wanted}
    for rank, user, job_id in await session.rows(
        _SQL["heads"], kind=kind, ranks=ranks, users=users, counts=list(wanted.values())
    ):
        found[rank, user].append(job_id)
    return [found[turn].popleft() for turn in turns if found[turn]]


# What becomes of jobs in the PostgreSQL store: runs go on, end or are lost, people cancel and retry, ended ones
# leave.
#
# Functions on a batch, under the locks of the kinds. Whatever refuses does so before it writes.


STILL_LOST = filled_with_job(_SQL["still_lost"])

# ---- runs ----


async def beat(batch: PostgresBatch, news: Sequence[RunNews], lease_ms: int) -> list[Beaten]:
    """Several of one run count as one: what comes later is newer."""
    merged: dict[tuple[int, int], RunNews] = {}
    for one in news:
        known = merged.setdefault((one.job_id, one.run), one)
        told = {name: value for name, value in msgspec.structs.asdict(one).items() if value is not None}
        merged[one.job_id, one.run] = msgspec.structs.replace(known, **told)
    rows = [
        (one.job_id, one.run, one.progress, queries.clean(one.progress_text), one.notice_state)
        for one in merged.values()
    ]
    jobs, runs, progress, texts, notices = zip(*rows, strict=True)
    found = await batch.session.returned(
        _SQL["beat"], lease_ms=lease_ms, jobs=jobs, runs=runs, progress=progress, texts=texts, notices=notices
    )
    ours = {(row[0], row[1]): Beaten(is_ours=True, is_cancelling=row[2]) for row in found}
    return [ours.get((one.job_id, one.run), Beaten(is_ours=False)) for one in news]


async def note(batch: PostgresBatch, job_id: int, notice_state: str) -> bool:
    return bool(await batch.session.run(_SQL["note"], job=job_id, notice_state=notice_state))


async def settle(batch: PostgresBatch, runs: Sequence[Ran], at_ms: int) -> list[SettledRun | None]:
    jobs = await those(batch.session, [ran.job_id for ran in runs])
    judged: list[tuple[Ran, SettledRun] | None] = []
    over: set[int] = set()
    for ran in runs:
        job = jobs.get(ran.job_id)
        if job is None or job.state is not State.ACTIVE or job.run != ran.run or job.id in over:
            judged.append(None)
        else:
            over.add(job.id)
            cleaned = msgspec.structs.replace(ran, reason=_clean(ran.reason))
            judged.append((ran, store.settled(job, cleaned, at_ms=at_ms)))
    stored = await _end(batch, jobs, [one for one in judged if one is not None], at_ms)
    return [one[1] if one is not None and one[1].job.id in stored else None for one in judged]


async def reap(batch: PostgresBatch, job_ids: Sequence[int], at_ms: int) -> list[SettledRun]:
    """Those of these jobs whose lease is over even now."""
    jobs = {row[0]: job_of(row) for row in await batch.session.rows(STILL_LOST, jobs=list(job_ids))}
    runs = [(job, store.lost(job)) for job in jobs.values()]
    judged = [(ran, store.settled(job, ran, at_ms=at_ms)) for job, ran in runs]
    stored = await _end(batch, jobs, judged, at_ms)
    return [settled for _, settled in judged if settled.job.id in stored]


async def _end(
    batch: PostgresBatch, before: dict[int, JobRecord], judged: Sequence[tuple[Ran, SettledRun]], at_ms: int
) -> set[int]:
    """Runs end as they were judged. Which of the jobs were stored so."""
    if not judged:
        return set()
    ledger = JobLedger(batch.session)
    stored = await _put(ledger, batch.session, [(before[one.job.id], one.job) for _, one in judged])
    for ran, one in judged:
        if one.job.id in stored and ran.bytes_used:
            ledger.use(one.job.kind, one.job.user, at_ms=at_ms, size_bytes=ran.bytes_used)
    done = [one.job for _, one in judged if one.job.state is State.COMPLETED and one.job.id in stored]
    await ledger.done(done, at_ms=at_ms)
    await ledger.write()
    if stored:
        batch.telling.jobs()
    return stored


def _clean(reason: str | None) -> str | None:
    """An error's words may hold what no text can: NUL, and halves of characters."""
    return None if reason is None else queries.clean(reason.encode(errors="replace").decode())


# ---- people ----


async def cancel(batch: PostgresBatch, job_id: int, reason: str, at_ms: int) -> JobRecord:
    before = await job(batch.session, job_id)
    after = store.cancelled(before, job_id, reason=_clean(reason) or "", at_ms=at_ms)
    return await _change(batch, store.known(before, job_id), after)


async def retry(batch: PostgresBatch, job_id: int) -> JobRecord:
    before = await job(batch.session, job_id)
    after = store.retried(before, job_id)
    return await _change(batch, store.known(before, job_id), after)


async def _change(batch: PostgresBatch, before: JobRecord, after: JobRecord) -> JobRecord:
    ledger = JobLedger(batch.session)
    await _put(ledger, batch.session, [(before, after)])
    await ledger.write()
    batch.telling.jobs()
    return after


async def _put(ledger: JobLedger, session: PostgresSession, changes: Sequence[tuple[JobRecord, JobRecord]]) -> set[int]:
    """Write jobs as they are now, with what that means for their lines. Which of them still were as they had been."""
    numbers = iter(await ledger.numbers(sum(after.state is State.WAITING for _, after in changes)))
    places = {after.id: next(numbers) for _, after in changes if after.state is State.WAITING}
    rows = [
        (
            after.id,
            after.run,
            before.state,
            after.state,
            places.get(after.id),
            after.attempts_made,
            after.due_at_ms,
            after.node,
            after.ends_at_ms,
            after.is_cancelling,
            after.progress,
            after.progress_text,
            after.result,
            after.failed_reason,
            after.history,
            after.bytes_used,
            after.started_at_ms,
            after.ended_at_ms,
        )
        for before, after in changes
    ]
    stored = {row[0] for row in await session.returned(_SQL["put"], *zip(*rows, strict=True))}
    for before, after in changes:
        if after.id in stored:
            ledger.move(after.kind, before.state, after.state)
            if before.state is State.WAITING:
                ledger.leave(line_of(before))
            if after.state is State.WAITING:
                ledger.join(line_of(after), places[after.id])
    return stored


# ---- leaving ----


async def drop(batch: PostgresBatch, job_ids: Sequence[int], retention: JobRetention, *, at_ms: int, limit: int) -> int:
    ledger = JobLedger(batch.session)
    gone = await batch.session.returned(
        _SQL["drop"], jobs=list(job_ids), done_at=at_ms - retention.completed_ms, failed_at=at_ms - retention.failed_ms
    )
    for kind, state in gone:
        ledger.move(kind, State(state), None)
    await ledger.write()
    # Yesterday stays: clocks of nodes differ, and one may still ask for it.
    await batch.session.run(_SQL["drop_days"], day=store.day_of(at_ms) - 1, limit=limit)
    return len(gone)


class PostgresJobs:
    """See `peik.jobs.store.JobStore`. Made by the store when it is opened.

    If a commit's answer is lost, InDoubt is raised. Anyone who asks again is safe: a second end of a run is none, a key makes one
    job, and what was taken and nobody knows of is lost when its lease is over.
    """

    def __init__(self, ways: PostgresWays, writer: JobWriter, *, node: str) -> None:
        self._writer = writer
        self._read = ways.read
        self._node = node

    # ---- queueing and taking ----

    async def queue(self, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
        if not drafts:
            return []
        return await self.write(
            lambda batch: queue(batch, drafts, quotas, at_ms),
            kinds={draft.kind for draft in drafts},
            weight=len(drafts),
        )

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[JobRecord]:
        if not await self._seek(lambda one: is_worth_it(one, kind, terms, at_ms)):
            return []
        bound = {"limit": limit, "lease_ms": lease_ms, "at_ms": at_ms}
        return await self.write(lambda batch: take(batch, kind, terms, node=self._node, **bound), kinds=[kind])

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        return await self._seek(lambda one: next_due(one, kinds))

    # ---- runs ----

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        if not news:
            return []
        return await self.write(
            lambda batch: beat(batch, news, lease_ms), jobs=[one.job_id for one in news], weight=len(news)
        )

    async def note(self, job_id: int, notice_state: str) -> bool:
        return await self.write(lambda batch: note(batch, job_id, notice_state), jobs=[job_id])

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[SettledRun | None]:
        if not runs:
            return []
        return await self.write(
            lambda batch: settle(batch, runs, at_ms), jobs=[ran.job_id for ran in runs], weight=len(runs)
        )

    async def reap(self, *, at_ms: int, limit: int) -> list[SettledRun]:
        lost = await self._seek(lambda one: lost_jobs(one, limit))
        if not lost:
            return []
        return await self.write(lambda batch: reap(batch, lost, at_ms), jobs=lost, weight=len(lost))

    # ---- people's ----

    async def job(self, job_id: int) -> JobRecord | None:
        return await self._read(lambda one: job(one, job_id))

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
        return await self._seek(lambda one: find(one, wanted, before=before, limit=limit))

    async def standing(self, job_id: int) -> JobsStanding | None:
        return await self._seek(lambda one: standing(one, job_id))

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> JobRecord:
        return await self.write(lambda batch: cancel(batch, job_id, reason, at_ms), jobs=[job_id])

    async def retry(self, job_id: int, *, at_ms: int) -> JobRecord:
        return await self.write(lambda batch: retry(batch, job_id), jobs=[job_id])

    async def tallies(self) -> dict[str, JobTally]:
        return await self._read(tallies)

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        return await self._seek(lambda one: used(one, kind, user, at_ms))

    async def active(self, node: str | None = None) -> list[JobRecord]:
        return await self._seek(lambda one: active(one, node))

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        over = await self._seek(lambda one: over_jobs(one, retention, at_ms=at_ms, limit=limit))
        if not over:
            return 0
        return await self.write(
            lambda batch: drop(batch, over, retention, at_ms=at_ms, limit=limit), jobs=over, weight=len(over)
        )

    # ---- the ways in ----

    async def _seek(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        return await self._read(lambda one: seek(one, work))

    async def write(
        self,
        work: Callable[[PostgresBatch], Awaitable[T]],
        *,
        kinds: Iterable[str] = (),
        jobs: Iterable[int] = (),
        weight: int = 1,
    ) -> T:
        """Run something in the next commit, with these kinds and those of these jobs locked; its answer, once that is durable.
        What it refuses it refuses before it writes, so that the others of its commit need not be done again."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def prepare(batch: PostgresBatch) -> Callable[[], Finished[T]]:
            try:
                ended: Finished[T] = Finished(await work(batch), None)
            except Problem as problem:
                ended = Finished(None, problem)
            return lambda: ended

        def done(committed: Finished[Finished[T]]) -> None:
            error = committed.error if committed.error is not None else committed.value().error
            if error is not None:
                fail(future, translate(error))
            else:
                answer(future, committed.value().value())

        self._writer.submit(JobOperation(prepare, done, kinds=kinds, jobs=jobs, weight=weight))
        return await future
