"""What became of each mutant, as docs/mutants.json has it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from proofs.mutants.planting import ROOT

REPORT = ROOT / "docs" / "mutants.json"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant. `where` is a seed or a test, `words` what was found there, `seeds` how many lives were played."""

    name: str
    promise: str
    file: str
    caught_by: str  # world, test, or nobody
    where: str
    words: str
    seeds: int
    seconds: float
    beyond: str = ""  # why the world cannot see it


def read_report(path: Path = REPORT) -> list[Row]:
    return msgspec.json.decode(path.read_bytes(), type=list[Row]) if path.exists() else []


def write_report(names: Sequence[str], fresh: Mapping[str, Row], path: Path = REPORT) -> None:
    """The rows of these mutants, in this order: the fresh ones, and those that were not run now as they were."""
    known = {row.name: row for row in read_report(path)} | dict(fresh)
    rows = [known[name] for name in names if name in known]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
