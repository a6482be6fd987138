"""How long things took, counted in fixed buckets: cheap to add to, exact to merge, and good to about a tenth when asked."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

FIRST_S = 0.001
STEPS = 54  # each √2 times the one before: the last bound is over a day
BOUNDS_S: tuple[float, ...] = tuple(FIRST_S * 2 ** (step / 2) for step in range(STEPS + 1))


class Histogram:
    """Bucket n holds what took at most `BOUNDS_S[n]`, and more than the bound before it; the last one all the rest."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def take_up(self, other: "Histogram") -> None:
        """Count what the other has counted as well."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s

    def since(self, before: "Histogram") -> "Histogram":
        """What came to it after it was like `before`."""
        fresh = Histogram()
        fresh.counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        fresh.sum_s = self.sum_s - before.sum_s
        return fresh

    def copy(self) -> "Histogram":
        same = Histogram()
        same.counts = list(self.counts)
        same.sum_s = self.sum_s
        return same

    def percentile(self, percent: float) -> float | None:
        """So many of a hundred took no longer than this. None: nothing was counted. Between two bounds it is guessed."""
        wanted = self.count * percent / 100
        if not wanted:
            return None
        seen = 0
        for bucket, count in enumerate(self.counts):
            if seen + count >= wanted:
                low, high = _edges(bucket)
                return low + (high - low) * (wanted - seen) / count
            seen += count
        return BOUNDS_S[-1]

    # ---- on paper ----

    def sparse(self) -> dict[int, int]:
        """The buckets that hold something."""
        return {bucket: count for bucket, count in enumerate(self.counts) if count}

    @classmethod
    def of_sparse(cls, counts: Mapping[int, int], sum_s: float) -> "Histogram":
        """Buckets that this version does not know count as the last one."""
        made = cls()
        for bucket, count in counts.items():
            made.counts[min(max(bucket, 0), len(BOUNDS_S))] += count
        made.sum_s = sum_s
        return made


def merged(histograms: Iterable[Histogram]) -> Histogram:
    whole = Histogram()
    for one in histograms:
        whole.take_up(one)
    return whole


def _edges(bucket: int) -> tuple[float, float]:
    if bucket >= len(BOUNDS_S):
        return BOUNDS_S[-1], BOUNDS_S[-1]
    return (0.0 if bucket == 0 else BOUNDS_S[bucket - 1]), BOUNDS_S[bucket]
