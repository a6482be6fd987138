"""The part of the library that is about jobs: long work, done in turn, in this program or in another on the same store."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from peik.core.job_notice import noted
from peik.core.letter import Backoff, Priority, State
from peik.errors import BadInput
from peik.job_ports import JobFilter
from peik.jobs.desk import JobRequest
from peik.jobs.job import BlockingJob, Job
from peik.jobs.kinds import Where
from peik.library.calls import When, instant_ms
from peik.library.jobs_kinds import GivenKind, Work, given_kind
from peik.library.jobs_values import HostInfo, JobCounts, JobInfo, JobPlace, JobsUsed, QueuedJob

if TYPE_CHECKING:
    from peik.library.jobs_counter import JobsCounter

PAGE_JOBS = 200
WAIT_S = 30.0

JobId = QueuedJob | Job | BlockingJob | str | int
AnyWork = TypeVar("AnyWork", bound=Work)
_Backoff = Backoff | Literal["exponential", "fixed"]


class JobCalls:
    """Long jobs: fair turns, limits, retries, folders of their own. See docs/jobs.md."""

    def _jobs(self) -> "JobsCounter":
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
        return await self._jobs().queue(request)

    # ---- looking ----

    async def get_job(self, job: JobId) -> JobInfo:
        """All that is known of a job right now. Raises NotFound."""
        return await self._jobs().get(job_id_of(job))

    async def find_jobs(
        self,
        *,
        kind: str | None = None,
        user: str | int | None = None,
        state: State | str | None = None,
        since: When | None = None,
    ) -> AsyncIterator[JobInfo]:
        """All jobs of a filter, the newest first, read page by page: `async for job in peik.find_jobs(state="failed")`."""
        wanted = JobFilter(
            kind=kind,
            user=None if user is None else str(user),
            state=None if state is None else _state(state),
            since_ms=instant_ms(since, "since"),
        )
        before: int | None = None
        while True:
            page = await self._jobs().find(wanted, before=before, limit=PAGE_JOBS)
            for job in page.jobs:
                yield job
            if page.next is None:
                return
            before = int(page.next)

    async def wait_job(self, job: JobId, timeout: float = WAIT_S) -> JobInfo:
        """The job once it has ended, well or not, or as it stands when the time is over. Safe to ask again."""
        return await self._jobs().wait(job_id_of(job), timeout)

    async def job_place(self, job: JobId) -> JobPlace | None:
        """When it will begin. None: it does not wait. Raises NotFound."""
        found = await self._jobs().get(job_id_of(job))
        return None if found.position is None else JobPlace(position=found.position, eta_s=found.eta_s)

    async def job_counts(self) -> dict[str, JobCounts]:
        """How many jobs stand where, by kind."""
        return await self._jobs().counts()

    async def jobs_used(self, kind: str, user: str | int) -> JobsUsed:
        """What a user has had of a kind today (UTC), and what the day allows."""
        return await self._jobs().used(kind, str(user))

    async def hosts(self) -> list[HostInfo]:
        """The outside hosts that jobs of the Peik that is asked talk to, and which of them are left alone for a while."""
        return await self._jobs().hosts()

    # ---- changing ----

    async def cancel_job(self, job: JobId) -> JobInfo:
        """One that waits is cancelled when this returns; one that runs is told to end, and ends soon after, wherever it is.
        Raises Conflict if it has ended."""
        return await self._jobs().cancel(job_id_of(job))

    async def retry_job(self, job: JobId) -> JobInfo:
        """Run a failed or cancelled job again, with all of its attempts. Raises Conflict if it is neither."""
        return await self._jobs().retry(job_id_of(job))


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
