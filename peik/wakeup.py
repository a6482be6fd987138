"""Wakes a sleeping engine: at once when something happens, or at an instant."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar


class Wakeup:
    """One sleeper, any number of ringers. A ring while nobody sleeps is remembered, and many rings are one."""

    __slots__ = ("_is_rung", "_loop", "_sleeper")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sleeper: asyncio.Future[None] | None = None
        self._is_rung = False

    def ring(self) -> None:
        self._is_rung = True
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    async def wait(self, until: float | None = None) -> None:
        """Sleep until rung, or until the loop's time is `until`."""
        if not self._is_rung:
            self._sleeper = self._loop.create_future()
            timer = None if until is None else self._loop.call_at(until, self.ring)
            try:
                await self._sleeper
            finally:
                self._sleeper = None
                if timer is not None:
                    timer.cancel()
        self._is_rung = False


# A cancellation that somebody below has swallowed is raised all the same.
#
# `asyncio.wait_for` of Python 3.11 returns its result instead if that came in the same moment (fixed in 3.12), and
# the clients of Redis and MongoDB use it around every read. Without this, about one in twenty ends of a node waits
# for ever for a task that does not know that it should end.


T = TypeVar("T")


@contextmanager
def heeded() -> Iterator[None]:
    """Around whatever may swallow one."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error  # what failed after that is nobody's trouble
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def heeding(answer: Awaitable[T]) -> T:
    with heeded():
        return await answer
