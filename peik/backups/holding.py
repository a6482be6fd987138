"""Which backups there are, and when each will be gone: for whoever removed something that they still hold."""

import contextlib
from pathlib import Path

import msgspec

from peik.backups import container
from peik.backups.desk import NAME
from peik.errors import Problem


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    made_at_ms: int
    goes_at_ms: int | None  # None: nobody makes new ones by the clock


def holdings(folder: Path, *, keep: int, every_s: float | None) -> list[Holding]:
    """The newest first. One more backup takes the place of the oldest, so that the newest of all lasts longest."""
    made: list[tuple[int, Path]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if NAME.fullmatch(path.name):
            with contextlib.suppress(Problem, OSError):  # not ours, or gone meanwhile
                made.append((container.head_of(path).made_at_ms, path))
    made.sort(reverse=True)
    return [
        Holding(
            path=path,
            made_at_ms=at_ms,
            goes_at_ms=None if every_s is None else made[0][0] + int(max(keep - place, 1) * every_s * 1000),
        )
        for place, (at_ms, path) in enumerate(made)
    ]
