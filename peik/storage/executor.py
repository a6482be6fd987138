"""Where blocking store work runs: on a thread of its own, or (for virtual time) in the event loop itself."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs pieces of work one at a time, in order. `done` is called in the event loop with what came of it."""

    def run(self, work: Callable[[], T], done: "Callable[[Finished[T]], None]") -> None: ...

    def close(self) -> None:
        """Finish what was given, then end."""


class Finished(Generic[T]):
    """A piece of work that is over: a value or an error."""

    __slots__ = ("_value", "error")

    def __init__(self, value: T | None, error: BaseException | None) -> None:
        self._value = value
        self.error = error

    def value(self) -> T:
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]


def _perform(work: Callable[[], T]) -> Finished[T]:
    try:
        return Finished(work(), None)
    except BaseException as error:  # noqa: BLE001  it is raised again where the work was asked for
        return Finished(None, error)


class ThreadExecutor:
    """One thread and its queue."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T], done: Callable[[Finished[T]], None]) -> None:
        def piece() -> None:
            ended = _perform(work)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, ended)

        self._queue.put(piece)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (piece := self._queue.get()) is not None:
            piece()


class InlineExecutor:
    """The same in the event loop: every run is repeatable, and time can stand still meanwhile."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def run(self, work: Callable[[], T], done: Callable[[Finished[T]], None]) -> None:
        self._loop.call_soon(lambda: done(_perform(work)))

    def close(self) -> None:
        pass


async def run_in(executor: Executor, work: Callable[[], T]) -> T:
    """The value of a piece of work, for those who wait for it."""
    future: asyncio.Future[Finished[T]] = asyncio.get_running_loop().create_future()

    def done(ended: Finished[T]) -> None:
        if not future.done():
            future.set_result(ended)

    executor.run(work, done)
    return (await future).value()


def at_once(work: Awaitable[T]) -> T:
    """The value of async work that never waits: what is written for every SQL store runs so on a thread of SQLite's, which has no
    event loop."""
    steps: Any = work.__await__()
    try:
        next(steps)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    steps.close()
    raise AssertionError("work on a thread of SQLite's waited for something")
