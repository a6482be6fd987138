"""As much of a Dockerfile as the tests ask of it: its stages, with their instructions in order."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

IMAGE = Path(__file__).parents[2] / "deploy" / "Dockerfile"


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """`steps`: instructions in capital letters, each with its words in one line."""

    base: str
    steps: tuple[tuple[str, str], ...]

    def all(self, instruction: str) -> list[str]:
        return [words for name, words in self.steps if name == instruction]

    def one(self, instruction: str) -> str:
        (words,) = self.all(instruction)
        return words

    def listed(self, instruction: str) -> list[str]:
        """One in the form of a JSON list, as those should be that are run without a shell."""
        return [str(word) for word in json.loads(self.one(instruction))]

    def pairs(self, instruction: str) -> dict[str, str]:
        """NAME=value of all such instructions."""
        return dict(pair.split("=", 1) for words in self.all(instruction) for pair in shlex.split(words))


def stages(path: Path = IMAGE) -> list[Stage]:
    found: list[Stage] = []
    before: list[tuple[str, str]] = []
    for name, words in _steps(path.read_text(encoding="utf-8")):
        if name == "FROM":
            found.append(Stage(base=words, steps=()))
        elif not found:
            before.append((name, words))
        else:
            found[-1] = msgspec.structs.replace(found[-1], steps=(*found[-1].steps, (name, words)))
    assert {name for name, _ in before} <= {"ARG"}
    return found


def _steps(text: str) -> Iterator[tuple[str, str]]:
    without_remarks = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n\s*", "", without_remarks).splitlines():
        if line.strip():
            name, _, words = line.partition(" ")
            yield name.upper(), words.strip()
