"""What a run found, for people: a rich table per question; and for programs: one JSON value."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from bench.budget import CEILINGS, DOCUMENTED_CEILINGS, LINES, Goal, Line
from bench.figures import Spread

Spreads = Mapping[str, Spread]


def show(console: Console, spreads: Spreads) -> None:
    console.print(_ceilings(spreads))
    console.print(_figures(spreads))
    console.print(
        "Ratio: the median against the ceiling's median of the same run. Goals marked [i]documented[/i] rest on figures of "
        "DESIGN.md that were not measured here; “this run” ones were.",
        style="dim",
    )


def as_json(spreads: Spreads, rounds: Mapping[str, list[float]]) -> dict[str, object]:
    """Everything that the tables say, and the single figures behind it."""
    return {
        "ceilings": [_json_line(line, spreads) for line in CEILINGS if line.name in spreads],
        "figures": [_json_line(line, spreads) for line in LINES if line.name in spreads],
        "rounds": rounds,
    }


def _ceilings(spreads: Spreads) -> Table:
    table = Table(title="Ceilings of this machine, in this run", title_justify="left")
    for name in ("what", "median (min to max)", "documented then", "this machine / that one"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for line in CEILINGS:
        spread = spreads.get(line.name)
        if spread is None:
            continue
        then = DOCUMENTED_CEILINGS.get(line.name)
        compared = ("", "") if then is None else (_number(then), f"{spread.median / then:.2f}")
        table.add_row(line.title, _spread(spread, line.unit), *compared)
    return table


def _figures(spreads: Spreads) -> Table:
    table = Table(title="Peik, default durable settings, pace off", title_justify="left")
    for name in ("what", "median (min to max)", "ceiling in this run", "ratio", "goal", "reached", "half"):
        table.add_column(name, justify="left" if name in ("what", "goal") else "right")
    for line in LINES:
        spread = spreads.get(line.name)
        if spread is None:
            continue
        cells = [_goal_cells(goal, spread, spreads) for goal in _goals(line, spreads)] or [("", "", "")]
        table.add_row(line.title, _spread(spread, line.unit), *_against(line, spread, spreads), *cells[0])
        for more in cells[1:]:
            table.add_row("", "", "", "", *more)
        table.add_section()
    return table


def _goals(line: Line, spreads: Spreads) -> list[Goal]:
    """Those whose base was measured in this run, or needs no measuring."""
    return [goal for goal in line.goals if goal.of is None or goal.of in spreads]


def _goal_cells(goal: Goal, spread: Spread, spreads: Spreads) -> tuple[str, str, str]:
    is_reached = goal.is_reached(spread.median, spreads)
    is_half_reached = goal.is_reached(spread.median, spreads, share=0.5)
    return _goal(goal, spreads), _yes(is_reached), _yes(is_half_reached)


def _against(line: Line, spread: Spread, spreads: Spreads) -> tuple[str, str]:
    if line.ceiling is None or line.ceiling not in spreads:
        return "", ""
    ceiling = spreads[line.ceiling].median
    return f"{_title(line.ceiling)}: {_number(ceiling)}", f"{spread.median / ceiling:.2f}"


def _title(name: str) -> str:
    return next(one.title for one in CEILINGS if one.name == name)


def _goal(goal: Goal, spreads: Spreads) -> str:
    sign = "≤" if goal.is_most else "≥"
    target = _number(goal.target(spreads))
    if goal.of is not None:
        return f"{sign} {target} = {goal.factor:g} x {_title(goal.of)}, this run"
    if goal.documented is not None:
        name, figure = goal.documented
        return f"{sign} {target} = {goal.factor:g} x {name} {_number(figure)}, documented"
    return f"{sign} {target}"


def _json_line(line: Line, spreads: Spreads) -> dict[str, object]:
    spread = spreads[line.name]
    ceiling = spreads.get(line.ceiling) if line.ceiling else None
    return {
        "name": line.name,
        "title": line.title,
        "unit": line.unit,
        "median": spread.median,
        "min": spread.least,
        "max": spread.most,
        "ceiling": line.ceiling if ceiling else None,
        "ratio": spread.median / ceiling.median if ceiling else None,
        "goals": [
            {
                "target": goal.target(spreads),
                "base": "this run" if goal.of else "documented" if goal.documented else "absolute",
                "reached": goal.is_reached(spread.median, spreads),
                "half_reached": goal.is_reached(spread.median, spreads, share=0.5),
            }
            for goal in _goals(line, spreads)
        ],
    }


def _spread(spread: Spread, unit: str) -> str:
    return f"{_number(spread.median)} {unit} ({_number(spread.least)} to {_number(spread.most)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _yes(is_so: bool) -> str:
    return "[green]yes[/]" if is_so else "[red]no[/]"
