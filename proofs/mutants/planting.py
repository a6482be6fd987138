"""The list of mutants, and copies of the source with one of them in it. It runs nothing."""

import shutil
import tomllib
from pathlib import Path

import msgspec

from simulation.drawing import Kind

ROOT = Path(__file__).parents[2]
LIST = ROOT / "proofs" / "mutants.toml"
# What the world and the suites need. Files of the root go along: some tests read them.
_FOLDERS = ("peik", "simulation", "tests", "proofs", "docs", "examples", "bench")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "node_modules", "results")


class NotPlanted(Exception):
    """The source has changed, and a mutant does not fit it any more."""


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bug. `old` stands in `file` exactly once; `new` takes its place."""

    name: str
    promise: str  # that it breaks
    file: str
    old: str
    new: str
    seeds: int = 150  # so many lives, at most, before the suites have their turn,
    kind: Kind = Kind.FILE  # and of which kind
    suites: tuple[str, ...] = ()
    beyond: str = ""  # why the world cannot see it, if so

    def planted_in(self, text: str) -> str:
        """The text with this bug. Raises NotPlanted."""
        count = text.count(self.old)
        if count != 1:
            raise NotPlanted(f"its old text stands {count} times in {self.file}, and should once")
        return text.replace(self.old, self.new)


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutant: list[Mutant]


def read_mutants(path: Path = LIST) -> list[Mutant]:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _List).mutant


def copy_source(into: Path, *, source: Path = ROOT) -> None:
    """The tree as it is now, without what is made from it."""
    into.mkdir()
    for name in _FOLDERS:
        shutil.copytree(source / name, into / name, ignore=_LEFT_OUT)
    for path in source.iterdir():
        if path.is_file() and path.name != ".env":
            shutil.copy2(path, into / path.name)


def plant(mutant: Mutant, tree: Path) -> None:
    path = tree / mutant.file
    path.write_text(mutant.planted_in(path.read_text(encoding="utf-8")), encoding="utf-8")
