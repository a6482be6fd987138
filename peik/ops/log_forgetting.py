"""Log files without a person who is forgotten. Each file is written anew beside itself and then put in its place, so that a crash
leaves the old one or the new one whole. Who writes the log meanwhile does it himself, between two lines: none is lost."""

import asyncio
import os
from pathlib import Path
from typing import BinaryIO

from peik.core.forgetting import Found, Gone, Person, scrubbed
from peik.ops.log_file import open_file


class LogFilesPart:
    """The port `Part`."""

    def __init__(self, path: Path, *, files_kept: int) -> None:
        self._path = path
        self._files_kept = files_kept

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        def work() -> int:
            return sum(_rewritten(path, person, is_dry=is_dry) for path in self._files())

        writer = open_file(self._path)
        blanked = await (asyncio.to_thread(work) if writer is None else writer.between_lines(work))
        return {"log_files": Gone(blanked=blanked)}

    def _files(self) -> list[Path]:
        older = (self._path.with_name(f"{self._path.name}.{number}") for number in range(1, self._files_kept + 1))
        return [path for path in (self._path, *older) if path.is_file()]


def _rewritten(path: Path, person: Person, *, is_dry: bool) -> int:
    """How many lines named the person. A file without any is left as it is."""
    words = [word.encode() for word in person.words]
    changed = 0
    beside = path.with_name(f".{path.name}.forgetting")
    with path.open("rb") as old, _opened(beside, like=path) as new:
        for raw in old:
            line = raw
            if any(word in raw for word in words):
                text = raw.decode("utf-8", "replace")
                left = scrubbed(person, text.rstrip("\n"))
                if left != text.rstrip("\n"):
                    line, changed = left.encode() + b"\n", changed + 1
            new.write(line)
        new.flush()
        os.fsync(new.fileno())
    if changed and not is_dry:
        beside.replace(path)
    else:
        beside.unlink()
    return changed


def _opened(path: Path, *, like: Path) -> BinaryIO:
    mode = like.stat().st_mode & 0o777
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb")
