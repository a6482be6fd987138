"""The part of the library that is about jobs: long work, done in turn, in this program or in another on the same store."""

import datetime
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from peik.client.calls import When, instant_ms
from peik.core.letter import Backoff, Priority, State
from peik.core.units import parse_duration_s, parse_size_bytes
from peik.errors import BadInput
from peik.jobs.api import HostApi, JobApi, JobKindChange, JobsQuery, JobsUsedQuery
from peik.jobs.hosts import HostState
from peik.jobs.job import BlockingJob, Job
from peik.jobs.model import ATTEMPTS_MAX, BACKOFF_MS_MAX, TIMEOUT_S_MAX, JobEnd, JobRequest, OnDone, noted
from peik.jobs.store import JobKind, JobKinds, KindTerms, Quota, Where

# What the library answers with about jobs. All of it is read from the words of REST, also in this process, so that
# both transports cannot but say the same.


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is durable: it will be done, or its failure will be seen, through any crash from here on. `state` is as it was
    at that moment."""

    id: str
    state: State


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job that is over."""

    at: datetime.datetime
    end: JobEnd
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


class JobKindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of jobs, and how it is to go: over all programs on the store, and through restarts."""

    kind: str
    is_paused: bool
    why: str | None = None
    by: str | None = None
    since: datetime.datetime | None = None
    rate: str | None = None  # how many may begin; None: no bound
    concurrency: int | None = None  # None: the Peik that was asked does none of it
    per_user: int | None = None
    counts: JobCounts


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


class _Kinds(msgspec.Struct):
    kinds: list[JobKindInfo]


class _Hosts(msgspec.Struct):
    hosts: list[HostInfo]


# Kinds of jobs as a program declares them. What it leaves open the settings say, once Peik is opened.


if TYPE_CHECKING:
    from peik.settings.config import Config

Work = Callable[..., Any]
_USUAL = KindTerms(concurrency=1, per_user=1)


class GivenKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind, and what it says of its terms."""

    kind: JobKind
    concurrency: int | None
    per_user: int | None

    def settled(self, config: "Config") -> JobKind:
        terms = KindTerms(
            concurrency=self.concurrency or config.jobs_at_once, per_user=self.per_user or config.jobs_per_user
        )
        return msgspec.structs.replace(self.kind, terms=terms)


def given_kind(
    name: str,
    work: Work,
    *,
    concurrency: int | None,
    per_user: int | None,
    timeout: float | str | None,
    attempts: int,
    backoff_ms: int,
    backoff: str,
    where: str | None,
    folder: int | str | None,
    jobs_a_day: int | None,
    bytes_a_day: int | str | None,
) -> GivenKind:
    """Raises BadInput for what cannot be."""
    timeout_s = _measured("timeout", timeout, parse_duration_s)
    folder_bytes = _measured("folder", folder, parse_size_bytes)
    day_bytes = _measured("bytes_a_day", bytes_a_day, parse_size_bytes)
    bounds: tuple[tuple[str, float | None, float, float], ...] = (
        ("concurrency", concurrency, 1, 1_000_000),
        ("per_user", per_user, 1, 1_000_000),
        ("attempts", attempts, 1, ATTEMPTS_MAX),
        ("backoff_ms", backoff_ms, 0, BACKOFF_MS_MAX),
        ("timeout", timeout_s, 0.001, TIMEOUT_S_MAX),
        ("folder", folder_bytes, 1, 2**60),
        ("jobs_a_day", jobs_a_day, 1, 2**53),
        ("bytes_a_day", day_bytes, 1, 2**60),
    )
    for what, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise BadInput(code=f"bad_{what}", detail=f"{what} must be between {least:g} and {most:g}.")
    try:
        waits = Backoff(backoff)
    except ValueError:
        raise BadInput(code="bad_backoff", detail=f"backoff is one of {', '.join(Backoff)}.") from None
    kind = JobKind(
        name=name,
        work=work,
        where=_where(work, where),
        terms=_USUAL,
        attempts=attempts,
        backoff_ms=backoff_ms,
        backoff=waits,
        timeout_s=timeout_s,
        folder_bytes=0 if folder_bytes is None else int(folder_bytes),
        quota=Quota(jobs=jobs_a_day, bytes=None if day_bytes is None else int(day_bytes)),
    )
    JobKinds().add(kind)  # raises if it cannot be called so
    return GivenKind(kind=kind, concurrency=concurrency, per_user=per_user)


def _where(work: Work, given: str | None) -> Where:
    """An async function runs beside everything else. A plain one would stop everything else, so it says where it may."""
    if not callable(work):
        raise BadInput(code="bad_work", detail="A kind of jobs is a function: async def download(job).")
    call = getattr(work, "__call__", None)  # noqa: B004  an object may be one, too
    is_async = inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(call)
    if given is None and not is_async:
        raise BadInput(
            code="where",
            detail='A plain function says where it runs: where="process" (it can be killed) or where="thread". An async '
            "function runs here by itself.",
        )
    try:
        where = Where(given or Where.LOOP)
    except ValueError:
        raise BadInput(code="where", detail=f"where is one of {', '.join(Where)}.") from None
    if is_async != (where is Where.LOOP):
        raise BadInput(
            code="where", detail='An async function runs in the "loop", a plain one in a "thread" or a "process".'
        )
    if where is Where.PROCESS:
        from peik.jobs.processes import check_work  # with all that processes need: who only asks need not load it

        check_work(work)
    return where


