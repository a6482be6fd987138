"""`make bench-growth`: what accepting, draining, a page and memory cost against backlog, chats, bots and stored arrivals.

Nothing on a hot path may grow faster than log n. Each point is a store of its own, filled by one process and measured by another;
the table tells the exponent of every line with its verdict, and plots on two logarithmic axes are kept beside the JSON.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.fit import Growth
from bench.growth_point import Point
from bench.plot import Series, lines
from bench.running import RESULTS, ROOT, folder
from bench.stub import running_stub

MOST = 1_000_000
MOST_LEAST = 10_000  # fewer would leave too few points
PAGE = 100  # updates come in pages
BOTS_MOST = 2_000
ROUNDS = 3
PATIENCE_S = 3600.0
_UNITS = {"memory_mb": "MB"}
TITLES = {
    "accept_us": "accept, batches of 100",
    "drain_us": "drain",
    "page_us": "page of 50 waiting letters",
    "memory_mb": "memory of the process",
    "take_in_us": "store an update, pages of 100",
    "next_page_us": "next page of 100 arrivals",
}

Lines = dict[str, dict[str, list[tuple[float, float]]]]  # axis, figure: (n, cost)


def axes(most: int) -> dict[str, list[tuple[int, dict[str, int]]]]:
    """For each axis its points: n, and what is in the store then. `most` is a million, or less where it must be quick."""
    decades = [most // 1000, most // 100, most // 10, most]
    bots = sorted({1, 10, 100, min(BOTS_MOST, most // 10)})
    return {
        "backlog": [(n, {"letters": n}) for n in decades],
        "chats": [(n, {"letters": most, "chats": n}) for n in (1, *decades)],
        "bots": [(n, {"letters": most // 10, "bots": n}) for n in bots],
        "arrivals": [(n, {"arrivals": n}) for n in sorted({max(PAGE, n // PAGE * PAGE) for n in decades})],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="How cost grows.")
    parser.add_argument("--most", type=int, default=MOST, help="letters, chats and arrivals at the largest point")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="measurements of each point; the store is filled once"
    )
    parser.add_argument("--only", nargs="+", choices=list(axes(MOST)), help="only these axes")
    parser.add_argument("--write", type=Path, default=RESULTS, help="where growth.json and growth_*.svg are kept")
    options = parser.parse_args()
    if options.most < MOST_LEAST:
        parser.error(f"--most is {MOST_LEAST} or more")
    console = Console(width=None if sys.stdout.isatty() else 170)
    began = time.monotonic()
    found: Lines = {}
    for axis, points in axes(options.most).items():
        if not options.only or axis in options.only:
            found[axis] = measured(axis, points, options.rounds, measured_letters(options.most), console)
    growths = {axis: {name: Growth.of(line) for name, line in figures.items()} for axis, figures in found.items()}
    console.print(shown(found, growths))
    keep(options.write, found, growths, taken_s=time.monotonic() - began)
    return 0 if all(one.is_log for figures in growths.values() for one in figures.values()) else 1


def measured_letters(most: int) -> int:
    return max(1_000, most // 200)


def measured(
    axis: str, points: Sequence[tuple[int, Mapping[str, int]]], rounds: int, letters: int, console: Console
) -> dict[str, list[tuple[float, float]]]:
    """Medians of some measurements, each on the store that the one before it left: a little fuller, and as deep."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with console.status("…") as status, running_stub() as stub:
        for n, contents in points:
            with folder() as place:
                point = Point(folder=str(place), stub_port=stub.port, measured=letters, **contents)
                status.update(f"{axis} {n:,}: filling")
                _asked("fill", point)
                figures: dict[str, list[float]] = defaultdict(list)
                for number in range(rounds):
                    status.update(f"{axis} {n:,}: measuring, {number + 1} of {rounds}")
                    for name, value in _asked("measure", _after(point, number)).items():
                        figures[name].append(value)
            for name, values in figures.items():
                found[name].append((float(n), statistics.median(values)))
    return dict(found)


def _after(point: Point, rounds: int) -> Point:
    """New updates have numbers of their own; letters may be the same again."""
    if not point.arrivals:
        return point
    return msgspec.structs.replace(point, arrivals=point.arrivals + rounds * point.measured)


def _asked(deed: str, point: Point) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.growth_point", deed, msgspec.json.encode(point).decode()]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return {} if deed == "fill" else msgspec.json.decode(ended.stdout.splitlines()[-1], type=dict[str, float])


def shown(found: Lines, growths: Mapping[str, Mapping[str, Growth]]) -> Table:
    table = Table(title="How cost grows: CPU µs each, or MB", title_justify="left")
    for name in ("against", "what", "at the points", "exponent", "last step", "log n has", "no faster than log n"):
        table.add_column(name, justify="left" if name in ("against", "what") else "right")
    for axis, figures in found.items():
        for name, line in figures.items():
            growth = growths[axis][name]
            costs = " · ".join(f"{n:,.0f}: {cost:,.4g}" for n, cost in line)
            exponent = f"{growth.exponent:.3f} ± {growth.error:.3f}"
            verdict = "[green]yes[/]" if growth.is_log else "[red]no[/]"
            table.add_row(
                axis, TITLES[name], costs, exponent, f"{growth.last_step:.3f}", f"{growth.log_exponent:.3f}", verdict
            )
        table.add_section()
    return table


def keep(place: Path, found: Lines, growths: Mapping[str, Mapping[str, Growth]], *, taken_s: float) -> None:
    place.mkdir(parents=True, exist_ok=True)
    result = {
        "cores": os.cpu_count(),
        "load_after": os.getloadavg()[0],
        "taken_s": round(taken_s, 1),
        "axes": {
            axis: {
                name: {
                    "title": TITLES[name],
                    "unit": _UNITS.get(name, "µs"),
                    "points": line,
                    "growth": growths[axis][name],
                }
                for name, line in figures.items()
            }
            for axis, figures in found.items()
        },
    }
    (place / "growth.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    for axis, figures in found.items():
        series = [
            Series(f"{TITLES[name]}, {_UNITS.get(name, 'µs')}: {growths[axis][name].exponent:+.2f}", tuple(line))
            for name, line in figures.items()
        ]
        drawn = lines(series, heading=f"Cost against {axis}", across=axis, up="CPU µs each, or MB")
        (place / f"growth_{axis}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
