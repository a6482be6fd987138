"""Virtual time: an event loop whose clock jumps to the next timer. An hour of waiting takes a moment and repeats exactly."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_EPOCH_S = 1_794_700_000.0  # an arbitrary morning in November 2026
_REAL_WAIT_S = 10.0
_TURNS_MAX = 300_000  # of the loop at one instant


class Standstill(RuntimeError):
    """Time cannot go on: somebody wakes himself again and again, or everybody waits for ever."""


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the clock. Real I/O, where there is any, is still seen first."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            self._turns += 1
            if self._turns > _TURNS_MAX:
                raise Standstill("time stands still: something wakes itself again and again")
            return ready
        self._turns = 0
        if timeout is None:
            # No timer at all: only another thread or a socket can go on from here.
            ready = super().select(_REAL_WAIT_S)
            if not ready:
                raise Standstill("every task waits, and nothing is left that could wake one of them")
            return ready
        self._jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """What would go to a thread is done in the loop itself: time must not run ahead of it, and runs must repeat."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  it is raised again where the work was asked for
                future.set_exception(error)

        self.call_soon(work)
        return future

    def _jump(self, seconds: float) -> None:
        self._now += seconds


class VirtualClock:
    """A `peik.clock.Clock` that follows a virtual loop. The wall can be made to jump by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wall_offset_s = 0.0

    def mono(self) -> float:
        return self._loop.time()

    steady = mono  # nothing sleeps here

    def wall_ms(self) -> int:
        return int((_EPOCH_S + self.wall_offset_s + self._loop.time()) * 1000)

    def wall_s(self) -> float:
        return self.wall_ms() / 1000


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in virtual time, from zero."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(VirtualClock(runner.get_loop())))
