"""Durations, sizes and instants as people write them: 5m, 24h, 100M, 2026-11-15T08:30:00.000Z."""

import datetime
import math
import re
from collections.abc import Hashable
from typing import Generic, TypeVar, overload

import msgspec

CHARS_MAX = 64  # nobody writes more, and strangers may write these
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SECONDS_MAX = 100 * 366 * 86400.0
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_BYTES_MAX = 2**60
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_duration_s(text: str) -> float:
    """Seconds of "90", "90s", "1m30s", "500ms", "24h", "7d". Raises ValueError with a hint."""
    written = text.strip().lower() if len(text) <= CHARS_MAX else ""
    if not written:
        raise ValueError("a duration looks like 500ms, 10s, 5m, 24h or 7d")
    total, at = 0.0, 0
    while at < len(written):
        match = _PART.match(written, at)
        if match is None:
            raise ValueError(f"{text!r} is not a duration; write 500ms, 10s, 5m, 24h or 7d")
        total += float(match[1]) * _SECONDS[match[2] or "s"]
        at = match.end()
    if total > _SECONDS_MAX:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return total


@overload
def rfc3339(at_ms: int) -> str: ...
@overload
def rfc3339(at_ms: int | None) -> str | None: ...
def rfc3339(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    moment = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_size_bytes(text: str) -> int:
    """Bytes of "100M", "2G", "512k", "1000". Raises ValueError with a hint."""
    match = _SIZE.fullmatch(text.strip()) if len(text) <= CHARS_MAX else None
    if match is None:
        raise ValueError(f"{text[:CHARS_MAX]!r} is not a size; write 512k, 100M or 2G")
    size = float(match[1]) * _BYTES[match[2].lower()]
    if size > _BYTES_MAX:
        raise ValueError(f"{text!r} is more than any disk holds")
    return int(size)


# How many requests a second, and at once: a rate as people write it, and one bucket for each of many holders. Pure.
#
# A bucket is one number, the instant at which it would be full again, so that a holder costs one entry of a
# dictionary. Who was not seen for longest is forgotten first: by then its bucket is full, or there are more holders
# than are worth the memory.


HOLDERS_MAX = 10_000
BURST_MIN = 5
BURST_S = 10.0  # without a burst of its own, a rate may have been saved up for so long
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/\s*([smh]))?(?:\s+burst\s+(\d+))?", re.IGNORECASE)
_RATE_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_HINT = "a rate looks like 20/s, 30/m or 20/s burst 100; off is no limit"

H = TypeVar("H", bound=Hashable)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A number a second, and at once no more than `burst`."""

    per_s: float
    burst: int

    def __str__(self) -> str:
        if self == UNLIMITED:
            return "off"
        unit = next((unit for unit, seconds in _RATE_SECONDS.items() if (self.per_s * seconds).is_integer()), "h")
        return f"{self.per_s * _RATE_SECONDS[unit]:g}/{unit} burst {self.burst}"


UNLIMITED = Rate(per_s=1e6, burst=10_000_000)  # for a key that is to have no limit where others have one


def parse_rate(text: str) -> Rate | None:
    """The rate of "20/s", "30/m", "20/s burst 100". None of "off": no limit. Raises ValueError with a hint."""
    if text.strip().lower() in ("off", "0"):
        return None
    match = _WRITTEN.fullmatch(text.strip()) if len(text) <= 100 else None
    if match is None:
        raise ValueError(_HINT)
    per_s = float(match[1]) / _RATE_SECONDS[(match[2] or "s").lower()]
    if not 0 < per_s <= 1e6:
        raise ValueError(_HINT)
    burst = max(BURST_MIN, math.ceil(per_s * BURST_S)) if match[3] is None else int(match[3])
    if not 1 <= burst <= 10_000_000:
        raise ValueError("a burst is between 1 and 10,000,000")
    return Rate(per_s=per_s, burst=burst)


class Limiter(Generic[H]):
    """A bucket for each holder. All holders have the same rate, or each call names its own."""

    def __init__(self, *, holders_max: int = HOLDERS_MAX) -> None:
        self._holders_max = holders_max
        self._full_at: dict[H, float] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._full_at)

    def spend(self, holder: H, rate: Rate, now: float) -> float:
        """0: it may, and one less is left. Else how long until it may, and nothing was spent."""
        full_at = max(self._full_at.pop(holder, now), now)
        wait_s = full_at + (1 - rate.burst) / rate.per_s - now
        # What is refused spends nothing: anyone who goes on knocking does not shut himself out for longer.
        self._full_at[holder] = full_at if wait_s > 0 else full_at + 1 / rate.per_s
        self._forget(now)
        return max(0.0, wait_s)

    def wait_s(self, holder: H, rate: Rate, now: float) -> float:
        """How long until it may, without spending anything."""
        full_at = self._full_at.get(holder, now)
        return max(0.0, full_at + (1 - rate.burst) / rate.per_s - now)

    def _forget(self, now: float) -> None:
        """At most two for each that comes: what is idle goes faster than it can come, and nobody pays for a sweep."""
        for _ in range(2):
            oldest = next(iter(self._full_at), None)
            if oldest is None or (self._full_at[oldest] > now and len(self._full_at) <= self._holders_max):
                return
            del self._full_at[oldest]


# How many arrivals may be delivered: one bucket that fills evenly, and one such bucket per Telegram user. Pure.


USER_BURST_MIN = 5
USER_BURST_S = 10.0  # a user may have saved up so much of his rate
REMEMBERED_MIN = 4096  # users, before those whose buckets are full again are forgotten


class RateBucket:
    """A number a second, and at once no more than `burst`. A rate of 0 is no limit."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, *, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = 0.0

    @property
    def ready_at(self) -> float:
        """When the next may go; an instant in the past is at once."""
        if not self._rate:
            return -math.inf
        return self._at + max(0.0, 1.0 - self._level) / self._rate

    def spend(self, now: float) -> None:
        self._level = self._filled(now) - 1.0
        self._at = now

    def is_full(self, now: float) -> bool:
        return self._filled(now) >= self._burst

    def _filled(self, now: float) -> float:
        return min(self._burst, self._level + max(0.0, now - self._at) * self._rate)


