"""The jobs of the SQLite store. What is asked goes into the store's own commits and reads; the work itself is in the modules
beside this one."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import apsw
import msgspec

from peik.core.letter import Backoff, State
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
from peik.storage.sqlite import reads
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.statements import Row, Value, insert_many, load, run_many
from peik.storage.sqlite.writer import SqliteWays

# A job as a row of the SQL stores, and back.


def _column_of(field: str) -> str:
    """A field of a job as the tables call it: `user` is a word of PostgreSQL's own, and instants have no unit."""
    if field == "user":
        return "user_id"
    return field.removesuffix("_ms") if field.endswith("_at_ms") else field


# Every field of a record has a column: a new one needs a step of each schema, and nothing here.
COLUMNS = tuple(map(_column_of, JobRecord.__struct_fields__))
# What a draft brings; when it is to run stands in its state and in when it is due.
DRAFTED = tuple(field for field in JobDraft.__struct_fields__ if field != "run_at_ms")
NEW_COLUMNS = (*map(_column_of, DRAFTED), "state", "due_at", "place", "created_at")

_drafted = attrgetter(*DRAFTED)


def job_from_row(row: Sequence[Any]) -> JobRecord:
    """From the values of COLUMNS; times are milliseconds, states and kinds of backoff their words."""
    values = dict(zip(JobRecord.__struct_fields__, row, strict=True))
    values["state"] = State(values["state"])
    values["backoff"] = Backoff(values["backoff"])
    values["is_cancelling"] = bool(values["is_cancelling"])
    return JobRecord(**values)


def row_of_draft(draft: JobDraft, state: State, *, due_at_ms: int | None, place: int | None, at_ms: int) -> Row:
    """The values of NEW_COLUMNS."""
    return (*_drafted(draft), state, due_at_ms, place, at_ms)


def conditions_of(wanted: JobFilter, *, before: int | None, of_state: str) -> list[tuple[str, str | int, str]]:
    """A filter as conditions: the name, the value and the SQL of each. `of_state` is how the dialect asks for a state. A new
    field of a filter asks for the same in its column, and needs nothing here."""
    special = {"state": of_state, "since_ms": "j.created_at >= :since_ms", "before": "j.id < :before"}
    asked = {**msgspec.structs.asdict(wanted), "before": before}
    return [
        (name, value, special.get(name, f"j.{_column_of(name)} = :{name}"))
        for name, value in asked.items()
        if value is not None
    ]


# The lines of jobs in the SQLite store: who joins, who leaves, whose turn it is. Functions on a connection, no state.
#
# A place in a line and a ticket come from one counter, so that the ticket of a line is the place of the job that
# opened it, until one of the line's jobs begins and another is drawn.


_JOB, _NEW = ", ".join(f"j.{column}" for column in COLUMNS), ", ".join(NEW_COLUMNS)
SQL = {name: body.replace("{job}", _JOB).replace("{new}", _NEW) for name, body in load("sqlite_jobs.sql").items()}

Line = tuple[str, int, str]  # kind, rank, user

_DUE_PER_TAKE_MAX = 1000  # a bound on how long one take keeps the other commits waiting; the next one goes on


def line_of(job: JobRecord) -> Line:
    return (job.kind, job.rank, job.user)


def join(connection: apsw.Connection, lines: Sequence[Line]) -> list[int]:
    """Somebody joins the end of each of these lines, in this order; their places."""
    if not lines:
        return []
    places = _draw(connection, len(lines))
    opened: dict[Line, int] = {}
    for line, place in zip(lines, places, strict=True):
        opened.setdefault(line, place)
    counts = Counter(lines)
    run_many(connection, SQL["join_lines"], [(*line, ticket, counts[line]) for line, ticket in opened.items()])
    return list(places)


def leave(connection: apsw.Connection, line: Line) -> None:
    """One that waited goes without its turn."""
    run_many(connection, SQL["leave_lines"], [(*line, 1, None)])
    connection.execute(SQL["drop_empty_line"], line)


