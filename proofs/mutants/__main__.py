"""`python -m proofs.mutants [--only name]`: every mutant, two at a time, and docs/mutants.json with what caught each."""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from proofs.mutants.catching import Broken, caught, check_clean
from proofs.mutants.planting import Mutant, NotPlanted, copy_source, read_mutants
from proofs.mutants.report import Row, write_report

CLEAN_SEEDS = 20


def main(
    only: Annotated[list[str] | None, typer.Option(help="Just this mutant; may be given several times.")] = None,
    seeds: Annotated[int | None, typer.Option(help="So many seeds for each, whatever the list says.")] = None,
    jobs: Annotated[int, typer.Option(help="How many mutants at a time.")] = 2,
    write: Annotated[bool, typer.Option(help="Write docs/mutants.json.")] = True,
) -> None:
    """Plant each mutant in a copy of the source and see who notices. Exit code 0 only if all were caught."""
    mutants = read_mutants()
    wanted = [one for one in mutants if not only or one.name in only]
    if only and len(wanted) != len(set(only)):
        raise typer.BadParameter(f"known are: {', '.join(one.name for one in mutants)}")
    if seeds is not None:
        wanted = [msgspec.structs.replace(one, seeds=seeds) for one in wanted]
    rows: dict[str, Row] = {}
    failed = 0
    with tempfile.TemporaryDirectory(prefix="peik-clean-") as folder:
        clean = Path(folder) / "tree"
        copy_source(clean)
        print(f"{len(wanted)} mutants; first the clean source")
        try:
            check_clean(clean, seeds=CLEAN_SEEDS)
        except Broken as problem:
            print(f"? {problem}")
            raise typer.Exit(1) from None
        for count, (mutant, row) in enumerate(_all(wanted, clean, jobs), start=1):
            if isinstance(row, Row):
                rows[mutant.name] = row
            failed += not isinstance(row, Row) or row.caught_by == "nobody"
            print(f"{count:3d}/{len(wanted)} {_line(mutant, row)}", flush=True)
    if write:
        write_report([one.name for one in mutants], rows)
    print(f"{len(wanted)} mutants, {failed} not caught" if failed else f"{len(wanted)} mutants, all caught")
    raise typer.Exit(1 if failed else 0)


def _all(mutants: Sequence[Mutant], clean: Path, jobs: int) -> Iterator[tuple[Mutant, Row | Broken | NotPlanted]]:
    """Each with what became of it, as they end."""
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = {pool.submit(caught, mutant, clean): mutant for mutant in mutants}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except (Broken, NotPlanted) as problem:
                yield futures[future], problem
    finally:
        pool.shutdown(cancel_futures=True)


def _line(mutant: Mutant, row: Row | Broken | NotPlanted) -> str:
    if not isinstance(row, Row):
        return f"? {mutant.name}: {row}"
    if row.caught_by == "nobody":
        return f"! {row.name} ({row.seeds} seeds, {row.seconds:g} s): NOBODY NOTICED"
    return f"x {row.name} ({row.seeds} seeds, {row.seconds:g} s) {row.where}: {row.words}"


if __name__ == "__main__":
    typer.run(main)
