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

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]