def _draw(connection: apsw.Connection, count: int) -> range:
    ((last,),) = connection.execute(SQL["draw_numbers"], (count,))
    return range(last - count + 1, last + 1)


def join_due(connection: apsw.Connection, kind: str, at_ms: int) -> None:
    """Delayed ones whose time has come stand in their lines now, the earliest first."""
    rows = list(connection.execute(SQL["due"], {"kind": kind, "at": at_ms, "limit": _DUE_PER_TAKE_MAX}))
    places = join(connection, [(kind, rank, user) for _, kind, rank, user in rows])
    run_many(connection, SQL["join_due"], [(row[0], place) for row, place in zip(rows, places, strict=True)])


def next_due(connection: apsw.Connection, kinds: Sequence[str], now_ms: int) -> int | None:
    """When a delayed one of these kinds is due next, or a lease is over."""
    times = [
        row[0]
        for kind in kinds
        for name in ("next_due", "next_end")
        for row in connection.execute(SQL[name], {"kind": kind, "now": now_ms})
        if row[0] is not None
    ]
    return min(times, default=None)


def take(
    connection: apsw.Connection,
    kind: str,
    terms: KindTerms,
    *,
    limit: int,
    node: str,
    lease_ms: int,
    now_ms: int,
    at_ms: int,
) -> list[JobRecord]:
    """Begin jobs: see `JobStore.take`. `now_ms` is the time that leases go by."""
    join_due(connection, kind, at_ms)
    running = Counter(dict(connection.execute(SQL["running"], (kind,))))
    room = min(limit, terms.concurrency - running.total())
    if room <= 0 or terms.per_user <= 0:
        return []
    chosen = _chosen(connection, kind, running, room=room, per_user=terms.per_user)
    if not chosen:
        return []
    fronts = _fronts(connection, Counter(chosen))
    ends_at_ms = now_ms + lease_ms
    begun = [store.begun(next(fronts[line]), node=node, ends_at_ms=ends_at_ms, at_ms=at_ms) for line in chosen]
    rows: list[Row] = [(job.id, job.run, node, ends_at_ms, lease_ms, at_ms) for job in begun]
    run_many(connection, SQL["begin"], rows)
    _redraw(connection, chosen)
    return begun


def _chosen(connection: apsw.Connection, kind: str, running: Counter[str], *, room: int, per_user: int) -> list[Line]:
    """The lines whose turn it is, in order; one may have several turns.

    A ticket that is drawn again is behind all others of its rank, so each rank is read once and then goes round among those
    that went. Only lines of users who have as many running as allowed are passed over, and those are never more than run.
    """
    chosen: list[Line] = []
    again: deque[tuple[Line, int]] = deque()  # of the rank that is being read: what is left in each

    def go(line: Line, jobs: int) -> None:
        if running[line[2]] < per_user:
            running[line[2]] += 1
            chosen.append(line)
            if jobs > 1:
                again.append((line, jobs - 1))

    def go_round() -> None:
        while again and len(chosen) < room:
            go(*again.popleft())
        again.clear()

    last_rank: int | None = None
    cursor = connection.execute(SQL["turns"], (kind,))
    for rank, user, jobs in cursor:
        if rank != last_rank:
            go_round()
            last_rank = rank
        if len(chosen) >= room:
            break
        go((kind, rank, user), jobs)
    cursor.close()
    go_round()
    return chosen


def _fronts(connection: apsw.Connection, turns: Mapping[Line, int]) -> dict[Line, Iterator[JobRecord]]:
    """The first jobs of each line, as many as it has turns."""
    return {
        line: iter([job_from_row(row) for row in connection.execute(SQL["front"], (*line, count))])
        for line, count in turns.items()
    }


