"""A FileStore in memory, which can be away, and which counts what it is asked for."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence

from peik.core.letter import Enclosed
from peik.errors import StoreUnavailable
from peik.storage.spool import Spooled

NOW_MS = 1_800_000_000_000  # the store's clock, which is nobody else's
HOUR_MS = 3_600_000


class MemoryFiles:
    """What all nodes of a story share."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, bytes]] = {}
        self.kept_at_ms: dict[str, int] = {}
        self.now_ms = NOW_MS
        self.parts_left: int | None = None  # how many more it takes before it is away
        self.is_away = False
        self.asked: Counter[str] = Counter()

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        self._answer("keep_part")
        if self.parts_left == 0:
            self.is_away = True
            self._answer("keep_part")
        if self.parts_left is not None:
            self.parts_left -= 1
        self.kept_at_ms.setdefault(blob, self.now_ms)
        self.parts.setdefault(blob, {})[place] = part

    async def part(self, blob: str, place: int) -> bytes | None:
        self._answer("part")
        return self.parts.get(blob, {}).get(place)

    async def drop_files(self, blobs: Sequence[str]) -> None:
        self._answer("drop_files")
        for blob in blobs:
            self.parts.pop(blob, None)
            self.kept_at_ms.pop(blob, None)

    async def kept_files(self) -> dict[str, int]:
        self._answer("kept_files")
        return dict(self.kept_at_ms)

    def _answer(self, question: str) -> None:
        self.asked[question] += 1
        if self.is_away:
            raise StoreUnavailable(code="store_away", detail="The store is away.")


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def as_file(kept: Spooled) -> Enclosed:
    return kept.as_enclosed("document", filename="report.pdf", content_type="application/pdf")
