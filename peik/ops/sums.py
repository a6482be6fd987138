"""What happened in a stretch of time, added up: plain counts by name, and how long deliveries and tries took."""

import msgspec

from peik.core.histogram import Histogram
from peik.ops.overview_values import Percentiles, Point

COUNTED = (
    "accepted",
    "delivered",
    "failed",
    "uncertain",
    "retried",
    "held",
    "held_ms",
    "updates",
    "jobs_done",
    "jobs_failed",
)
ACCEPTED, DELIVERED, FAILED, UNCERTAIN, RETRIED, HELD, HELD_MS, UPDATES, JOBS_DONE, JOBS_FAILED = range(len(COUNTED))


class SumsPaper(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums as they are filed. What another version counted and this one does not know is left out."""

    counts: dict[str, int] = {}
    end_to_end: dict[int, int] = {}
    end_to_end_s: float = 0.0
    tries: dict[int, int] = {}
    tries_s: float = 0.0


_decode = msgspec.json.Decoder(SumsPaper).decode


class Sums:
    __slots__ = ("counts", "end_to_end", "tries")

    def __init__(self) -> None:
        self.counts = [0] * len(COUNTED)
        self.end_to_end = Histogram()
        self.tries = Histogram()

    @property
    def is_empty(self) -> bool:
        return not any(self.counts) and not self.tries.count

    def take_up(self, other: "Sums") -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.end_to_end.take_up(other.end_to_end)
        self.tries.take_up(other.tries)

    def since(self, before: "Sums") -> "Sums":
        """What was added after they were like `before`."""
        fresh = Sums()
        fresh.counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        fresh.end_to_end = self.end_to_end.since(before.end_to_end)
        fresh.tries = self.tries.since(before.tries)
        return fresh

    def copy(self) -> "Sums":
        return self.since(Sums())

    def on_paper(self) -> str:
        return msgspec.json.encode(
            SumsPaper(
                counts={name: count for name, count in zip(COUNTED, self.counts, strict=True) if count},
                end_to_end=self.end_to_end.sparse(),
                end_to_end_s=round(self.end_to_end.sum_s, 6),
                tries=self.tries.sparse(),
                tries_s=round(self.tries.sum_s, 6),
            )
        ).decode()

    @classmethod
    def of_paper(cls, body: str) -> "Sums":
        """Raises msgspec.DecodeError for what is no such paper."""
        paper = _decode(body)
        made = cls()
        made.counts = [paper.counts.get(name, 0) for name in COUNTED]
        made.end_to_end = Histogram.of_sparse(paper.end_to_end, paper.end_to_end_s)
        made.tries = Histogram.of_sparse(paper.tries, paper.tries_s)
        return made

    def point(self, at_ms: int, seconds: int) -> Point:
        counts = self.counts
        return Point(
            at_ms=at_ms,
            seconds=seconds,
            accepted=counts[ACCEPTED],
            delivered=counts[DELIVERED],
            failed=counts[FAILED],
            uncertain=counts[UNCERTAIN],
            retried=counts[RETRIED],
            held=counts[HELD],
            held_s=counts[HELD_MS] / 1000,
            updates=counts[UPDATES],
            jobs_done=counts[JOBS_DONE],
            jobs_failed=counts[JOBS_FAILED],
            end_to_end=_percentiles(self.end_to_end),
            tries=_percentiles(self.tries),
        )


def _percentiles(histogram: Histogram) -> Percentiles | None:
    half, most, nearly_all = (histogram.percentile(percent) for percent in (50, 95, 99))
    if half is None or most is None or nearly_all is None:
        return None
    return Percentiles(p50_s=round(half, 6), p95_s=round(most, 6), p99_s=round(nearly_all, 6))