def _measured(name: str, given: float | str | None, parse: Callable[[str], float]) -> float | None:
    try:
        return parse(given) if isinstance(given, str) else given
    except ValueError as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name}: {error}.") from None


if TYPE_CHECKING:
    from peik.client.transport import Transport

PAGE_JOBS = 200
WAIT_S = 30.0

JobId = QueuedJob | Job | BlockingJob | str | int
AnyWork = TypeVar("AnyWork", bound=Work)
_Backoff = Backoff | Literal["exponential", "fixed"]


class JobCalls:
    """Long jobs: fair turns, limits, retries, folders of their own. See docs/jobs.md."""

    def _open_transport(self) -> "Transport":
        raise NotImplementedError

    def _works(self, kind: GivenKind) -> None:
        raise NotImplementedError

    # ---- doing ----

    def job(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per_user: int | None = None,
        timeout: float | str | None = None,
        attempts: int = 3,
        backoff_ms: int = 5000,
        backoff: _Backoff = "exponential",
        where: Where | Literal["loop", "thread", "process"] | None = None,
        folder: int | str | None = None,
        jobs_a_day: int | None = None,
        bytes_a_day: int | str | None = None,
    ) -> Callable[[AnyWork], AnyWork]:
        """Register a function that does jobs of a kind: `@peik.job("download", timeout="10m")` on `async def download(job)`.

        At most `concurrency` of them run at once, and `per_user` for one user, over all programs on the store; by default as
        the settings `jobs` and `jobs_per_user` say. A run that takes longer than `timeout` (seconds, or "10m") is ended. One
        that fails comes again, `attempts` times in all, after `backoff_ms`, then doubling. A plain function says `where`:
        "process" (of its own; it is killed for real) or "thread" (it can only be asked to end). `folder` ("500M") is what a job
        may keep on disk; `jobs_a_day` and `bytes_a_day` are what one user may have in a day.
        """

        def register(work: AnyWork) -> AnyWork:
            kind = given_kind(
                name,
                work,
                concurrency=concurrency,
                per_user=per_user,
                timeout=timeout,
                attempts=attempts,
                backoff_ms=backoff_ms,
                backoff=backoff,
                where=where,
                folder=folder,
                jobs_a_day=jobs_a_day,
                bytes_a_day=bytes_a_day,
            )
            self._works(kind)
            return work

        return register

    # ---- queueing ----

    async def queue_job(
        self,
        kind: str,
        /,
        *,
        user: str | int | None = None,
        chat_id: int | str | None = None,
        bot_id: int | None = None,
        thread_id: int | None = None,
        reply_to: int | None = None,
        language: str | None = None,
        has_progress: bool = True,
        on_done: Literal["edit", "delete", "leave"] = "edit",
        label: str | None = None,
        key: str | None = None,
        priority: Priority | int = Priority.NORMAL,
        attempts: int | None = None,
        backoff_ms: int | None = None,
        backoff: _Backoff | None = None,
        timeout: float | None = None,
        run_at: When | None = None,
        metadata: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> QueuedJob:
        """Queue a job durably: `await peik.queue_job("download", user=user_id, chat_id=chat_id, url=url)`. All other names are
        parameters of the job; those that are called like something here go into `params`.

        Turns and limits go by `user`; those that are nobody's share one turn. With a `chat_id`, people are told there in one
        message how it goes (from `bot_id`, in `language`, with `label` above it), and what the job sends goes there; when it is
        done the message says so ("edit"), is deleted, or is left as it is. A repeat with the same `key` is the same job. What
        is not given is as the kind says, where the Peik that is asked knows it. Raises Conflict "quota" if the user's day
        allows no more.
        """
        request = _request(
            kind=kind,
            params={**(params or {}), **more},
            user="" if user is None else str(user),
            priority=priority,
            attempts=attempts,
            backoff_ms=backoff_ms,
            backoff=backoff,
            timeout_s=timeout,
            run_at_ms=instant_ms(run_at, "run_at"),
            key=key,
            notice=_notice(
                chat_id=chat_id,
                bot_id=bot_id,
                thread_id=thread_id,
                reply_to=reply_to,
                language=language,
                has_progress=has_progress,
                on_done=on_done,
                label=label,
            ),
            metadata=metadata,
        )
        return await self._open_transport().queue_job(request)

    # ---- looking ----

    async def get_job(self, job: JobId) -> JobInfo:
        """All that is known of a job right now. Raises NotFound."""
        return await self._open_transport().ask(JobApi.get_job, into=JobInfo, job_id=job_id_of(job))

    async def find_jobs(
        self,
        *,
        kind: str | None = None,
        user: str | int | None = None,
        state: State | str | None = None,
        since: When | None = None,
    ) -> AsyncIterator[JobInfo]:
        """All jobs of a filter, the newest first, read page by page: `async for job in peik.find_jobs(state="failed")`."""
        query = JobsQuery(
            kind=kind,
            user=None if user is None else str(user),
            state=None if state is None else _state(state),
            since=instant_ms(since, "since"),
            limit=PAGE_JOBS,
        )
        while True:
            page = await self._open_transport().ask(JobApi.list_jobs, into=JobPage, query=query)
            for job in page.jobs:
                yield job
            if page.next is None:
                return
            query = msgspec.structs.replace(query, cursor=int(page.next))

    async def wait_job(self, job: JobId, timeout: float = WAIT_S) -> JobInfo:
        """The job once it has ended, well or not, or as it stands when the time is over. Safe to ask again."""
        return await self._open_transport().ask_ended(
            JobApi.get_job,
            into=JobInfo,
            is_over=lambda found: found.state.is_final,
            timeout_s=timeout,
            job_id=job_id_of(job),
        )

    async def job_place(self, job: JobId) -> JobPlace | None:
        """When it will begin. None: it does not wait. Raises NotFound."""
        found = await self.get_job(job)
        return None if found.position is None else JobPlace(position=found.position, eta_s=found.eta_s)

    async def job_counts(self) -> dict[str, JobCounts]:
        """How many jobs stand where, by kind."""
        return (await self._open_transport().ask(JobApi.get_stats, into=_Counted)).kinds

    async def job_kinds(self) -> list[JobKindInfo]:
        """All kinds: how many jobs stand where, which kinds rest, and how fast they may go."""
        return (await self._open_transport().ask(JobApi.list_kinds, into=_Kinds)).kinds

    async def jobs_used(self, kind: str, user: str | int) -> JobsUsed:
        """What a user has had of a kind today (UTC), and what the day allows."""
        query = JobsUsedQuery(kind=kind, user=str(user))
        return await self._open_transport().ask(JobApi.get_used, into=JobsUsed, query=query)

    async def hosts(self) -> list[HostInfo]:
        """The outside hosts that jobs of the Peik that is asked talk to, and which of them are left alone for a while."""
        return (await self._open_transport().ask(HostApi.list_hosts, into=_Hosts)).hosts

    # ---- changing ----

    async def cancel_job(self, job: JobId) -> JobInfo:
        """One that waits is cancelled when this returns; one that runs is told to end, and ends soon after, wherever it is.
        Raises Conflict if it has ended."""
        return await self._open_transport().ask(JobApi.cancel, into=JobInfo, job_id=job_id_of(job))

    async def retry_job(self, job: JobId) -> JobInfo:
        """Run a failed or cancelled job again, with all of its attempts. Raises Conflict if it is neither."""
        return await self._open_transport().ask(JobApi.retry, into=JobInfo, job_id=job_id_of(job))

    async def pause_jobs(self, kind: str, *, why: str | None = None) -> JobKindInfo:
        """Let a kind rest: nothing of it begins in any program, within a second; what runs goes on to its end, and jobs are
        queued as ever. It holds until `resume_jobs`. Raises NotFound."""
        change = JobKindChange(paused=True, why=why)
        return await self._open_transport().ask(JobApi.change_kind, into=JobKindInfo, kind=kind, body=change)

    async def resume_jobs(self, kind: str) -> JobKindInfo:
        """Go on with a kind that rests. Raises NotFound."""
        change = JobKindChange(paused=False)
        return await self._open_transport().ask(JobApi.change_kind, into=JobKindInfo, kind=kind, body=change)

    async def set_job_rate(self, kind: str, rate: str | None) -> JobKindInfo:
        """How many runs of a kind may begin, over all programs: "30/m", "2/s burst 10". None: as many as there is room for.
        Raises NotFound, BadInput."""
        change = JobKindChange(rate=rate)
        return await self._open_transport().ask(JobApi.change_kind, into=JobKindInfo, kind=kind, body=change)


def job_id_of(job: JobId) -> int:
    """The number of a job, however it was given."""
    text = str(job if isinstance(job, (str, int)) else job.id)
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise BadInput(code="bad_job_id", detail="job must be the number of one, or the job itself.")


def _notice(**given: Any) -> dict[str, Any] | None:
    if given["chat_id"] is not None:
        noted(given)  # raises, with the same words on both ways
        return given
    alone = [name for name in ("bot_id", "thread_id", "reply_to", "language", "label") if given[name] is not None]
    if alone:
        raise BadInput(
            code="no_chat", detail=f"{alone[0]} is about the chat in which people are told: give its chat_id."
        )
    return None


def _request(**given: Any) -> JobRequest:
    try:
        return msgspec.convert(given, JobRequest)
    except msgspec.ValidationError as error:
        raise BadInput(code="bad_request", detail=f"{error}.") from None


def _state(given: str) -> State:
    try:
        return State(given)
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is one of {', '.join(State)}.") from None
