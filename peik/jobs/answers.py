"""Jobs as the world sees them: one shape for REST, the library and pages. Ids are strings, times are RFC 3339."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.core.letter import Backoff, Priority, State
from peik.core.units import rfc3339
from peik.jobs.hosts import HostState, HostView
from peik.jobs.model import KIND_PATTERN, JobEnd, JobRecord, OnDone, read_notice
from peik.web.operations import Id, Moment, Object

if TYPE_CHECKING:
    from peik.jobs.service import JobTurn, Used
    from peik.jobs.store import JobTally

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
