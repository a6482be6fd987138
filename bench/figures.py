"""Figures of several rounds: medians with their spread, and percentiles within one round."""

import statistics
from collections.abc import Mapping, Sequence

import msgspec

Figures = Mapping[str, float]  # by name, from one measurement of one round


class Spread(msgspec.Struct, frozen=True):
    """One figure over all rounds."""

    median: float
    least: float
    most: float
    deviation: float = 0.0  # the median of how far single rounds lie from the median

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        median = statistics.median(values)
        return cls(median, min(values), max(values), statistics.median(abs(one - median) for one in values))


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]
