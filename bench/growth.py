"""`make bench-growth`: what accepting, draining, a page and memory cost against backlog, chats, bots and stored arrivals.

Nothing on a hot path may grow faster than log n. Each point is a store of its own, filled by one process and measured by another;
the table tells the exponent of every line with its verdict, and plots on two logarithmic axes are kept beside the JSON.

The whole ends in time on a slow machine as well: axes share the minutes, small points go first, a point that would take
longer than is left is left out, and the result says so.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
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
MINUTES = 15.0
SHARES = {"backlog": 2, "chats": 5, "bots": 2, "arrivals": 2}  # of the time; every point of chats is a full one
REFILLED_BELOW = 0.8  # of a point's letters
POINTS_LEAST = 3  # a line has that many, whatever the time says
_UNITS = {"memory_mb": "MB"}
TITLES = {
    "accept_us": "accept, batches of 100",
    "drain_us": "drain",
    "page_us": "page of 50 waiting letters",
    "memory_mb": "memory of the process",
    "take_in_us": "store an update, pages of 100",
    "next_page_us": "next page of 100 arrivals",
}

# What grows with n by its nature is not judged against log n; the table tells what each one takes. A bot has a sender of its own.
LINEAR = {("bots", "memory_mb"): "KB a bot"}

Lines = dict[str, dict[str, list[tuple[float, float]]]]  # axis, figure: (n, cost)


def axes(most: int) -> dict[str, list[tuple[int, dict[str, int]]]]:
    """For each axis its points: n, and what is in the store then. `most` is a million, or less where it must be quick."""
    decades = [most // 1000, most // 100, most // 10, most]
    bots = sorted({1, 10, 100, min(BOTS_MOST, most // 10)})
    return {
        "backlog": [(n, {"letters": n}) for n in decades],
        "chats": [(n, {"letters": most, "chats": n}) for n in (1, most // 1000, most // 30, most)],
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
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long all of it may take")
    parser.add_argument("--write", type=Path, default=RESULTS, help="where growth.json and growth_*.svg are kept")
    options = parser.parse_args()
    if options.most < MOST_LEAST:
        parser.error(f"--most is {MOST_LEAST} or more")
    console = Console(width=None if sys.stdout.isatty() else 170)
    began = time.monotonic()
    wanted = {axis: points for axis, points in axes(options.most).items() if not options.only or axis in options.only}
    found: Lines = {}
    left_out: dict[str, list[int]] = {}
    for axis, points in wanted.items():
        left_s = began + options.minutes * 60 - time.monotonic()
        share = SHARES[axis] / sum(SHARES[one] for one in wanted if one not in found)
        run = _Run(axis, options.rounds, measured_letters(options.most), within_s=left_s * share)
        found[axis] = run.measured(points, console)
        left_out[axis] = run.left_out
    growths = {axis: {name: Growth.of(line) for name, line in figures.items()} for axis, figures in found.items()}
    console.print(shown(found, growths))
    for axis, points_left in left_out.items():
        if points_left:
            console.print(f"Left out for want of time: {axis} {', '.join(f'{n:,}' for n in points_left)}")
    keep(options.write, found, growths, left_out, taken_s=time.monotonic() - began)
    verdicts = [
        one.is_log for axis, figures in growths.items() for name, one in figures.items() if (axis, name) not in LINEAR
    ]
    return 0 if all(verdicts) else 1


def measured_letters(most: int) -> int:
    return max(1_000, most // 200)


class _Run:
    """The points of one axis, from the least, within its share of the time."""

    def __init__(self, axis: str, rounds: int, letters: int, *, within_s: float) -> None:
        self._axis = axis
        self._rounds = rounds
        self._letters = letters
        self._deadline = time.monotonic() + within_s
        self._s_per_row = 0.0  # of the last point
        self.left_out: list[int] = []

    def measured(
        self, points: Sequence[tuple[int, Mapping[str, int]]], console: Console
    ) -> dict[str, list[tuple[float, float]]]:
        """Medians of some measurements, each on the store that the one before it left: a little fuller, and as deep."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        with console.status("…") as status, running_stub() as stub:
            for place, (n, contents) in enumerate(points):
                expected_s = self._s_per_row * sum(contents.get(one, 0) for one in ("letters", "arrivals"))
                if place >= POINTS_LEAST and time.monotonic() + expected_s > self._deadline:
                    self.left_out.append(n)
                    continue
                with folder() as room:
                    point = Point(folder=str(room), stub_port=stub.port, measured=self._letters, **contents)
                    figures = self._of_point(point, len(points) - place, lambda doing: status.update(doing))
                for name, values in figures.items():
                    found[name].append((float(n), statistics.median(values)))
        return dict(found)

    def _of_point(self, point: Point, points_left: int, tell: Callable[[str], None]) -> dict[str, list[float]]:
        began = time.monotonic()
        tell(f"{self._axis}: filling {point.letters or point.arrivals:,}")
        _asked("fill", point)
        self._s_per_row = (time.monotonic() - began) / max(point.letters, point.arrivals)
        figures: dict[str, list[float]] = defaultdict(list)
        for number in range(self._rounds):
            tell(f"{self._axis}: measuring, {number + 1} of {self._rounds}")
            round_began = time.monotonic()
            found = _asked("measure", _after(point, number)) | ({} if point.arrivals else _asked("drain", point))
            left = found.pop("left", point.letters)
            for name, value in found.items():
                figures[name].append(value)
            round_s = time.monotonic() - round_began
            if time.monotonic() + round_s * points_left > self._deadline:
                break  # one round of each point is worth more than another of this one
            if left < point.letters * REFILLED_BELOW:  # very many bots have sent much of it before the last was there
                _asked("fill", point)
        return figures


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
        timeout=MINUTES * 60,
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
            verdict = each_of(axis, name, line) or ("[green]yes[/]" if growth.is_log else "[red]no[/]")
            table.add_row(
                axis, TITLES[name], costs, exponent, f"{growth.last_step:.3f}", f"{growth.log_exponent:.3f}", verdict
            )
        table.add_section()
    return table


