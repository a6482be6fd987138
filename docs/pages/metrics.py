"""Every metric, and what is worth an alert."""

from docs.pages.markdown import code, table
from peik.monitoring.metrics import METRICS, MetricKind


def metrics_parts() -> list[str]:
    rows = [
        (
            code(metric.name + ("_total" if metric.kind is MetricKind.COUNTER else "")),
            metric.kind.value,
            ", ".join(map(code, metric.labels)) or "none",
            metric.reach.value,
            metric.help,
        )
        for metric in METRICS
    ]
    return [
        (
            "`GET /metrics` answers in the text format of Prometheus, or in OpenMetrics to those who ask for it. It needs a key "
            "that may read and is for all bots; with `PEIK_METRICS=open` it needs none, so that whoever reaches the port can "
            "read it. No chat and no user is ever a label."
        ),
        """```yaml
scrape_configs:
  - job_name: peik
    authorization: {credentials: peik_…}  # a key with the scope read
    static_configs: [{targets: ["peik.example:8081"]}]
```""",
        (
            "Counters and histograms are of *this node*, from its start on: add them up over nodes (`sum`). What is read from "
            "*the whole store* is the same on every node: take one of them (`max`), or it counts as often as there are nodes. "
            "Asking is cheap: the store is asked once a second at most, and less often the longer it takes to answer; then "
            "`peik_part_known` says what is older than that. The metrics of the process itself (`process_…`) come with it."
        ),
        table(("metric", "kind", "labels", "of", "what it says"), rows),
        "## Worth an alert",
        table(("what", "when"), _METRIC_ALERTS),
    ]


_METRIC_ALERTS = (
    ("letters wait for too long", code("max by (bot) (peik_outbox_oldest_seconds) > 600")),
    ("letters die", code("sum by (reason) (increase(peik_letters_failed_total[15m])) > 10")),
    ("there is no way to Telegram", code('min by (instance) (peik_breaker_state{kind="route"}) == 1')),
    ("Telegram will soon drop updates", code("min by (bot) (peik_inbound_expiry_seconds) < 43200")),
    ("a consumer does not keep up", code("max by (bot, consumer) (peik_update_lag_seconds) > 300")),
    ("a bot is paused", code("max by (bot) (peik_bot_paused) == 1")),
    ("the store fails", code("sum(increase(peik_store_failures_total[5m])) > 0")),
)
