"""Jobs of a `peik serve` far away, asked over REST: queued and looked at there, done by programs on its store."""

from typing import TYPE_CHECKING, Any

import msgspec

from peik.errors import BadInput
from peik.job_ports import JobFilter
from peik.jobs.desk import JobRequest
from peik.library.jobs_kinds import GivenKind
from peik.library.jobs_values import (
    HostInfo,
    JobCounts,
    JobInfo,
    JobPage,
    JobsUsed,
    QueuedJob,
    decode_counted,
    decode_hosts,
    decode_job,
    decode_jobs,
    decode_queued,
    decode_used,
)
from peik.library.remote import encode, read, with_query
from peik.shown import rfc3339

if TYPE_CHECKING:
    from peik.library.remote import RemoteCounter


class RemoteJobs:
    def __init__(self, counter: "RemoteCounter") -> None:
        self._counter = counter

    def work(self, kind: GivenKind) -> None:
        raise BadInput(
            code="jobs_need_open",
            detail=f"Jobs of the kind {kind.kind.name} are done by a program on Peik.open. From here they are queued.",
        )

    async def queue(self, request: JobRequest) -> QueuedJob:
        return read(decode_queued, await self._counter.ask("POST", "/v1/jobs", body=_body(request)))

    async def get(self, job_id: int) -> JobInfo:
        return read(decode_job, await self._counter.ask("GET", f"/v1/jobs/{job_id}"))

    async def wait(self, job_id: int, timeout_s: float) -> JobInfo:
        return await self._counter.watch(
            f"/v1/jobs/{job_id}", decode_job, is_over=lambda job: job.state.is_final, timeout_s=timeout_s
        )

    async def find(self, wanted: JobFilter, *, before: int | None, limit: int) -> JobPage:
        told = {
            "kind": wanted.kind,
            "user": wanted.user,
            "state": wanted.state,
            "since": rfc3339(wanted.since_ms),
            "cursor": before,
            "limit": limit,
        }
        query = {name: str(value) for name, value in told.items() if value is not None}
        return read(decode_jobs, await self._counter.ask("GET", with_query("/v1/jobs", query)))

    async def cancel(self, job_id: int) -> JobInfo:
        return read(decode_job, await self._counter.ask("DELETE", f"/v1/jobs/{job_id}"))

    async def retry(self, job_id: int) -> JobInfo:
        return read(decode_job, await self._counter.ask("POST", f"/v1/jobs/{job_id}/retry"))

    async def counts(self) -> dict[str, JobCounts]:
        return read(decode_counted, await self._counter.ask("GET", "/v1/jobs/stats")).kinds

    async def used(self, kind: str, user: str) -> JobsUsed:
        path = with_query("/v1/jobs/used", {"kind": kind, "user": user})
        return read(decode_used, await self._counter.ask("GET", path))

    async def hosts(self) -> list[HostInfo]:
        return read(decode_hosts, await self._counter.ask("GET", "/v1/hosts")).hosts


def _body(request: JobRequest) -> bytes:
    """`POST /v1/jobs` of a request: only what was given."""
    told: dict[str, Any] = {
        "kind": request.kind,
        "params": _raw(request.params, "params"),
        "user": request.user,
        "priority": request.priority,
        "attempts": request.attempts,
        "backoff_ms": request.backoff_ms,
        "backoff": request.backoff,
        "timeout_ms": None if request.timeout_s is None else max(int(request.timeout_s * 1000), 1),
        "run_at": rfc3339(request.run_at_ms),
        "idempotency_key": request.key,
        "metadata": None if request.metadata is None else _raw(request.metadata, "metadata"),
        "notice": None if request.notice is None else _raw(request.notice, "notice"),
    }
    return encode({name: value for name, value in told.items() if value is not None})


def _raw(value: object, name: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name} cannot be written as JSON: {error}.") from None
