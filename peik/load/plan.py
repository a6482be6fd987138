"""What is to be done, when, and why so much of it. Pure: chance comes in as an argument."""

import enum
import itertools
import math
import random
import re
import statistics
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from peik.core.units import parse_duration_s
from peik.monitoring.doctor import LETTERS, PEAK, REQUESTS

LETTERS_MAX = 1_000_000  # of one run: what the simulated Telegram and we ourselves keep of each of them
BATCH = 10
# How letters come: most of them alone by REST, some ten at a time, some by bots that wait for Telegram's answer.
BATCH_SHARE, GATEWAY_SHARE = 0.3, 0.1
PROFILES = {"1k": 1_000, "5k": 5_000, "10k": 10_000}  # new users a day

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h|d))?")
_PER_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class LoadWay(enum.StrEnum):
    SINGLE = "rest"
    BATCH = "batch"
    GATEWAY = "gateway"


class LoadWork(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what. A bot answers each update, so there is a letter for each besides `letters_per_s`."""

    letters_per_s: float
    updates_per_s: float
    for_s: float
    bots: int = 3
    chats: int = 500

    @property
    def sends(self) -> int:
        return round((self.letters_per_s + self.updates_per_s) * self.for_s)


class LoadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Letters that go in one request: one of them, or a batch."""

    due_s: float
    way: LoadWay
    first: int  # its number; those of a batch follow
    count: int
    bot: int


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody writes to a bot."""

    due_s: float
    number: int
    bot: int
    chat: int


def profile(users_a_day: int) -> tuple[float, float]:
    """Letters and updates a second in the busiest minute of such a day, by the same arithmetic as the doctor's: five requests
    of each user (of three to five), a tenth of the day in its busiest hour, three times that in its busiest minute. Each
    request is an update and four letters, of which one is the bot's own answer."""
    requests_per_s = users_a_day * REQUESTS * PEAK
    return requests_per_s * (LETTERS - 1), requests_per_s


def users_a_day(letters_per_s: float) -> int:
    """For a number of letters a second in the busiest minute, answers included."""
    return int(letters_per_s / (REQUESTS * PEAK * LETTERS))


def letters_plan(work: LoadWork, chance: random.Random) -> list[LoadLetters]:
    """In the order of time. Moments are those of a Poisson process: callers do not know of one another."""
    total = round(work.letters_per_s * work.for_s)
    batches = round(total * BATCH_SHARE / BATCH)
    by_gateway = round(total * GATEWAY_SHARE)
    ways = [LoadWay.BATCH] * batches + [LoadWay.GATEWAY] * by_gateway
    ways += [LoadWay.SINGLE] * (total - batches * BATCH - by_gateway)
    chance.shuffle(ways)
    planned, number = [], 0
    for due_s, way in zip(_moments(len(ways), work.for_s, chance), ways, strict=True):
        count = BATCH if way is LoadWay.BATCH else 1
        planned.append(LoadLetters(due_s=due_s, way=way, first=number, count=count, bot=chance.randrange(work.bots)))
        number += count
    return planned


def updates_plan(work: LoadWork, chance: random.Random) -> list[Written]:
    moments = _moments(round(work.updates_per_s * work.for_s), work.for_s, chance)
    return [
        Written(due_s=due_s, number=number, bot=chance.randrange(work.bots), chat=chance.randrange(work.chats))
        for number, due_s in enumerate(moments)
    ]


def _moments(count: int, for_s: float, chance: random.Random) -> list[float]:
    return sorted(chance.uniform(0.0, for_s) for _ in range(count))


def parse_rate(text: str) -> float:
    """A second's worth of "50/s", "20", "300/m". Raises ValueError with a hint."""
    match = _RATE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a rate; write 50/s, 300/m or 5000/h")
    return float(match[1]) / _PER_S[match[2] or "s"]


def parse_span(text: str) -> float:
    """Seconds, more than none. Raises ValueError with a hint."""
    seconds = parse_duration_s(text)
    if seconds <= 0:
        raise ValueError("a load needs some time; write 60s or 30m")
    return seconds


# How long each piece of work took, from the moment it was due. Every one is kept, so the percentiles are exact.


# 1, 2, 5, 10 … ms: what people read without a ruler.
EDGES_S: tuple[float, ...] = tuple(step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5))


class LatencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind of work, in milliseconds."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class LatencyBar(msgspec.Struct, frozen=True, kw_only=True):
    """How many took at most `up_to_s`, and more than the bar before it; the last one has no bound."""

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

    def figures(self, *, since_s: float = 0.0) -> LatencyFigures | None:
        """None if there is nothing to say."""
        ordered = sorted(took for due, took in self if due >= since_s)
        if not ordered:
            return None
        p50, p95, p99 = (1000 * percentile(ordered, percent) for percent in (50, 95, 99))
        return LatencyFigures(count=len(ordered), p50_ms=p50, p95_ms=p95, p99_ms=p99, max_ms=1000 * ordered[-1])

    def bars(self) -> list[LatencyBar]:
        """From the first bar that holds something to the last."""
        counts = [0] * (len(EDGES_S) + 1)
        for took_s in self._took_s:
            counts[bisect_left(EDGES_S, took_s)] += 1
        full = [number for number, count in enumerate(counts) if count]
        if not full:
            return []
        edges: list[float | None] = [*EDGES_S, None]
        return [LatencyBar(up_to_s=edges[number], count=counts[number]) for number in range(full[0], full[-1] + 1)]

    def over_time(self, percent: float, *, width_s: float) -> list[tuple[float, float]]:
        """The percentile of what was due in each stretch of some seconds, at the stretch's middle."""
        stretches: dict[int, list[float]] = {}
        for due_s, took_s in self:
            stretches.setdefault(int(due_s // width_s), []).append(took_s)
        return [
            ((number + 0.5) * width_s, percentile(sorted(took), percent)) for number, took in sorted(stretches.items())
        ]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that a percentage of them does not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


# Whether a figure that should stay level has grown: a robust slope with its uncertainty, and a verdict that may be
# "too short".
#
# Memory does not fall back evenly and rises in steps, so a straight line through all samples would see leaks
# everywhere. Here the samples are put into blocks of equal time, of which only the lowest counts (a leak raises the
# floor, a busy moment does not), and the slope is Theil's and Sen's: the median of the slopes of all pairs, which a
# third of wild values cannot move.


BLOCKS_MAX = 40
BLOCKS_MIN = 8
Z = 2.576  # of a hundred such intervals 99 hold the true slope, if the blocks were independent; neighbours are not quite

Sample = tuple[float, float]  # seconds since the beginning, the figure


class TrendVerdict(enum.StrEnum):
    FLAT = "flat"
    SETTLING = "settling"  # it grew, and hardly does any more: caches that fill
    LEAK = "leak"
    TOO_SHORT = "too short to say"


class TrendRule(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as growth. Below `allowed` over the whole time nothing is called a leak, however steady it is."""

    unit: str
    per_unit: float = 1.0  # of the figures, in one unit of what people read
    allowed: float  # in the figures' own measure
    allowed_share: float = 0.0  # of the level, if that is more
    warm_share: float = 1 / 3  # of the time, which is not looked at: caches fill, pools open
    least_s: float = 120.0  # of what is left; less says nothing


MEMORY = TrendRule(unit="MiB", per_unit=2.0**20, allowed=6 * 2.0**20, allowed_share=0.05)
HANDLES = TrendRule(unit="handles", allowed=8.0)


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Figures are in the rule's unit; slopes per hour."""

    verdict: TrendVerdict
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
        if self.verdict is TrendVerdict.TOO_SHORT:
            return f"too short to say: {self.seconds:.0f} s after the warm-up"
        held = (
            f"{self.verdict} at {self.level:.0f} {self.unit}: {self.per_hour:+.1f} an hour "
            f"(99 %: {self.per_hour_low:+.1f} to {self.per_hour_high:+.1f}) in {self.seconds:.0f} s"
        )
        if self.verdict is TrendVerdict.FLAT and self.unseen_per_hour is not None:
            held += f"; less than {self.unseen_per_hour:.0f} an hour could not be seen"
        return held


def trend(samples: Sequence[Sample], rule: TrendRule) -> Trend:
    highest = max((value for _, value in samples), default=0.0) / rule.per_unit
    warm = after_warm_up(samples, rule.warm_share)
    span_s = warm[-1][0] - warm[0][0] if warm else 0.0
    floors = block_floors(warm)
    if span_s < rule.least_s or len(floors) < BLOCKS_MIN:
        return Trend(verdict=TrendVerdict.TOO_SHORT, unit=rule.unit, seconds=span_s, highest=highest)
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


def _judged(floors: Sequence[Sample], *, slope: float, low: float, span_s: float, allowed: float) -> TrendVerdict:
    if low <= 0.0 or slope * span_s <= allowed:
        return TrendVerdict.FLAT
    late, _, _ = theil_sen(floors[len(floors) // 2 :])
    # A leak goes on as it began. What fills up is slow in its second half, by the same measure.
    return TrendVerdict.LEAK if late * span_s > allowed else TrendVerdict.SETTLING


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
