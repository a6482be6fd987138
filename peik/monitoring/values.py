"""How Peik stands at one moment, as values. The dashboard, `GET /v1/overview` and the metrics are made of them."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from peik.jobs.store import JobTally
from peik.outbox.store import Tally


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    p50_s: float
    p95_s: float
    p99_s: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in one stretch of time, on all nodes. Percentiles are None if there was nothing to measure."""

    at_ms: int  # when it began
    seconds: int  # how long it is; of the one that is not over, how long it will be
    accepted: int = 0
    delivered: int = 0
    failed: int = 0  # dead letters, expired ones too
    uncertain: int = 0  # tries that may have arrived
    retried: int = 0  # tries that were put off: refused for now, or uncertain
    held: int = 0  # 429s
    held_s: float = 0.0  # how long Telegram asked to wait, all together
    updates: int = 0
    jobs_done: int = 0
    jobs_failed: int = 0
    end_to_end: Percentiles | None = None  # from accepted to delivered
    tries: Percentiles | None = None  # one call of Telegram


class BotLine(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: int
    username: str | None
    is_account: bool
    paused: str | None
    letters: Tally
    oldest_waiting_ms: int | None = None  # when the oldest letter came that is not over; None: none, or not known


class RouteLine(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    name: str
    kind: str
    state: str  # closed or open, as a breaker is: open means that nothing passes
    is_in_use: bool
    why: str | None
    since_ms: int
    probe_at_ms: int | None


class HostLine(msgspec.Struct, frozen=True, kw_only=True):
    """An outside host of jobs that is not well."""

    node: str
    name: str
    state: str  # open or half-open
    why: str | None
    since_ms: int | None
    retry_at_ms: int | None


class ConsumerLine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    open: int
    handed: int  # of the open ones, what pollers have in hand
    delayed: int
    failed: int
    oldest_open_at_ms: int | None
    seen_at_ms: int | None


class InboxLine(msgspec.Struct, frozen=True, kw_only=True):
    """A bot's updates. `expires_at_ms`: when Telegram drops the oldest update that may wait there, if nobody fetches it. A
    source that works puts it off with every answer: a day ahead is as good as it gets."""

    bot_id: int
    source: str  # polling, webhook or off
    seen_at_ms: int | None
    received_at_ms: int | None
    expires_at_ms: int | None
    expired: int
    consumers: tuple[ConsumerLine, ...]


class Ongoing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert whose cause is not over, as far as is known."""

    node: str = ""
    name: str  # of the rule: the kind of trouble
    bot_id: int
    text: str
    since_ms: int
    last_ms: int
    count: int


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str | None
    address: str | None
    started_at_ms: int
    seen_at_ms: int
    is_draining: bool
    is_this: bool
    bots: int


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    at_ms: int
    node: str
    letters: Tally  # over all bots
    oldest_waiting_ms: int | None
    bots: tuple[BotLine, ...]
    now: Point  # the last 60 seconds, or a little more
    hour: Point
    day: Point
    last_hour: tuple[Point, ...]  # a minute each, the oldest first; the last one is not over
    last_day: tuple[Point, ...]  # a quarter of an hour each
    routes: tuple[RouteLine, ...]
    hosts: tuple[HostLine, ...]
    inbox: tuple[InboxLine, ...]
    alerts: tuple[Ongoing, ...]  # the newest first
    nodes: tuple[NodeLine, ...]
    jobs: dict[str, JobTally]  # by kind
    sessions: dict[str, int] | None  # by state; None: there are no accounts here
    session_health: dict[str, int] | None = None  # by grade
    missing: tuple[str, ...]  # what the store did not tell just now, and is shown as it was before: letters, inbox, …


# How long things took, counted in fixed buckets: cheap to add to, exact to merge, and good to about a tenth when
# asked.


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

    def add_all(self, seconds: Sequence[float]) -> None:
        counts = self.counts
        for one in seconds:
            counts[bisect_left(BOUNDS_S, one)] += 1
        self.sum_s += sum(seconds)

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
        """A percentage of them took no longer than this. None: nothing was counted. Between two bounds it is guessed."""
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

    # ---- on document ----

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


# What happened in a stretch of time, added up: plain counts by name, and how long deliveries and tries took.


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


class SumsDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums as they are filed. What another version counted and this one does not know is left out."""

    counts: dict[str, int] = {}
    end_to_end: dict[int, int] = {}
    end_to_end_s: float = 0.0
    tries: dict[int, int] = {}
    tries_s: float = 0.0


_decode = msgspec.json.Decoder(SumsDocument).decode


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

    def as_document(self) -> str:
        return msgspec.json.encode(
            SumsDocument(
                counts={name: count for name, count in zip(COUNTED, self.counts, strict=True) if count},
                end_to_end=self.end_to_end.sparse(),
                end_to_end_s=round(self.end_to_end.sum_s, 6),
                tries=self.tries.sparse(),
                tries_s=round(self.tries.sum_s, 6),
            )
        ).decode()

    @classmethod
    def of_document(cls, body: str) -> "Sums":
        """Raises msgspec.DecodeError for what is no such document."""
        document = _decode(body)
        made = cls()
        made.counts = [document.counts.get(name, 0) for name in COUNTED]
        made.end_to_end = Histogram.of_sparse(document.end_to_end, document.end_to_end_s)
        made.tries = Histogram.of_sparse(document.tries, document.tries_s)
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


# The same by bot, method and kind of jobs, counted sparsely: there may be hundreds of each, and most of them are quiet.


FAMILIES = ("bot", "method", "kind")
PART_COUNTED = ("done", "failed", "uncertain", "retried", "held", "updates")
DONE, PART_FAILED, PART_UNCERTAIN, PART_RETRIED, PART_HELD, PART_UPDATES = range(len(PART_COUNTED))
OTHER = "other"  # what is beyond the bound of its family is counted together


class PartPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What one of them did in one stretch of time. Of jobs `done` are those that completed, and `took` is how long a run lasted;
    else `done` is what was delivered, and `took` runs from accepted to delivered."""

    at_ms: int
    seconds: int
    done: int = 0
    failed: int = 0
    uncertain: int = 0
    retried: int = 0
    held: int = 0
    updates: int = 0
    took: Percentiles | None = None


class PartRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    total: PartPoint
    points: tuple[PartPoint, ...]


class PartSums:
    __slots__ = ("counts", "took")

    def __init__(self, counts: Iterable[int] = (), took: Mapping[int, int] | None = None) -> None:
        self.counts = [*counts, *([0] * len(PART_COUNTED))][: len(PART_COUNTED)]
        self.took = dict(took or {})

    def take_up(self, other: "PartSums") -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        for bucket, count in other.took.items():
            self.took[bucket] = self.took.get(bucket, 0) + count

    def point(self, at_ms: int, seconds: int) -> PartPoint:
        took = _percentiles(Histogram.of_sparse(self.took, 0.0))
        return PartPoint(at_ms=at_ms, seconds=seconds, took=took, **dict(zip(PART_COUNTED, self.counts, strict=True)))


Parts = dict[str, dict[str, PartSums]]  # by family and name
_PartsBody = dict[str, dict[str, tuple[list[int], dict[int, int]]]]
_decode_parts = msgspec.json.Decoder(_PartsBody).decode


def parts_as_document(parts: Parts, *, most: Mapping[str, int]) -> str:
    """Of each family the busiest; the others are counted together."""
    body: _PartsBody = {}
    for family, named in parts.items():
        ranked = sorted(named.items(), key=lambda one: sum(one[1].counts), reverse=True)
        kept = {name: (sums.counts, sums.took) for name, sums in ranked[: most[family]]}
        if len(ranked) > most[family]:
            rest = PartSums(*kept.pop(OTHER, ()))
            for _, sums in ranked[most[family] :]:
                rest.take_up(sums)
            kept[OTHER] = (rest.counts, rest.took)
        body[family] = kept
    return msgspec.json.encode(body).decode()


def parts_of_document(body: str) -> Parts:
    """Raises msgspec.DecodeError for what is no such document."""
    return {
        family: {name: PartSums(*row) for name, row in named.items()} for family, named in _decode_parts(body).items()
    }
