"""What the bench makes of its figures: medians, goals, ratios, verdicts, exponents and plots."""

import math
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console

from bench import contest, table
from bench.__main__ import drawn
from bench.budget import CEILINGS, LINES, Goal, Line
from bench.figures import Spread, percentiles
from bench.fit import Growth, slope
from bench.gate import judge_count, judge_ratio, ratios_of
from bench.growth import axes
from bench.one import MEASURES
from bench.plot import CEILING, Bar, Group, Series, bars, lines
from bench.running import Run, figures_of, in_turn


def run_of(**rounds: list[float]) -> Run:
    named = {name.replace("__", "."): values for name, values in rounds.items()}
    return Run(rounds=named, failures={}, rounds_done=3, letters=20_000, cores=2)


def test_a_spread_tells_the_median_the_ends_and_how_far_rounds_lie_from_it() -> None:
    assert Spread.of([10.0, 100.0, 12.0, 11.0, 13.0]) == Spread(12.0, 10.0, 100.0, 1.0)
    assert percentiles([float(n) for n in range(1, 101)]) == (50.5, pytest.approx(99.01))


def test_a_goal_is_held_against_the_best_peer_of_this_run_and_else_against_the_documented_one() -> None:
    goal = Goal(factor=2, of=("slow.drain", "quick.drain"), documented=("quick", 5_000))
    both = {"slow.drain": Spread.of([1_000.0]), "quick.drain": Spread.of([6_000.0])}
    assert goal.target(both) == 12_000
    assert goal.target({}) == 10_000
    assert [goal.is_reached(figure, both) for figure in (11_999, 12_000)] == [False, True]
    assert goal.is_reached(6_000, both, share=0.5)


def test_where_less_is_better_the_best_peer_is_the_least() -> None:
    goal = Goal(factor=0.5, of=("one.idle", "other.idle"), is_most=True)
    spreads = {"one.idle": Spread.of([2.0]), "other.idle": Spread.of([3.0])}
    assert goal.target(spreads) == 1.0
    assert [goal.is_reached(figure, spreads) for figure in (1.0, 1.01)] == [True, False]
    assert goal.is_reached(2.0, spreads, share=0.5)
    assert goal.target({}) is None


def test_tables_json_and_plot_say_the_same_of_a_run() -> None:
    run = run_of(
        drain=[9_000.0, 12_000.0, 10_000.0],
        carrier_loop=[20_000.0, 20_000.0, 19_000.0],
        bullmq_everysec_c50__drain=[4_000.0, 5_000.0, 6_000.0],
        taskiq__drain=[1_000.0, 1_300.0, 1_200.0],
        aiogram_loop=[1_250.0, 1_250.0, 1_250.0],
    )
    console = Console(width=250, record=True, quiet=True)
    table.show(console, run)
    told = msgspec.json.decode(msgspec.json.encode(table.as_json(run)))
    (line,) = told["figures"]
    assert (line["median"], line["min"], line["max"], line["ratio"]) == (10_000, 9_000, 12_000, 0.5)
    assert [one["title"] for one in line["peers"]] == [
        "BullMQ, Redis everysec, 50 at once",
        "aiogram, 64 sends at once",
        "taskiq, Redis streams always",
    ]
    assert [(one["target"], one["reached"], one["base"]) for one in line["goals"]] == [
        (10_000, True, "this run"),
        (9_600, True, "this run"),
    ]
    words = "".join(ElementTree.fromstring(drawn(run)).itertext())
    assert "10,000" in words
    assert "BullMQ, Redis everysec, 50 at once" in words


def test_every_goal_and_ceiling_of_the_budget_is_a_figure_that_some_task_may_find() -> None:
    ceilings = {line.name for line in CEILINGS}
    from_peers = {
        f"{name}.{work}"
        for tasks in contest.ROWS.values()
        for task in tasks
        if task.peer is not None
        for name in [task.prefix.removesuffix(".")]
        for work in (task.work.removesuffix("_c5").removesuffix("_c50"), "idle_p50_ms", "idle_p99_ms")
    }
    for line in LINES:
        assert line.ceiling is None or line.ceiling in ceilings, line
        for name in (name for goal in line.goals for name in goal.of):
            assert name in ceilings | from_peers, (line.name, name)


def test_every_row_runs_something_that_there_is_and_each_once_a_round_in_both_directions() -> None:
    names = [task.name for tasks in contest.ROWS.values() for task in tasks if task.peer is None]
    assert sorted(names) == sorted(MEASURES)
    rounds = [[task.name for task in in_turn(contest.ROWS, number, 3)] for number in range(3)]
    assert len(set(rounds[0])) == len(rounds[0])
    assert set(rounds[0]) - set(rounds[1]) == {"serve_million", "lossy"}
    assert set(rounds[1]) == set(rounds[2])
    assert rounds[0].index("fsync") < rounds[0].index("accept_one_caller")
    assert rounds[1].index("fsync") > rounds[1].index("accept_one_caller")


