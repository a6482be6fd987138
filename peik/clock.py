"""Time as a port. Wall time, steady time and monotonic time have different names, and nothing else in Peik reads a clock."""

import time
from typing import Protocol

from peik.core import settled
from peik.core.settled import Kept, Settled


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, for what is stored and shown. It may jump."""

    def mono(self) -> float:
        """Seconds that only rise, for pace, waits and timeouts. The event loop's own time."""

    def steady(self) -> float:
        """Seconds that nobody can set, and that go on while the machine sleeps: how much time has really passed."""


# Linux stops CLOCK_MONOTONIC while the machine sleeps and has CLOCK_BOOTTIME; macOS has one CLOCK_MONOTONIC, which goes on.
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    mono = staticmethod(time.monotonic)  # itself, and no function around it: a letter asks several times

    def steady(self) -> float:
        return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)


class SettledClock:
    """A clock for what destroys by age: its wall shows settled time (`peik.core.settled`)."""

    def __init__(self, clock: Clock, *, settles_s: float) -> None:
        self._clock = clock
        self._settles_s = settles_s
        self.mono = clock.mono
        self.steady = clock.steady
        self._state = settled.begin(None, steady_s=clock.steady(), wall_ms=clock.wall_ms())

    def wall_ms(self) -> int:
        return self.look().at(self.steady())

    def look(self) -> Settled:
        self._state = settled.look(
            self._state, steady_s=self.steady(), wall_ms=self._clock.wall_ms(), settles_s=self._settles_s
        )
        return self._state

    def begin(self, kept: Kept | None) -> Settled:
        """With what the store knows of the life before this one."""
        self._state = settled.begin(kept, steady_s=self.steady(), wall_ms=self._clock.wall_ms())
        return self._state

    def keep(self) -> Kept:
        return settled.keep(self.look(), steady_s=self.steady())
