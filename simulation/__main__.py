"""`python -m simulation --seeds 300`: many lives on all cores, and the shortest story of each that goes wrong."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from simulation.drawing import Kind
from simulation.many import lives
from simulation.play import DEEDS, Life, play, shrunk

LOG_TAIL = 40
SHOWN_MAX = 3  # of failing seeds, in full
TOLD = 10  # lines of progress where there is no terminal

_COLUMNS = (
    TextColumn("seeds"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeRemainingColumn(),
    TextColumn("{task.fields[wrong]} wrong"),
)

console = Console(highlight=False, soft_wrap=True)


def main(
    seeds: Annotated[int, typer.Option(help="How many lives.")] = 300,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    deeds: Annotated[int, typer.Option(help="How much happens in each.")] = DEEDS,
    only: Annotated[str, typer.Option(help="Of one seed, just these deeds: 3,7,12.")] = "",
    kind: Annotated[Kind | None, typer.Option(help="Lives of one kind only. By default the seed decides.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0: one for each core.")] = 0,
    log: Annotated[bool, typer.Option("--log", help="Print the whole log of a single seed.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the counts to this file, as JSON.")] = None,
) -> None:
    """Play seeded lives of Peik and check every invariant. Exit code 0 only if none was broken."""
    if log or only:
        raise typer.Exit(_one(first, deeds, only, kind, shows_log=log))
    counts: Counter[str] = Counter()
    failed: list[Life] = []
    errors = Console(stderr=True)
    with Progress(*_COLUMNS, console=errors, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=seeds, wrong=0)
        played = lives(range(first, first + seeds), deeds, jobs or os.cpu_count() or 1, kind=kind)
        for done, life in enumerate(played, start=1):
            counts[f"{life.kind} lives"] += 1
            counts.update(life.counts)
            if life.wrong:
                failed.append(life)
                errors.print(f"seed {life.seed}: {life.wrong[0][:200]}", markup=False, highlight=False)
            progress.update(task, advance=1, wrong=len(failed))
            if not errors.is_terminal and done % max(1, seeds // TOLD) == 0:
                errors.print(f"{done} of {seeds} seeds, {len(failed)} wrong")
    _show(counts, seeds)
    if report is not None:
        document = {
            "seeds": seeds,
            "first": first,
            "deeds": deeds,
            "wrong": len(failed),
            "replayed": [],
            "counts": dict(sorted(counts.items())),
        }
        report.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    for life in failed[:SHOWN_MAX]:
        _tell(life, deeds)
    if len(failed) > SHOWN_MAX:
        console.print("also wrong:", ", ".join(str(life.seed) for life in failed[SHOWN_MAX:]))
    console.print(f"{seeds} seeds, {len(failed)} wrong")
    raise typer.Exit(1 if failed else 0)


def _one(seed: int, deeds: int, only: str, kind: Kind | None, *, shows_log: bool) -> int:
    life = play(seed, deeds=deeds, only=[int(place) for place in only.split(",")] if only else None, kind=kind)
    sys.stdout.write("\n".join(life.log if shows_log else life.story) + "\n")
    for wrong in life.wrong:
        console.print(f"WRONG: {wrong}", markup=False)
    return 1 if life.wrong else 0


def _show(counts: Counter[str], seeds: int) -> None:
    table = Table("", "in all", "in each", box=None)
    for name, count in sorted(counts.items()):
        table.add_row(name, f"{count:,}", f"{count / seeds:.1f}")
    console.print(table)


def _tell(life: Life, deeds: int) -> None:
    short = shrunk(life, replay=lambda seed, only: play(seed, deeds=deeds, only=only, kind=life.kind))
    console.rule(f"seed {life.seed}")
    for wrong in short.wrong:
        console.print(f"WRONG: {wrong}", markup=False)
    console.print("\n".join(short.story), markup=False)
    console.print("the end of its log:")
    console.print("\n".join(short.log[-LOG_TAIL:]), markup=False)
    places = ",".join(map(str, short.deeds))
    console.print("again:")
    which = f"--kind {life.kind} --first {life.seed} --deeds {deeds}"
    console.print(f"  python -m simulation {which} --only {places or -1} --log")


if __name__ == "__main__":
    typer.run(main)
