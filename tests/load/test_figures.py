"""Latencies from the moment something was due; plans with so much of everything; counts against the ledger; plots."""

import random
import xml.etree.ElementTree as ElementTree

import pytest

from peik.load.count import KnownLetters, LoadCounts, Updates, counted
from peik.load.drive import LoadFate, LoadRequest
from peik.load.plan import (
    Latencies,
    LoadWay,
    LoadWork,
    letters_plan,
    parse_rate,
    percentile,
    profile,
    updates_plan,
    users_a_day,
)
from peik.load.report import bars_drawn, plot

NONE = Updates(written=0, lost=0, doubled=0)


def test_percentiles_are_of_what_really_happened() -> None:
    found = Latencies()
    for number in range(1, 101):
        found.add(due_s=10.0, done_s=10.0 + number / 1000)
    figures = found.figures()
    assert figures is not None
    assert (figures.count, round(figures.p50_ms), round(figures.p95_ms), round(figures.p99_ms)) == (100, 50, 95, 99)
    assert round(figures.max_ms) == 100
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7.0
    assert Latencies().figures() is None


def test_a_stall_is_counted_for_all_who_were_due_in_it() -> None:
    """One caller after the other would see one slow request. Here a hundred were due while nothing was answered."""
    found = Latencies()
    for number in range(100):
        found.add(due_s=number / 100, done_s=1.0)
    figures = found.figures()
    assert figures is not None
    assert figures.p50_ms == pytest.approx(500, abs=20)
    assert figures.max_ms == 1000


def test_bars_hold_everything_and_a_clock_that_is_behind_counts_as_nothing() -> None:
    found = Latencies()
    for took_s in (-0.001, 0.0015, 0.002, 0.03, 5000.0):
        found.add(due_s=0.0, done_s=took_s)
    bars = found.bars()
    assert sum(bar.count for bar in bars) == 5
    assert [(bar.up_to_s, bar.count) for bar in bars if bar.count] == [(0.001, 1), (0.002, 2), (0.05, 1), (None, 1)]
    drawn = bars_drawn(bars)
    assert drawn[1].split()[:2] == ["≤", "2"]
    assert drawn[-1].split()[0] == "more"


def test_over_time_each_stretch_has_its_own_percentile() -> None:
    found = Latencies()
    for due_s, took_s in ((0.1, 1.0), (0.2, 3.0), (2.5, 7.0)):
        found.add(due_s=due_s, done_s=due_s + took_s)
    assert found.over_time(50, width_s=1.0) == [(0.5, pytest.approx(1.0)), (2.5, pytest.approx(7.0))]


def test_a_plan_has_exactly_so_many_letters_in_order_of_time() -> None:
    work = LoadWork(letters_per_s=50, updates_per_s=20, for_s=60, bots=3, chats=10)
    planned = letters_plan(work, random.Random(1))
    assert sum(one.count for one in planned) == 3000
    assert [one.first for one in planned] == [sum(one.count for one in planned[:n]) for n in range(len(planned))]
    moments = [one.due_s for one in planned]
    assert moments == sorted(moments)
    assert moments[-1] < 60
    assert {one.way for one in planned} == set(LoadWay)
    assert {one.bot for one in planned} == {0, 1, 2}
    written = updates_plan(work, random.Random(1))
    assert [one.number for one in written] == list(range(1200))
    assert letters_plan(work, random.Random(1)) == planned


def test_a_profile_is_the_doctors_arithmetic_and_back() -> None:
    letters, updates = profile(10_000)
    assert updates == pytest.approx(4.17, abs=0.01)  # docs/doctor.md: 4.2 requests, 17 letters
    assert letters + updates == pytest.approx(16.7, abs=0.1)
    assert users_a_day(letters + updates) in (9_999, 10_000)


@pytest.mark.parametrize(("text", "per_s"), [("50/s", 50.0), ("20", 20.0), ("300/m", 5.0), ("36/h", 0.01)])
def test_rates(text: str, per_s: float) -> None:
    assert parse_rate(text) == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["", "fast", "-1/s", "5/y", "5 per s"])
def test_what_is_no_rate_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match="write 50/s"):
        parse_rate(text)


def asked(**fates: LoadFate) -> dict[str, LoadRequest]:
    return {mark: LoadRequest(due_s=0.0, fate=fate) for mark, fate in fates.items()}


def count(arrived: dict[str, int], known: dict[str, KnownLetters | None], **fates: LoadFate) -> LoadCounts:
    return counted(asked(**fates), arrived, known, NONE)


def test_a_letter_that_was_accepted_and_is_nowhere_is_lost() -> None:
    found = count(
        {"a": 1}, {"b": None}, a=LoadFate.ACCEPTED, b=LoadFate.ACCEPTED, c=LoadFate.REFUSED, d=LoadFate.UNKNOWN
    )
    assert (found.accepted, found.delivered, found.lost, found.refused, found.unknown) == (2, 1, 1, 1, 1)
    assert found.broken() == ["1 letters were lost", "2 letters were not accepted"]


def test_a_letter_that_peik_calls_completed_and_telegram_never_saw_is_lost() -> None:
    found = count({}, {"a": KnownLetters(state="completed", uncertain_tries=0)}, a=LoadFate.ACCEPTED)
    assert found.lost == 1


@pytest.mark.parametrize(("state", "name"), [("waiting", "waiting"), ("delayed", "waiting"), ("failed", "failed")])
def test_a_letter_that_waits_or_failed_is_not_lost_and_not_good(state: str, name: str) -> None:
    found = count({}, {"a": KnownLetters(state=state, uncertain_tries=0)}, a=LoadFate.ACCEPTED)
    assert found.lost == 0
    assert getattr(found, name) == 1
    assert found.broken()


def test_repeats_are_good_only_as_far_as_uncertain_tries_explain_them() -> None:
    both = {"a": LoadFate.ACCEPTED, "b": LoadFate.ACCEPTED}
    explained = KnownLetters(state="completed", uncertain_tries=2)
    found = count({"a": 3, "b": 1}, {"a": explained}, **both)
    assert (found.doubled, found.uncertain_tries, found.doubled_by_habit, found.broken()) == (2, 2, 0, [])
    found = count({"a": 4, "b": 2}, {"a": explained, "b": None}, **both)
    assert (found.doubled, found.doubled_by_habit) == (4, 2)
    assert found.broken() == ["2 letters came twice without an uncertain try"]


def test_updates_that_bots_never_got_or_got_twice_are_counted() -> None:
    found = counted({}, {}, {}, Updates.of(["a", "b", "c"], {"a": 1, "c": 3}))
    assert (found.updates, found.updates_lost, found.updates_doubled) == (3, 1, 2)
    assert len(found.broken()) == 2


def test_a_plot_is_one_drawing_without_anything_from_outside() -> None:
    drawn = plot(
        "Memory <of> it", {"a & b": [(0.0, 1.0), (90.0, 250.0)], "none": []}, unit="MiB", marks=[(30.0, "kill")]
    )
    root = ElementTree.fromstring(drawn)
    text = " ".join(root.itertext())
    assert "Memory <of> it" in text
    assert "a & b" in text
    assert "none" not in text
    assert "400" in text  # the scale is round, and begins at nothing
    assert len(root.findall("{*}polyline")) == 1
    assert "href" not in drawn
    assert plot("empty", {}, unit="")