@pytest.mark.parametrize(
    ("cost", "is_log"),
    [
        (lambda n: 5.0, True),
        (lambda n: 3 * (1 + math.log(n)), True),
        (lambda n: 2 * math.sqrt(n), False),
        (lambda n: float(n), False),
        (lambda n: 10 + n / 100_000, False),  # flat for long, and twice as much at the end
        (lambda n: 10 + n / 10_000_000, True),
    ],
    ids=["constant", "log", "root", "linear", "linear at the end", "hardly"],
)
def test_what_grows_faster_than_log_n_is_told_from_what_does_not(cost: "object", is_log: bool) -> None:
    assert callable(cost)
    points = [(float(n), cost(n)) for n in (1_000, 10_000, 100_000, 1_000_000)]
    assert Growth.of(points).is_log is is_log


def test_an_exponent_is_the_power_and_its_error_grows_with_noise() -> None:
    assert slope([(n, 7 * n**0.5) for n in (1.0, 10.0, 100.0, 1e6)]) == (
        pytest.approx(0.5),
        pytest.approx(0.0, abs=1e-9),
    )
    assert slope([(1.0, 1.0), (10.0, 14.0), (100.0, 80.0), (1000.0, 1200.0)])[1] > 0.02


def test_the_axes_of_growth_reach_the_largest_and_never_more() -> None:
    for points in axes(1_000_000).values():
        assert [n for n, _ in points] == sorted(n for n, _ in points)
    assert [points[-1][0] for points in axes(1_000_000).values()] == [1_000_000, 1_000_000, 2_000, 1_000_000]


def test_plots_are_well_formed_and_escape_what_they_say() -> None:
    plotted = lines([Series("a <b> & c", ((1.0, 2.0), (1e6, 3.0)))], heading="Cost", across="n", up="µs")
    assert "a <b> & c" in list(ElementTree.fromstring(plotted).itertext())
    bar = Bar(label="Peik", value=10.0, words="10", least=8.0, most=12.0)
    assert "Peik" in "".join(ElementTree.fromstring(bars([Group("drain", (bar,))], heading="x")).itertext())


def test_the_gate_lets_chance_pass_and_stops_what_is_slower() -> None:
    quicker = Line(name="drain", title="drain", unit="/s")
    before = Spread(median=0.50, least=0.48, most=0.52, deviation=0.01)
    same = [Spread(0.46, 0.45, 0.47, 0.01), Spread(0.80, 0.8, 0.8, 0.0)]
    assert [judge_ratio(quicker, before, now).is_worse for now in same] == [False, False]
    assert judge_ratio(quicker, before, Spread(0.40, 0.39, 0.41, 0.01)).is_worse
    assert not judge_ratio(quicker, before, Spread(0.40, 0.2, 0.6, 0.05)).is_worse  # too noisy to say
    later = Line(name="idle", title="idle", unit="ms", is_most=True)
    assert judge_ratio(later, before, Spread(0.60, 0.59, 0.61, 0.01)).is_worse
    assert not judge_ratio(later, None, Spread(9.0, 9.0, 9.0, 0.0)).is_worse
    assert [judge_count("deliver", 1000.0, now).is_worse for now in (1000.0, 1019.0, 1021.0)] == [False, False, True]


def test_ratios_are_taken_within_each_round() -> None:
    """A machine that is twice as slow in one round is so for both."""
    found = ratios_of(run_of(drain=[100.0, 50.0, 100.0], carrier_loop=[200.0, 100.0, 200.0]))
    assert found == {"drain": Spread(0.5, 0.5, 0.5, 0.0)}


def test_a_ceiling_far_above_all_others_is_cut_so_that_these_can_be_compared() -> None:
    def widths(ceiling: float) -> list[float]:
        group = Group(
            "row", (Bar(label="Peik", value=10, words="10"), Bar(label="c", value=ceiling, words="", colour=CEILING))
        )
        drawn_bars = ElementTree.fromstring(bars([group], heading="h")).iter("{http://www.w3.org/2000/svg}rect")
        return [float(one.attrib["width"]) for one in drawn_bars if one.attrib.get("height") == "15"]

    peik, ceiling = widths(19)
    assert ceiling / peik == pytest.approx(1.9, abs=0.01)
    peik, ceiling = widths(1000)
    assert ceiling / peik == pytest.approx(1.6, abs=0.01)


def test_a_process_that_says_nothing_of_use_is_a_failure_and_no_end_of_the_run() -> None:
    assert figures_of('something\n{"drain": 5.5}\n') == {"drain": 5.5}
    assert [figures_of(said) for said in ("", "no figures\n", '{"drain": "fast"}\n')] == [None] * 3
