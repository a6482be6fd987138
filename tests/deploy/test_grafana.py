"""The dashboard for Grafana and the rules for Prometheus name only what `GET /metrics` has, and go by Peik's own limits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector
from typer.main import get_command

from peik.accounts.registry import HealthGrade
from peik.alerts.looks import RATE_MIN, Thresholds
from peik.alerts.rules import BY_NAME
from peik.app.commands import app
from peik.archive.store import SessionState
from peik.core.outcome import Outcome
from peik.core.units import parse_duration_s
from peik.jobs.store import JobTally
from peik.monitoring.metrics import METRICS, MetricKind
from peik.outbox.store import Tally
from peik.settings.table import SETTINGS
from tests.deploy.promql import named

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "peik.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")

OF_PROMETHEUS = {"instance", "job"}  # labels of whatever it reads
EXPRESSIONS = [
    *(pytest.param(one["expr"], id=f"{panel['title']} {one['refId']}") for panel in PANELS for one in panel["targets"]),
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in RULES),
]
VALUES = {
    ("peik_outbox_letters", "state"): set(Tally.__struct_fields__),
    ("peik_user_jobs", "state"): set(JobTally.__struct_fields__),
    ("peik_session_state", "state"): {str(state) for state in SessionState},
    ("peik_session_health", "grade"): {str(grade) for grade in HealthGrade},
    ("peik_send_attempts_total", "outcome"): {kind.__name__.lower() for kind in Outcome.__args__},
    ("peik_breaker_state", "kind"): {"route", "host"},
    ("peik_flood_wait_seconds_total", "scope"): {"chat", "bot", "session"},
    ("peik_webhook_messages_total", "outcome"): {"told", "failed", "dropped"},
    ("peik_updates_handled_total", "state"): {"completed", "failed", "deferred"},
    ("peik_broadcasts_total", "state"): {"stopped"},
}


def series() -> dict[str, set[str]]:
    """Every name under which there are samples, with its labels."""
    known: dict[str, set[str]] = {"up": set()}
    for metric in METRICS:
        labels = set(metric.labels)
        match metric.kind:
            case MetricKind.COUNTER:
                known[f"{metric.name}_total"] = labels
            case MetricKind.HISTOGRAM:
                known |= {f"{metric.name}_bucket": labels | {"le"}}
                known |= {f"{metric.name}_{part}": labels for part in ("sum", "count")}
            case MetricKind.GAUGE:
                known[metric.name] = labels
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return known | {sample.name: set() for family in registry.collect() for sample in family.samples}


SERIES = series()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_and_label_of_an_expression_is_there(expression: str) -> None:
    what = named(expression)
    assert what.metrics <= set(SERIES)
    for matcher in what.matchers:
        assert matcher.label in SERIES[matcher.metric] | OF_PROMETHEUS, matcher
    for metric in what.metrics:
        assert what.grouped <= SERIES[metric] | OF_PROMETHEUS, metric


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_label_is_compared_with_what_it_can_be(expression: str) -> None:
    for matcher in named(expression).matchers:
        if matcher.label in OF_PROMETHEUS or matcher.value.startswith("$"):
            continue
        values = matcher.value.split("|") if matcher.is_pattern else [matcher.value]
        assert set(values) <= VALUES[matcher.metric, matcher.label], matcher


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_counter_is_asked_how_fast_it_grows_and_a_gauge_how_it_is(expression: str) -> None:
    what = named(expression)
    for metric in what.metrics:
        is_counter = metric.endswith(("_total", "_bucket"))
        assert (metric in what.ranged) is (is_counter or "delta(" in expression), metric


def test_what_the_whole_store_knows_is_not_added_up_over_nodes() -> None:
    of_store = {metric.name for metric in METRICS if metric.reach == "the whole store"}
    for parameter in EXPRESSIONS:
        (expression,) = parameter.values
        if named(str(expression)).metrics & of_store:
            assert re.search(r"\b(max|min)\b", str(expression)), expression
            assert not re.search(r"sum(?: by \([^)]*\))? \(?peik", str(expression)), expression


def test_every_metric_of_peik_is_on_the_dashboard_or_is_named_here_as_left_out() -> None:
    shown = {metric for panel in PANELS for one in panel["targets"] for metric in named(one["expr"]).metrics}
    bare = {re.sub("_(total|bucket)$", "", metric) for metric in shown}
    left_out = {"peik_letters_cancelled", "peik_letters_merged", "peik_links_refused"}  # nobody is woken by these
    assert {metric.name for metric in METRICS} - bare == left_out


def test_every_panel_has_a_title_a_unit_and_its_own_place() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        at = panel["gridPos"]
        cells = {(at["x"] + right, at["y"] + down) for right in range(at["w"]) for down in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"]) > 0


def test_grafana_needs_no_plugin_and_asks_which_prometheus() -> None:
    assert {panel["type"] for panel in DASHBOARD["panels"]} <= {"row", "stat", "timeseries"}
    for panel in PANELS:
        assert {one["datasource"]["uid"] for one in [panel, *panel["targets"]]} == {"${datasource}"}


def test_the_variables_are_there_and_every_panel_heeds_the_node() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "node", "bot"}
    for name in ("node", "bot"):
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["query"]["query"])
        assert asked is not None
        assert asked[2] in SERIES[asked[1]] | OF_PROMETHEUS
    for panel in PANELS:
        for one in panel["targets"]:
            what = named(one["expr"])
            heeding = {(matcher.metric, matcher.value) for matcher in what.matchers}
            for metric in what.metrics:
                assert (metric, "$node") in heeding, one["expr"]
                assert "bot" not in SERIES[metric] or (metric, "$bot") in heeding, one["expr"]


def test_every_rule_has_its_name_its_patience_and_its_severity() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"Peik[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert parse_duration_s(rule["for"]) >= 0
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_every_label_in_the_words_of_a_rule_is_one_of_its_result() -> None:
    for rule in RULES:
        kept = named(rule["expr"]).grouped | (OF_PROMETHEUS if rule["alert"] == "PeikDown" else set())
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= kept, rule["alert"]


def test_every_runbook_is_a_section_that_there_is() -> None:
    for rule in RULES:
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        heads = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {head.lower().replace(" ", "-") for head in heads}, rule["alert"]


def test_a_rule_that_peik_has_as_well_waits_no_shorter_and_says_the_same() -> None:
    shared = [rule for rule in RULES if "rule" in rule["labels"]]
    assert len(shared) == len(RULES) - 2  # a node that is gone tells nothing, and PeikAlerts is all the others
    for rule in shared:
        own = BY_NAME[rule["labels"]["rule"]]
        assert rule["annotations"]["runbook_url"] == own.runbook
        assert rule["annotations"]["description"] == own.todo
        if own.name not in ("source", "jobs-failing"):  # these have the time in the expression
            assert parse_duration_s(rule["for"]) >= own.after_s, rule["alert"]


def test_the_limits_are_the_defaults_of_peiks_own_alerts() -> None:
    limits = Thresholds()
    by_name = {rule["alert"]: " ".join(rule["expr"].split()) for rule in RULES}
    for name in ("PeikSlow", "PeikConsumerSlow"):
        assert by_name[name].endswith(f"> {limits.slow_s:g}")
    assert by_name["PeikDeadLetters"].endswith(f"> {limits.dead}")
    assert f"> {limits.wait_s:g} unless" in by_name["PeikStuck"]
    assert by_name["PeikDelays"].endswith(f"> {limits.wait_s:g}")
    assert f"> {limits.failures_percent / 100:g} * (" in by_name["PeikFailures"]
    assert by_name["PeikFailures"].endswith(f">= {RATE_MIN}")


def test_prometheus_reads_the_service_of_compose_with_a_key_from_a_file() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    assert job["job_name"] == "peik"
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    (secret,) = services["prometheus"]["secrets"]
    assert job["bearer_token_file"] == f"/run/secrets/{secret}"
    assert job["file_sd_configs"] == [{"files": ["targets.yml"]}]
    text = (DEPLOY / "prometheus" / "targets.yml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == [{"targets": [f"app:{services['app']['environment']['PEIK_PORT']}"]}]
    nodes = re.findall(r"server (\S+) ", (DEPLOY / "nodes" / "nodes.conf").read_text(encoding="utf-8"))
    assert f"[{', '.join(nodes)}]" in text
    assert [(DEPLOY / "prometheus" / name).exists() for name in PROMETHEUS["rule_files"]] == [True]


def test_the_page_names_only_what_there_is() -> None:
    known = {variable for setting in SETTINGS for variable in setting.variables()}
    assert set(re.findall(r"PEIK_[A-Z_]+", PAGE)) <= known
    assert {name for name in re.findall(r"`(peik_\w+)`", PAGE) if name not in SERIES} == set()
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
    for words in re.findall(r"`?peik ([a-z]+(?: [a-z]+)?) ", PAGE):
        command = get_command(app)
        for word in words.split():
            command = command.commands[word] if hasattr(command, "commands") else command


@pytest.mark.parametrize("wrong", ["sum(peik_alerts", "peik_alerts{x}", "sum)", "rate peik_alerts", "a § b"])
def test_what_is_no_expression_is_found_out(wrong: str) -> None:
    with pytest.raises(ValueError, match=r" (of|in|is) "):
        named(wrong)
