"""Whether a figure that should stay level has grown: a robust slope with its uncertainty, and a verdict that may be "too short".

Memory does not fall back evenly and rises in steps, so a straight line through all samples would see leaks everywhere. Here the
samples are put into blocks of equal time, of which only the lowest counts (a leak raises the floor, a busy moment does not), and
the slope is Theil's and Sen's: the median of the slopes of all pairs, which a third of wild values cannot move.
"""

import enum
import itertools
import math
import statistics
from collections.abc import Sequence

import msgspec

BLOCKS_MAX = 40
BLOCKS_MIN = 8
Z = 2.576  # of a hundred such intervals 99 hold the true slope, if the blocks were independent; neighbours are not quite

Sample = tuple[float, float]  # seconds since the beginning, the figure


class Verdict(enum.StrEnum):
    FLAT = "flat"
    SETTLING = "settling"  # it grew, and hardly does any more: caches that fill
    LEAK = "leak"
    TOO_SHORT = "too short to say"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as growth. Below `allowed` over the whole time nothing is called a leak, however steady it is."""

    unit: str
    per_unit: float = 1.0  # of the figures, in one unit of what people read
    allowed: float  # in the figures' own measure
    allowed_share: float = 0.0  # of the level, if that is more
    warm_share: float = 1 / 3  # of the time, which is not looked at: caches fill, pools open
    least_s: float = 120.0  # of what is left; less says nothing


MEMORY = Rule(unit="MiB", per_unit=2.0**20, allowed=6 * 2.0**20, allowed_share=0.05)
HANDLES = Rule(unit="handles", allowed=8.0)


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Figures are in the rule's unit; slopes per hour."""

    verdict: Verdict
    unit: str
    seconds: float  # that were looked at, after the warm-up
    level: float = 0.0
    highest: float = 0.0
    per_hour: float = 0.0
    per_hour_low: float = 0.0
    per_hour_high: float = 0.0
    unseen_per_hour: float | None = None  # slower growth than this would not be called a leak in so short a time

    @property
    def words(self) -> str:
        if self.verdict is Verdict.TOO_SHORT:
            return f"too short to say: {self.seconds:.0f} s after the warm-up"
        held = (
            f"{self.verdict} at {self.level:.0f} {self.unit}: {self.per_hour:+.1f} an hour "
            f"(99 %: {self.per_hour_low:+.1f} to {self.per_hour_high:+.1f}) in {self.seconds:.0f} s"
        )
        if self.verdict is Verdict.FLAT and self.unseen_per_hour is not None:
            held += f"; less than {self.unseen_per_hour:.0f} an hour could not be seen"
        return held


def trend(samples: Sequence[Sample], rule: Rule) -> Trend:
    highest = max((value for _, value in samples), default=0.0) / rule.per_unit
    warm = after_warm_up(samples, rule.warm_share)
    span_s = warm[-1][0] - warm[0][0] if warm else 0.0
    floors = block_floors(warm)
    if span_s < rule.least_s or len(floors) < BLOCKS_MIN:
        return Trend(verdict=Verdict.TOO_SHORT, unit=rule.unit, seconds=span_s, highest=highest)
    level = statistics.median(value for _, value in floors)
    slope, low, high = theil_sen(floors)
    allowed = max(rule.allowed, rule.allowed_share * level)
    hourly = 3600.0 / rule.per_unit
    return Trend(
        verdict=_judged(floors, slope=slope, low=low, span_s=span_s, allowed=allowed),
        unit=rule.unit,
        seconds=span_s,
        level=level / rule.per_unit,
        highest=highest,
        per_hour=slope * hourly,
        per_hour_low=low * hourly,
        per_hour_high=high * hourly,
        unseen_per_hour=allowed / span_s * hourly,
    )


def _judged(floors: Sequence[Sample], *, slope: float, low: float, span_s: float, allowed: float) -> Verdict:
    if low <= 0.0 or slope * span_s <= allowed:
        return Verdict.FLAT
    late, _, _ = theil_sen(floors[len(floors) // 2 :])
    # A leak goes on as it began. What fills up is slow in its second half, by the same measure.
    return Verdict.LEAK if late * span_s > allowed else Verdict.SETTLING


def after_warm_up(samples: Sequence[Sample], share: float) -> Sequence[Sample]:
    if not samples:
        return samples
    first, last = samples[0][0], samples[-1][0]
    begins = first + (last - first) * share
    return [one for one in samples if one[0] >= begins]


def block_floors(samples: Sequence[Sample]) -> list[Sample]:
    """The lowest sample of each block of equal time, three samples to a block at least."""
    count = min(BLOCKS_MAX, len(samples) // 3)
    if count < 2:
        return []
    first, last = samples[0][0], samples[-1][0]
    width_s = (last - first) / count or 1.0
    blocks = itertools.groupby(samples, key=lambda one: min(count - 1, int((one[0] - first) / width_s)))
    return [min(block, key=lambda one: one[1]) for _, block in blocks]


def theil_sen(points: Sequence[Sample]) -> tuple[float, float, float]:
    """The slope, and the bounds between which it lies (Sen 1968). Two points at one moment have no slope."""
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in itertools.combinations(points, 2)
        if later[0] != earlier[0]
    )
    if not slopes:
        return 0.0, -math.inf, math.inf
    count = len(points)
    spread = Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = math.floor((len(slopes) - spread) / 2)
    high = math.ceil((len(slopes) + spread) / 2)
    return (
        statistics.median(slopes),
        slopes[low] if low >= 0 else -math.inf,
        slopes[high] if high < len(slopes) else math.inf,
    )
