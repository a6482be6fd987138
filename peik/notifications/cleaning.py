"""Clears away what nobody can ask for any more: old notices, codes that are over, wrong tries and rates of yesterday."""

import contextlib
from collections.abc import Callable

from peik.clock import Clock
from peik.core.notification import RATE_WINDOW_MS
from peik.errors import Conflict
from peik.notifications.repeats import freed
from peik.notifications.values import (
    CODES,
    NOTICES,
    RATES,
    TRIES,
    Code,
    Notice,
    Rates,
    Tries,
    filed,
    read,
    shelf_of,
)
from peik.paper_ports import Filing, Paper, PaperStore

PAGE = 500
CLEAN_S = 3600.0
LATE_MS = 25 * 3600 * 1000  # Telegram keeps what people write for a day: until then a code may still be shown in time


class Cleaning:
    def __init__(self, papers: PaperStore, *, clock: Clock, keep_ms: int) -> None:
        self._papers = papers
        self._clock = clock
        self._keep_ms = keep_ms
        self._look_at = 0.0

    async def look(self) -> None:
        """Once an hour at most. Raises StoreUnavailable."""
        if self._clock.mono() < self._look_at:
            return
        now_ms = self._clock.wall_ms()
        await self._notices(now_ms - self._keep_ms)
        await self._each(CODES, lambda paper: read(paper, Code).expires_at_ms < now_ms - LATE_MS)
        await self._each(TRIES, lambda paper: all(at < now_ms - LATE_MS for _, at in read(paper, Tries).shown))
        await self._each(RATES, lambda paper: all(at < now_ms - RATE_WINDOW_MS for at in read(paper, Rates).sent_ms))
        self._look_at = self._clock.mono() + CLEAN_S

    async def _notices(self, before_ms: int) -> None:
        after: str | None = None
        while page := await self._papers.papers(NOTICES, after=after, until=f"{max(before_ms, 0):011x}", limit=PAGE):
            after = page[-1].key
            filings: list[Filing] = []
            for notice in (read(paper, Notice) for paper in page):
                if notice.is_over:
                    filings += gone(notice)
            if filings:
                await self._papers.file(filings)

    async def _each(self, shelf: str, is_old: Callable[[Paper], bool]) -> None:
        after: str | None = None
        while page := await self._papers.papers(shelf, after=after, limit=PAGE):
            after = page[-1].key
            old = [filed(shelf, paper.key, None, paper.version) for paper in page if is_old(paper)]
            with contextlib.suppress(Conflict):  # one of them was changed just now: the next look sees
                if old:
                    await self._papers.file(old)


def gone(notice: Notice) -> list[Filing]:
    """All of it: the notice, its line in the list of its recipient, and its key."""
    return [filed(NOTICES, notice.id, None), filed(shelf_of(notice.recipient), notice.id, None), *freed(notice)]
