"""What becomes of a job, the same on every store: pure decisions on values, made between a read and a write."""

from collections.abc import Mapping, Sequence

import msgspec

from peik.core.job import End, Job, JobDraft, Ran, cut, judged, with_line
from peik.core.letter import State
from peik.errors import Conflict, NotFound
from peik.job_ports import Quota, Settled

DAY_MS = 86_400_000
LOST_REASON = "Its worker gave no sign of life any more."


# ---- queueing ----


def drafted(draft: JobDraft, *, at_ms: int) -> tuple[State, int | None]:
    """The first state of a job, and when it is due if it is delayed."""
    if draft.run_at_ms is not None and draft.run_at_ms > at_ms:
        return State.DELAYED, draft.run_at_ms
    return State.WAITING, None


def day_of(at_ms: int) -> int:
    """Days since 1970, in UTC: what quotas go by."""
    return at_ms // DAY_MS


def check_same_job(draft: JobDraft, digest: str) -> None:
    if digest != draft.digest:
        raise Conflict(
            code="idempotency_key_reused",
            detail=f"The key {draft.key!r} was used for another job of {draft.kind}. Use a new key for a new job.",
        )


def check_quotas(
    quotas: Mapping[str, Quota], used: Mapping[tuple[str, str], tuple[int, int]], new: Mapping[tuple[str, str], int]
) -> None:
    """`used`: by kind and user the jobs and bytes of the day; `new`: how many jobs come. Raises Conflict (code `quota`)."""
    for (kind, user), count in new.items():
        quota = quotas.get(kind)
        if quota is None or count == 0:
            continue
        jobs, size_bytes = used.get((kind, user), (0, 0))
        if quota.jobs is not None and jobs + count > quota.jobs:
            raise Conflict(
                code="quota",
                detail=f"{_whose(user)} may ask for {quota.jobs} jobs of {kind} a day (UTC), and has asked for {jobs}.",
            )
        if quota.bytes is not None and size_bytes >= quota.bytes:
            raise Conflict(
                code="quota",
                detail=f"{_whose(user)} may use {quota.bytes} bytes with {kind} a day (UTC), and has used {size_bytes}.",
            )


def _whose(user: str) -> str:
    return f"User {user}" if user else "Nobody in particular"


# ---- runs ----


def begun(job: Job, *, node: str, ends_at_ms: int, at_ms: int) -> Job:
    """A waiting job with its next run."""
    return msgspec.structs.replace(
        job,
        state=State.ACTIVE,
        run=job.run + 1,
        node=node,
        ends_at_ms=ends_at_ms,
        started_at_ms=max(at_ms, job.created_at_ms),  # whoever queued it may have a clock that is ahead
        progress=None,
        progress_text=None,
    )


def lost(job: Job) -> Ran:
    """The run of a job whose lease is over, as its worker would have told it."""
    return Ran(job_id=job.id, run=job.run, end=End.LOST, reason=LOST_REASON)


def settled(job: Job, ran: Ran, *, at_ms: int) -> Settled:
    """An active job after its run. One that is delayed until now or earlier waits: it joins the end of its line."""
    verdict = judged(job, ran, at_ms=at_ms)
    state, due_at_ms = verdict.state, verdict.due_at_ms
    if state is State.DELAYED and (due_at_ms is None or due_at_ms <= at_ms):
        state = State.WAITING
    reason = cut(verdict.reason)
    if reason is None and job.is_cancelling:
        reason = job.failed_reason  # of who cancelled it
    after = msgspec.structs.replace(
        job,
        state=state,
        attempts_made=verdict.attempts_made,
        due_at_ms=due_at_ms if state is State.DELAYED else None,
        node=None,
        ends_at_ms=None,
        is_cancelling=False,
        result=ran.result if state is State.COMPLETED else None,
        failed_reason=None if state is State.COMPLETED else reason,
        history=with_line(job.history, ran, node=job.node, at_ms=at_ms),
        bytes_used=job.bytes_used + ran.bytes_used,
        ended_at_ms=at_ms if state.is_final else None,
    )
    return Settled(job=after, verdict=verdict)


def run_ms(job: Job, *, at_ms: int) -> int:
    """How long the last run of a job took. A clock that was put back makes no run shorter than nothing."""
    return max(at_ms - (job.started_at_ms or at_ms), 0)


def new_mean_ms(mean_ms: int | None, last_ms: int) -> int:
    """The mean of the last runs that were done: each counts an eighth, and those before it less and less."""
    return last_ms if mean_ms is None else round(mean_ms + (last_ms - mean_ms) / 8)


# ---- people ----


def cancelled(job: Job | None, job_id: int, *, reason: str, at_ms: int) -> Job:
    """A job after somebody wanted it to end. Raises NotFound, and Conflict if it has ended."""
    job = known(job, job_id)
    if job.state.is_final:
        raise Conflict(code="already_ended", detail=f"Job {job_id} has ended already: it is {job.state}.")
    if job.state is State.ACTIVE:
        return msgspec.structs.replace(job, is_cancelling=True, failed_reason=cut(reason))
    return msgspec.structs.replace(
        job, state=State.CANCELLED, due_at_ms=None, failed_reason=cut(reason), ended_at_ms=at_ms
    )


def retried(job: Job | None, job_id: int) -> Job:
    """A failed or cancelled job as it waits again. Its runs go on being numbered: an old worker stays locked out."""
    job = known(job, job_id)
    if job.state not in (State.FAILED, State.CANCELLED):
        raise Conflict(
            code="not_dead", detail=f"Job {job_id} is {job.state}; only failed and cancelled ones are run again."
        )
    return msgspec.structs.replace(
        job,
        state=State.WAITING,
        attempts_made=0,
        progress=None,
        progress_text=None,
        failed_reason=None,
        started_at_ms=None,
        ended_at_ms=None,
    )


def known(job: Job | None, job_id: int) -> Job:
    if job is None:
        raise NotFound(code="unknown_job", detail=f"There is no job {job_id} here (any more).")
    return job


def turns_ahead(*, better: int, own: int, earlier: Sequence[int], later: Sequence[int]) -> int:
    """How many go before a job with `own` before it in its line, if each line gives one in turn: `better` of better ranks;
    `earlier` and `later` are the lengths of the other lines of its rank, by whether their tickets come before its own."""
    return better + own + sum(min(one, own + 1) for one in earlier) + sum(min(one, own) for one in later)
