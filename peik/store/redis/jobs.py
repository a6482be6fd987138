"""Jobs on Redis. What stands where is told in lua/job_names.lua and lua/job_places.lua.

    jobs, job_state             hashes  id -> its record, and its state (absent while it waits and never ran)
    job_progress, job_notices   hashes  id -> how far its run is, and what was told of it: beats write only here
    job_line:RANK:KIND:USER     zset    id by number: a line
    job_lines:RANK:KIND         zset    user by ticket: the lines of a rank
    job_due:KIND, job_leases:KIND       zsets of ids by when they are due, or their leases are over (by the server's clock)
    job_done, job_dead          zsets   of ids by when they ended
    job_running:KIND            hash    user -> how many run
    job_waiting:KIND, job_tally:KIND    hashes: how many wait by rank, and stand where
    job_of:USER                 set     of ids: whoever asks for one user's jobs walks no others'
    job_keys, job_kinds, job_means, job_blocks
    job_day_jobs:DAY, job_day_bytes:DAY, job_days       what each user had of a day

What a run costs a job is Python's to judge (`peik.core.job.judged`). So a change is made in two steps: read and judge, then write
what was judged if the job still is at the version that was read. If it is not, somebody else has changed it, and it is judged
anew. Begin and beat are one step each: they judge nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from peik.core.job import Job, JobDraft, Ran
from peik.core.letter import State
from peik.errors import StoreUnavailable
from peik.job_ports import (
    Beaten,
    JobFilter,
    JobRetention,
    JobTally,
    KindTerms,
    Queued,
    Quota,
    RunNews,
    Settled,
    Standing,
)
from peik.store import job_rules
from peik.store.redis import job_finding
from peik.store.redis.bell import Bell
from peik.store.redis.commits import Commits
from peik.store.redis.job_records import PHASES, held_of, record_of, state_of
from peik.store.redis.part_client import PartClient
from peik.store.redis.records import pairs
from peik.store.redis.writer import Done, Writer
from peik.store.telling import Telling

T = TypeVar("T")

_AT_ONCE = 200  # jobs that one call of the server changes: some milliseconds, in which its other clients wait
_ROUNDS_MAX = 100  # of judging anew; in each of them somebody else has changed the job
_QUEUED, _KEY_REUSED = 0, 1  # see job_queue.lua
_COMMIT = ("prelude", "job_names", "job_places", "job_queue", "job_runs", "job_upkeep", "job_forgetting", "commit_end")
_READ = ("prelude", "job_names", "job_reading", "read_end")
_ENDS_NOW, _OURS = 2, 1  # see job_runs.lua


class _Change(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What shall become of a job, and what is answered if it does."""

    after: Job
    answer: T
    run_ms: int | None = None  # of a run that was done
    bytes_used: int = 0
    forgets_progress: bool = False


