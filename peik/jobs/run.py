"""One run of one job: a folder, the work, an end. It never touches the store; it says how it ended, and others settle it."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError as AnswerCancelled
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from peik.clock import Clock
from peik.core.events import Events, Surprise
from peik.errors import described
from peik.jobs.folders import Folders
from peik.jobs.hosts import Hosts
from peik.jobs.job import BlockingJob, Job, JobAnswers, JobChatPort, Message, facts_of
from peik.jobs.model import JobRecord as Record
from peik.jobs.model import Ran, under_trace_of
from peik.jobs.outcome import Stop, Teller, WorkFailed, raised, returned, stopped
from peik.jobs.store import JobKind, RunNews, Where

# Blocking work in a thread of its own. A thread cannot be killed: it is asked to end, and given up if it does not.


ANSWER_S = 600.0  # so long a thread waits for Peik to take what it says: a file may be big


class ThreadWork:
    """One run in a thread. The thread is a daemon: one that was given up does not keep Peik from ending."""

    def __init__(
        self, work: Callable[..., Any], facts: Message, on_message: Callable[[Message], Awaitable[Message]]
    ) -> None:
        self._work = work
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[Any] = self._loop.create_future()  # when the thread really is
        self.job = BlockingJob(facts, self._ask)

    async def run(self) -> Any:
        """What the function returns or raises. If this is cancelled, the thread is asked to end; `over` says when it has."""
        context = contextvars.copy_context()
        name = f"job {self.job.id}"
        try:
            threading.Thread(target=context.run, args=(self._play,), name=name, daemon=True).start()
        except RuntimeError:  # there are too many
            self.over.cancel()
            raise
        try:
            return await asyncio.shield(self.over)
        except asyncio.CancelledError:
            self.job.begin_to_end()
            raise

    def _play(self) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._work(self.job)
        except BaseException as raised:  # noqa: BLE001  it is raised again in the loop
            error = raised
        with suppress(RuntimeError):  # the loop has ended long ago
            self._loop.call_soon_threadsafe(self._end, result, error)

    def _end(self, result: Any, error: BaseException | None) -> None:
        if isinstance(error, (SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError)):
            # None of these may be raised out of a future.
            error = WorkFailed(f"It raised {type(error).__name__}.")
        if error is not None:
            self.over.set_exception(error)
        else:
            self.over.set_result(result)

    def _ask(self, message: Message) -> Message:
        try:
            asked = asyncio.run_coroutine_threadsafe(_answer(self._on_message, message), self._loop)
            return asked.result(ANSWER_S)
        except (TimeoutError, AnswerCancelled, RuntimeError):
            raise WorkFailed("Peik does not answer any more.") from None


async def _answer(on_message: Callable[[Message], Awaitable[Message]], message: Message) -> Message:
    return await on_message(message)


GIVE_UP_S = 10.0  # so long work that was told to end may take


class Processes(Protocol):
    """Runs a function in a process of its own: see peik.jobs.processes."""

    async def __call__(
        self,
        work: Callable[..., Any],
        message: Message,
        *,
        folder: Path,
        on_message: Callable[[Message], Awaitable[Message]],
    ) -> object:
        """What the function returned. If this is cancelled, the process and all that it started are killed first."""


class RunTools(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a process share."""

    folders: Folders
    chat: JobChatPort
    hosts: Hosts
    teller: Teller
    processes: Processes
    clock: Clock
    events: Events
    folder_bytes: int  # what a folder may hold if its kind says nothing; nothing is set aside for such a one
    give_up_s: float = GIVE_UP_S


