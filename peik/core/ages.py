"""When letters of one bot came, by their numbers. It remembers stretches of numbers, not letters: a million take no more room."""

from bisect import bisect_left

STRETCHES_MAX = 1024
BLUR = 0.05  # what waited for so long may be known so inexactly, in parts of that time


class Ages:
    """Letters come in the order of their numbers. When there are too many stretches, neighbours become one, which came when the
    first of them did: those that lie close together for how long ago they are. A few hundred are left then, of any time."""

    __slots__ = ("_at", "_first", "_last")

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        self._at: list[float] = []

    def came(self, first: int, last: int, now: float) -> None:
        if self._last and first <= self._last[-1]:
            return  # it is known when these came
        if len(self._last) >= STRETCHES_MAX:
            self._join(now)
        self._first.append(first)
        self._last.append(last)
        self._at.append(now)

    def at(self, number: int) -> float | None:
        """When the letter of this number came. None: nobody saw it come."""
        place = bisect_left(self._last, number)
        if place < len(self._last) and self._first[place] <= number:
            return self._at[place]
        return None

    def _join(self, now: float) -> None:
        firsts, lasts, ats = self._first[:1], self._last[:1], self._at[:1]
        for first, last, at in zip(self._first[1:], self._last[1:], self._at[1:], strict=True):
            if at - ats[-1] <= BLUR * (now - at):
                lasts[-1] = last
            else:
                firsts.append(first)
                lasts.append(last)
                ats.append(at)
        if len(lasts) >= STRETCHES_MAX // 2:  # a clock of centuries: what is oldest is least missed
            half = len(lasts) // 2
            firsts, lasts, ats = firsts[half:], lasts[half:], ats[half:]
        self._first, self._last, self._at = firsts, lasts, ats
