"""How many arrivals may be handed on: one bucket that fills evenly, and one such bucket per Telegram user. Pure."""

import math

USER_BURST_MIN = 5
USER_BURST_S = 10.0  # a user may have saved up so much of his rate
REMEMBERED_MIN = 4096  # users, before those whose buckets are full again are forgotten


class Bucket:
    """So many a second, and at once no more than `burst`. A rate of 0 is no limit."""

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
        self._buckets: dict[int, Bucket] = {}
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
            bucket = self._buckets[user_id] = Bucket(self._rate, burst=self._burst)
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
