"""What a run found, for people: rich tables; and for programs: one JSON value."""

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from bench.budget import CEILINGS, DOCUMENTED_CEILINGS, LINES, Goal, Line
from bench.contest import PEERS, title_of
from bench.figures import Spread
from bench.ground import LETTERS
from bench.running import Run

Spreads = Mapping[str, Spread]


def spreads_of(run: Run) -> dict[str, Spread]:
    return {name: Spread.of(values) for name, values in run.rounds.items()}


def show(console: Console, run: Run) -> None:
    spreads = spreads_of(run)
    console.print(_ceilings(spreads))
    if any(list(rivals(line, spreads)) for line in LINES):
        console.print(_peers(spreads))
    console.print(_figures(spreads))
    console.print(
        "Ratio: the median against that of the same run. Spread: least to most of the rounds. Goals marked documented "
        "rest on figures of November 2026 that were not measured here.",
        style="dim",
    )
    if run.letters != LETTERS:
        console.print(
            f"Counts in the names are those of {LETTERS:,} letters; this run had {run.letters:,}.", style="yellow"
        )


def as_json(run: Run) -> dict[str, object]:
    """Everything that the tables say, and the single figures behind it."""
    spreads = spreads_of(run)
    return {
        "letters": run.letters,
        "rounds_done": run.rounds_done,
        "taken_s": round(run.taken_s, 1),
        "cores": run.cores,
        "load_before": run.load_before,
        "load_after": run.load_after,
        "figures": [_json_line(line, spreads) for line in LINES if line.name in spreads],
        "ceilings": [_json_line(line, spreads) for line in CEILINGS if line.name in spreads],
        "peers": [
            {"name": peer.name, "title": peer.title, "terms": peer.terms}
            for peer in PEERS
            if any(name.split(".")[0].startswith(peer.name) for name in spreads if "." in name)
        ],
        "failures": run.failures,
        "rounds": {name: [float(f"{value:.5g}") for value in values] for name, values in run.rounds.items()},
    }


def _ceilings(spreads: Spreads) -> Table:
    table = Table(title="Ceilings of this machine, in this run", title_justify="left")
    for name in ("what", "median", "spread", "documented then", "this machine / that one"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for line in CEILINGS:
        spread = spreads.get(line.name)
        if spread is None:
            continue
        then = DOCUMENTED_CEILINGS.get(line.name)
        compared = ("", "") if then is None else (number(then), f"{spread.median / then:.2f}")
        table.add_row(line.title, f"{number(spread.median)} {line.unit}", _range(spread), *compared)
    return table


def _peers(spreads: Spreads) -> Table:
    table = Table(title="Peers and direct senders, on the same work in the same run", title_justify="left")
    for name in ("what", "who", "median", "spread", "Peik", "Peik / peer"):
        table.add_column(name, justify="left" if name in ("what", "who") else "right")
    for line in LINES:
        rows = list(rivals(line, spreads))
        if not rows or line.name not in spreads:
            continue
        own = spreads[line.name].median
        for place, (title, spread) in enumerate(rows):
            first = (line.title, f"{number(own)} {line.unit}") if place == 0 else ("", "")
            table.add_row(first[0], title, number(spread.median), _range(spread), first[1], _ratio(own, spread.median))
        table.add_section()
    return table


def rivals(line: Line, spreads: Spreads) -> Iterator[tuple[str, Spread]]:
    """The peers' figures that are held against it, and those of direct senders, the best first."""
    found = [
        (title(name), spread)
        for name, spread in spreads.items()
        if name in line.beside or (line.peers is not None and name.partition(".")[2] == line.peers)
    ]
    yield from sorted(found, key=lambda one: one[1].median, reverse=not line.is_most)


def _figures(spreads: Spreads) -> Table:
    table = Table(title="Peik, default durable settings, pace off", title_justify="left")
    for name in ("what", "median", "spread", "ceiling in this run", "ratio", "goal", "met", "half"):
        table.add_column(name, justify="left" if name in ("what", "goal") else "right")
    for line in LINES:
        spread = spreads.get(line.name)
        if spread is None:
            continue
        cells = [_goal_cells(goal, spread, spreads) for goal in _goals(line, spreads)] or [("", "", "")]
        figure = f"{number(spread.median)} {line.unit}"
        table.add_row(line.title, figure, _range(spread), *_against(line, spread, spreads), *cells[0])
        for more in cells[1:]:
            table.add_row("", "", "", "", "", *more)
        table.add_section()
    return table


def _goals(line: Line, spreads: Spreads) -> list[Goal]:
    """Those whose base was measured in this run, or needs no measuring."""
    return [goal for goal in line.goals if goal.target(spreads) is not None]


def _goal_cells(goal: Goal, spread: Spread, spreads: Spreads) -> tuple[str, str, str]:
    is_reached = goal.is_reached(spread.median, spreads)
    is_half_reached = goal.is_reached(spread.median, spreads, share=0.5)
    return goal_words(goal, spreads), _yes(is_reached), _yes(is_half_reached)


def _against(line: Line, spread: Spread, spreads: Spreads) -> tuple[str, str]:
    if line.ceiling is None or line.ceiling not in spreads:
        return "", ""
    ceiling = spreads[line.ceiling].median
    return f"{title(line.ceiling)}: {number(ceiling)}", _ratio(spread.median, ceiling)


def title(name: str) -> str:
    """Of a ceiling or of a peer's figure."""
    return title_of(name) or next(one.title for one in CEILINGS if one.name == name)


def goal_words(goal: Goal, spreads: Spreads) -> str:
    sign = "≤" if goal.is_most else "≥"
    target = goal.target(spreads)
    assert target is not None
    base = goal.base(spreads)
    if base is not None:
        return f"{sign} {number(target)} = {goal.factor:g} x {title(base[0])} {number(base[1])}"
    if goal.documented is not None:
        name, figure = goal.documented
        return f"{sign} {number(target)} = {goal.factor:g} x {name} {number(figure)}, documented"
    return f"{sign} {number(target)}"


def _json_line(line: Line, spreads: Spreads) -> dict[str, object]:
    spread = spreads[line.name]
    ceiling = spreads.get(line.ceiling) if line.ceiling else None
    return {
        "name": line.name,
        "title": line.title,
        "unit": line.unit,
        "is_most": line.is_most,
        "median": spread.median,
        "min": spread.least,
        "max": spread.most,
        "deviation": spread.deviation,
        "ceiling": line.ceiling if ceiling else None,
        "ceiling_title": title(line.ceiling) if ceiling and line.ceiling else None,
        "ceiling_median": ceiling.median if ceiling else None,
        "ratio": spread.median / ceiling.median if ceiling and ceiling.median else None,
        "peers": [
            {"title": who, "median": one.median, "min": one.least, "max": one.most}
            for who, one in rivals(line, spreads)
        ],
        "goals": [
            {
                "words": goal_words(goal, spreads),
                "target": goal.target(spreads),
                "base": "this run" if goal.base(spreads) else "documented" if goal.documented else "absolute",
                "reached": goal.is_reached(spread.median, spreads),
                "half_reached": goal.is_reached(spread.median, spreads, share=0.5),
            }
            for goal in _goals(line, spreads)
        ],
    }


def _range(spread: Spread) -> str:
    return f"{number(spread.least)} to {number(spread.most)}"


def _ratio(figure: float, other: float) -> str:
    return f"{figure / other:.2f}" if other else ""


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _yes(is_so: bool) -> str:
    return "[green]yes[/]" if is_so else "[red]no[/]"