class UserQuota:
    """The limit per user. It remembers only those who have used some of theirs lately."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._burst = max(USER_BURST_MIN, USER_BURST_S * rate)
        self._buckets: dict[int, RateBucket] = {}
        self._limited: set[int] = set()
        self._forget_at = REMEMBERED_MIN

    def ready_at(self, user_id: int | None) -> float:
        bucket = None if user_id is None else self._buckets.get(user_id)
        return -math.inf if bucket is None else bucket.ready_at

    def spend(self, user_id: int | None, now: float) -> None:
        if not self._rate or user_id is None:
            return
        bucket = self._buckets.get(user_id)
        if bucket is None:
            bucket = self._buckets[user_id] = RateBucket(self._rate, burst=self._burst)
        elif bucket.is_full(now):
            self._limited.discard(user_id)  # he has been calm since
        bucket.spend(now)
        if len(self._buckets) > self._forget_at:
            self._forget(now)

    def is_news(self, user_id: int) -> bool:
        """Whether nobody has been told yet that this user is over his limit. From now on somebody has."""
        if user_id in self._limited:
            return False
        self._limited.add(user_id)
        return True

    def _forget(self, now: float) -> None:
        self._buckets = {user: bucket for user, bucket in self._buckets.items() if not bucket.is_full(now)}
        self._limited &= self._buckets.keys()
        self._forget_at = max(REMEMBERED_MIN, 2 * len(self._buckets))


# The Iranian calendar.


_EPOCH = 356_032  # days between the beginnings of both counts: 1 Farvardin 1405 is 21 March 2026
_DAYS_OF_33_YEARS = 33 * 365 + 8


def jalali_of(moment: datetime.date) -> tuple[int, int, int]:
    """Year, month and day by the Iranian calendar, whose leap years come eight in 33 years until the year 1500 at least."""
    cycles, days = divmod(moment.toordinal() + _EPOCH, _DAYS_OF_33_YEARS)
    fours, days = divmod(days, 4 * 365 + 1)
    ones = max(0, (days - 1) // 365)
    day = days - 365 * ones - (1 if ones else 0)
    year = -1595 + 33 * cycles + 4 * fours + ones
    return (year, 1 + day // 31, 1 + day % 31) if day < 186 else (year, 7 + (day - 186) // 30, 1 + (day - 186) % 30)


def gregorian_of(year: int, month: int, day: int) -> datetime.date:
    """The same back. Raises ValueError for a day that there is not."""
    cycles, rest = divmod(year + 1595, 33)
    passed = (month - 1) * 31 if month < 8 else 186 + (month - 7) * 30
    days = cycles * _DAYS_OF_33_YEARS + rest * 365 + (rest + 3) // 4 + passed + day - 1
    found = datetime.date.fromordinal(days - _EPOCH)
    if jalali_of(found) != (year, month, day):
        raise ValueError("there is no such day")
    return found
