"""Telegram's update ids and its 24 hours, as arithmetic: what a jump in the ids means, and when unread updates expire.

Ids rise by one (docs/telegram.md, Update ids). So a gap is so many updates that expired or were taken by another hand, unless the
numbering itself began anew: after a silent week, on another server, or when the numbers were used up.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

DAY_MS = 24 * 3600 * 1000
# After a week without updates the next id is random. Our last update may have lain at Telegram for a day before we had
# it, so that by our own clock the silence may be a day shorter.
SILENT_MS = 6 * DAY_MS
THRESHOLDS = (75, 50, 25, 10)  # per cent of the day that are left
# The queue holds so many updates at most: no push can be further behind the newest than this.
DISORDER_MAX = 100_000
# An inline query lives 30 s, and nothing shorter. Whoever asks again within this cannot have missed one by its age.
SHORTEST_LIFE_S = 20.0


class Continuous(msgspec.Struct, frozen=True):
    """Nothing is missing."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """So many updates were there once and are not any more."""

    count: int


class Unclear(msgspec.Struct, frozen=True):
    """The ids do not allow to know whether anything is missing."""


class IdsReset(msgspec.Struct, frozen=True):
    """The numbering began anew, lower: another epoch."""


Reading = Continuous | Gap | Unclear | IdsReset


def read_ids(
    ids: Sequence[int], *, expected: int | None, silent_ms: int | None, may_have_holes: bool = False
) -> Reading:
    """What the ids of a batch say, in the order in which they came.

    `expected` is the offset that was asked with, None if there was none; `silent_ms` how long ago the last update came.
    `may_have_holes`: some of these ids may have come by webhook meanwhile, out of order and one by one.
    """
    if expected is None:
        return Unclear()
    if ids[0] < expected:
        return IdsReset()
    missing = ids[-1] - expected + 1 - len(ids)
    if missing <= 0:
        return Continuous()
    if may_have_holes or silent_ms is None or silent_ms >= SILENT_MS:
        return Unclear()
    return Gap(count=missing)


def is_pushed_anew(update_id: int, *, newest: int | None) -> bool:
    """Whether a pushed id shows that the numbering began anew. Pushes come out of order: a little lower means nothing."""
    return newest is not None and update_id < newest - DISORDER_MAX


# ---- the day ----


def expires_at_ms(contact_at_ms: int) -> int:
    """When the oldest update that may wait unread expires: it came, at the earliest, right after the last contact."""
    return contact_at_ms + DAY_MS


def percent_left(*, contact_at_ms: int, now_ms: int) -> int:
    """How much of the day is left, rounded up. A clock that was put back makes it no more than 100."""
    left = math.ceil((expires_at_ms(contact_at_ms) - now_ms) * 100 / DAY_MS)
    return min(max(left, 0), 100)


def crossed(*, before: int, now: int) -> int | None:
    """The lowest threshold that was reached between two looks. None: none was."""
    return min((one for one in THRESHOLDS if now <= one < before), default=None)


def is_over_a_day(away_ms: int) -> bool:
    """Whether updates may have expired in such a time, whatever the ids say."""
    return away_ms > DAY_MS


# When letters of one bot came, by their numbers. It remembers stretches of numbers, not letters: a million take no
# more room.


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
