# ruff: noqa: E501  one row, one line: it is read as a table
"""Every metric in one table: its name, what it means, and where its samples come from. The page of docs is made of it.

Labels are few and bounded; a chat or a user is never one. What the store knows is the same on every node; what a node counted is
its own, from its start on.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from peik import __version__
from peik.accounts.registry import HealthGrade
from peik.backups.model import Newest, newest
from peik.core.documents import DocumentStore
from peik.errors import StoreUnavailable
from peik.monitoring import values
from peik.monitoring.counts import Answering, Counting
from peik.monitoring.values import BOUNDS_S, Histogram, OverviewView
from peik.outbox.store import Tally
from peik.web.access import Caller
from peik.web.operations import AcceptHeaders, Written, operation

Sample = tuple[tuple[str, ...], float]
DAY_S = 24 * 3600.0
HOSTS_MAX = 50  # links come from people, and name whatever they like


class MetricKind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricReach(enum.StrEnum):
    NODE = "this node"
    STORE = "the whole store"


class MetricsView(msgspec.Struct, frozen=True, kw_only=True):
    """What samples are taken from, at one moment."""

    view: OverviewView
    counting: Counting
    version: str
    store: str
    temp_bytes: int
    backup_made_at_ms: int | None = None  # the newest good one
    backup_verified_at_ms: int | None = None
    answers: Mapping[tuple[str, ...], Histogram] = {}  # how long answers took, by door and kind of request


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of a counter without its _total
    kind: MetricKind = MetricKind.COUNTER
    labels: tuple[str, ...] = ()
    reach: MetricReach = MetricReach.NODE
    help: str
    samples: Callable[[MetricsView], Iterable[Sample]] = lambda measured: ()
    histograms: Callable[[MetricsView], Mapping[tuple[str, ...], Histogram]] | None = None


# ---- where samples come from ----


def _counted(name: str, *, per: float = 1) -> Callable[[MetricsView], Iterator[Sample]]:
    """What was counted under a name, by the rest of its key."""

    def samples(measured: MetricsView) -> Iterator[Sample]:
        for key, count in list(measured.counting.labelled.items()):
            if key[0] == name:
                yield key[1:], count / per

    return samples


def _plain(name: str) -> Callable[[MetricsView], list[Sample]]:
    """The same without labels: 0 before the first."""
    return lambda measured: [((), measured.counting.labelled[name,])]


def _summed(place: int) -> Callable[[MetricsView], list[Sample]]:
    return lambda measured: [((), measured.counting.whole.counts[place])]


def _letters(measured: MetricsView) -> Iterator[Sample]:
    for bot in measured.view.bots:
        for state in Tally.__struct_fields__:
            yield (str(bot.bot_id), state), getattr(bot.letters, state)


def _oldest(measured: MetricsView) -> Iterator[Sample]:
    for bot in measured.view.bots:
        since = bot.oldest_waiting_ms
        yield (str(bot.bot_id),), 0.0 if since is None else max(0, measured.view.at_ms - since) / 1000


def _paused(measured: MetricsView) -> Iterator[Sample]:
    for bot in measured.view.bots:
        yield (str(bot.bot_id),), 0 if bot.paused is None else 1


def _pending(measured: MetricsView) -> Iterator[Sample]:
    for line in measured.view.inbox:
        for one in line.consumers:
            yield (str(line.bot_id), one.name, "open"), one.open - one.handed
            yield (str(line.bot_id), one.name, "handed"), one.handed
            yield (str(line.bot_id), one.name, "delayed"), one.delayed
            yield (str(line.bot_id), one.name, "failed"), one.failed


def _lag(measured: MetricsView) -> Iterator[Sample]:
    for line in measured.view.inbox:
        for one in line.consumers:
            since = one.oldest_open_at_ms
            lag_s = 0.0 if since is None else max(0, measured.view.at_ms - since) / 1000
            yield (str(line.bot_id), one.name), lag_s


def _expiry(measured: MetricsView) -> Iterator[Sample]:
    for line in measured.view.inbox:
        if line.expires_at_ms is not None:
            yield (str(line.bot_id),), min(DAY_S, max(0, line.expires_at_ms - measured.view.at_ms) / 1000)


def _breakers(measured: MetricsView) -> Iterator[Sample]:
    view = measured.view
    for route in view.routes:
        if route.node == view.node:
            yield ("route", route.name), 1 if route.state == "open" else 0
    for host in [one for one in view.hosts if one.node == view.node][:HOSTS_MAX]:
        yield ("host", host.name), 1


def _in_use(measured: MetricsView) -> Iterator[Sample]:
    for route in measured.view.routes:
        if route.node == measured.view.node:
            yield (route.name,), int(route.is_in_use)


def _jobs(measured: MetricsView) -> Iterator[Sample]:
    for kind, tally in measured.view.jobs.items():
        for state in tally.__struct_fields__:
            yield (kind, state), getattr(tally, state)


def _sessions(measured: MetricsView) -> Iterator[Sample]:
    for state, count in (measured.view.sessions or {}).items():
        yield (state,), count


def _session_health(measured: MetricsView) -> Iterator[Sample]:
    for grade in HealthGrade if measured.view.session_health is not None else ():
        yield (grade,), (measured.view.session_health or {}).get(grade, 0)


def _alerts(measured: MetricsView) -> Iterator[Sample]:
    yield (), len([alert for alert in measured.view.alerts if alert.node == measured.view.node])


def _missing(measured: MetricsView) -> Iterator[Sample]:
    for name in ("letters", "oldest_waiting", "inbox", "nodes", "jobs", "sessions", "figures"):
        yield (name,), int(name not in measured.view.missing)


def _recipients(measured: MetricsView) -> Iterator[Sample]:
    running = list(measured.counting.broadcasts.values())
    done = sum(one for _, one in running)
    yield ("done",), done
    yield ("left",), sum(total for total, _ in running) - done


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_STORE = MetricReach.STORE
PROMETHEUS_BOUNDS = tuple(range(0, len(BOUNDS_S), 2))  # each twice the one before

METRICS: tuple[Metric, ...] = (
    Metric(name="peik_build_info", kind=_G, labels=("version", "store", "node"), help="Always 1; what runs here.", samples=lambda one: [((one.version, one.store, one.view.node), 1)]),
    # letters
    Metric(name="peik_letters_accepted", help="Letters that were accepted.", samples=_summed(values.ACCEPTED)),
    Metric(name="peik_letters_failed", labels=("reason",), help="Letters that became dead letters: refused, uncertain, expired, unreachable (the chat), orphaned (what they refer to).", samples=_counted("letters_failed")),
    Metric(name="peik_letters_cancelled", help="Letters that somebody took back.", samples=_plain("letters_cancelled")),
    Metric(name="peik_letters_merged", help="Edits that gave way to a newer one of the same message.", samples=_plain("letters_merged")),
    Metric(name="peik_outbox_letters", kind=_G, labels=("bot", "state"), reach=_STORE, help="Letters by state; `failed` are dead letters.", samples=_letters),
    Metric(name="peik_outbox_oldest_seconds", kind=_G, labels=("bot",), reach=_STORE, help="How long the oldest letter has been waiting; 0: none waits.", samples=_oldest),
    Metric(name="peik_bot_paused", kind=_G, labels=("bot",), reach=_STORE, help="1 while the bot's letters wait, because of Telegram or a person.", samples=_paused),
    # tries
    Metric(name="peik_send_attempts", labels=("method", "outcome", "error_class"), help="Tries by outcome (delivered, limited, moved, refused, unsent, uncertain) and Telegram's code.", samples=lambda one: [(key, count) for key, count in list(one.counting.sent.items())]),
    Metric(name="peik_send_duration_seconds", kind=_H, help="One try, from when it left until its answer.", histograms=lambda one: {(): one.counting.whole.tries}),
    Metric(name="peik_end_to_end_seconds", kind=_H, help="From accepted to delivered, of letters that this process saw come.", histograms=lambda one: {(): one.counting.whole.end_to_end}),
    Metric(name="peik_uncertain_sends", help="Tries that may have arrived.", samples=_summed(values.UNCERTAIN)),
    Metric(name="peik_send_retries", help="Tries that were put off: refused for now, or uncertain.", samples=_summed(values.RETRIED)),
    Metric(name="peik_flood_waits", labels=("scope",), help="How often Telegram asked to wait (429): for a chat, a bot or an account (`session`).", samples=_counted("floods")),
    Metric(name="peik_flood_wait_seconds", labels=("scope",), help="How long it asked to wait, all together.", samples=_counted("flood_ms", per=1000)),
    Metric(name="peik_breaker_state", kind=_G, labels=("kind", "target"), help="1: open, nothing passes; 0: closed. Of routes to Telegram, and of outside hosts of jobs, of which only those are here that are not well.", samples=_breakers),
    Metric(name="peik_route_in_use", kind=_G, labels=("route",), help="1: letters go by this route.", samples=_in_use),
    Metric(name="peik_route_openings", labels=("route",), help="How often the route's breaker opened.", samples=_counted("route_openings")),
    Metric(name="peik_webhook_messages", labels=("outcome",), help="Ends of letters that webhooks were told: told, failed (tried again), dropped (given up).", samples=_counted("hooks")),
    # updates
    Metric(name="peik_updates_received", labels=("bot",), help="Updates that were stored.", samples=_counted("updates")),
    Metric(name="peik_updates_duplicate", labels=("bot",), help="Updates that came again, and were left out.", samples=_counted("updates_again")),
    Metric(name="peik_updates_handled", labels=("bot", "state"), help="Updates by what handlers and pushes made of them: completed, failed (dead arrivals), deferred.", samples=_counted("arrivals")),
    Metric(name="peik_updates_pending", kind=_G, labels=("bot", "consumer", "state"), reach=_STORE, help="What waits for a consumer (open, delayed, failed), and what its poller has in hand (handed).", samples=_pending),
    Metric(name="peik_update_lag_seconds", kind=_G, labels=("bot", "consumer"), reach=_STORE, help="How long the oldest open update has been waiting; 0: none is.", samples=_lag),
    Metric(name="peik_inbound_expiry_seconds", kind=_G, labels=("bot",), reach=_STORE, help="Until Telegram drops the oldest update that may wait there; a day while all is well.", samples=_expiry),
    Metric(name="peik_updates_expired", labels=("bot",), help="Updates that Telegram dropped before Peik came for them.", samples=_counted("updates_expired")),
    Metric(name="peik_updates_dropped", labels=("bot",), help="Updates that went unread because they were too old (PEIK_KEEP_UNREAD).", samples=_counted("updates_dropped")),
    Metric(name="peik_poll_conflicts", labels=("bot", "kind"), help="Signs of somebody else who uses the token: poller, webhook, gap.", samples=_counted("intruders")),
    # jobs
    Metric(name="peik_user_jobs", kind=_G, labels=("kind", "state"), reach=_STORE, help="Long jobs by state.", samples=_jobs),
    Metric(name="peik_user_jobs_queued", labels=("kind",), help="Jobs that were queued.", samples=_counted("jobs_queued")),
    Metric(name="peik_user_job_runs", labels=("kind", "end"), help="Runs of jobs by their end.", samples=_counted("job_runs")),
    Metric(name="peik_user_job_run_seconds", labels=("kind",), help="How long runs took, all together.", samples=_counted("job_run_ms", per=1000)),
    Metric(name="peik_temp_bytes", kind=_G, help="Set aside for, or lying in, the work folders of jobs.", samples=lambda one: [((), one.temp_bytes)]),
    # outreach
    Metric(name="peik_broadcasts", labels=("state",), help="Broadcasts that came into a state.", samples=_counted("broadcasts")),
    Metric(name="peik_broadcast_recipients", kind=_G, labels=("state",), help="Recipients of the broadcasts that go on here: done, left.", samples=_recipients),
    Metric(name="peik_schedule_runs", labels=("state",), help="Due times of recurring work: done, skipped (the one before went on), missed (Peik was not there, and they are not made up for), refused.", samples=_counted("schedule_runs")),
    Metric(name="peik_notifications", labels=("when",), help="Notifications that were accepted: now, or later (a digest, quiet hours).", samples=_counted("notifications")),
    Metric(name="peik_links_refused", help="Codes that were wrong, used up or too old.", samples=_plain("links_refused")),
    # accounts
    Metric(name="peik_session_state", kind=_G, labels=("state",), reach=_STORE, help="Accounts by state.", samples=_sessions),
    Metric(name="peik_session_health", kind=_G, labels=("grade",), reach=_STORE, help="Accounts by health: those that are `failing` try again by themselves, those that `ended` need somebody.", samples=_session_health),
    Metric(name="peik_archive_gaps", help="Gaps that Telegram could not replay; their history is read.", samples=_plain("archive_gaps")),
    Metric(name="peik_archive_gap_messages", help="Messages that were missing in the archive and were found.", samples=_plain("archive_filled")),
    Metric(name="peik_log_lines_dropped", help="Lines of the log that the archive could not keep.", samples=_plain("log_dropped")),
    # requests
    Metric(name="peik_http_seconds", kind=_H, labels=("door", "route"), help="How long a request took to be answered, by door (rest, gateway, files, dashboard, webhook) and kind of request; without the time that it asked to wait, and without streams.", histograms=lambda one: one.answers),
    # Peik itself
    Metric(name="peik_backup_age_seconds", kind=_G, reach=_STORE, help="How old the newest good backup is; not there before the first.", samples=lambda one: [] if one.backup_made_at_ms is None else [((), max(0, one.view.at_ms - one.backup_made_at_ms) / 1000)]),
    Metric(name="peik_backup_verified_timestamp_seconds", kind=_G, reach=_STORE, help="When a backup was last tried out and found sound, in Unix time.", samples=lambda one: [] if one.backup_verified_at_ms is None else [((), one.backup_verified_at_ms / 1000)]),
    Metric(name="peik_alerts", kind=_G, help="Troubles that go on, as this node knows them.", samples=_alerts),
    Metric(name="peik_store_failures", help="Times that the store could not be used.", samples=_plain("store_failures")),
    Metric(name="peik_leases_lost", help="Leases that another node took because this one did not answer.", samples=_plain("leases_lost")),
    Metric(name="peik_surprises", help="Things that the code did not foresee; the log has each.", samples=_plain("surprises")),
    Metric(name="peik_part_known", kind=_G, labels=("part",), help="0: the store did not tell this part just now, and its metrics are as they were before.", samples=_missing),
)  # fmt: skip


# `GET /metrics`: how Peik stands, in the words of Prometheus. State is read when it is asked for, and kept by nobody.


if TYPE_CHECKING:
    from peik.monitoring.figures import Figures
    from peik.monitoring.overview import Overview


class MetricsAnswer(Written, frozen=True, kw_only=True):
    """The text format of Prometheus, or OpenMetrics if it is asked for."""


class MetricsApi:
    """`is_open`: anyone who reaches the port may read them; else a key with the scope read, for all bots."""

    def __init__(
        self,
        overview: "Overview",
        figures: "Figures",
        *,
        is_open: bool,
        store: str,
        temp_bytes: Callable[[], int],
        answering: Answering | None = None,
        documents: DocumentStore | None = None,
    ) -> None:
        self.is_open = is_open
        self._overview = overview
        self._figures = figures
        self._store = store
        self._temp_bytes = temp_bytes
        self._answering = answering
        self._documents = documents

    @operation(
        "GET",
        "/metrics",
        name="getMetrics",
        tag="health",
        scope="read",
        is_for_all=True,
        media_type="text/plain",
        other_media_types=("application/openmetrics-text",),
    )
    async def get_metrics(self, caller: Caller | None, headers: AcceptHeaders) -> MetricsAnswer:
        """What Prometheus collects: counts since the start of this node, and how everything stands now."""
        backups = await self._newest_backup()
        measured = MetricsView(
            view=await self._overview.now(),
            counting=self._figures.counting,
            version=__version__,
            store=self._store,
            temp_bytes=self._temp_bytes(),
            backup_made_at_ms=backups.made_at_ms,
            backup_verified_at_ms=backups.verified_at_ms,
            answers={} if self._answering is None else dict(self._answering.took.items()),
        )
        encode, content_type = choose_encoder(headers.accept or "")
        return MetricsAnswer(
            body=encode(registry_of(measured)), media_type=content_type, headers={"Cache-Control": "no-store"}
        )

    async def _newest_backup(self) -> Newest:
        if self._documents is None:
            return Newest()
        try:
            return await newest(self._documents)
        except StoreUnavailable:
            return Newest()  # the rest of the page is needed all the more


def registry_of(measured: MetricsView) -> CollectorRegistry:
    """One of our own for each answer: nothing of another library gets in, and nothing lingers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(measured))
    ProcessCollector(registry=registry)
    return registry


class _Moment(Collector):
    def __init__(self, measured: MetricsView) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._measured)


def _family(metric: Metric, measured: MetricsView) -> Family:
    if metric.histograms is not None:
        return _histogram(metric, metric.histograms(measured))
    make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.samples(measured):
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, histograms: Mapping[tuple[str, ...], Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, histogram in histograms.items():
        buckets = [*_cumulative(histogram, PROMETHEUS_BOUNDS), ("+Inf", float(histogram.count))]
        family.add_metric(labels, buckets, sum_value=histogram.sum_s)
    return family


def _cumulative(histogram: Histogram, places: Iterable[int]) -> Iterator[tuple[str, float]]:
    for place in places:
        yield f"{BOUNDS_S[place]:g}", float(sum(histogram.counts[: place + 1]))