def _redraw(connection: apsw.Connection, chosen: Sequence[Line]) -> None:
    tickets = dict(zip(chosen, _draw(connection, len(chosen)), strict=True))  # of several turns the last one counts
    gone = Counter(chosen)
    run_many(connection, SQL["leave_lines"], [(*line, gone[line], ticket) for line, ticket in tickets.items()])
    for line in tickets:
        connection.execute(SQL["drop_empty_line"], line)


# Jobs that come and run in the SQLite store: queueing, beats, ends. Functions on a connection, no state.
#
# All of this happens under the one lock of SQLite's writers, so that what was read before a write is still so when it
# is written.


# ---- queueing ----


def queue(
    connection: apsw.Connection, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int
) -> list[Queued]:
    """See `JobStore.queue`. What raises here undoes the whole of it."""
    known = _known_keys(connection, drafts)
    fresh: list[JobDraft] = []
    first: dict[tuple[str, str], int] = {}  # the keys of this question: where in `fresh` each is
    answers: list[Queued | tuple[int, bool]] = []  # or the place in `fresh`, and whether it is a repeat
    for draft in drafts:
        key = None if draft.key is None else (draft.kind, draft.key)
        if key in known:
            digest, queued = known[key]
            store.check_same_job(draft, digest)
            answers.append(queued)
        elif key in first:
            store.check_same_job(draft, fresh[first[key]].digest)
            answers.append((first[key], True))
        else:
            if key is not None:
                first[key] = len(fresh)
            answers.append((len(fresh), False))
            fresh.append(draft)
    _use_day(connection, fresh, quotas, at_ms)
    added = _add(connection, fresh, at_ms)
    return [
        one if isinstance(one, Queued) else Queued(job_id=added[one[0]][0], state=added[one[0]][1], is_repeat=one[1])
        for one in answers
    ]


def _known_keys(
    connection: apsw.Connection, drafts: Sequence[JobDraft]
) -> dict[tuple[str, str] | None, tuple[str, Queued]]:
    wanted: list[Row] = list({(draft.kind, draft.key): None for draft in drafts if draft.key is not None})
    found: dict[tuple[str, str] | None, tuple[str, Queued]] = {}
    for kind, key, digest, job_id, state in run_many(connection, SQL["find_keys"], wanted):
        assert isinstance(job_id, int)
        found[str(kind), str(key)] = (str(digest), Queued(job_id=job_id, state=State(str(state)), is_repeat=True))
    return found


def _use_day(connection: apsw.Connection, fresh: Sequence[JobDraft], quotas: Mapping[str, Quota], at_ms: int) -> None:
    day = store.day_of(at_ms)
    new = Counter((draft.kind, draft.user) for draft in fresh)
    bounded: list[Row] = [(day, kind, user) for kind, user in new if kind in quotas]
    used: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, user, jobs, size_bytes in run_many(connection, SQL["used"], bounded):
        assert isinstance(jobs, int)
        assert isinstance(size_bytes, int)
        used[str(kind), str(user)] = (jobs, size_bytes)
    store.check_quotas(quotas, used, new)
    run_many(connection, SQL["use"], [(day, kind, user, count, 0) for (kind, user), count in new.items()])


def _add(connection: apsw.Connection, fresh: Sequence[JobDraft], at_ms: int) -> list[tuple[int, State]]:
    starts = [store.drafted(draft, at_ms=at_ms) for draft in fresh]
    waiting = [
        (draft.kind, draft.rank, draft.user)
        for draft, (state, _) in zip(fresh, starts, strict=True)
        if state is State.WAITING
    ]
    places = iter(join(connection, waiting))
    rows = [
        row_of_draft(
            draft,
            state,
            due_at_ms=due_at_ms,
            place=next(places) if state is State.WAITING else None,
            at_ms=at_ms,
        )
        for draft, (state, due_at_ms) in zip(fresh, starts, strict=True)
    ]
    ids = insert_many(connection, SQL["add"], rows)
    return [(job_id, state) for job_id, (state, _) in zip(ids, starts, strict=True)]


# ---- runs ----