class Run:
    """One run, from `play` on. `stop` ends it early."""

    def __init__(self, record: Record, kind: JobKind, tools: RunTools, *, ends_at: float) -> None:
        self.record = record
        self.kind = kind
        self.ends_at = ends_at  # of its lease, by the clock that never jumps: so long we may believe in it
        self.began_at = tools.clock.mono()
        self._aside_bytes = record.bytes_max or kind.folder_bytes
        self.bytes_max = self._aside_bytes or tools.folder_bytes
        self.bytes_used = 0
        self._tools = tools
        self._stop: Stop | None = None
        self._stopped = asyncio.Event()
        self._job: Job | None = None
        self._progress: float | None = None
        self._progress_text: str | None = None
        self._said: tuple[float | None, str | None] = (None, None)  # what the store knows of it
        self._work: asyncio.Task[Any] | None = None
        self._thread: ThreadWork | None = None
        self.has_folder = False

    @property
    def is_stopping(self) -> bool:
        return self._stop is not None

    def lingers(self) -> "asyncio.Future[Any] | None":
        """Work that has not ended yet. Told to end and given up, it still takes a place."""
        for one in (self._work, None if self._thread is None else self._thread.over):
            if one is not None and not one.done():
                return one
        return None

    def stop(self, why: Stop) -> None:
        """End it. The first reason counts, but one that is not ours any more is not settled for any reason."""
        if self._stop is None or why is Stop.LOST:
            self._stop = why
        self._stopped.set()

    def news(self) -> RunNews:
        """For the next beat."""
        return RunNews(
            job_id=self.record.id, run=self.record.run, progress=self._progress, progress_text=self._progress_text
        )

    @property
    def has_news(self) -> bool:
        """Whether it came further since the store was told."""
        return self._said != (self._progress, self._progress_text)

    def said(self, news: RunNews) -> None:
        self._said = (news.progress, news.progress_text)

    async def measure(self) -> None:
        """Look at its folder; a run whose folder is too big ends."""
        if not self.has_folder:
            return
        self.bytes_used = max(self.bytes_used, await self._tools.folders.size(self.record))
        if self.bytes_max and self.bytes_used > self.bytes_max:
            self.stop(Stop.OVER)

    # ---- its life ----

    async def play(self) -> Ran | None:
        """How it ended; None: it is not ours any more. Its folder is gone when this returns, unless its work lingers."""
        if self._stop is None:
            ran = await self._in_folder()
        else:
            ran = self._as_stopped()
        return None if ran is None else msgspec.structs.replace(ran, bytes_used=self.bytes_used)

    async def _in_folder(self) -> Ran | None:
        try:
            folder = await self._tools.folders.begin(self.record, self._aside_bytes)
        except Exception as error:  # noqa: BLE001  NoRoom, or a disk that fails: one job's end, not ours
            return raised(self.record, error, at_ms=self._tools.clock.wall_ms())
        self.has_folder = True
        try:
            return await self._worked(folder)
        finally:
            if self.lingers() is None:
                await self.tidy()

    async def tidy(self) -> None:
        self.has_folder = False
        await self._tools.folders.end(self.record)

    async def _worked(self, folder: Path) -> Ran | None:
        tools = self._tools
        self._job = Job(self.record, folder, chat=tools.chat, hosts=tools.hosts, on_progress=self._on_progress)
        with under_trace_of(self.record):  # a task keeps the context that it was made in
            work = self._work = asyncio.create_task(self._call(self._job, folder), name=f"job {self.record.id}")
        watch = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait([work, watch], timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
            is_done = work.done()  # what is done is done, whatever anybody wants from now on
            if not is_done:
                self.stop(Stop.LATE)
                await self._end_work(work)
        finally:
            watch.cancel()
            if not work.done() and not self.is_stopping:  # we are cancelled ourselves: nothing may be left behind
                await self._end_work(work)
        if self.lingers() is None:
            await self._measure_last()
        return self._judged(work) if is_done else self._as_stopped()

    async def _end_work(self, work: asyncio.Task[Any]) -> None:
        assert self._job is not None, "its work has begun"
        self._job.is_cancelling = True
        work.cancel()
        deadline = self._tools.clock.mono() + self._tools.give_up_s
        while (lingering := self.lingers()) is not None and self._tools.clock.mono() < deadline:
            await asyncio.wait([lingering], timeout=deadline - self._tools.clock.mono())
        if work.done() and not work.cancelled():
            work.exception()  # looked at: what we ended may say what it wants
        if self.lingers() is None:
            return
        work.cancel()  # once more: it may have caught the first
        self._tools.events.tell(
            Surprise(where=f"job {self.record.id} ({self.kind.name})", error="It was told to end and does not.")
        )

    def _judged(self, work: asyncio.Task[Any]) -> Ran:
        at_ms = self._tools.clock.wall_ms()
        if work.cancelled():
            return raised(self.record, WorkFailed("It was cancelled from within."), at_ms=at_ms)
        error = work.exception()
        if error is not None:
            return raised(self.record, error, at_ms=at_ms)
        return returned(self.record, work.result())

    def _as_stopped(self) -> Ran | None:
        assert self._stop is not None, "somebody ended it"
        return stopped(self.record, self._stop, after_s=self._timeout_s or 0.0, at_ms=self._tools.clock.wall_ms())

    async def _measure_last(self) -> None:
        """For its user's day. A folder that grew too big between two looks is none any more if the work is over."""
        try:
            self.bytes_used = max(self.bytes_used, await self._tools.folders.size(self.record))
        except Exception as error:  # noqa: BLE001  how big it was is not worth a run
            self._tools.events.tell(Surprise(where=f"the folder of job {self.record.id}", error=described(error)))

    @property
    def _timeout_s(self) -> float | None:
        if self.record.timeout_ms is not None:
            return self.record.timeout_ms / 1000
        return self.kind.timeout_s

    def _on_progress(self, done: float | None, text: str | None) -> None:
        if self.is_stopping:
            return  # perhaps another node runs the job, and tells of it
        self._progress = done if done is not None else self._progress
        self._progress_text = text if text is not None else self._progress_text
        self._tools.teller.progressed(self.record, self._progress, self._progress_text)

    # ---- the work ----

    async def _call(self, job: Job, folder: Path) -> Any:
        try:
            match self.kind.where:
                case Where.LOOP:
                    result = self.kind.work(job)
                    return await result if inspect.isawaitable(result) else result
                case Where.THREAD:
                    return await self._asked(job, lambda answers: self._threaded(folder, answers))
                case Where.PROCESS:
                    return await self._asked(job, lambda answers: self._in_process(folder, answers))
        except SystemExit:
            # Many a library ends the whole program when it is unhappy. Not this one.
            raise WorkFailed("It called sys.exit().") from None

    async def _asked(self, job: Job, run: Callable[[JobAnswers], Awaitable[Any]]) -> Any:
        answers = JobAnswers(job)
        try:
            return await run(answers)
        finally:
            await answers.close()

    async def _threaded(self, folder: Path, answers: JobAnswers) -> Any:
        self._thread = ThreadWork(self.kind.work, facts_of(self.record, folder), answers.answered)
        return await self._thread.run()

    async def _in_process(self, folder: Path, answers: JobAnswers) -> object:
        return await self._tools.processes(
            self.kind.work, facts_of(self.record, folder), folder=folder, on_message=answers.answered
        )
