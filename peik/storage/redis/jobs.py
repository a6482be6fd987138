"""Jobs on Redis. What stands where is told in lua/job_names.lua and lua/job_places.lua.

    jobs, job_state             hashes  id -> its record, and its state (absent while it waits and never ran)
    job_progress, job_notices   hashes  id -> how far its run is, and what was told of it: beats write only here
    job_line:RANK:KIND:USER     zset    id by number: a line
    job_lines:RANK:KIND         zset    user by ticket: the lines of a rank
    job_due:KIND, job_leases:KIND       zsets of ids by when they are due, or their leases are over (by the server's clock)
    job_done, job_dead          zsets   of ids by when they ended
    job_running:KIND            hash    user -> how many run
    job_waiting:KIND, job_tally:KIND    hashes: how many wait by rank, and stand where
    job_of:USER                 set     of ids: anyone who asks for one user's jobs walks no others'
    job_keys, job_kinds, job_means, job_blocks
    job_day_jobs:DAY, job_day_bytes:DAY, job_days       what each user had of a day

What a run costs a job is Python's to judge (`jobs.model.judged`). So a change is made in two steps: read and judge, then write
what was judged if the job still is at the version that was read. If it is not, somebody else has changed it, and it is judged
again. Begin and beat are one step each: they judge nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from peik.core.letter import Backoff, State
from peik.errors import StoreUnavailable
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
    turns_ahead,
)
from peik.storage.news import NodeNews
from peik.storage.redis.client import RedisClient
from peik.storage.redis.commits import Commits, PartClient, RedisNews
from peik.storage.redis.records import encode, pairs
from peik.storage.redis.search import PAGE, newest
from peik.storage.redis.writer import CommitDone, RedisWriter

# Jobs as Redis keeps them: a record that is written once, and a state beside it once there is something to say.


PHASES = (State.WAITING, State.DELAYED, State.ACTIVE, State.COMPLETED, State.FAILED, State.CANCELLED)
PHASE_OF = {state: phase for phase, state in enumerate(PHASES)}


class _Extras(msgspec.Struct, omit_defaults=True, frozen=True):
    """What most jobs do not have. Short names: they are in every such record."""

    b: int = 0  # 1: the backoff is fixed
    t: int | None = None  # timeout_ms
    k: str | None = None  # key
    n: str | None = None  # notice
    m: str | None = None  # metadata
    x: int = 0  # bytes_max


class _Record(msgspec.Struct, array_like=True, frozen=True):
    """See job_names.lua."""

    kind: str
    user: str
    rank: int
    params: str
    attempts: int
    backoff_ms: int
    created_at: int
    extras: _Extras


class JobState(msgspec.Struct, omit_defaults=True, frozen=True):
    """See job_names.lua."""

    p: int = 0
    v: int = 0
    m: int = 0
    d: int | None = None
    r: int = 0
    n: str | None = None
    b: int | None = None
    c: bool = False
    o: str | None = None
    f: str | None = None
    h: str = "[]"
    u: int = 0
    z: int | None = None


class _Progress(msgspec.Struct, frozen=True):
    """See job_runs.lua."""

    g: float | None = None
    t: str | None = None


class HeldJob(msgspec.Struct, frozen=True):
    """A job as it was read, and the version that a change of it names."""

    job: JobRecord
    version: int


_decode_record = msgspec.msgpack.Decoder(_Record).decode
_decode_state = msgspec.msgpack.Decoder(JobState).decode
_decode_progress = msgspec.msgpack.Decoder(_Progress).decode
_UNTOUCHED = JobState()
_UNKNOWN = _Progress()


def record_of(draft: JobDraft | JobRecord, at_ms: int) -> bytes:
    extras = _Extras(
        b=1 if draft.backoff is Backoff.FIXED else 0,
        t=draft.timeout_ms,
        k=draft.key,
        n=draft.notice,
        m=draft.metadata,
        x=draft.bytes_max,
    )
    return encode(
        _Record(
            kind=draft.kind,
            user=draft.user,
            rank=draft.rank,
            params=draft.params,
            attempts=draft.attempts,
            backoff_ms=draft.backoff_ms,
            created_at=at_ms,
            extras=extras,
        )
    )


def state_of(job: JobRecord) -> JobState:
    """What is written after a change. Progress, notices and leases stand elsewhere: beats do not touch this."""
    return JobState(
        p=PHASE_OF[job.state],
        m=job.attempts_made,
        d=job.due_at_ms,
        r=job.run,
        n=job.node,
        b=job.started_at_ms,
        c=job.is_cancelling,
        o=job.result,
        f=job.failed_reason,
        h=job.history,
        u=job.bytes_used,
        z=job.ended_at_ms,
    )


def held_of(row: Sequence[Any]) -> HeldJob:
    """From {id, record, state, progress, what was told, end of the lease}."""
    job_id, record, raw_state, raw_progress, told, ends_at = row
    one = _decode_record(record)
    state = _UNTOUCHED if raw_state is None else _decode_state(raw_state)
    progress = _UNKNOWN if raw_progress is None else _decode_progress(raw_progress)
    job = JobRecord(
        id=int(job_id),
        kind=one.kind,
        user=one.user,
        params=one.params,
        rank=one.rank,
        state=PHASES[state.p],
        attempts=one.attempts,
        attempts_made=state.m,
        backoff_ms=one.backoff_ms,
        backoff=Backoff.FIXED if one.extras.b else Backoff.EXPONENTIAL,
        timeout_ms=one.extras.t,
        due_at_ms=state.d,
        run=state.r,
        node=state.n,
        ends_at_ms=None if ends_at is None else int(float(ends_at)),
        is_cancelling=state.c,
        progress=progress.g,
        progress_text=progress.t,
        result=state.o,
        failed_reason=state.f,
        history=state.h,
        key=one.extras.k,
        notice=one.extras.n,
        notice_state=None if told is None else told.decode(),
        metadata=one.extras.m,
        bytes_max=one.extras.x,
        bytes_used=state.u,
        created_at_ms=one.created_at,
        started_at_ms=state.b,
        ended_at_ms=state.z,
    )
    return HeldJob(job, state.v)


# What people look for among jobs: walked page by page from the newest down, judged here, never all at once.


_LINES_PAGE = 1000


async def find(client: RedisClient, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
    found: list[JobRecord] = []
    async for ids in _candidates(client, wanted, before):
        for held in await those(client, ids):
            if len(found) < limit and held is not None and _is_wanted(held.job, wanted):
                found.append(held.job)
        if len(found) >= limit:
            break
    return found


async def those(client: RedisClient, ids: Sequence[int]) -> list[HeldJob | None]:
    """As they stand, in the order of the ids; in pages, so that nobody waits for long while many are read."""
    found: list[HeldJob | None] = []
    for start in range(0, len(ids), PAGE):
        (rows,) = await client.read(["job_rows", [str(one) for one in ids[start : start + PAGE]]])
        found += [None if row is None else held_of(row) for row in rows]
    return found


async def active(client: RedisClient) -> list[JobRecord]:
    (ids,) = await client.read(["job_ids_in", "job_leases"])
    found = await those(client, sorted(int(one) for one in ids))
    return [held.job for held in found if held is not None and held.job.state is State.ACTIVE]


async def standing(client: RedisClient, job_id: int) -> JobsStanding | None:
    (found,) = await client.read(["job_standing", str(job_id)])
    if found is None:
        return None
    kind, rank, better, own, place, lines, running, mean = found
    if own == 0:
        ahead = better + place  # of each line before its own one goes first, however long that is
    elif better + own + lines - 1 >= STANDING_COUNTED_MAX:
        ahead = STANDING_COUNTED_MAX  # of each other line at least one goes before it
    else:
        lengths = await _lengths(client, kind.decode(), rank, lines)
        ahead = turns_ahead(better=better, own=own, earlier=lengths[:place], later=lengths[place + 1 :])
    return JobsStanding(
        ahead=min(ahead, STANDING_COUNTED_MAX), running=running, mean_run_ms=None if mean is None else int(mean)
    )


async def _lengths(client: RedisClient, kind: str, rank: int, lines: int) -> list[int]:
    """In pages. Lines may come and go between two of them: where one stands is told to people, who know queues."""
    found: list[int] = []
    for start in range(0, lines, _LINES_PAGE):
        (page,) = await client.read(["job_lengths", kind, rank, start, start + _LINES_PAGE - 1])
        found += page
    return found


async def _candidates(client: RedisClient, wanted: JobFilter, before: int | None) -> AsyncIterator[list[int]]:
    """Ids below a given one, the newest first: the fewest that are known to hold all that are wanted."""
    named = await _named(client, wanted)
    if named is None:
        async for page in newest(client, "job_blocks", before):
            yield page
        return
    ids = sorted((one for one in named if before is None or one < before), reverse=True)
    for start in range(0, len(ids), PAGE):
        yield ids[start : start + PAGE]


async def _named(client: RedisClient, wanted: JobFilter) -> list[int] | None:
    """What an index names; None: there is none for this."""
    ids: Sequence[bytes]
    if wanted.user:
        ids = await client.ask(client.redis.smembers(f"{client.prefix}job_of:{wanted.user}"))
    elif wanted.state is State.FAILED:
        ids = await client.ask(client.redis.zrange(f"{client.prefix}job_dead", 0, -1))
    elif wanted.state is State.ACTIVE:
        (ids,) = await client.read(["job_ids_in", "job_leases"])
    elif wanted.state is State.DELAYED:
        (ids,) = await client.read(["job_ids_in", "job_due"])
    else:
        return None
    return [int(one) for one in ids]


def _is_wanted(job: JobRecord, wanted: JobFilter) -> bool:
    if wanted.since_ms is not None and job.created_at_ms < wanted.since_ms:
        return False
    same = (name for name in JobFilter.__struct_fields__ if name != "since_ms")
    return all(getattr(wanted, name) in (None, getattr(job, name)) for name in same)


T = TypeVar("T")

_AT_ONCE = 200  # jobs that one call of the server changes: some milliseconds, in which its other clients wait
_ROUNDS_MAX = 100  # of judging again; in each of them somebody else has changed the job
_QUEUED, _KEY_REUSED = 0, 1  # see job_queue.lua
_COMMIT = ("prelude", "job_names", "job_places", "job_queue", "job_runs", "job_upkeep", "job_forgetting", "commit_end")
_READ = ("prelude", "job_names", "job_reading", "read_end")
_ENDS_NOW, _OURS = 2, 1  # see job_runs.lua


class _Change(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What shall become of a job, and what is answered if it does."""

    after: JobRecord
    answer: T
    run_ms: int | None = None  # of a run that was done
    bytes_used: int = 0
    forgets_progress: bool = False


