"""What of a file is on the platter, and what was written since and may be lost: the part of a disk that a power cut decides."""

import random
from typing import NamedTuple

SECTOR_BYTES = 512  # what a disk writes whole or not at all


class Written(NamedTuple):
    offset: int
    data: bytes


class Truncated(NamedTuple):
    size_bytes: int


Change = Written | Truncated


class Image:
    """One file, or one folder, as a name may mean it."""

    __slots__ = ("_durable", "_pending", "inode", "is_folder", "is_plain", "size_bytes")

    def __init__(self, inode: int, *, is_folder: bool = False) -> None:
        self.inode = inode
        self.is_folder = is_folder
        self.is_plain = True  # until SQLite opens it, what is written to it is not seen
        self.size_bytes = 0  # as programs see it
        self._durable = bytearray()
        self._pending: list[Change] = []

    def write(self, data: bytes, offset: int) -> None:
        self._pending.append(Written(offset, data))
        self.size_bytes = max(self.size_bytes, offset + len(data))

    def truncate(self, size_bytes: int) -> None:
        self._pending.append(Truncated(size_bytes))
        self.size_bytes = min(self.size_bytes, size_bytes)

    def become(self, content: bytes) -> None:
        """Somebody wrote it unseen, and this is what it holds now. None of the difference is synced."""
        self._pending = []
        if not content.startswith(self._durable):
            self._pending.append(Truncated(0))
            self._pending.append(Written(0, content))
        elif len(content) > len(self._durable):
            self._pending.append(Written(len(self._durable), content[len(self._durable) :]))
        self.size_bytes = len(content)

    @property
    def durable_bytes(self) -> int:
        return len(self._durable)

    def sync(self) -> None:
        for change in self._pending:
            _apply(self._durable, change)
        self._pending = []

    def fail_sync(self, luck: "Luck") -> None:
        """As Linux does it: what could not be written is forgotten, and the next sync succeeds without it."""
        for change in luck.survivors(self._pending):
            _apply(self._durable, change)
        self._pending = []

    def cut_power(self, luck: "Luck") -> bytes:
        """What is found afterwards; that is durable."""
        survivors = luck.survivors(self._pending)
        for change in survivors:
            _apply(self._durable, change)
        if len(survivors) < len(self._pending) and len(self._durable) < self.size_bytes and luck.coin():
            # The new length had reached the disk before the bytes did.
            self._durable.extend(bytes(self.size_bytes - len(self._durable)))
        self._pending = []
        self.size_bytes = len(self._durable)
        return bytes(self._durable)


class Luck:
    """Decides for each change that was not synced: kept, lost or torn. Any of them may survive without those before it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        # All, none and everything between must be likely, however many changes there are.
        self._kept_share = chance.choice((0.0, 0.2, 0.5, 0.8, 0.95, 1.0))
        self.lost = 0
        self.torn = 0

    def coin(self) -> bool:
        return self._chance.random() < 0.5

    def survivors(self, changes: list[Change]) -> list[Change]:
        return [kept for change in changes if (kept := self._fate(change)) is not None]

    def _fate(self, change: Change) -> Change | None:
        if self._chance.random() < self._kept_share:
            return change
        if isinstance(change, Written) and self._chance.random() < 0.3:
            end = change.offset + len(change.data)
            inner = range(change.offset - change.offset % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES)
            if inner:
                self.torn += 1
                return Written(change.offset, change.data[: self._chance.choice(inner) - change.offset])
        self.lost += 1
        return None


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Truncated):
        del content[change.size_bytes :]
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data
