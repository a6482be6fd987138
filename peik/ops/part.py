"""One part of the overview that somebody else knows: asked seldom enough that asking costs next to nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from peik.clock import Clock
from peik.errors import Unavailable

ANSWER_S = 5.0
REST = 20  # times as long as the last answer took: asking takes a twentieth of a reader's time, at most

T = TypeVar("T")


class Part(Generic[T]):
    """What was answered last, for `fresh_s` at least. Not safe for two at once: whoever has parts asks them in turn."""

    def __init__(
        self, name: str, ask: Callable[[], Awaitable[T]], empty: T, *, clock: Clock, fresh_s: float = 1.0
    ) -> None:
        self.name = name
        self.value = empty
        self.is_missing = True
        self._ask = ask
        self._clock = clock
        self._fresh_s = fresh_s
        self._ask_at = float("-inf")

    async def look(self) -> T:
        """The value. If it cannot be had now it is as it was before, and `is_missing`."""
        began_at = self._clock.mono()
        if began_at >= self._ask_at:
            try:
                async with asyncio.timeout(ANSWER_S):
                    self.value = await self._ask()
            except (Unavailable, TimeoutError):
                self.is_missing = True
            else:
                self.is_missing = False
            now = self._clock.mono()
            self._ask_at = now + max(self._fresh_s, (now - began_at) * REST)
        return self.value
