"""Time as a port. Wall time and monotonic time have different names, and nothing else in Peik reads a clock."""

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, for what is stored and shown. It may jump."""

    def mono(self) -> float:
        """Seconds that only rise, for pace, waits and timeouts. The event loop's own time."""


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    mono = staticmethod(time.monotonic)  # itself, and no function around it: a letter asks several times
