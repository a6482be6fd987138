"""The lines of the table: which figure is held against what, and the goals.

A goal is a factor times a base. The base is the best of some figures of this run; where none of them was measured (a quick run
has no peers) it is the one that is written down here, taken in November 2026 on a two-core machine; or it is an absolute number.
Which of them it is is always said.
"""

from collections.abc import Mapping

import msgspec

from bench.figures import Spread


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """`factor` times the best of the figures `of` this run, else times `documented`. `is_most`: less is better."""

    factor: float = 1.0
    of: tuple[str, ...] = ()
    documented: tuple[str, float] | None = None
    absolute: float | None = None
    is_most: bool = False

    def base(self, spreads: Mapping[str, Spread]) -> tuple[str, float] | None:
        """The name of the best figure of this run, and the figure; None if none was measured."""
        measured = [(spreads[name].median, name) for name in self.of if name in spreads]
        if not measured:
            return None
        figure, name = min(measured) if self.is_most else max(measured)
        return name, figure

    def target(self, spreads: Mapping[str, Spread]) -> float | None:
        """None: it cannot be said from this run."""
        if self.absolute is not None:
            return self.absolute
        base = self.base(spreads) or self.documented
        return None if base is None else self.factor * base[1]

    def is_reached(self, figure: float, spreads: Mapping[str, Spread], *, share: float = 1.0) -> bool:
        """Whether this share of the goal is reached: half of "at most 10" is 20."""
        target = self.target(spreads)
        assert target is not None, "asked only of goals that have a target"
        return figure <= target / share if self.is_most else figure >= target * share


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a figure, what it is held against in the same run, and its goals."""

    name: str
    title: str
    unit: str
    ceiling: str | None = None
    peers: str | None = None  # the work of the peers that is held against it
    beside: tuple[str, ...] = ()  # further ceilings, and figures of single peers, shown among the peers
    goals: tuple[Goal, ...] = ()
    is_most: bool = False  # less is better


CEILINGS: tuple[Line, ...] = (
    Line(name="fsync", title="write 4 KiB and fdatasync", unit="/s"),
    Line(name="sqlite_1", title="bare SQLite, single commits", unit="rows/s"),
    Line(name="sqlite_100", title="bare SQLite, 100 a commit", unit="rows/s"),
    Line(name="sqlite_500", title="bare SQLite, 500 a commit", unit="rows/s"),
    Line(name="sqlite_500_lanes", title="the same with the lane index", unit="rows/s"),
    Line(name="aiohttp_loop", title="bare aiohttp loop, 64 workers", unit="calls/s"),
    Line(name="aiogram_loop", title="aiogram, 64 sends at once", unit="calls/s"),
    Line(name="carrier_loop", title="Peik's HTTP client alone, 64 at once", unit="calls/s"),
    Line(name="stub", title="the stub itself, raw pipelined", unit="calls/s"),
    Line(name="direct_answer_p50_ms", title="a person writes, the bot polls Telegram itself, p50", unit="ms"),
    Line(name="direct_answer_p99_ms", title="a person writes, the bot polls Telegram itself, p99", unit="ms"),
    Line(name="bare_idle_p50_ms", title="bare commit and aiohttp call, idle, p50", unit="ms"),
    Line(name="bare_idle_p99_ms", title="bare commit and aiohttp call, idle, p99", unit="ms"),
    Line(name="direct_send_p50_ms", title="a send straight to the stub, p50", unit="ms"),
    Line(name="direct_edits_s", title="100 edits straight to the simulated Telegram, 50 ms away", unit="s"),
    Line(name="direct_reads", title="reads straight to the stub, 32 at once", unit="calls/s"),
    Line(name="aiohttp_relay", title="bare relay on uvicorn, by aiohttp", unit="calls/s"),
    Line(name="lean_relay", title="bare relay on uvicorn, by Peik's HTTP client", unit="calls/s"),
    Line(name="fastapi", title="uvicorn and FastAPI, storing nothing, 50 connections", unit="requests/s"),
    Line(name="starlette_webhook", title="uvicorn and Starlette as webhook, storing nothing", unit="updates/s"),
    Line(name="aiogram_webhook", title="aiogram's own webhook, storing nothing", unit="updates/s"),
    Line(name="asyncpg_100", title="bare asyncpg, 100 a commit", unit="rows/s"),
    Line(name="xadd_100", title="bare XADD, 100 a pipeline, Redis always", unit="entries/s"),
    Line(name="lossy_bare_percent", title="one try each through a network that loses 40 %, with outages", unit="%"),
    Line(name="bare_aiohttp_poll", title="getUpdates with aiohttp, storing nothing, 10 ms away", unit="updates/s"),
    Line(name="bare_carrier_poll", title="the same with Peik's own HTTP client", unit="updates/s"),
    Line(name="bare_aiohttp_poll_at_once", title="getUpdates with aiohttp, storing nothing, 0 ms", unit="updates/s"),
    Line(name="bare_carrier_poll_at_once", title="the same with Peik's own HTTP client", unit="updates/s"),
    Line(name="page_small_ms", title="next page of 100 arrivals, 100 stored", unit="ms"),
)

# The same ceilings on the machine where the documented figures of the peers were taken: how this machine compares with it.
DOCUMENTED_CEILINGS: Mapping[str, float] = {"sqlite_1": 5_000, "sqlite_100": 129_000, "aiohttp_loop": 7_400}

_PYTHON = ("bullmq_python", "taskiq", "saq", "dramatiq", "procrastinate", "huey")
_ON_POSTGRES = ("saq_postgres", "bullmq_postgres", "procrastinate")
_ANY = ("bullmq_always", "bullmq_everysec", *_PYTHON)


def _of(work: str, *peers: str) -> tuple[str, ...]:
    return tuple(f"{peer}.{work}" for peer in peers)


LINES: tuple[Line, ...] = (
    Line(
        name="accept_50",
        title="accept, library, 50 callers",
        unit="letters/s",
        ceiling="sqlite_100",
        peers="accept_50",
        goals=(Goal(factor=3, of=_of("accept_50", "bullmq_always"), documented=("BullMQ always", 14_800)),),
    ),
    Line(
        name="accept_1",
        title="accept, library, one caller",
        unit="letters/s",
        ceiling="sqlite_1",
        peers="accept_1",
        goals=(
            Goal(factor=2, of=_of("accept_1", "bullmq_always"), documented=("BullMQ always", 1_700)),
            Goal(factor=0.6, of=("sqlite_1",)),
        ),
    ),
    Line(
        name="accept_batch",
        title="accept, library, batches of 500",
        unit="letters/s",
        ceiling="sqlite_100",
        peers="accept_batch",
        goals=(
            Goal(
                factor=4,
                of=_of("accept_batch", "bullmq_always", "bullmq_postgres", "bullmq_python", "procrastinate"),
                documented=("BullMQ on PostgreSQL", 18_600),
            ),
            Goal(factor=0.6, of=("sqlite_100",)),  # bare SQLite at 100 a batch
        ),
    ),
    Line(
        name="rest_batch",
        title="accept over REST, batches of 500",
        unit="letters/s",
        ceiling="sqlite_500",
        goals=(Goal(absolute=50_000),),
    ),
    Line(name="rest_50", title="accept over REST, 50 connections, one by one", unit="letters/s", ceiling="fastapi"),
    Line(
        name="drain",
        title="drain to the stub, one process",
        unit="letters/s",
        ceiling="carrier_loop",
        peers="drain",
        beside=("aiohttp_loop", "aiogram_loop"),
        goals=(
            Goal(
                factor=2,
                of=_of("drain", "bullmq_everysec_c5", "bullmq_everysec_c50"),
                documented=("BullMQ everysec", 5_700),
            ),
            Goal(factor=8, of=_of("drain", *_PYTHON), documented=("best Python peer", 1_500)),
        ),
    ),
    Line(name="whole_way", title="50 callers and delivery at once", unit="letters/s", ceiling="carrier_loop"),
    Line(
        name="idle_p50_ms",
        title="idle: accept → request at stub, p50",
        unit="ms",
        ceiling="bare_idle_p50_ms",
        peers="idle_p50_ms",
        is_most=True,
        goals=(Goal(factor=0.5, of=_of("idle_p50_ms", *_ANY), documented=("taskiq p50", 1.7), is_most=True),),
    ),
    Line(
        name="idle_p99_ms",
        title="idle: accept → request at stub, p99",
        unit="ms",
        ceiling="bare_idle_p99_ms",
        peers="idle_p99_ms",
        is_most=True,
        goals=(Goal(of=_of("idle_p99_ms", *_ANY), documented=("SAQ p99", 3.4), is_most=True),),
    ),
    Line(
        name="gateway_added_p50_ms",
        title="a send through the gateway, added, p50",
        unit="ms",
        ceiling="direct_send_p50_ms",
        is_most=True,
        goals=(Goal(absolute=1, is_most=True),),
    ),
    Line(
        name="gateway_added_p99_ms",
        title="a send through the gateway, added, p99",
        unit="ms",
        is_most=True,
        goals=(Goal(absolute=5, is_most=True),),
    ),
    Line(
        name="gateway_edits_ratio",
        title="100 edits in a private chat, one after the other, beside straight",
        unit="times",
        is_most=True,
        goals=(Goal(absolute=1.5, is_most=True),),
    ),
    Line(
        name="answer_p50_ms",
        title="a person writes, a bot of aiogram answers, p50",
        unit="ms",
        ceiling="direct_answer_p50_ms",
        is_most=True,
        goals=(Goal(factor=1.4, of=("direct_answer_p50_ms",), is_most=True),),
    ),
    Line(
        name="answer_p99_ms",
        title="a person writes, a bot of aiogram answers, p99",
        unit="ms",
        ceiling="direct_answer_p99_ms",
        is_most=True,
        goals=(Goal(factor=1.4, of=("direct_answer_p99_ms",), is_most=True),),
    ),
    Line(
        name="gateway_reads",
        title="reads passed through the gateway, 32 at once",
        unit="calls/s",
        ceiling="lean_relay",
        beside=("aiohttp_relay", "direct_reads"),
        goals=(Goal(factor=0.5, of=("aiohttp_relay", "lean_relay")),),
    ),
    Line(
        name="rss_idle_mb",
        title="memory of peik serve, idle",
        unit="MB",
        peers="rss_mb",
        is_most=True,
        goals=(Goal(absolute=90, is_most=True),),
    ),
    Line(
        name="rss_more_mb",
        title="memory more, 100,000 waiting (goal: 1,000,000)",
        unit="MB",
        is_most=True,
        goals=(Goal(absolute=16, is_most=True),),
    ),
    Line(
        name="rss_more_mb_million",
        title="memory more, 1,000,000 waiting",
        unit="MB",
        is_most=True,
        goals=(Goal(absolute=16, is_most=True),),
    ),
    Line(
        name="disk_bytes",
        title="database per waiting letter, 100,000 waiting",
        unit="bytes",
        peers="bytes_each",
        is_most=True,
        goals=(Goal(absolute=400, is_most=True),),
    ),
    Line(
        name="disk_bytes_million",
        title="database per waiting letter, 1,000,000 waiting",
        unit="bytes",
        is_most=True,
        goals=(Goal(absolute=400, is_most=True),),
    ),
    Line(
        name="webhook",
        title="updates pushed to the webhook, stored and synced",
        unit="updates/s",
        ceiling="starlette_webhook",
        beside=("aiogram_webhook",),
        goals=(
            Goal(factor=2, of=("aiogram_webhook",), documented=("aiogram", 3_000)),
            Goal(factor=0.7, of=("starlette_webhook",), documented=("uvicorn and Starlette", 8_700)),
        ),
    ),
    Line(
        name="recover",
        title="take over 10,000 updates, 100 a page, 10 ms away",
        unit="updates/s",
        ceiling="bare_aiohttp_poll",
        goals=(Goal(factor=0.8, of=("bare_aiohttp_poll",)),),
    ),
    Line(
        name="recover_at_once",
        title="the same from a Telegram without distance",
        unit="updates/s",
        ceiling="bare_aiohttp_poll_at_once",
        goals=(Goal(factor=0.8, of=("bare_aiohttp_poll_at_once",)),),
    ),
    Line(
        name="page_large_ms",
        title="next page of 100 arrivals, 100,000 stored",
        unit="ms",
        ceiling="page_small_ms",
        is_most=True,
    ),
    Line(
        name="postgres_50",
        title="accept on PostgreSQL, 50 callers",
        unit="letters/s",
        ceiling="asyncpg_100",
        beside=_of("accept_50", *_ON_POSTGRES),
        goals=(
            Goal(
                factor=8,
                of=_of("accept_50", *_ON_POSTGRES),
                documented=("SAQ", 1_750),
            ),
        ),
    ),
    Line(
        name="redis_50",
        title="accept on Redis always, 50 callers",
        unit="letters/s",
        ceiling="xadd_100",
        beside=_of("accept_50", "bullmq_always", "bullmq_python", "saq", "taskiq", "dramatiq"),
        goals=(Goal(factor=1.5, of=_of("accept_50", "bullmq_always"), documented=("BullMQ always", 14_800)),),
    ),
    Line(
        name="lossy_percent",
        title="arrived through a network that loses 40 %, with outages",
        unit="%",
        ceiling="lossy_bare_percent",
        goals=(Goal(absolute=100),),
    ),
    Line(
        name="lossy_doubled_by_habit",
        title="doubled there without an uncertain try",
        unit="letters",
        is_most=True,
        goals=(Goal(absolute=0, is_most=True),),
    ),
    Line(name="log_mb", title="write-ahead log beside it (bounded)", unit="MB", is_most=True),
)
