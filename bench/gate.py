"""`make bench-gate`: has Peik become slower? Two judges, both honest on a noisy machine, against `bench/baseline.json`.

1. Instructions per letter of fixed work (`bench.instructions`). Runs of the same code differ by about one in a thousand,
   however busy the machine is, so a rise of 2 % is the code's. Another Python or other libraries count differently: then
   nothing is judged.
2. Ratios to ceilings of the same round (`bench.quick`). What slows down both cancels out; what is left is allowed for by the
   spread of the rounds, then and now. This sees threads, sockets and the disk, which the first does not.

`--keep` writes the baseline anew, of those judges that were asked: after a change that is worth its price.
"""

import argparse
import math
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench import instructions
from bench.budget import LINES, Line
from bench.contest import QUICK
from bench.figures import Spread
from bench.ground import LETTERS
from bench.running import Run, Terms, run_rows

BASELINE = Path(__file__).parent / "baseline.json"
ROUNDS = 5
INSTRUCTIONS_MORE = 0.02
RATIO_WORSE_LEAST = 0.10  # less than that is not told from chance in five rounds
DEVIATIONS = 3.0
_SIGMA = 1.4826  # a median absolute deviation as a standard deviation
_PACKAGES = ("apsw", "msgspec")
JUDGES = ("instructions", "ratios")


class Baseline(msgspec.Struct, kw_only=True):
    made_with: str = ""  # instructions are compared only with their like
    instructions: dict[str, float] = {}
    ratios: dict[str, Spread] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    before: float | None
    now: float
    allowed: float | None  # the worst that passes
    is_worse: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description="Has Peik become slower?")
    parser.add_argument("--only", choices=JUDGES, help="one judge")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--letters", type=int, default=LETTERS)
    parser.add_argument("--keep", action="store_true", help="write what was found as the new baseline")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    kept = read(BASELINE)
    verdicts: list[Verdict] = []
    asked = (options.only,) if options.only else JUDGES
    if "instructions" in asked:
        verdicts += _instructions(console, kept, keep=options.keep)
    if "ratios" in asked:
        verdicts += _ratios(console, kept, Terms(rounds=options.rounds, letters=options.letters, with_servers=False))
    if options.keep:
        BASELINE.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
        console.print(f"Kept in {BASELINE.name}.")
        return 0
    console.print(shown(verdicts))
    return 1 if any(one.is_worse for one in verdicts) else 0


def read(path: Path) -> Baseline:
    return msgspec.json.decode(path.read_bytes(), type=Baseline) if path.is_file() else Baseline()


def made_with() -> str:
    libraries = " ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"Python {platform.python_version()} {platform.machine()} {libraries}"


def _instructions(console: Console, kept: Baseline, *, keep: bool) -> list[Verdict]:
    before, like = kept.instructions, made_with()
    if before and kept.made_with != like and not keep:
        console.print(f"Instructions are not judged: counted with {kept.made_with} then, {like} now.", style="yellow")
        before = {}
    with console.status("counting instructions: a minute or two"):
        now = {name: round(instructions.counted(name), 1) for name in instructions.WORKS}
    verdicts = [judge_count(name, before.get(name), figure) for name, figure in now.items()]
    if keep:
        kept.instructions, kept.made_with = now, like
    return verdicts


def judge_count(name: str, before: float | None, now: float) -> Verdict:
    allowed = None if before is None else before * (1 + INSTRUCTIONS_MORE)
    is_worse = allowed is not None and now > allowed
    return Verdict(name=f"{name}, instructions", before=before, now=now, allowed=allowed, is_worse=is_worse)


def _ratios(console: Console, kept: Baseline, terms: Terms) -> list[Verdict]:
    run = run_rows(QUICK, terms, console)
    if run.failures:
        raise RuntimeError(f"No figures: {run.failures}")
    now = ratios_of(run)
    verdicts = [judge_ratio(line, kept.ratios.get(line.name), now[line.name]) for line in LINES if line.name in now]
    kept.ratios = now  # written only when it is to be kept
    return verdicts


def ratios_of(run: Run) -> dict[str, Spread]:
    """Of each figure to its ceiling in the same round."""
    return {
        line.name: Spread.of(_paired(run.rounds[line.name], run.rounds[line.ceiling]))
        for line in LINES
        if line.ceiling is not None and line.name in run.rounds and line.ceiling in run.rounds
    }


def _paired(figures: Sequence[float], ceilings: Sequence[float]) -> list[float]:
    return [figure / ceiling for figure, ceiling in zip(figures, ceilings, strict=True)]


def judge_ratio(line: Line, before: Spread | None, now: Spread) -> Verdict:
    """Worse than before by more than chance explains: three deviations of both, and a tenth at least."""
    if before is None:
        return Verdict(name=line.title, before=None, now=now.median, allowed=None, is_worse=False)
    chance = DEVIATIONS * _SIGMA * math.hypot(before.deviation, now.deviation)
    leeway = max(chance, RATIO_WORSE_LEAST * abs(before.median))
    allowed = before.median + leeway if line.is_most else before.median - leeway
    is_worse = now.median > allowed if line.is_most else now.median < allowed
    return Verdict(name=line.title, before=before.median, now=now.median, allowed=allowed, is_worse=is_worse)


def shown(verdicts: Sequence[Verdict]) -> Table:
    table = Table(title="Against the baseline", title_justify="left")
    for name in ("what", "then", "now", "now / then", "passes to", "slower"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for one in verdicts:
        if one.before is None or one.allowed is None:
            table.add_row(one.name, "not kept", f"{one.now:,.4g}", "", "", "not judged")
            continue
        share = f"{one.now / one.before:.3f}" if one.before else ""
        word = "[red]yes[/]" if one.is_worse else "[green]no[/]"
        table.add_row(one.name, _figure(one.before), _figure(one.now), share, _figure(one.allowed), word)
    return table


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
