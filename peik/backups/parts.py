"""What a backup is made of, and what each part has to be able to do."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from peik.backups.manifest import Part
from peik.backups.watching import Watch

# Keeps the files of letters from going, at the moment of a snapshot: those of these names, or all for None. Which are not there.
Hold = Callable[[Collection[str] | None], set[str]]

SNAPSHOTS_MAX = 20  # each beyond the first is for files of letters that ended in the few milliseconds before


class Source(Protocol):
    """A store or an archive. What it raises are Problems and StartErrors."""

    @property
    def kind(self) -> str: ...

    @property
    def shown(self) -> str:
        """Where it is, without a password."""

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: Watch) -> Part:
        """All of it as it was at one moment, as files in this folder. `hold` is asked in that moment."""

    def reserved(self) -> AbstractContextManager[None]:
        """Nobody begins to run on it within the block, where that can be had (SQLite). Raises Conflict (`in_use`)."""

    async def used_by(self) -> str | None:
        """Who runs on it now, as a sentence; None: nobody."""

    async def is_empty(self) -> bool: ...

    async def check(self, folder: Path, part: Part, watch: Watch) -> dict[str, int]:
        """Put it back in a temporary place, and count what is there. Raises Conflict (`backup_broken`)."""

    async def put_back(self, folder: Path, part: Part, watch: Watch) -> None:
        """In place of all that is there: as a whole, or not at all. Only while it is `reserved`."""


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """Files of this node that are no database."""

    files: Path | None  # those of letters; None: they are in the store
    sessions: Path | None
    keys: dict[str, Path]  # by the name in the backup


def hold_none(blobs: Collection[str] | None) -> set[str]:
    """For a part that has no files beside it."""
    return set()