class RedisJobs:
    """See `peik.jobs.store.JobStore`. Made by the store when it is opened."""

    def __init__(self, url: str, bell: RedisNews, *, node: str) -> None:
        self._client = PartClient(url, commit=_COMMIT, read=_READ)
        self._writer = RedisWriter(self._client, node=node)
        self._commits = Commits(self._writer, bell, listener=lambda: None, on_blobs_freed=lambda blobs: None)

    async def open(self) -> None:
        await self._client.open()

    async def drained(self) -> None:
        """Returns when everything that was asked has been answered."""
        await self._writer.drained()

    async def abandon(self) -> None:
        await self._writer.abandon()
        await self._client.close()

    # ---- in ----

    async def queue(self, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
        if not drafts:
            return []
        bounds = {kind: (quota.jobs, quota.bytes) for kind, quota in quotas.items()}

        def build(among: list[bytes]) -> list[object]:
            rows = []
            for draft in drafts:
                among.append(record_of(draft, at_ms))
                _, due_at_ms = store.drafted(draft, at_ms=at_ms)
                row = (len(among) + 1, draft.kind, draft.user, draft.rank, due_at_ms, draft.key, draft.digest)
                rows.append(row)
            return ["job_queue", rows, bounds, store.day_of(at_ms)]

        def news(telling: NodeNews, done: CommitDone) -> None:
            if done.value[0] == _QUEUED and not all(is_repeat for _, _, is_repeat in done.value[1]):
                telling.jobs()

        how, *rest = await self._commits.submit(build, lambda done: done.value, weight=len(drafts), news=news)
        if how != _QUEUED:
            _refuse(how, rest, drafts, quotas)
        return [
            Queued(job_id=int(job_id), state=PHASES[phase], is_repeat=bool(is_repeat))
            for job_id, phase, is_repeat in rest[0]
        ]

    # ---- out, with the person ----

    async def forget(self, job_ids: Sequence[int]) -> int:
        """See `peik.erasure.store.Forgetting.drop_jobs`."""
        ids = [str(one) for one in job_ids]
        return int(await self._commits.write("job_forget", ids)) if ids else 0

    async def forget_days(self, users: Sequence[str], *, is_dry: bool) -> int:
        rows: set[tuple[str, str]] = set()
        days: list[bytes] = await self._client.ask(self._client.redis.zrange(self._client.prefix + "job_days", 0, -1))
        for day in (one.decode() for one in days):
            for name in ("job_day_jobs", "job_day_bytes"):
                fields: list[bytes] = await self._client.ask(
                    self._client.redis.hkeys(f"{self._client.prefix}{name}:{day}")
                )
                rows |= {(day, field.decode()) for field in fields if _user_of(field.decode()) in users}
        if not rows or is_dry:
            return len(rows)
        return int(await self._commits.write("job_forget_days", sorted(rows)))

    # ---- runs ----

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[JobRecord]:
        terms_and_time = (terms.concurrency, terms.per_user, limit, lease_ms, at_ms)
        has_all_due, rows = False, []
        while not has_all_due:  # one call moves this many due ones; what goes first is known when all have joined
            has_all_due, rows = await self._commits.write("job_take", kind, *terms_and_time)
        return [held_of(row).job for row in rows]

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        (at_ms,) = await self._client.read(["job_next", list(kinds)])
        return None if at_ms is None else int(at_ms)

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        if not news:
            return []
        rows = [[str(one.job_id), one.run, one.progress, one.progress_text, one.notice_state] for one in news]
        answers = await self._commits.write("job_beat", rows, lease_ms)
        return [Beaten(is_ours=answer >= _OURS, is_cancelling=answer == _ENDS_NOW) for answer in answers]

    async def note(self, job_id: int, notice_state: str) -> bool:
        return bool(await self._commits.write("job_note", str(job_id), notice_state))

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[SettledRun | None]:
        def judge(index: int, job: JobRecord | None) -> _Change[SettledRun] | None:
            ran = runs[index]
            if job is None or job.state is not State.ACTIVE or job.run != ran.run:
                return None
            return _settled(job, ran, at_ms)

        return await self._judge([one.job_id for one in runs], judge, at_ms=at_ms)

    async def reap(self, *, at_ms: int, limit: int) -> list[SettledRun]:
        ((ids, is_odd),) = await self._client.read(["job_over", limit])
        if is_odd:
            await self._commits.write("job_right_leases")
        over = await those(self._client, [int(one) for one in ids])

        def judge(index: int, job: JobRecord | None) -> _Change[SettledRun] | None:
            if job is None or job.state is not State.ACTIVE:
                return None
            return _settled(job, store.lost(job), at_ms)

        changes = [(held.version, judge(0, held.job)) for held in over if held is not None]
        # A job that was changed meanwhile has beaten, ended, or was reaped by another node: nothing to judge again.
        written = await self._write([(v, one) for v, one in changes if one is not None], at_ms, must_be_over=True)
        return [one.answer for one in written if one is not None]

    # ---- people's ----

    async def job(self, job_id: int) -> JobRecord | None:
        (held,) = await those(self._client, [job_id])
        return None if held is None else held.job

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
        return await find(self._client, wanted, before=before, limit=limit)

    async def standing(self, job_id: int) -> JobsStanding | None:
        return await standing(self._client, job_id)

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> JobRecord:
        def judge(_: int, job: JobRecord | None) -> _Change[JobRecord]:
            after = store.cancelled(job, job_id, reason=reason, at_ms=at_ms)
            return _Change(after=after, answer=after)

        (cancelled,) = await self._judge([job_id], judge, at_ms=at_ms)
        assert cancelled is not None
        return cancelled

    async def retry(self, job_id: int, *, at_ms: int) -> JobRecord:
        def judge(_: int, job: JobRecord | None) -> _Change[JobRecord]:
            after = store.retried(job, job_id)
            return _Change(after=after, answer=after, forgets_progress=True)

        (retried,) = await self._judge([job_id], judge, at_ms=at_ms)
        assert retried is not None
        return retried

    async def tallies(self) -> dict[str, JobTally]:
        (rows,) = await self._client.read(["job_tallies"])
        return {
            kind.decode(): JobTally(**{state: int(count) for state, count in pairs(counts).items()})
            for kind, counts in rows
        }

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        ((jobs, size_bytes),) = await self._client.read(["job_used", kind, user, store.day_of(at_ms)])
        return jobs, size_bytes

    async def active(self, node: str | None = None) -> list[JobRecord]:
        return [job for job in await active(self._client) if node in (None, job.node)]

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        until = (at_ms - retention.completed_ms, at_ms - retention.failed_ms)
        gone, last = 0, _AT_ONCE
        while last == _AT_ONCE and gone < limit:
            last = await self._commits.write("job_clean", *until, store.day_of(at_ms), min(limit - gone, _AT_ONCE))
            gone += last
        return gone

    # ---- read, judge, write ----

    async def _judge(
        self, ids: Sequence[int], judge: Callable[[int, JobRecord | None], _Change[T] | None], *, at_ms: int
    ) -> list[T | None]:
        """Let each job become what `judge` says (by its place among the ids), or leave it alone. What it raises is raised."""
        answers: list[T | None] = [None] * len(ids)
        left = list(range(len(ids)))
        for _ in range(_ROUNDS_MAX):
            changes: list[tuple[int, _Change[T]]] = []
            changed: list[int] = []
            for index, held in zip(left, await those(self._client, [ids[one] for one in left]), strict=True):
                change = judge(index, None if held is None else held.job)
                if change is not None:
                    assert held is not None
                    changes.append((held.version, change))
                    changed.append(index)
            written = await self._write(changes, at_ms)
            left = [index for index, change in zip(changed, written, strict=True) if change is None]
            for index, change in zip(changed, written, strict=True):
                if change is not None:
                    answers[index] = change.answer
            if not left:
                return answers
        raise StoreUnavailable(code="store_busy", detail="Others change this job all the time. Try again.")

    async def _write(
        self, changes: Sequence[tuple[int, _Change[T]]], at_ms: int, *, must_be_over: bool = False
    ) -> list[_Change[T] | None]:
        """Each that was made; None in place of those whose job has changed since it was read."""
        if not changes:
            return []
        answers: list[int] = []
        for start in range(0, len(changes), _AT_ONCE):
            rows = [
                (str(one.after.id), version, state_of(one.after), one.run_ms, one.bytes_used, one.forgets_progress)
                for version, one in changes[start : start + _AT_ONCE]
            ]
            answers += await self._commits.write("job_change", rows, store.day_of(at_ms), must_be_over, news=_of_jobs)
        return [one if is_made else None for (_, one), is_made in zip(changes, answers, strict=True)]


def _settled(job: JobRecord, ran: Ran, at_ms: int) -> _Change[SettledRun]:
    settled = store.settled(job, ran, at_ms=at_ms)
    is_done = settled.job.state is State.COMPLETED
    return _Change(
        after=settled.job,
        answer=settled,
        run_ms=store.run_ms(job, at_ms=at_ms) if is_done else None,
        bytes_used=ran.bytes_used,
    )


def _refuse(how: int, why: list[Any], drafts: Sequence[JobDraft], quotas: Mapping[str, Quota]) -> None:
    """Raises what the rules say to what the script found."""
    draft = drafts[why[0]]
    if how == _KEY_REUSED:
        store.check_same_job(draft, why[1].decode())
    else:
        whose = (draft.kind, draft.user)
        store.check_quotas(quotas, {whose: (why[1], why[2])}, {whose: why[3]})
    raise AssertionError(how, why)


def _of_jobs(telling: NodeNews, answers: list[int]) -> None:
    if any(answers):
        telling.jobs()


def _user_of(field: str) -> str:
    """Who is meant by "4:kind:user": kinds and users may hold the sign that parts them."""
    size, _, rest = field.partition(":")
    return rest.encode()[int(size) + 1 :].decode()
