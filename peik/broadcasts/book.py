"""The papers of broadcasts: read, and changed so that of two writers none undoes the other's work."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from peik.broadcasts.records import (
    ACTIVE_SHELF,
    KEY_SHELF,
    SHELF,
    Broadcast,
    Recipient,
    key_of,
    ledger_of,
    read_broadcast,
    read_recipient,
    written,
)
from peik.errors import Conflict, NotFound, Unavailable
from peik.paper_ports import Filing, PaperStore

TRIES_MAX = 100  # against others who change the same broadcast; each of them has got further then
ACTIVE_PAGE = 1000
CLEAR_PAGE = 1000

Lines = Sequence[tuple[int, Recipient]]


class Book:
    def __init__(self, papers: PaperStore) -> None:
        self._papers = papers

    async def find(self, broadcast_id: str) -> Broadcast | None:
        paper = await self._papers.paper(SHELF, broadcast_id)
        return None if paper is None else read_broadcast(paper)

    async def get(self, broadcast_id: str) -> Broadcast:
        """Raises NotFound."""
        found = await self.find(broadcast_id)
        if found is None:
            raise unknown(broadcast_id)
        return found

    async def newest(self, *, before: str | None, limit: int) -> list[Broadcast]:
        papers = await self._papers.papers(SHELF, after=before, limit=limit, is_backwards=True)
        return [read_broadcast(paper) for paper in papers]

    async def active(self) -> list[str]:
        """The ids of those that an engine must look at, the oldest first. All of them: of many that are to start next month
        none may keep one of today from being seen."""
        ids: list[str] = []
        while page := await self._papers.papers(ACTIVE_SHELF, after=ids[-1] if ids else None, limit=ACTIVE_PAGE):
            ids += [paper.key for paper in page]
            if len(page) < ACTIVE_PAGE:
                break
        return ids

    async def add(self, broadcast: Broadcast, more: Sequence[Filing] = ()) -> None:
        """A new one. Raises Conflict if it, or something of `more`, is there already."""
        filings = [Filing(shelf=SHELF, key=broadcast.id, body=written(broadcast), version=0)]
        if not broadcast.is_at_rest:
            filings.append(_marked(broadcast.id, "1"))
        await self._papers.file([*filings, *more])

    async def change(
        self, broadcast_id: str, change: Callable[[Broadcast], Broadcast | None], lines: Lines = ()
    ) -> tuple[Broadcast, Broadcast] | None:
        """Store what `change` makes of it, with lines of its ledger, in one commit: the old one and the new one. `change` is
        asked anew if somebody else was faster; None from it stores nothing. Raises NotFound."""
        for _ in range(TRIES_MAX):
            paper = await self._papers.paper(SHELF, broadcast_id)
            if paper is None:
                raise unknown(broadcast_id)
            old = read_broadcast(paper)
            new = change(old)
            if new is None:
                return None
            filings = [Filing(shelf=SHELF, key=old.id, body=written(new), version=paper.version)]
            if old.is_at_rest is not new.is_at_rest:
                filings.append(_marked(old.id, None if new.is_at_rest else "1"))
            filings += line_filings(old.id, lines)
            try:
                await self._papers.file(filings)
            except Conflict:
                continue
            return old, new
        raise _busy(broadcast_id)

    async def remove(self, broadcast_id: str, *, may: Callable[[Broadcast], bool]) -> bool:
        """Take it away, and then its ledger, if it may go as it stands. What a crash leaves of that is swept later. Raises
        Unavailable."""
        for _ in range(TRIES_MAX):
            paper = await self._papers.paper(SHELF, broadcast_id)
            if paper is None:
                return True
            old = read_broadcast(paper)
            if not may(old):
                return False
            filings = [Filing(shelf=SHELF, key=old.id, body=None, version=paper.version), _marked(old.id, None)]
            if old.key is not None:
                filings.append(Filing(shelf=KEY_SHELF, key=old.key, body=None))
            try:
                await self._papers.file(filings)
            except Conflict:
                continue
            await self.clear(old.id)
            return True
        raise _busy(broadcast_id)

    # ---- the ledger ----

    async def begin(self, broadcast_id: str, lines: Lines) -> None:
        """Recipients of a broadcast that is about to be made. Raises Conflict if another one has this id: the first line is
        what it is known by."""
        first, *others = line_filings(broadcast_id, lines)
        await self._papers.file([replace(first, version=0), *others])

    async def write(self, broadcast_id: str, lines: Lines) -> None:
        await self._papers.file(line_filings(broadcast_id, lines))

    async def lines(self, broadcast_id: str, *, first: int, limit: int) -> list[tuple[int, Recipient]]:
        """Recipients from a number on."""
        papers = await self._papers.papers(ledger_of(broadcast_id), after=key_of(first - 1), limit=limit)
        return [read_recipient(paper) for paper in papers]

    async def those(self, broadcast_id: str, numbers: Sequence[int]) -> dict[int, Recipient]:
        found = await self._papers.those(ledger_of(broadcast_id), [key_of(number) for number in numbers])
        return dict(read_recipient(paper) for paper in found.values())

    async def clear(self, broadcast_id: str) -> None:
        while await self._papers.clear_shelf(ledger_of(broadcast_id), limit=CLEAR_PAGE) >= CLEAR_PAGE:
            pass

    async def ledgers(self) -> list[str]:
        """The ids of all broadcasts of which there are recipients."""
        return [shelf.removeprefix(ledger_of("")) for shelf in await self._papers.shelves(ledger_of(""))]


def line_filings(broadcast_id: str, lines: Lines) -> list[Filing]:
    shelf = ledger_of(broadcast_id)
    return [Filing(shelf=shelf, key=key_of(number), body=written(line)) for number, line in lines]


def _marked(broadcast_id: str, body: str | None) -> Filing:
    return Filing(shelf=ACTIVE_SHELF, key=broadcast_id, body=body)


def _busy(broadcast_id: str) -> Unavailable:
    return Unavailable(code="busy", detail=f"Broadcast {broadcast_id} is changed by many at once. Ask again.")


def unknown(broadcast_id: str) -> NotFound:
    return NotFound(code="unknown_broadcast", detail=f"There is no broadcast {broadcast_id[:40]} here (any more).")
