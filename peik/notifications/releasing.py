"""Lets go what waited: for the end of quiet hours, of a digest's window, of an hour that was full. One node does it for all.

It also finishes parcels that a life before it had packed and not handed over, and clears away what is old.
"""

import asyncio
from collections.abc import Mapping, Sequence

from peik.bell import Bell
from peik.clock import Clock
from peik.errors import Unavailable, described
from peik.events import Events, StoreFailed, Surprise
from peik.notifications.cleaning import Cleaning
from peik.notifications.handing import Handing
from peik.notifications.links import in_turn
from peik.notifications.packing import Packing
from peik.notifications.values import NOTICES, PARCELS, WAITING, Notice, Parcel, filed, read, waiting_key
from peik.paper_ports import Paper, PaperStore

PAGE = 500
CHARS_MAX = 2_000_000  # of notices in one commit, which has a bound: each is filed anew, and once more in its parcel
LOOK_S_MAX = 300.0  # look again at the latest after so long, whatever was heard
PARCEL_S = 10.0  # a younger parcel is being handed over by whoever packed it
RETRY_S = 2.0
SLACK_S = 0.002  # a timer may ring a hair before its time


class Releasing:
    def __init__(
        self,
        *,
        papers: PaperStore,
        packing: Packing,
        handing: Handing,
        cleaning: Cleaning,
        clock: Clock,
        events: Events,
    ) -> None:
        self._papers = papers
        self._packing = packing
        self._handing = handing
        self._cleaning = cleaning
        self._clock = clock
        self._events = events
        self._bell = Bell()
        self._is_stale = True
        self._due_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin, under the lease of the chores."""
        self.stop()
        self._is_stale = True
        self._task = group.create_task(self._run(), name="notifications")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def look(self) -> None:
        """Another node may have put something off."""
        self._is_stale = True
        self._bell.ring()

    def expect(self, due_at_ms: int) -> None:
        """Something is due then."""
        at = self._mono(due_at_ms)
        if at < self._due_at:
            self._due_at = at
            self._bell.ring()

    def _mono(self, at_ms: int) -> float:
        return self._clock.mono() + (at_ms - self._clock.wall_ms()) / 1000 + SLACK_S

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # asked: a library can swallow a cancellation on Python 3.11
            if self._is_stale or self._clock.mono() >= self._due_at:
                await self._surely()
            await self._bell.wait(None if self._is_stale else self._due_at)

    async def _surely(self) -> None:
        self._is_stale = False
        self._due_at = self._clock.mono() + LOOK_S_MAX  # what is put off while we look makes it sooner
        try:
            await self.release()
            await self._cleaning.look()
        except Unavailable as error:
            self._events.tell(StoreFailed(what="notifications that wait", why=error.detail))
            self._due_at = self._clock.mono() + RETRY_S
        except Exception as error:  # noqa: BLE001  told of; and what waits is looked at again
            self._events.tell(Surprise(where="notifications that wait", error=described(error)))
            self._due_at = self._clock.mono() + LOOK_S_MAX

    async def release(self) -> None:
        """Everything that is due."""
        await self._finish()
        while await in_turn(self._release):
            pass
        first = await self._papers.papers(WAITING, limit=1)
        if first:
            self.expect(_due_of(first[0].key))

    async def _release(self) -> bool:
        """A page of it. Whether there may be more."""
        at_ms = self._clock.wall_ms()
        page = await self._papers.papers(WAITING, until=f"{at_ms + 1:015d}", limit=PAGE)
        if not page:
            return False
        found = await self._papers.those(NOTICES, [_id_of(paper.key) for paper in page])
        is_full = len(page) == PAGE
        page, is_cut = _fitting(page, found)
        notices = [read(found[_id_of(paper.key)], Notice) for paper in page if _id_of(paper.key) in found]
        due = [notice for notice in notices if not notice.is_over]
        plan = await self._packing.plan(sorted(due, key=lambda one: one.id), at_ms=at_ms, may_merge=True)
        stays = {waiting_key(notice) for notice in plan.put_off}
        gone = [filed(WAITING, paper.key, None, paper.version) for paper in page if paper.key not in stays]
        await self._papers.file([*gone, *plan.filings])
        await self._handing.over(plan.parcels)
        return is_full or is_cut

    async def _finish(self) -> None:
        """Parcels that somebody packed and did not hand over: before a crash, or while the store was away."""
        after: str | None = None
        while page := await self._papers.papers(PARCELS, after=after, limit=PAGE):
            after = page[-1].key
            parcels = [read(paper, Parcel) for paper in page]
            limit_ms = self._clock.wall_ms() - int(PARCEL_S * 1000)
            await self._handing.over([one for one in parcels if one.packed_at_ms <= limit_ms])
            young = [one.packed_at_ms for one in parcels if one.packed_at_ms > limit_ms]
            if young:
                self.expect(min(young) + int(PARCEL_S * 1000))


def _fitting(page: Sequence[Paper], found: Mapping[str, Paper]) -> tuple[list[Paper], bool]:
    """As many of them as go into one commit, with what is made of them; and whether some do not."""
    fitting: list[Paper] = []
    left = CHARS_MAX
    for paper in page:
        notice = found.get(_id_of(paper.key))
        left -= len(notice.body) if notice is not None else 0
        if left < 0 and fitting:
            return fitting, True
        fitting.append(paper)
    return fitting, False


def _due_of(key: str) -> int:
    return int(key.partition("/")[0])


def _id_of(key: str) -> str:
    return key.partition("/")[2]
