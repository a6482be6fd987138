"""Blocking work in a thread of its own. A thread cannot be killed: it is asked to end, and given up if it does not."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError as AnswerCancelled
from contextlib import suppress
from typing import Any

from peik.jobs.endings import WorkFailed
from peik.jobs.job import BlockingJob, Message

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