class RedisJobs:
    """See `peik.job_ports.JobStore`. Made by the store when it is opened."""

    def __init__(self, url: str, bell: Bell, *, node: str) -> None:
        self._client = PartClient(url, commit=_COMMIT, read=_READ)
        self._writer = Writer(self._client, node=node)
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
                _, due_at_ms = job_rules.drafted(draft, at_ms=at_ms)
                row = (len(among) + 1, draft.kind, draft.user, draft.rank, due_at_ms, draft.key, draft.digest)
                rows.append(row)
            return ["job_queue", rows, bounds, job_rules.day_of(at_ms)]

        def news(telling: Telling, done: Done) -> None:
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
        """See `peik.forgetting_ports.Forgetting.drop_jobs`."""
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

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[Job]:
        terms_and_time = (terms.concurrency, terms.per_user, limit, lease_ms, at_ms)
        has_all_due, rows = False, []
        while not has_all_due:  # one call moves so many due ones; what goes first is known when all have joined
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

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[Settled | None]:
        def judge(index: int, job: Job | None) -> _Change[Settled] | None:
            ran = runs[index]
            if job is None or job.state is not State.ACTIVE or job.run != ran.run:
                return None
            return _settled(job, ran, at_ms)

        return await self._judge([one.job_id for one in runs], judge, at_ms=at_ms)

    async def reap(self, *, at_ms: int, limit: int) -> list[Settled]:
        ((ids, is_odd),) = await self._client.read(["job_over", limit])
        if is_odd:
            await self._commits.write("job_right_leases")
        over = await job_finding.those(self._client, [int(one) for one in ids])

        def judge(index: int, job: Job | None) -> _Change[Settled] | None:
            if job is None or job.state is not State.ACTIVE:
                return None
            return _settled(job, job_rules.lost(job), at_ms)

        changes = [(held.version, judge(0, held.job)) for held in over if held is not None]
        # Whoever was changed meanwhile has beaten, ended, or was reaped by another node: nothing to judge anew.
        written = await self._write([(v, one) for v, one in changes if one is not None], at_ms, must_be_over=True)
        return [one.answer for one in written if one is not None]

    # ---- people's ----

    async def job(self, job_id: int) -> Job | None:
        (held,) = await job_finding.those(self._client, [job_id])
        return None if held is None else held.job

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
        return await job_finding.find(self._client, wanted, before=before, limit=limit)

    async def standing(self, job_id: int) -> Standing | None:
        return await job_finding.standing(self._client, job_id)

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> Job:
        def judge(_: int, job: Job | None) -> _Change[Job]:
            after = job_rules.cancelled(job, job_id, reason=reason, at_ms=at_ms)
            return _Change(after=after, answer=after)

        (cancelled,) = await self._judge([job_id], judge, at_ms=at_ms)
        assert cancelled is not None
        return cancelled

    async def retry(self, job_id: int, *, at_ms: int) -> Job:
        def judge(_: int, job: Job | None) -> _Change[Job]:
            after = job_rules.retried(job, job_id)
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
        ((jobs, size_bytes),) = await self._client.read(["job_used", kind, user, job_rules.day_of(at_ms)])
        return jobs, size_bytes

    async def active(self, node: str | None = None) -> list[Job]:
        return [job for job in await job_finding.active(self._client) if node in (None, job.node)]

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        until = (at_ms - retention.completed_ms, at_ms - retention.failed_ms)
        gone, last = 0, _AT_ONCE
        while last == _AT_ONCE and gone < limit:
            last = await self._commits.write("job_clean", *until, job_rules.day_of(at_ms), min(limit - gone, _AT_ONCE))
            gone += last
        return gone

    # ---- read, judge, write ----

    async def _judge(
        self, ids: Sequence[int], judge: Callable[[int, Job | None], _Change[T] | None], *, at_ms: int
    ) -> list[T | None]:
        """Let each job become what `judge` says (by its place among the ids), or leave it alone. What it raises is raised."""
        answers: list[T | None] = [None] * len(ids)
        left = list(range(len(ids)))
        for _ in range(_ROUNDS_MAX):
            changes: list[tuple[int, _Change[T]]] = []
            changed: list[int] = []
            for index, held in zip(
                left, await job_finding.those(self._client, [ids[one] for one in left]), strict=True
            ):
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
            answers += await self._commits.write(
                "job_change", rows, job_rules.day_of(at_ms), must_be_over, news=_of_jobs
            )
        return [one if is_made else None for (_, one), is_made in zip(changes, answers, strict=True)]


def _settled(job: Job, ran: Ran, at_ms: int) -> _Change[Settled]:
    settled = job_rules.settled(job, ran, at_ms=at_ms)
    is_done = settled.job.state is State.COMPLETED
    return _Change(
        after=settled.job,
        answer=settled,
        run_ms=job_rules.run_ms(job, at_ms=at_ms) if is_done else None,
        bytes_used=ran.bytes_used,
    )


def _refuse(how: int, why: list[Any], drafts: Sequence[JobDraft], quotas: Mapping[str, Quota]) -> None:
    """Raises what the rules say to what the script found."""
    draft = drafts[why[0]]
    if how == _KEY_REUSED:
        job_rules.check_same_job(draft, why[1].decode())
    else:
        whose = (draft.kind, draft.user)
        job_rules.check_quotas(quotas, {whose: (why[1], why[2])}, {whose: why[3]})
    raise AssertionError(how, why)


def _of_jobs(telling: Telling, answers: list[int]) -> None:
    if any(answers):
        telling.jobs()


def _user_of(field: str) -> str:
    """Who is meant by "4:kind:user": kinds and users may hold the sign that parts them."""
    size, _, rest = field.partition(":")
    return rest.encode()[int(size) + 1 :].decode()