def each_of(axis: str, name: str, line: Sequence[tuple[float, float]]) -> str | None:
    """What one more takes, in words, where the whole grows with n."""
    unit = LINEAR.get((axis, name))
    if unit is None:
        return None
    (least, before), (most, after) = line[0], line[-1]
    return f"{(after - before) / (most - least) * 1000:.0f} {unit}"


def keep(
    place: Path,
    found: Lines,
    growths: Mapping[str, Mapping[str, Growth]],
    left_out: Mapping[str, Sequence[int]],
    *,
    taken_s: float,
) -> None:
    """Axes that were not wanted this time stay as the run before found them."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "growth.json"
    before = msgspec.json.decode(file.read_bytes()) if file.is_file() else {"axes": {}, "left_out": {}}
    result = {
        "cores": os.cpu_count(),
        "load_after": os.getloadavg()[0],
        "taken_s": round(taken_s, 1),
        "left_out": {axis: points for axis, points in {**before["left_out"], **left_out}.items() if points},
        "axes": before["axes"]
        | {
            axis: {
                name: {
                    "title": TITLES[name],
                    "unit": _UNITS.get(name, "µs"),
                    "points": line,
                    "growth": growths[axis][name],
                    "each": each_of(axis, name, line),
                }
                for name, line in figures.items()
            }
            for axis, figures in found.items()
        },
    }
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    for axis, figures in found.items():
        series = [
            Series(f"{TITLES[name]}, {_UNITS.get(name, 'µs')}: {growths[axis][name].exponent:+.2f}", tuple(line))
            for name, line in figures.items()
        ]
        drawn = lines(series, heading=f"Cost against {axis}", across=axis, up="CPU µs each, or MB")
        (place / f"growth_{axis}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
