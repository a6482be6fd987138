"""Jobs as the world sees them: one shape for REST and the library. Ids are strings, times are RFC 3339."""

from collections.abc import Mapping

import msgspec

from peik.core.letter import Priority, State
from peik.core.units import rfc3339
from peik.errors import NotFound
from peik.jobs.hosts import HostView
from peik.jobs.model import JobRecord, read_notice
from peik.jobs.service import JobService, JobTurn, Used
from peik.jobs.store import JobTally


class _Line(msgspec.Struct):
    at: int
    end: str
    run: int
    reason: str | None = None
    node: str | None = None
    trace: str | None = None


_read_history = msgspec.json.Decoder(list[_Line]).decode


def job_view(job: JobRecord) -> dict[str, object]:
    """A job as it is shown in a list."""
    return {
        "id": str(job.id),
        "kind": job.kind,
        "user": job.user,
        "params": _raw(job.params),
        "state": job.state,
        "is_cancelling": job.is_cancelling and not job.state.is_final,
        "priority": Priority.CRITICAL - job.rank,
        "attempts": job.attempts,
        "attempts_made": job.attempts_made,
        "backoff_ms": job.backoff_ms,
        "backoff": job.backoff,
        "timeout_ms": job.timeout_ms,
        "progress": 1.0 if job.state is State.COMPLETED else job.progress,
        "progress_text": job.progress_text,
        "result": _raw(job.result),
        "failed_reason": job.failed_reason,
        "history": [{**msgspec.structs.asdict(line), "at": rfc3339(line.at)} for line in _read_history(job.history)],
        "node": job.node,
        "notice": _notice_view(job.notice),
        "metadata": _raw(job.metadata),
        "bytes_used": job.bytes_used,
        "idempotency_key": job.key,
        "created_at": rfc3339(job.created_at_ms),
        "due_at": rfc3339(job.due_at_ms) if job.state is State.DELAYED else None,
        "started_at": rfc3339(job.started_at_ms),
        "ended_at": rfc3339(job.ended_at_ms) if job.state.is_final else None,
    }


async def whole_view(jobs: JobService, job: JobRecord) -> dict[str, object]:
    """The same with its place, while it waits."""
    turn: JobTurn | None = None
    if job.state is State.WAITING:
        try:
            turn = await jobs.place(job.id)
        except NotFound:
            turn = None  # it ended and left just now
    position, eta_s = (None, None) if turn is None else (turn.position, turn.eta_s)
    return {**job_view(job), "position": position, "eta_s": eta_s}


def page_view(jobs: list[JobRecord], limit: int) -> dict[str, object]:
    return {
        "jobs": [job_view(job) for job in jobs],
        "next": str(jobs[-1].id) if len(jobs) == limit else None,
    }


def stats_view(tallies: Mapping[str, JobTally]) -> dict[str, object]:
    return {"kinds": {kind: msgspec.structs.asdict(tally) for kind, tally in sorted(tallies.items())}}


def used_view(kind: str, user: str, used: Used) -> dict[str, object]:
    return {"kind": kind, "user": user, **msgspec.structs.asdict(used)}


def host_view(host: HostView, now_ms: int) -> dict[str, object]:
    return {
        "host": host.name,
        "state": host.state,
        "why": host.why,
        "since": None if host.since_s is None else rfc3339(now_ms - int(host.since_s * 1000)),
        "retry_s": host.retry_s,
    }


def _notice_view(text: str | None) -> dict[str, object] | None:
    notice = read_notice(text)
    if notice is None:
        return None
    shown = {**msgspec.structs.asdict(notice), "bot_id": notice.bot_id or None}
    for name in ("chat_id", "bot_id", "thread_id", "reply_to"):
        shown[name] = None if shown[name] is None else str(shown[name])
    return shown


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
