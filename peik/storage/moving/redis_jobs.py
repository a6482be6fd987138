"""Jobs into a Redis store and out of it: what stands where is told in peik/storage/redis/jobs.py and lua/job_places.lua."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from peik.core.letter import State
from peik.jobs.model import JobDraft, JobRecord
from peik.storage.moving.records import JOB_LEASE_MS, JobDay, JobMean, MovedJobLine, Record, StoredJob
from peik.storage.moving.redis_rows import RedisBatch
from peik.storage.redis.jobs import JobState, held_of, record_of, state_of
from peik.storage.redis.records import encode
from peik.storage.sqlite.jobs import job_from_row

OF_JOBS = (StoredJob, MovedJobLine, JobDay, JobMean)

_BLOCK = 1000  # ids per counter of what is still here
_UNTOUCHED = JobState()


def _whose(kind: str, user: str) -> str:
    """Kinds and users may hold the sign that parts them; as `whose` in job_names.lua, which counts bytes."""
    return f"{len(kind.encode())}:{kind}:{user}"


def _parted(whose: bytes) -> tuple[str, str]:
    size, _, rest = whose.partition(b":")
    end = int(size)
    return rest[:end].decode(), rest[end + 1 :].decode()


def _line_key(job: JobRecord | StoredJob, user: str) -> str:
    return f"job_line:{job.rank}:{_whose(job.kind, user)}"


# ---- writing ----


def write(batch: RedisBatch, record: Record) -> None:
    match record:
        case StoredJob():
            _job(batch, record)
        case MovedJobLine():
            batch.member(f"job_lines:{record.rank}:{record.kind}", record.user_id, record.ticket)
        case JobDay():
            _day(batch, record)
        case JobMean():
            batch.element("job_kinds", record.kind)
            batch.field("job_means", record.kind, record.mean_run_ms)


def _job(batch: RedisBatch, one: StoredJob) -> None:
    job = job_from_row(msgspec.structs.astuple(one))
    draft = JobDraft(
        kind=job.kind,
        user=job.user,
        params=job.params,
        rank=job.rank,
        attempts=job.attempts,
        backoff_ms=job.backoff_ms,
        backoff=job.backoff,
        timeout_ms=job.timeout_ms,
        key=job.key,
        notice=job.notice,
        metadata=job.metadata,
        bytes_max=job.bytes_max,
    )
    state = state_of(job)
    batch.field("jobs", one.id, record_of(draft, job.created_at_ms))
    batch.count("job_blocks", one.id // _BLOCK)
    batch.element("job_kinds", one.kind)
    if state != _UNTOUCHED:
        batch.field("job_state", one.id, encode(state))
    progress = {name: value for name, value in (("g", one.progress), ("t", one.progress_text)) if value is not None}
    if progress:
        batch.field("job_progress", one.id, encode(progress))
    if one.notice_state is not None:
        batch.field("job_notices", one.id, one.notice_state)
    if one.user_id:  # nobody's are found among all
        batch.element(f"job_of:{one.user_id}", one.id)
    if one.idempotency_key is not None:
        batch.field("job_keys", _whose(one.kind, one.idempotency_key), f"{one.id} {one.digest}")
    _place(batch, one)


def _place(batch: RedisBatch, one: StoredJob) -> None:
    """As `enter_place` in job_places.lua, and `begin` in job_runs.lua."""
    match one.state:
        case State.WAITING:
            batch.member(_line_key(one, one.user_id), one.id, one.place or 0)
            batch.count(f"job_waiting:{one.kind}", one.rank)
        case State.DELAYED:
            batch.member(f"job_due:{one.kind}", f"{one.id:016d}", one.due_at or 0)
        case State.ACTIVE:
            batch.member(f"job_leases:{one.kind}", one.id, one.ends_at or 0)
            batch.count(f"job_running:{one.kind}", one.user_id)
            batch.text("job_lease_ms", JOB_LEASE_MS)
        case _:
            batch.member("job_dead" if one.state == State.FAILED else "job_done", one.id, one.ended_at or 0)
    batch.count(f"job_tally:{one.kind}", one.state)


def _day(batch: RedisBatch, one: JobDay) -> None:
    batch.member("job_days", one.day, one.day)
    for name, count in (("jobs", one.jobs), ("bytes", one.bytes)):
        if count:
            batch.field(f"job_day_{name}:{one.day}", _whose(one.kind, one.user_id), count)


# ---- reading ----


class RedisJobReading:
    """Jobs by their ids, and what is read whole."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def _kinds(self) -> list[str]:
        return sorted(kind.decode() for kind in await self._redis.smembers(self._key("job_kinds")))

    async def states(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for kind in await self._kinds():
            for state, count in (await self._redis.hgetall(self._key(f"job_tally:{kind}"))).items():
                found[state.decode()] += int(count)
        return dict(found)

    async def jobs(self, ids: Sequence[int]) -> list[Record]:
        """Those of these ids that are here."""
        if not ids:
            return []
        pipe = self._redis.pipeline(transaction=False)
        for name in ("jobs", "job_state", "job_progress", "job_notices"):
            pipe.hmget(self._key(name), ids)
        columns = await pipe.execute()
        rows = [(one, *row, None) for one, *row in zip(ids, *columns, strict=True) if row[0] is not None]
        jobs = [held_of(row).job for row in rows]
        leases = await self._scores({job.id: f"job_leases:{job.kind}" for job in jobs if job.state is State.ACTIVE})
        places = await self._scores({job.id: _line_key(job, job.user) for job in jobs if job.state is State.WAITING})
        digests = await self._digests(jobs)
        whole = [msgspec.structs.replace(job, ends_at_ms=leases.get(job.id)) for job in jobs]
        return [_record(job, digests.get(job.id, ""), places.get(job.id)) for job in whole]

    async def _scores(self, key_of: dict[int, str]) -> dict[int, int]:
        """Of members by the sorted sets in which they are. One that has left since its state was read has 0."""
        members: dict[str, list[int]] = defaultdict(list)
        for one, key in key_of.items():
            members[key].append(one)
        pipe = self._redis.pipeline(transaction=False)
        for key, some in members.items():
            pipe.zmscore(self._key(key), some)
        found = await pipe.execute() if members else []
        return {
            one: int(score or 0)
            for some, scores in zip(members.values(), found, strict=True)
            for one, score in zip(some, scores, strict=True)
        }

    async def _digests(self, jobs: Sequence[JobRecord]) -> dict[int, str]:
        keyed = {job.id: _whose(job.kind, job.key) for job in jobs if job.key is not None}
        found = await self._redis.hmget(self._key("job_keys"), list(keyed.values())) if keyed else []
        return {one: raw.decode().partition(" ")[2] for one, raw in zip(keyed, found, strict=True) if raw is not None}

    async def lines(self) -> list[Record]:
        records: list[Record] = []
        for kind in await self._kinds():
            ranks = sorted(int(rank) for rank in await self._redis.hkeys(self._key(f"job_waiting:{kind}")))
            for rank in ranks:
                users = await self._redis.zrange(self._key(f"job_lines:{rank}:{kind}"), 0, -1, withscores=True)
                records += [MovedJobLine(kind, rank, int(ticket), user.decode()) for user, ticket in users]
        return records

    async def days(self) -> list[Record]:
        records: list[Record] = []
        for day in await self._redis.zrange(self._key("job_days"), 0, -1):
            number = int(day)
            jobs = await self._redis.hgetall(self._key(f"job_day_jobs:{number}"))
            used = await self._redis.hgetall(self._key(f"job_day_bytes:{number}"))
            records += [
                JobDay(number, *_parted(whose), int(jobs.get(whose, 0)), int(used.get(whose, 0)))
                for whose in sorted({*jobs, *used})
            ]
        return records

    async def means(self) -> list[Record]:
        found = await self._redis.hgetall(self._key("job_means"))
        return [JobMean(kind.decode(), int(mean)) for kind, mean in sorted(found.items())]


def _record(job: JobRecord, digest: str, place: int | None) -> StoredJob:
    make: Callable[..., StoredJob] = StoredJob
    plain = msgspec.structs.replace(job, state=job.state.value, backoff=job.backoff.value)
    return make(*msgspec.structs.astuple(plain), digest, place)
