"""REST: long jobs. Queueing, looking, waiting, cancelling, running again; and the outside hosts that jobs talk to."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.core.letter import Backoff, Priority, State
from peik.core.trace import current_trace, under
from peik.core.units import rfc3339
from peik.errors import BadInput
from peik.jobs.hosts import Hosts, HostState, HostView
from peik.jobs.model import (
    KIND_PATTERN,
    TIMEOUT_S_MAX,
    USER_CHARS_MAX,
    JobEnd,
    JobFilter,
    JobRecord,
    JobRequest,
    OnDone,
    check_user,
    kind_rate,
    read_notice,
)
from peik.jobs.store import JobTally
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT
from peik.web.operations import CallHeaders, Id, Moment, Object, Told, TraceHeaders, operation
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
    from peik.jobs.service import JobService, JobTurn, KindStanding, Used
    from peik.outbox.service import OutboxService
    from peik.settings.config import Config

# ---- what is answered: one shape for REST, the library and pages. Ids are strings, times are RFC 3339 ----

KindName = Annotated[str, msgspec.Meta(pattern=KIND_PATTERN)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class _Line(msgspec.Struct):
    at: int
    end: str
    run: int
    reason: str | None = None
    node: str | None = None
    trace: str | None = None


_read_history = msgspec.json.Decoder(list[_Line]).decode


class JobRunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job that is over."""

    at: Moment
    end: Annotated[str, msgspec.Meta(extra_json_schema={"enum": [str(end) for end in JobEnd]})]
    run: int
    reason: str | None
    node: str | None
    trace: Annotated[
        str | None, msgspec.Meta(description="The traceback of what the work raised; of the last three such runs.")
    ]

    @classmethod
    def of(cls, line: _Line) -> "JobRunAnswer":
        return cls(
            at=rfc3339(line.at), end=line.end, run=line.run, reason=line.reason, node=line.node, trace=line.trace
        )


class JobNoticeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The chat in which a job is told of."""

    chat_id: str
    bot_id: Annotated[Id | None, msgspec.Meta(description="Null: the only bot, or the usual one.")]
    thread_id: Id | None
    reply_to: Id | None
    language: str | None
    has_progress: bool
    on_done: OnDone
    label: str | None

    @classmethod
    def of(cls, text: str | None) -> "JobNoticeAnswer | None":
        notice = read_notice(text)
        if notice is None:
            return None
        return cls(
            chat_id=str(notice.chat_id),
            bot_id=str(notice.bot_id) if notice.bot_id else None,
            thread_id=None if notice.thread_id is None else str(notice.thread_id),
            reply_to=None if notice.reply_to is None else str(notice.reply_to),
            language=notice.language,
            has_progress=notice.has_progress,
            on_done=notice.on_done,
            label=notice.label,
        )


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    kind: KindName
    user: Annotated[
        str, msgspec.Meta(description="Whose it is: turns and limits go by it. Empty: nobody's in particular.")
    ]
    params: Object
    state: State
    is_cancelling: Annotated[bool, msgspec.Meta(description="It runs, and was told to end.")]
    priority: Annotated[int, msgspec.Meta(ge=-1, le=2)]
    attempts: int
    attempts_made: int
    backoff_ms: int
    backoff: Backoff
    timeout_ms: Annotated[int | None, msgspec.Meta(description="Of one run.")]
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)] | None
    progress_text: str | None
    result: Annotated[Any, msgspec.Meta(description="What its function returned, once it is completed.")]
    failed_reason: str | None
    history: Annotated[list[JobRunAnswer], msgspec.Meta(description="Its runs that are over.")]
    node: Annotated[str | None, msgspec.Meta(description="Where it runs.")]
    notice: Annotated[JobNoticeAnswer | None, msgspec.Meta(description="The chat in which it is told of.")]
    metadata: Object | None
    bytes_used: int
    idempotency_key: str | None
    created_at: Moment
    due_at: Annotated[Moment | None, msgspec.Meta(description="While it is delayed.")]
    started_at: Annotated[Moment | None, msgspec.Meta(description="Of its last run.")]
    ended_at: Moment | None
    position: Annotated[
        int | msgspec.UnsetType | None,
        msgspec.Meta(description="1: it is the next. Where one job is shown, while it waits."),
    ] = msgspec.UNSET
    eta_s: Annotated[
        Seconds | msgspec.UnsetType | None,
        msgspec.Meta(description="About so long until it begins; null: nobody knows."),
    ] = msgspec.UNSET

    @classmethod
    def of(cls, job: JobRecord) -> "JobAnswer":
        """As it is shown in a list."""
        return cls(
            id=str(job.id),
            kind=job.kind,
            user=job.user,
            params=msgspec.Raw(job.params.encode()),
            state=job.state,
            is_cancelling=job.is_cancelling and not job.state.is_final,
            priority=Priority.CRITICAL - job.rank,
            attempts=job.attempts,
            attempts_made=job.attempts_made,
            backoff_ms=job.backoff_ms,
            backoff=job.backoff,
            timeout_ms=job.timeout_ms,
            progress=1.0 if job.state is State.COMPLETED else job.progress,
            progress_text=job.progress_text,
            result=None if job.result is None else msgspec.Raw(job.result.encode()),
            failed_reason=job.failed_reason,
            history=[JobRunAnswer.of(line) for line in _read_history(job.history)],
            node=job.node,
            notice=JobNoticeAnswer.of(job.notice),
            metadata=None if job.metadata is None else msgspec.Raw(job.metadata.encode()),
            bytes_used=job.bytes_used,
            idempotency_key=job.key,
            created_at=rfc3339(job.created_at_ms),
            due_at=rfc3339(job.due_at_ms) if job.state is State.DELAYED else None,
            started_at=rfc3339(job.started_at_ms),
            ended_at=rfc3339(job.ended_at_ms) if job.state.is_final else None,
        )

    @classmethod
    def whole(cls, job: JobRecord, turn: "JobTurn | None") -> "JobAnswer":
        """The same with its place, while it waits."""
        position, eta_s = (None, None) if turn is None else (turn.position, turn.eta_s)
        return msgspec.structs.replace(cls.of(job), position=position, eta_s=eta_s)


class JobsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[JobAnswer]
    next: Annotated[Id | None, msgspec.Meta(description="The cursor of the next page; null at the end.")]


class QueuedJobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    state: State


class QueuedJobsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    ids: list[Id]


class JobCountsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    waiting: int
    delayed: int
    active: int
    completed: int
    failed: int
    cancelled: int


class JobStatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    kinds: dict[str, JobCountsAnswer]

    @classmethod
    def of(cls, tallies: "Mapping[str, JobTally]") -> "JobStatsAnswer":
        counts = {kind: JobCountsAnswer(**msgspec.structs.asdict(tally)) for kind, tally in sorted(tallies.items())}
        return cls(kinds=counts)


class JobKindAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of jobs, and how it is to go. What is said of it holds over all nodes and restarts."""

    kind: KindName
    is_paused: Annotated[bool, msgspec.Meta(description="Nothing of it begins; what runs goes on to its end.")]
    why: str | None
    by: Annotated[str | None, msgspec.Meta(description="Who paused it.")]
    since: Moment | None
    rate: Annotated[str | None, msgspec.Meta(description="How many may begin, as 30/m burst 1; null: no bound.")]
    concurrency: Annotated[
        int | None, msgspec.Meta(description="So many at once; null: the node that answers does none of it.")
    ]
    per_user: int | None
    counts: JobCountsAnswer

    @classmethod
    def of(cls, standing: "KindStanding") -> "JobKindAnswer":
        control, own = standing.control, standing.own
        return cls(
            kind=standing.kind,
            is_paused=control.is_paused,
            why=control.why,
            by=control.by,
            since=rfc3339(control.since_ms),
            rate=None if control.rate is None else str(control.rate),
            concurrency=None if own is None else own.terms.concurrency,
            per_user=None if own is None else own.terms.per_user,
            counts=JobCountsAnswer(**msgspec.structs.asdict(standing.tally)),
        )


class JobKindsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    kinds: list[JobKindAnswer]


class JobsUsedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    kind: KindName
    user: str
    jobs: int
    bytes: int
    jobs_max: Annotated[
        int | None, msgspec.Meta(description="Null: no bound, or the node that answers does not know the kind.")
    ]
    bytes_max: int | None

    @classmethod
    def of(cls, kind: str, user: str, used: "Used") -> "JobsUsedAnswer":
        return cls(kind=kind, user=user, **msgspec.structs.asdict(used))


class HostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An outside host that jobs talk to."""

    host: str
    state: HostState
    why: str | None
    since: Annotated[Moment | None, msgspec.Meta(description="Since when it is left alone.")]
    retry_s: Annotated[Seconds | None, msgspec.Meta(description="Until a job may try.")]

    @classmethod
    def of(cls, host: HostView, now_ms: int) -> "HostAnswer":
        since = None if host.since_s is None else rfc3339(now_ms - int(host.since_s * 1000))
        return cls(host=host.name, state=host.state, why=host.why, since=since, retry_s=host.retry_s)


class HostsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    node: Annotated[str, msgspec.Meta(description="The node that answers: each has met hosts of its own.")]
    hosts: list[HostAnswer]


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
KindInPath = Annotated[str, _KIND]
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


class JobKindChange(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/jobs/kinds/{kind}`. What is not given stays."""

    paused: bool | msgspec.UnsetType = msgspec.UNSET
    why: str | None = None
    rate: str | msgspec.UnsetType | None = msgspec.UNSET


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

    @operation("GET", "/v1/jobs/kinds", name="listJobKinds", tag="jobs", scope="read", is_for_all=True, problems=(503,))
    async def list_kinds(self, caller: Caller) -> JobKindsAnswer:
        """The kinds of jobs: how many stand where, which of them rest, and how fast they may go."""
        return JobKindsAnswer(kinds=[JobKindAnswer.of(one) for one in await self._jobs.kinds()])

    @operation(
        "PATCH",
        "/v1/jobs/kinds/{kind}",
        name="changeJobKind",
        tag="jobs",
        scope="send",
        is_for_all=True,
        problems=(404, 413, 422, 503),
        example={"paused": True, "why": "The site asked us to wait.", "rate": "30/m"},
    )
    async def change_kind(self, caller: Caller, kind: KindInPath, body: JobKindChange) -> JobKindAnswer:
        """Pause or resume a kind on all nodes, or bound how many of it begin; `rate` null or "off" takes the bound away."""
        by, rate = caller.key.name, body.rate
        paced = None if not isinstance(rate, str) else kind_rate(rate)  # refused before anything is done
        standing: KindStanding | None = None
        if rate is not msgspec.UNSET:
            standing = await self._jobs.set_kind_rate(kind, paced, by=by)
        if body.paused is True:
            standing = await self._jobs.pause_kind(kind, by=by, why=body.why)
        elif body.paused is False:
            standing = await self._jobs.resume_kind(kind, by=by)
        if standing is None:
            raise BadInput(code="nothing_to_change", detail="Say paused (true or false), a rate such as 30/m, or both.")
        return JobKindAnswer.of(standing)

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
    def __init__(self, hosts: Hosts, *, clock: "Clock", node: str) -> None:
        self._hosts = hosts
        self._clock = clock
        self._node = node

    @operation("GET", "/v1/hosts", name="listHosts", tag="jobs", scope="read", is_for_all=True)
    async def list_hosts(self, caller: Caller) -> HostsAnswer:
        """The outside hosts that jobs of the node that answers talk to, and which of them are left alone for a while."""
        now_ms = self._clock.wall_ms()
        return HostsAnswer(node=self._node, hosts=[HostAnswer.of(one, now_ms) for one in self._hosts.all()])
