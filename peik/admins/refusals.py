"""Brakes those who are refused again and again: each time is a line of the audit log, and nobody may fill the store with them.

Counted in memory, on each node by itself: what is lost with it is a minute.
"""

from peik.clock import Clock
from peik.errors import Forbidden

REFUSED_MAX = 300
WINDOW_S = 60.0
NAMES_MAX = 10_000


class Refusals:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}  # since when, how often

    def check(self, who: str) -> None:
        """Before a line is begun. Raises Forbidden (`refused_too_often`)."""
        since, count = self._counts.get(who, (0.0, 0))
        if count >= REFUSED_MAX and self._clock.mono() - since < WINDOW_S:
            raise Forbidden(
                code="refused_too_often", detail="You were refused too often. Wait a minute, and do what you may."
            )

    def note(self, who: str) -> None:
        """Somebody was not allowed what he asked for."""
        now = self._clock.mono()
        since, count = self._counts.get(who, (now, 0))
        if now - since >= WINDOW_S:
            since, count = now, 0
        if who not in self._counts and len(self._counts) >= NAMES_MAX:
            self._counts.clear()
        self._counts[who] = since, count + 1