def beat(connection: apsw.Connection, news: Sequence[RunNews], *, lease_ms: int, now_ms: int) -> list[Beaten]:
    ids: list[Row] = list({(one.job_id,): None for one in news})
    running = {job_id: (run, bool(flag)) for job_id, run, flag in run_many(connection, SQL["runs"], ids)}
    answers: list[Beaten] = []
    told: dict[int, RunNews] = {}  # a job of which two speak gets what the later one says
    for one in news:
        run, is_cancelling = running.get(one.job_id, (None, False))
        is_ours = run == one.run
        answers.append(Beaten(is_ours=is_ours, is_cancelling=is_ours and is_cancelling))
        if is_ours:
            told[one.job_id] = _later(told.get(one.job_id, one), one)
    rows: list[Row] = [
        (one.job_id, now_ms + lease_ms, lease_ms, one.progress, one.progress_text, one.notice_state)
        for one in told.values()
    ]
    run_many(connection, SQL["beat"], rows)
    return answers


def _later(before: RunNews, after: RunNews) -> RunNews:
    names = ("progress", "progress_text", "notice_state")
    said = {name: getattr(after, name) for name in names if getattr(after, name) is not None}
    return msgspec.structs.replace(before, **said)


def note(connection: apsw.Connection, job_id: int, notice_state: str) -> bool:
    return bool(list(connection.execute(SQL["note"], (notice_state, job_id))))


def settle(connection: apsw.Connection, runs: Sequence[Ran], *, at_ms: int) -> list[SettledRun | None]:
    ids: list[Row] = list({(one.job_id,): None for one in runs})
    jobs = {job.id: job for job in map(job_from_row, run_many(connection, SQL["by_ids"], ids))}
    answers: list[SettledRun | None] = []
    over: list[tuple[JobRecord, Ran]] = []
    for ran in runs:
        job = jobs.get(ran.job_id)
        if job is None or job.state is not State.ACTIVE or job.run != ran.run:
            answers.append(None)
            continue
        settled = store.settled(job, ran, at_ms=at_ms)
        jobs[job.id] = settled.job  # a second end of the same run finds it over
        over.append((settled.job, ran))
        answers.append(settled)
    _end(connection, over, at_ms)
    return answers


def reap(connection: apsw.Connection, *, now_ms: int, at_ms: int, limit: int) -> list[SettledRun]:
    connection.execute(SQL["cap_leases"], {"now": now_ms})
    jobs = [job_from_row(row) for row in connection.execute(SQL["lost"], {"now": now_ms, "limit": limit})]
    runs = [store.lost(job) for job in jobs]
    lost = [store.settled(job, ran, at_ms=at_ms) for job, ran in zip(jobs, runs, strict=True)]
    _end(connection, [(one.job, ran) for one, ran in zip(lost, runs, strict=True)], at_ms)
    return lost


def _end(connection: apsw.Connection, over: Sequence[tuple[JobRecord, Ran]], at_ms: int) -> None:
    """Store jobs whose runs are over, what they used, and how long they took."""
    save(connection, [job for job, _ in over])
    used: Counter[tuple[str, str]] = Counter()
    took: dict[str, list[int]] = {}
    for job, ran in over:
        used[job.kind, job.user] += ran.bytes_used
        if job.state is State.COMPLETED:
            took.setdefault(job.kind, []).append(store.run_ms(job, at_ms=at_ms))
    day = store.day_of(at_ms)
    rows: list[Row] = [(day, kind, user, 0, size_bytes) for (kind, user), size_bytes in used.items() if size_bytes]
    run_many(connection, SQL["use"], rows)
    for kind, times_ms in took.items():
        mean_ms = mean_run_ms(connection, kind)
        for one in times_ms:
            mean_ms = store.new_mean_ms(mean_ms, one)
        connection.execute(SQL["save_mean_run"], (kind, mean_ms))


def mean_run_ms(connection: apsw.Connection, kind: str) -> int | None:
    row = connection.execute(SQL["mean_run"], (kind,)).fetchone()
    return None if row is None else int(row[0])


