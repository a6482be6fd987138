"""Virtual time: an event loop whose clock jumps to the next timer. An hour of waiting takes a moment and repeats exactly."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_EPOCH_S = 1_794_700_000.0  # an arbitrary morning in November 2026
_REAL_WAIT_S = 10.0


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the clock. Real I/O, where there is any, is still seen first."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            # No timer at all: only another thread or a socket can go on from here.
            ready = super().select(_REAL_WAIT_S)
            if not ready:
                raise RuntimeError("every task waits, and nothing is left that could wake one of them")
            return ready
        self._jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        return self._now

    def _jump(self, seconds: float) -> None:
        self._now += seconds


class VirtualClock:
    """A `peik.clock.Clock` that follows a virtual loop. The wall can be made to jump by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wall_offset_s = 0.0

    def mono(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return int((_EPOCH_S + self.wall_offset_s + self._loop.time()) * 1000)

    def wall_s(self) -> float:
        return self.wall_ms() / 1000


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in virtual time, from zero."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(VirtualClock(runner.get_loop())))
