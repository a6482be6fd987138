"""What so many letters need: the model of `peik doctor --for 1M/day`, and that its figures are those that were measured."""

import json
from pathlib import Path

import msgspec
import pytest

from bench.cost import FITTED, KEPT, fitted
from peik.monitoring.cost import (
    UTILIZATION,
    Demand,
    Line,
    StoreDays,
    advice,
    advised,
    bots_needed,
    costs,
    plans,
    read_demand,
    rows_of,
)
from peik.settings.values import StoreKind
from tests.cli.shell import Shell


def demand(text: str) -> Demand:
    found = read_demand(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "letters_per_day", "peak_per_s"),
    [
        ("1M/day", 1e6, 1e6 * 0.3 / 3600),
        ("1.5B/d", 1.5e9, 1.5e9 * 0.3 / 3600),
        ("20k/day", 20e3, 20e3 * 0.3 / 3600),
        ("20K/day", 20e3, 20e3 * 0.3 / 3600),
        ("30M/month", 1e6, 1e6 * 0.3 / 3600),
        ("200/s", 200 * 86400, 200),
    ],
)
def test_a_demand_is_read_with_its_busiest_minute(text: str, letters_per_day: float, peak_per_s: float) -> None:
    found = demand(text)
    assert found.letters_per_day == pytest.approx(letters_per_day)
    assert found.peak_per_s == pytest.approx(peak_per_s)


@pytest.mark.parametrize("text", ["1M", "many/day", "0/day", "1m/day", "1M/week", "/day", "-1/s"])
def test_what_is_no_number_of_letters_is_not_taken_for_one(text: str) -> None:
    assert read_demand(text) is None


def test_cores_grow_with_the_demand_and_processes_are_enough_for_them() -> None:
    small, large = plans(demand("10M/day")), plans(demand("1B/day"))
    for one, hundred in zip(small, large, strict=True):
        assert hundred.node_cores == pytest.approx(100 * one.node_cores)
        assert hundred.kept_bytes == pytest.approx(100 * one.kept_bytes)
    for plan in (*small, *large):
        if plan.store is not StoreKind.SQLITE:
            assert plan.nodes * UTILIZATION >= plan.node_cores
            assert plan.clusters * plan.most_per_s >= demand("1B/day").peak_per_s or plan in small


def test_one_file_is_advised_until_its_one_process_is_full_then_a_server_then_several_clusters() -> None:
    chosen = [advised(plans(demand(text))) for text in ("100k/day", "100M/day", "1B/day")]
    assert chosen[0].store is StoreKind.SQLITE
    assert "one machine" in advice(demand("100k/day"), chosen[0])
    assert (chosen[2].store, chosen[2].clusters > 1) == (StoreKind.POSTGRES, True)
    sqlite = plans(demand("1B/day"))[0]
    assert not sqlite.is_possible
    assert "clusters" in advice(demand("1B/day"), chosen[2])
    assert dict(rows_of(demand("1B/day"), [sqlite]))["clusters"] == ["too much for it"]


def test_what_is_kept_for_longer_takes_more() -> None:
    week = plans(demand("1M/day"), StoreDays(letters=7, arrivals=7, log=7))
    month = plans(demand("1M/day"), StoreDays(letters=28, arrivals=28, log=28))
    for one, four in zip(week, month, strict=True):
        assert four.kept_bytes == pytest.approx(4 * one.kept_bytes)


def test_telegram_limits_one_bot_before_a_machine_is_full() -> None:
    assert bots_needed(demand("30/s")) == 1
    assert bots_needed(demand("31/s")) == 2


def test_a_line_is_what_each_takes_and_what_its_size_takes() -> None:
    assert Line(each=100, per_kb=20).at(500) == 110


def test_the_model_is_the_fit_of_what_was_measured() -> None:
    fresh = msgspec.json.encode(fitted(json.loads(KEPT.read_text(encoding="utf-8"))))
    assert json.loads(fresh) == json.loads(FITTED.read_text(encoding="utf-8"))
    assert set(costs()) == set(StoreKind)


def test_the_command_plans_without_looking_at_anything(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    ran = shell.peik("doctor", "--for", "100M/day", "--json")
    assert ran.code == 0, ran
    assert ran.document["letters_per_day"] == 1e8
    assert [plan["store"] for plan in ran.document["plans"]] == ["sqlite", "postgresql", "redis"]
    assert ran.document["bots"] == 278
    shown = shell.peik("doctor", "--for", "1M/day")
    assert "cores that Peik keeps busy" in shown.out
    assert list(tmp_path.glob("*.db")) == []


def test_how_long_the_settings_keep_letters_counts(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    usual = shell.peik("doctor", "--for", "1M/day", "--json").document["plans"]
    short = shell.peik("doctor", "--for", "1M/day", "--json", PEIK_KEEP_COMPLETED="1d", PEIK_KEEP_LOG="1d").document
    assert short["plans"][1]["kept_bytes"] < usual[1]["kept_bytes"]


def test_a_number_of_letters_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    ran = Shell(tmp_path).peik("doctor", "--for", "many/day")
    assert ran.code == 2
    assert "1M/day" in ran.out + ran.err