def save(connection: apsw.Connection, jobs: Sequence[JobRecord]) -> None:
    """Jobs as they stand now. None of them stood in a line before; those that wait now join theirs, in this order."""
    places = iter(join(connection, [line_of(job) for job in jobs if job.state is State.WAITING]))
    rows: list[Row] = [
        (
            job.id,
            job.state,
            job.attempts_made,
            job.due_at_ms,
            job.node,
            job.ends_at_ms,
            job.is_cancelling,
            job.progress,
            job.progress_text,
            job.result,
            job.failed_reason,
            job.history,
            job.bytes_used,
            job.started_at_ms,
            job.ended_at_ms,
            next(places) if job.state is State.WAITING else None,
        )
        for job in jobs
    ]
    run_many(connection, SQL["save"], rows)


# What people ask of jobs in the SQLite store, and how jobs leave it. Functions on a connection, no state.


def job_by_id(connection: apsw.Connection, job_id: int) -> JobRecord | None:
    rows = run_many(connection, SQL["by_ids"], [(job_id,)])
    return job_from_row(rows[0]) if rows else None


def find(connection: apsw.Connection, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
    # Of two indexes that fit, the plus keeps SQLite from taking the one of states: a user's jobs are the fewer.
    by_state = "j.state = :state" if wanted.user is None else "+j.state = :state"
    given = conditions_of(wanted, before=before, of_state=by_state)
    sql = SQL["find"].replace("{where}", " AND ".join(["1", *(condition for _, _, condition in given)]))
    bound: dict[str, Value] = {name: value for name, value, _ in given}
    return [job_from_row(row) for row in connection.execute(sql, bound | {"limit": limit})]


def active(connection: apsw.Connection, node: str | None) -> list[JobRecord]:
    return [job_from_row(row) for row in connection.execute(SQL["active"], {"node": node})]


def tallies(connection: apsw.Connection) -> dict[str, JobTally]:
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for kind, state, jobs in connection.execute(SQL["tallies"]):
        counts[kind][state] = jobs
    return {kind: JobTally(**by_state) for kind, by_state in counts.items()}


def used_today(connection: apsw.Connection, kind: str, user: str, at_ms: int) -> tuple[int, int]:
    rows = run_many(connection, SQL["used"], [(store.day_of(at_ms), kind, user)])
    if not rows:
        return 0, 0
    _, _, jobs, size_bytes = rows[0]
    assert isinstance(jobs, int)
    assert isinstance(size_bytes, int)
    return jobs, size_bytes


def standing(connection: apsw.Connection, job_id: int) -> JobsStanding | None:
    connection.execute("BEGIN")  # one snapshot for all
    try:
        row = connection.execute(SQL["waiting"], {"id": job_id}).fetchone()
        return None if row is None else _standing(connection, *row)
    finally:
        connection.execute("ROLLBACK")


def _standing(connection: apsw.Connection, kind: str, rank: int, user: str, place: int, ticket: int) -> JobsStanding:
    bound: dict[str, Value] = {"kind": kind, "rank": rank, "user": user, "most": STANDING_COUNTED_MAX}
    own = reads.number(connection, SQL["ahead_in_line"], bound | {"place": place})
    better = reads.number(connection, SQL["ahead_by_rank"], bound)
    others = reads.number(connection, SQL["ahead_by_turns"], bound | {"own": own, "ticket": ticket})
    return JobsStanding(
        ahead=min(own + better + others, STANDING_COUNTED_MAX),
        running=reads.number(connection, SQL["tally"], (kind, State.ACTIVE)),
        mean_run_ms=mean_run_ms(connection, kind),
    )


def cancel(connection: apsw.Connection, job_id: int, *, reason: str, at_ms: int) -> JobRecord:
    before = job_by_id(connection, job_id)
    job = store.cancelled(before, job_id, reason=reason, at_ms=at_ms)
    if before is not None and before.state is State.WAITING:
        leave(connection, line_of(before))
    save(connection, [job])
    return job


def retry(connection: apsw.Connection, job_id: int) -> JobRecord:
    job = store.retried(job_by_id(connection, job_id), job_id)
    save(connection, [job])
    return job


def clean(connection: apsw.Connection, retention: JobRetention, *, at_ms: int, limit: int) -> int:
    ids: list[Row] = []
    for state, kept_ms in (
        (State.COMPLETED, retention.completed_ms),
        (State.CANCELLED, retention.completed_ms),
        (State.FAILED, retention.failed_ms),
    ):
        ids += connection.execute(SQL["ended"], (state, at_ms - kept_ms, limit - len(ids)))
    run_many(connection, SQL["drop"], ids)
    if ids:
        connection.execute(SQL["drop_tallies"])  # of kinds that are not here any more
    connection.execute(SQL["drop_days"], (store.day_of(at_ms) - 1,))
    return len(ids)


T = TypeVar("T")


class SqliteJobs:
    """See `peik.jobs.store.JobStore`. Made by the store when it is opened.

    Several processes on one file may take jobs, so leases are kept by the wall clock, which all of them share. One that is
    put back makes no lease longer than it was given for: see `reap`.
    """

    def __init__(self, ways: SqliteWays, *, now_ms: Callable[[], int], node: Callable[[], str]) -> None:
        self._collect, self._read = ways.collect, ways.read
        self._now_ms = now_ms  # the time that leases go by
        self._node = node

    async def _do(self, work: Callable[[apsw.Connection], T], *, weight: int = 1) -> T:
        """Run something in the next commit; its answer, once that is durable."""

        def add(batch: SqliteBatch) -> Callable[[], T]:
            value = work(batch.connection)
            return lambda: value

        return await self._collect(add, weight=weight)

    # ---- runs ----

    async def queue(self, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
        return await self._do(lambda one: queue(one, drafts, quotas=quotas, at_ms=at_ms), weight=len(drafts))

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[JobRecord]:
        now_ms = self._now_ms()
        return await self._do(
            lambda one: take(
                one, kind, terms, limit=limit, node=self._node(), lease_ms=lease_ms, now_ms=now_ms, at_ms=at_ms
            )
        )

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        now_ms = self._now_ms()
        return await self._read(lambda one: next_due(one, kinds, now_ms))

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        now_ms = self._now_ms()
        return await self._do(lambda one: beat(one, news, lease_ms=lease_ms, now_ms=now_ms), weight=len(news))

    async def note(self, job_id: int, notice_state: str) -> bool:
        return await self._do(lambda one: note(one, job_id, notice_state))

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[SettledRun | None]:
        return await self._do(lambda one: settle(one, runs, at_ms=at_ms), weight=len(runs))

    async def reap(self, *, at_ms: int, limit: int) -> list[SettledRun]:
        now_ms = self._now_ms()
        return await self._do(lambda one: reap(one, now_ms=now_ms, at_ms=at_ms, limit=limit))

    # ---- people ----

    async def job(self, job_id: int) -> JobRecord | None:
        return await self._read(lambda one: job_by_id(one, job_id))

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
        return await self._read(lambda one: find(one, wanted, before=before, limit=limit))

    async def standing(self, job_id: int) -> JobsStanding | None:
        return await self._read(lambda one: standing(one, job_id))

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> JobRecord:
        return await self._do(lambda one: cancel(one, job_id, reason=reason, at_ms=at_ms))

    async def retry(self, job_id: int, *, at_ms: int) -> JobRecord:
        return await self._do(lambda one: retry(one, job_id))

    async def tallies(self) -> dict[str, JobTally]:
        return await self._read(tallies)

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        return await self._read(lambda one: used_today(one, kind, user, at_ms))

    async def active(self, node: str | None = None) -> list[JobRecord]:
        return await self._read(lambda one: active(one, node))

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        return await self._do(lambda one: clean(one, retention, at_ms=at_ms, limit=limit))
