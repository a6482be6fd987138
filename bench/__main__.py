"""`make bench`: Peik, its peers and the raw ceilings on the same work in one run. Prints tables, keeps JSON and a plot.

python -m bench [--rounds 3] [--letters 20000] [--only drain …] [--write docs/reference]
"""

import argparse
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from bench import table
from bench.budget import CEILINGS, LINES, Line
from bench.contest import ROWS
from bench.figures import Spread
from bench.ground import LETTERS
from bench.plot import CEILING, PEIK, Bar, Group, bars
from bench.running import RESULTS, Run, Terms, run_rows

ROUNDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Peik beside its peers and ceilings.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--letters", type=int, default=LETTERS)
    parser.add_argument("--only", nargs="+", choices=list(ROWS), help="only these rows")
    parser.add_argument("--write", type=Path, default=RESULTS, help="where bench.json and bench.svg are kept")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)
    rows = {name: tasks for name, tasks in ROWS.items() if not options.only or name in options.only}
    run = run_rows(rows, Terms(rounds=options.rounds, letters=options.letters), console)
    finish(console, run, options.write, "bench")
    return 1 if any("." not in name for name in run.failures) else 0


def finish(console: Console, run: Run, folder: Path, name: str) -> None:
    """Show and keep it."""
    table.show(console, run)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(table.as_json(run)), indent=1) + b"\n")
    path.with_suffix(".svg").write_text(drawn(run), encoding="utf-8")
    for failed, why in run.failures.items():
        console.print(f"{failed} gave no figure:\n{why}", style="red", markup=False)
    words = f"{run.rounds_done} rounds of {run.letters:,} letters in {run.taken_s:.0f} s on {run.cores} cores"
    console.print(f"{words}; load {run.load_before:.1f} before; also in {path}", style="dim")


def drawn(run: Run) -> str:
    spreads = table.spreads_of(run)
    groups = [
        _group(line, spreads) for line in LINES if line.name in spreads and (line.ceiling or line.peers or line.beside)
    ]
    rounds = f"medians of {run.rounds_done} rounds" if run.rounds_done > 1 else "one round"
    heading = f"Peik, its peers and its ceilings: {rounds}"
    return bars([one for one in groups if len(one.bars) > 1], heading=heading)


def _group(line: Line, spreads: dict[str, Spread]) -> Group:
    found = [_bar("Peik", spreads[line.name], PEIK)]
    ceiling = spreads.get(line.ceiling) if line.ceiling else None
    if ceiling is not None and line.ceiling is not None:
        unit = next(one.unit for one in CEILINGS if one.name == line.ceiling)
        found.append(_bar(f"{table.title(line.ceiling)}", ceiling, CEILING, "" if unit == line.unit else f" {unit}"))
    found += [_bar(title, spread) for title, spread in table.rivals(line, spreads)]
    return Group(f"{line.title} ({line.unit}{', less is better' if line.is_most else ''})", tuple(found))


def _bar(label: str, spread: Spread, colour: str | None = None, unit: str = "") -> Bar:
    more = {} if colour is None else {"colour": colour}
    words = table.number(spread.median) + unit
    return Bar(label=label, value=max(0.0, spread.median), words=words, least=spread.least, most=spread.most, **more)


if __name__ == "__main__":
    sys.exit(main())
