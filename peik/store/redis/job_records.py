"""Jobs as Redis keeps them: a record that is written once, and a state beside it once there is something to say."""

from collections.abc import Sequence
from typing import Any

import msgspec

from peik.core.job import Job, JobDraft
from peik.core.letter import Backoff, State
from peik.store.redis.records import encode

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


class Held(msgspec.Struct, frozen=True):
    """A job as it was read, and the version that a change of it names."""

    job: Job
    version: int


_decode_record = msgspec.msgpack.Decoder(_Record).decode
_decode_state = msgspec.msgpack.Decoder(JobState).decode
_decode_progress = msgspec.msgpack.Decoder(_Progress).decode
_UNTOUCHED = JobState()
_UNKNOWN = _Progress()


def record_of(draft: JobDraft, at_ms: int) -> bytes:
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


def state_of(job: Job) -> JobState:
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


def held_of(row: Sequence[Any]) -> Held:
    """From {id, record, state, progress, what was told, end of the lease}."""
    job_id, record, raw_state, raw_progress, told, ends_at = row
    one = _decode_record(record)
    state = _UNTOUCHED if raw_state is None else _decode_state(raw_state)
    progress = _UNKNOWN if raw_progress is None else _decode_progress(raw_progress)
    job = Job(
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
    return Held(job, state.v)
