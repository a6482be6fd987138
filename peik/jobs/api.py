"""REST: long jobs. Queueing, looking, waiting, cancelling, running again; and the outside hosts that jobs talk to."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.core.letter import Backoff, Priority, State
from peik.core.trace import current_trace, under
from peik.errors import BadInput
from peik.jobs.answers import (
    HostAnswer,
    HostsAnswer,
    JobAnswer,
    JobsAnswer,
    JobStatsAnswer,
    JobsUsedAnswer,
    QueuedJobAnswer,
    QueuedJobsAnswer,
)
from peik.jobs.model import (
    KIND_PATTERN,
    TIMEOUT_S_MAX,
    USER_CHARS_MAX,
    JobRecord,
    JobRequest,
    OnDone,
    check_user,
)
from peik.jobs.store import JobFilter
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT
from peik.web.operations import CallHeaders, Told, TraceHeaders, operation
from peik.web.parse import (
    CURSOR,
    KEY,
    LIMIT,
    MOMENT,
    STATE,
    NumberInPath,
    Param,
    WaitQuery,
    id_of,
    instant_ms,
)

if TYPE_CHECKING:
    from peik.clock import Clock
    from peik.jobs.hosts import Hosts
    from peik.jobs.service import JobService
    from peik.outbox.service import OutboxService
    from peik.settings.config import Config

# ---- which jobs ----


def _kind(text: str, name: str) -> str:
    if re.fullmatch(KIND_PATTERN, text) is None:
        raise BadInput(code="bad_kind", detail="kind names a kind of jobs: 1 to 64 letters, digits and . _ - only.")
    return text


def _user(text: str, name: str) -> str:
    """An empty one is one, too: jobs that belong to nobody in particular."""
    check_user(text)
    return text


_KIND = Param(_kind, {"type": "string", "pattern": KIND_PATTERN}, "Of this kind.")
_USER = Param(_user, {"type": "string", "maxLength": USER_CHARS_MAX})


class JobsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Annotated[str | None, _KIND] = None
    user: Annotated[str | None, _USER.saying("Of this user; empty: of nobody in particular.")] = None
    state: Annotated[State | None, STATE.saying("Where they stand.")] = None
    since: Annotated[int | None, MOMENT.saying("Queued then or later; RFC 3339 or Unix seconds.")] = None
    cursor: Annotated[int | None, CURSOR.saying("The next of the page before.")] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT

    def wanted(self) -> JobFilter:
        return JobFilter(kind=self.kind, user=self.user, state=self.state, since_ms=self.since)


class JobsUsedQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Annotated[str, _KIND]
    user: Annotated[str, _USER.saying("By this user; left out: by nobody in particular.")] = ""


# ---- bodies ----


class JobHeaders(CallHeaders, frozen=True, kw_only=True):
    idempotency_key: Annotated[
        str | None, KEY.saying("A repeat with the same key and kind, while the job is kept, is the same job.")
    ] = None


class NoticeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A chat in which a job is told of, in one message. Ids are numbers, or strings as they are shown."""

    chat_id: int | str
    bot_id: int | str | None = None
    thread_id: int | str | None = None
    reply_to: int | str | None = None
    language: str | None = None
    has_progress: bool = True
    on_done: OnDone = OnDone.EDIT
    label: str | None = None


class JobBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/jobs`. What is left out is as its kind says, where the node that is asked knows the kind."""

    kind: str
    params: dict[str, Any] = {}
    user: int | str = ""
    priority: int = Priority.NORMAL.value
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    run_at: int | float | str | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None
    notice: NoticeBody | None = None


class JobBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[JobBody]


_DOWNLOAD = {"kind": "download", "params": {"url": "https://example.com/film.mp4"}, "user": "42"}


class JobApi:
    """Jobs belong to no bot, even if one tells of them: all of this is for keys without bot_ids."""

    def __init__(self, jobs: "JobService", letters: "OutboxService", *, config: "Config") -> None:
        self._jobs = jobs
        self._letters = letters
        self._config = config

    # ---- queueing ----

    @operation(
        "POST",
        "/v1/jobs",
        name="queueJob",
        tag="jobs",
        scope="send",
        is_for_all=True,
        is_traffic=True,
        answers={200: JobAnswer, 202: QueuedJobAnswer},
        problems=(404, 409, 413, 422, 503),
        example=_DOWNLOAD,
        body_bytes_max=None,
    )
    async def queue(
        self, caller: Caller, body: JobBody, query: WaitQuery, headers: JobHeaders
    ) -> Told[JobAnswer | QueuedJobAnswer]:
        """Queue a job durably; with `?wait=10s`, answer with what became of it."""
        wanted = self._request(body, key=headers.idempotency_key)
        with under(headers.trace or current_trace()):
            queued = await self._jobs.queue_one(wanted)
        if not query.wait:
            return Told(QueuedJobAnswer(id=str(queued.job_id), state=queued.state), 202)
        job = await self._jobs.wait(queued.job_id, self._bounded(query.wait))
        return Told(await self._whole(job), 200 if job.state.is_final else 202)

    @operation(
        "POST",
        "/v1/jobs/batch",
        name="queueJobs",
        tag="jobs",
        scope="send",
        is_for_all=True,
        is_traffic=True,
        status=202,
        problems=(404, 409, 413, 422, 503),
        example={"jobs": [_DOWNLOAD]},
        body_bytes_max=None,
    )
    async def queue_batch(self, caller: Caller, body: JobBatchBody, headers: TraceHeaders) -> QueuedJobsAnswer:
        """Queue many jobs in one commit, all or none."""
        wanted = [self._request(one) for one in body.jobs]
        with under(headers.trace or current_trace()):
            queued = await self._jobs.queue(wanted)
        return QueuedJobsAnswer(ids=[str(one.job_id) for one in queued])

    def _request(self, body: JobBody, *, key: str | None = None) -> JobRequest:
        """A key in the body wins over the header. Raises BadInput, and NotFound for a bot that is not there: nobody would ever
        hear of the job."""
        notice = None if body.notice is None else _notice_of(body.notice)
        if notice is not None:
            self._letters.bot(notice["bot_id"] or None)
        return JobRequest(
            kind=body.kind,
            params=body.params,
            user=str(body.user),
            priority=body.priority,
            attempts=body.attempts,
            backoff_ms=body.backoff_ms,
            backoff=body.backoff,
            timeout_s=_timeout_s(body.timeout_ms),
            run_at_ms=instant_ms(body.run_at, "run_at"),
            key=body.idempotency_key or key,
            notice=notice,
            metadata=body.metadata,
        )

    def _bounded(self, wait_s: float) -> float:
        return min(wait_s, self._config.wait_max)

    async def _whole(self, job: JobRecord) -> JobAnswer:
        return JobAnswer.whole(job, await self._jobs.place(job.id) if job.state is State.WAITING else None)

    # ---- looking ----

    @operation("GET", "/v1/jobs", name="listJobs", tag="jobs", scope="read", is_for_all=True, problems=(422, 503))
    async def list_jobs(self, caller: Caller, query: JobsQuery) -> JobsAnswer:
        """Jobs by kind, user, state and time, the newest first."""
        found = await self._jobs.find(query.wanted(), before=query.cursor, limit=query.limit)
        cursor = str(found[-1].id) if len(found) == query.limit else None
        return JobsAnswer(jobs=[JobAnswer.of(job) for job in found], next=cursor)

    @operation("GET", "/v1/jobs/stats", name="getJobStats", tag="jobs", scope="read", is_for_all=True, problems=(503,))
    async def get_stats(self, caller: Caller) -> JobStatsAnswer:
        """How many jobs of each kind stand where."""
        return JobStatsAnswer.of(await self._jobs.tallies())

    @operation(
        "GET", "/v1/jobs/used", name="getJobsUsed", tag="jobs", scope="read", is_for_all=True, problems=(422, 503)
    )
    async def get_used(self, caller: Caller, query: JobsUsedQuery) -> JobsUsedAnswer:
        """What a user has had of a kind of jobs today (UTC), and what the day allows."""
        return JobsUsedAnswer.of(query.kind, query.user, await self._jobs.used_today(query.kind, query.user))

    @operation(
        "GET", "/v1/jobs/{job_id}", name="getJob", tag="jobs", scope="read", is_for_all=True, problems=(404, 422, 503)
    )
    async def get_job(self, caller: Caller, job_id: NumberInPath, query: WaitQuery) -> JobAnswer:
        """One job: how far it is, its place while it waits, and every run; with `?wait=10s`, once it has ended."""
        return await self._whole(await self._jobs.wait(job_id, self._bounded(query.wait)))

    # ---- changing ----

    @operation(
        "DELETE",
        "/v1/jobs/{job_id}",
        name="cancelJob",
        tag="jobs",
        scope="send",
        is_for_all=True,
        problems=(404, 409, 422, 503),
    )
    async def cancel(self, caller: Caller, job_id: NumberInPath) -> JobAnswer:
        """Cancel a job. One that runs is told to end, and ends soon after: `is_cancelling` is true until then."""
        return await self._whole(await self._jobs.cancel(job_id))

    @operation(
        "POST",
        "/v1/jobs/{job_id}/retry",
        name="retryJob",
        tag="jobs",
        scope="send",
        is_for_all=True,
        status=202,
        problems=(404, 409, 422, 503),
    )
    async def retry(self, caller: Caller, job_id: NumberInPath) -> JobAnswer:
        """Run a failed or cancelled job again, with all of its attempts."""
        return await self._whole(await self._jobs.retry(job_id))


def _notice_of(body: NoticeBody) -> dict[str, Any]:
    given = msgspec.structs.asdict(body)
    return given | {name: id_of(given[name], name) for name in ("bot_id", "thread_id", "reply_to")}


def _timeout_s(timeout_ms: int | None) -> float | None:
    if timeout_ms is None:
        return None
    most_ms = int(TIMEOUT_S_MAX * 1000)
    if not 1 <= timeout_ms <= most_ms:
        raise BadInput(code="bad_timeout_ms", detail=f"timeout_ms must be between 1 and {most_ms}.")
    return timeout_ms / 1000


class HostApi:
    def __init__(self, hosts: "Hosts", *, clock: "Clock", node: str) -> None:
        self._hosts = hosts
        self._clock = clock
        self._node = node

    @operation("GET", "/v1/hosts", name="listHosts", tag="jobs", scope="read", is_for_all=True)
    async def list_hosts(self, caller: Caller) -> HostsAnswer:
        """The outside hosts that jobs of the node that answers talk to, and which of them are left alone for a while."""
        now_ms = self._clock.wall_ms()
        return HostsAnswer(node=self._node, hosts=[HostAnswer.of(one, now_ms) for one in self._hosts.all()])
