"""What writes the lines of the log: to whom, how much, and the same trouble not again and again."""

from collections.abc import Hashable

import structlog

from peik.clock import Clock
from peik.core.letter import State

SAME_S = 60.0  # the same trouble is told again after so long

GLYPH = {
    State.COMPLETED: "<-",
    State.FAILED: "!",
    State.WAITING: "~",
    State.DELAYED: "~",
    State.CANCELLED: "x",
    State.ACTIVE: "->",
}


class Pen:
    def __init__(self, book: structlog.typing.FilteringBoundLogger, *, shows_all: bool, clock: Clock) -> None:
        self.book = book
        self.shows_all = shows_all  # also what goes as it should: there may be thousands a second
        self._clock = clock
        self._said_at: dict[Hashable, float] = {}  # in the order in which it was said

    def is_news(self, *trouble: Hashable) -> bool:
        """Whoever needs the store asks it every second or two; of an hour with a full disk the log needs sixty lines."""
        now = self._clock.mono()
        while self._said_at and now - self._said_at[oldest := next(iter(self._said_at))] >= SAME_S:
            del self._said_at[oldest]
        if trouble in self._said_at:
            return False
        self._said_at[trouble] = now
        return True
