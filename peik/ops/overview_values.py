"""How Peik stands at one moment, as values. The dashboard, `GET /v1/overview` and the metrics are made of them."""

import msgspec

from peik.job_ports import JobTally
from peik.ports import Tally


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
    name: str  # of the event: the kind of trouble
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
    missing: tuple[str, ...]  # what the store did not tell just now, and is shown as it was before: letters, inbox, …
