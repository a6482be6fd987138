"""The lines of the table: which figure is held against which ceiling, and the goals of DESIGN.md's budget table.

A goal is a factor times a base. The base is a figure of this run, or one that DESIGN.md documents (peers measured in
November 2026 on a two-core machine), or an absolute number; which of them is always said.
"""

from collections.abc import Mapping

import msgspec

from bench.figures import Spread


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """`factor` times the figure `of` this run, or times `documented`, a peer's figure by name. `is_most`: less is better."""

    factor: float = 1.0
    of: str | None = None
    documented: tuple[str, float] | None = None
    absolute: float | None = None
    is_most: bool = False

    def target(self, spreads: Mapping[str, Spread]) -> float:
        if self.of is not None:
            return self.factor * spreads[self.of].median
        if self.documented is not None:
            return self.factor * self.documented[1]
        assert self.absolute is not None, "a goal has a base"
        return self.absolute

    def is_reached(self, figure: float, spreads: Mapping[str, Spread], *, share: float = 1.0) -> bool:
        """Whether this share of the goal is reached: half of "at most 10" is 20."""
        target = self.target(spreads)
        return figure <= target / share if self.is_most else figure >= target * share


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a figure, what it is held against in the same run, and its goals."""

    name: str
    title: str
    unit: str
    ceiling: str | None = None
    goals: tuple[Goal, ...] = ()


CEILINGS: tuple[Line, ...] = (
    Line(name="fsync", title="write 4 KiB and fdatasync", unit="/s"),
    Line(name="sqlite_1", title="bare SQLite, single commits", unit="rows/s"),
    Line(name="sqlite_100", title="bare SQLite, 100 a commit", unit="rows/s"),
    Line(name="sqlite_500", title="bare SQLite, 500 a commit", unit="rows/s"),
    Line(name="sqlite_500_lanes", title="the same with the lane index", unit="rows/s"),
    Line(name="aiohttp_loop", title="bare aiohttp loop, 64 workers", unit="calls/s"),
    Line(name="stub", title="the stub itself, raw pipelined", unit="calls/s"),
    Line(name="bare_idle_p50_ms", title="bare commit and aiohttp call, idle, p50", unit="ms"),
    Line(name="bare_idle_p99_ms", title="bare commit and aiohttp call, idle, p99", unit="ms"),
    Line(name="direct_send_p50_ms", title="a send straight to the stub, p50", unit="ms"),
    Line(name="direct_reads", title="reads straight to the stub, 32 at once", unit="calls/s"),
    Line(name="bare_aiohttp_poll", title="getUpdates with aiohttp, storing nothing, 10 ms away", unit="updates/s"),
    Line(name="bare_carrier_poll", title="the same with Peik's own HTTP client", unit="updates/s"),
    Line(name="bare_aiohttp_poll_at_once", title="getUpdates with aiohttp, storing nothing, 0 ms", unit="updates/s"),
    Line(name="bare_carrier_poll_at_once", title="the same with Peik's own HTTP client", unit="updates/s"),
    Line(name="page_small_ms", title="next page of 100 arrivals, 100 stored", unit="ms"),
)

# What DESIGN.md documents of the same ceilings on the machine of the peers: how this machine compares with that one.
DOCUMENTED_CEILINGS: Mapping[str, float] = {"sqlite_1": 5_000, "sqlite_100": 129_000, "aiohttp_loop": 7_400}

_BULLMQ_ALWAYS_1 = ("BullMQ always", 1_700.0)
_BULLMQ_ALWAYS_50 = ("BullMQ always", 14_800.0)
_BULLMQ_POSTGRES_BATCH = ("BullMQ on PostgreSQL", 18_600.0)
_BULLMQ_DRAIN = ("BullMQ everysec", 5_700.0)
_PYTHON_DRAIN = ("best Python peer", 1_500.0)
_TASKIQ_P50 = ("taskiq p50", 1.7)
_SAQ_P99 = ("SAQ p99", 3.4)

LINES: tuple[Line, ...] = (
    Line(
        name="accept_1",
        title="accept, library, one caller",
        unit="letters/s",
        ceiling="sqlite_1",
        goals=(Goal(factor=2, documented=_BULLMQ_ALWAYS_1), Goal(factor=0.6, of="sqlite_1")),
    ),
    Line(
        name="accept_50",
        title="accept, library, 50 callers",
        unit="letters/s",
        ceiling="sqlite_100",
        goals=(Goal(factor=3, documented=_BULLMQ_ALWAYS_50),),
    ),
    Line(
        name="accept_batch",
        title="accept, library, batches of 500",
        unit="letters/s",
        ceiling="sqlite_500",
        goals=(
            Goal(factor=4, documented=_BULLMQ_POSTGRES_BATCH),
            Goal(factor=0.6, of="sqlite_100"),
        ),  # DESIGN.md: at 100 a batch
    ),
    Line(
        name="rest_batch",
        title="accept over REST, batches of 500",
        unit="letters/s",
        ceiling="sqlite_500",
        goals=(Goal(absolute=50_000),),
    ),
    Line(
        name="drain",
        title="drain 20,000 to the stub",
        unit="letters/s",
        ceiling="aiohttp_loop",
        goals=(Goal(factor=2, documented=_BULLMQ_DRAIN), Goal(factor=8, documented=_PYTHON_DRAIN)),
    ),
    Line(name="whole_way", title="50 callers and delivery at once", unit="letters/s", ceiling="aiohttp_loop"),
    Line(
        name="idle_p50_ms",
        title="idle: accept → request at stub, p50",
        unit="ms",
        ceiling="bare_idle_p50_ms",
        goals=(Goal(factor=0.5, documented=_TASKIQ_P50, is_most=True),),
    ),
    Line(
        name="idle_p99_ms",
        title="idle: accept → request at stub, p99",
        unit="ms",
        ceiling="bare_idle_p99_ms",
        goals=(Goal(documented=_SAQ_P99, is_most=True),),
    ),
    Line(
        name="rss_idle_mb",
        title="memory of peik serve, idle",
        unit="MB",
        goals=(Goal(absolute=90, is_most=True),),
    ),
    Line(
        name="rss_more_mb",
        title="memory more, 100,000 waiting (goal: 1,000,000)",
        unit="MB",
        goals=(Goal(absolute=16, is_most=True),),
    ),
    Line(
        name="rss_more_mb_million",
        title="memory more, 1,000,000 waiting",
        unit="MB",
        goals=(Goal(absolute=16, is_most=True),),
    ),
    Line(
        name="disk_bytes",
        title="database per waiting letter, 100,000 waiting",
        unit="bytes",
        goals=(Goal(absolute=400, is_most=True),),
    ),
    Line(
        name="disk_bytes_million",
        title="database per waiting letter, 1,000,000 waiting",
        unit="bytes",
        goals=(Goal(absolute=400, is_most=True),),
    ),
    Line(
        name="gateway_added_p50_ms",
        title="a send through the gateway, added, p50",
        unit="ms",
        ceiling="direct_send_p50_ms",
        goals=(Goal(absolute=1, is_most=True),),
    ),
    Line(
        name="gateway_added_p99_ms",
        title="a send through the gateway, added, p99",
        unit="ms",
        goals=(Goal(absolute=5, is_most=True),),
    ),
    Line(
        name="gateway_reads",
        title="reads passed through the gateway, 32 at once",
        unit="calls/s",
        ceiling="direct_reads",
    ),
    Line(
        name="recover",
        title="take over 10,000 updates, 100 a page, 10 ms away",
        unit="updates/s",
        ceiling="bare_aiohttp_poll",
        goals=(Goal(factor=0.8, of="bare_aiohttp_poll"),),
    ),
    Line(
        name="recover_at_once",
        title="the same from a Telegram without distance",
        unit="updates/s",
        ceiling="bare_aiohttp_poll_at_once",
        goals=(Goal(factor=0.8, of="bare_aiohttp_poll_at_once"),),
    ),
    Line(
        name="page_large_ms",
        title="next page of 100 arrivals, 100,000 stored",
        unit="ms",
        ceiling="page_small_ms",
    ),
    Line(name="log_mb", title="write-ahead log beside it (bounded)", unit="MB"),
)
