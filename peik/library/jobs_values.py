"""What the library answers with about jobs. All of it is read from the words of REST, also in this process, so that both
counters cannot but say the same."""

import datetime
from typing import Any

import msgspec

from peik.core.host_breaker import HostState
from peik.core.job import End
from peik.core.job_notice import OnDone
from peik.core.letter import Backoff, State


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is durable: it will be done, or its failure will be seen, through any crash from here on. `state` is as it was
    at that moment."""

    id: str
    state: State


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job that is over."""

    at: datetime.datetime
    end: End
    run: int
    reason: str | None = None  # as a sentence
    node: str | None = None
    trace: str | None = None  # the traceback of what the work raised; of the last three such runs


class NoticeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where people are told of a job."""

    chat_id: int | str
    bot_id: int | None = None  # None: the only one there is
    thread_id: int | None = None
    reply_to: int | None = None
    language: str | None = None
    has_progress: bool = True
    on_done: OnDone = OnDone.EDIT
    label: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.chat_id, str) and self.chat_id.removeprefix("-").isdigit():
            msgspec.structs.force_setattr(self, "chat_id", int(self.chat_id))


class JobInfo(QueuedJob, frozen=True, kw_only=True):
    """A job with all that is known of it."""

    kind: str
    user: str
    params: dict[str, Any]
    is_cancelling: bool  # it runs, and was told to end
    priority: int
    attempts: int
    attempts_made: int
    backoff_ms: int
    backoff: Backoff
    timeout_ms: int | None = None
    progress: float | None = None  # 0 to 1
    progress_text: str | None = None
    result: Any = None  # what its function returned
    failed_reason: str | None = None  # of its last run that did not end well
    history: tuple[JobRun, ...]
    node: str | None = None  # that runs it, or ran it last
    notice: NoticeInfo | None = None
    metadata: dict[str, Any] | None = None
    bytes_used: int
    idempotency_key: str | None = None
    created_at: datetime.datetime
    due_at: datetime.datetime | None = None  # while it is delayed
    started_at: datetime.datetime | None = None  # of its last run
    ended_at: datetime.datetime | None = None
    position: int | None = None  # while it waits, where a single job was asked for; 1: it is the next
    eta_s: float | None = None  # until it begins; None: nobody knows yet how long such jobs take

    @property
    def is_done(self) -> bool:
        return self.state is State.COMPLETED


class JobPlace(msgspec.Struct, frozen=True, kw_only=True):
    """When a waiting job will begin, as far as one can tell."""

    position: int  # 1: it is the next
    eta_s: float | None = None  # None: nobody knows yet how long such jobs take


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a kind stand where."""

    waiting: int = 0
    delayed: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class JobsUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has had of a kind today (UTC), and what the day allows. None: no bound, or the Peik that was asked does not
    know the kind."""

    kind: str
    user: str
    jobs: int
    bytes: int
    jobs_max: int | None = None
    bytes_max: int | None = None


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An outside host that jobs talk to, as the Peik that was asked sees it."""

    host: str
    state: HostState
    why: str | None = None
    since: datetime.datetime | None = None
    retry_s: float | None = None  # until a job may try


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    jobs: tuple[JobInfo, ...]
    next: str | None = None


class _Counted(msgspec.Struct):
    kinds: dict[str, JobCounts]


class _Hosts(msgspec.Struct):
    hosts: list[HostInfo]


# Lax, because REST writes ids as strings.
decode_queued = msgspec.json.Decoder(QueuedJob, strict=False).decode
decode_job = msgspec.json.Decoder(JobInfo, strict=False).decode
decode_jobs = msgspec.json.Decoder(JobPage, strict=False).decode
decode_counted = msgspec.json.Decoder(_Counted).decode
decode_used = msgspec.json.Decoder(JobsUsed).decode
decode_hosts = msgspec.json.Decoder(_Hosts).decode
