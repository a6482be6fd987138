"""`GET /metrics`: how Peik stands, in the words of Prometheus. State is read when it is asked for, and kept by nobody."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from peik import __version__
from peik.backups.ledger import Newest, newest
from peik.core.histogram import BOUNDS_S, Histogram
from peik.doors.access import Access
from peik.doors.replies import Route
from peik.errors import StoreUnavailable
from peik.ops.answering import Answering
from peik.ops.metrics import METRICS, PROMETHEUS_BOUNDS, Kind, Measured, Metric
from peik.paper_ports import PaperStore

if TYPE_CHECKING:
    from peik.ops.figures import Figures
    from peik.ops.overview import Overview

PATH = "/metrics"


class MetricsRoutes:
    """`is_open`: whoever reaches the port may read them; else a key with the scope read, for all bots."""

    def __init__(
        self,
        overview: "Overview",
        figures: "Figures",
        access: Access,
        *,
        is_open: bool,
        store: str,
        temp_bytes: Callable[[], int],
        answering: Answering | None = None,
        papers: PaperStore | None = None,
    ) -> None:
        self._overview = overview
        self._figures = figures
        self._access = access
        self._is_open = is_open
        self._store = store
        self._temp_bytes = temp_bytes
        self._answering = answering
        self._papers = papers

    def table(self) -> tuple[Route, ...]:
        return (("GET", PATH, self.get_metrics, "getMetrics", "health"),)

    async def get_metrics(self, request: Request) -> Response:
        """What Prometheus collects: counts since the start of this node, and how everything stands now."""
        if not self._is_open:
            self._access.admit(request, "read").must_serve_all()
        backups = await self._newest_backup()
        measured = Measured(
            view=await self._overview.now(),
            counting=self._figures.counting,
            version=__version__,
            store=self._store,
            temp_bytes=self._temp_bytes(),
            backup_made_at_ms=backups.made_at_ms,
            backup_verified_at_ms=backups.verified_at_ms,
            answers={} if self._answering is None else dict(self._answering.took.items()),
        )
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(
            encode(registry_of(measured)), headers={"content-type": content_type, "cache-control": "no-store"}
        )

    async def _newest_backup(self) -> Newest:
        if self._papers is None:
            return Newest()
        try:
            return await newest(self._papers)
        except StoreUnavailable:
            return Newest()  # the rest of the page is needed all the more


def registry_of(measured: Measured) -> CollectorRegistry:
    """One of our own for each answer: nothing of another library gets in, and nothing lingers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(measured))
    ProcessCollector(registry=registry)
    return registry


class _Moment(Collector):
    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._measured)


def _family(metric: Metric, measured: Measured) -> Family:
    if metric.histograms is not None:
        return _histogram(metric, metric.histograms(measured))
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
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
