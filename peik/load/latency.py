"""How long each piece of work took, from the moment it was due. Every one is kept, so the percentiles are exact."""

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

# 1, 2, 5, 10 … ms: what people read without a ruler.
EDGES_S: tuple[float, ...] = tuple(step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5))


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind of work, in milliseconds."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """So many took at most `up_to_s`, and more than the bar before it; the last one has no bound."""

    up_to_s: float | None
    count: int


class Latencies:
    """Due moments are seconds since the beginning. Due, not sent: what had to wait for its turn has waited."""

    __slots__ = ("_due_s", "_took_s")

    def __init__(self) -> None:
        self._due_s = array("d")
        self._took_s = array("d")

    def __len__(self) -> int:
        return len(self._took_s)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._due_s, self._took_s, strict=True)

    def add(self, *, due_s: float, done_s: float) -> None:
        self._due_s.append(due_s)
        self._took_s.append(max(0.0, done_s - due_s))  # two clocks may differ by a hair

    def figures(self, *, since_s: float = 0.0) -> Figures | None:
        """None if there is nothing to say."""
        ordered = sorted(took for due, took in self if due >= since_s)
        if not ordered:
            return None
        p50, p95, p99 = (1000 * percentile(ordered, percent) for percent in (50, 95, 99))
        return Figures(count=len(ordered), p50_ms=p50, p95_ms=p95, p99_ms=p99, max_ms=1000 * ordered[-1])

    def bars(self) -> list[Bar]:
        """From the first bar that holds something to the last."""
        counts = [0] * (len(EDGES_S) + 1)
        for took_s in self._took_s:
            counts[bisect_left(EDGES_S, took_s)] += 1
        full = [number for number, count in enumerate(counts) if count]
        if not full:
            return []
        edges: list[float | None] = [*EDGES_S, None]
        return [Bar(up_to_s=edges[number], count=counts[number]) for number in range(full[0], full[-1] + 1)]

    def over_time(self, percent: float, *, width_s: float) -> list[tuple[float, float]]:
        """The percentile of what was due in each stretch of so many seconds, at the stretch's middle."""
        stretches: dict[int, list[float]] = {}
        for due_s, took_s in self:
            stretches.setdefault(int(due_s // width_s), []).append(took_s)
        return [
            ((number + 0.5) * width_s, percentile(sorted(took), percent)) for number, took in sorted(stretches.items())
        ]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest that so many of a hundred do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
