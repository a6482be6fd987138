"""Plays a quiet life, then seeds until one goes wrong, and says so in a line of JSON. Runs inside a copy of the source."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer

from simulation.drawing import Kind
from simulation.play import play

LIFE_S_MAX = 45  # a life takes a second; one that takes so long has no end
WRONG_MAX = 3


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `wrong` is empty if all went well; else `seed` is the first that did not, None the quiet life."""

    seeds: int
    seed: int | None = None
    wrong: list[str] = []


def main(
    seeds: Annotated[int, typer.Option(help="How many lives.")],
    folder: Annotated[Path, typer.Option(help="Where their files are put meanwhile.")],
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    kind: Annotated[Kind, typer.Option(help="Which lives.")] = Kind.FILE,
) -> None:
    _say(_played(range(first, first + seeds), folder, kind))


def _played(seeds: range, folder: Path, kind: Kind) -> Played:
    _bound(0, None)
    quiet = play(seeds.start, only=[], folder=folder, kind=kind)  # starts, does nothing, ends
    if quiet.wrong:
        return Played(seeds=0, wrong=quiet.wrong[:WRONG_MAX])
    for count, seed in enumerate(seeds, start=1):
        _bound(count, seed)
        life = play(seed, folder=folder, kind=kind)
        if life.wrong:
            return Played(seeds=count, seed=seed, wrong=life.wrong[:WRONG_MAX])
    return Played(seeds=len(seeds))


def _bound(seeds: int, seed: int | None) -> None:
    """Nothing of this process may be able to hold the end up: so it is the last thing that it does."""

    def end(number: int, frame: object) -> NoReturn:
        _say(Played(seeds=seeds, seed=seed, wrong=[f"the life did not end within {LIFE_S_MAX} s"]))
        os._exit(0)

    signal.signal(signal.SIGALRM, end)
    signal.alarm(LIFE_S_MAX)


def _say(played: Played) -> None:
    sys.stdout.write(msgspec.json.encode(played).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
