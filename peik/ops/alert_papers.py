"""Alerts on paper: what goes on, so that a restart neither repeats nor forgets it, and what was told last, for who looks."""

import contextlib

import msgspec

from peik.errors import Conflict
from peik.ops.alert_matter import Kept, Matter, Telling
from peik.paper_ports import Filing, PaperStore

SHELF = "alerts"
TOLD = "alerts_told"
SEEN = "alerts_errors"
TOLD_MAX = 100
KEPT_MAX = 2000


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what was told."""

    at_ms: int
    kind: str  # began, again, over or test
    rule: str
    bot_id: int
    node: str
    text: str


_decode_kept = msgspec.json.Decoder(Kept).decode
_decode_told = msgspec.json.Decoder(Told).decode


class AlertPapers:
    """Every method may raise StoreUnavailable."""

    def __init__(self, papers: PaperStore, *, node: str) -> None:
        self._papers = papers
        self.node = node
        self._filed = 0

    async def all(self) -> list[tuple[str, Kept, int]]:
        """Every matter that was told and is not over, of all nodes: its key, itself and its version."""
        found = []
        for paper in await self._papers.papers(SHELF, limit=KEPT_MAX):
            with contextlib.suppress(msgspec.DecodeError):  # of a version that is not known here
                found.append((paper.key, _decode_kept(paper.body), paper.version))
        return found

    async def one(self, key: str) -> tuple[Kept | None, int]:
        """A matter as it is filed, and its version; None and 0: it is not."""
        paper = await self._papers.paper(SHELF, key)
        if paper is None:
            return None, 0
        try:
            return _decode_kept(paper.body), paper.version
        except msgspec.DecodeError:
            return None, paper.version

    async def errors(self) -> str:
        """Errors that were seen, by this node and others."""
        paper = await self._papers.paper(SEEN, "all")
        return "{}" if paper is None else paper.body

    async def keep_errors(self, body: str) -> None:
        """Whoever files last wins: the others have taken up what was there, and file theirs again."""
        await self._papers.file([Filing(shelf=SEEN, key="all", body=body)])

    async def claim(self, telling: Telling, kept: Kept | None) -> None:
        """Note that this is told, before it is. Raises Conflict if somebody else was at the same matter."""
        matter = telling.matter
        filings = [self._filing(matter, kept)]
        if telling.text:
            filings.append(self._line(telling))
        await self._papers.file(filings)
        matter.version = 0 if kept is None else matter.version + 1
        await self._trim()

    async def note(self, matter: Matter, kept: Kept | None) -> None:
        """Everybody has heard it. Another node that knows better by now is left alone."""
        if matter.version:
            with contextlib.suppress(Conflict):
                await self._papers.file([self._filing(matter, kept)])
                matter.version = 0 if kept is None else matter.version + 1

    async def remove(self, key: str, version: int) -> None:
        with contextlib.suppress(Conflict):
            await self._papers.file([Filing(shelf=SHELF, key=key, body=None, version=version)])

    async def last(self) -> list[Told]:
        """What was told last, the newest first."""
        found = []
        for paper in await self._papers.papers(TOLD, limit=TOLD_MAX, is_backwards=True):
            with contextlib.suppress(msgspec.DecodeError):
                found.append(_decode_told(paper.body))
        return found

    async def adopt(self, matter: Matter, kept: Kept) -> bool:
        """This node tells it now, instead of one that died. False: yet another one does."""
        try:
            await self._papers.file([self._filing(matter, kept)])
        except Conflict:
            matter.owed = None
            return False
        matter.version += 1
        return True

    def _filing(self, matter: Matter, kept: Kept | None) -> Filing:
        body = None
        if kept is not None:
            body = msgspec.json.encode(msgspec.structs.replace(kept, node=self.node)).decode()
        return Filing(shelf=SHELF, key=matter.key, body=body, version=matter.version)

    def _line(self, telling: Telling) -> Filing:
        self._filed += 1
        node = self.node.encode("ascii", "replace").decode().replace(" ", "_")[:100]
        line = Told(
            at_ms=telling.at_ms,
            kind=telling.kind,
            rule=telling.matter.rule.name,
            bot_id=telling.matter.bot_id,
            node=self.node,
            text=telling.text,
        )
        key = f"{telling.at_ms:015}:{node}:{self._filed:06}"
        return Filing(shelf=TOLD, key=key, body=msgspec.json.encode(line).decode())

    async def _trim(self) -> None:
        newest = await self._papers.papers(TOLD, limit=TOLD_MAX + 1, is_backwards=True)
        if len(newest) > TOLD_MAX:
            await self._papers.clear_shelf(TOLD, until=newest[-2].key, limit=TOLD_MAX)
