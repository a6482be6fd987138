"""Looks at Peik and at Telegram's ledger a few times a second: keeps the book, feeds the screen, wakes who waits for a fact."""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from peik.demo import narration
from peik.demo.book import Book
from peik.demo.calls import Stats, Unanswered
from peik.demo.stage import Stage

LOOK_S = 0.1
_BUCKET_S = 0.5  # of the little chart
_BUCKETS = 86


class Look(msgspec.Struct, kw_only=True):
    """How things stood a moment ago."""

    chapter: str = ""
    is_dark: bool = False
    is_peik_up: bool = True
    is_route_open: bool = False  # open as a breaker is open
    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    waiting: int = 0
    limited: int = 0
    flow: tuple[int, ...] = ()  # arrivals per half second, the newest last


class Stuck(Exception):
    """What the story waits for does not come."""


class Watch:
    def __init__(self, stage: Stage, book: Book, *, show: Callable[[Look], None]) -> None:
        self._stage = stage
        self._book = book
        self._show = show
        self._looked = asyncio.Event()
        self._flow: deque[int] = deque([0] * _BUCKETS, maxlen=_BUCKETS)
        self._bucket_ends_at = 0.0
        self.now = Look()

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        before = self._book.arrivals
        self._book.arrived(await self._stage.sim.arrivals(self._book.ledger_number))
        self._flow_in(self._book.arrivals - before)
        stats, is_route_open = await self._ask_peik()
        counts = self._book.counts()
        look = self.now
        look.is_peik_up = stats is not None
        look.is_route_open = is_route_open
        look.accepted, look.delivered = counts.accepted, counts.delivered
        if stats is not None:
            look.failed, look.waiting = stats.failed, stats.unfinished
        look.limited = (await self._stage.sim.counters()).limited
        look.flow = tuple(self._flow)
        self._show(look)
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    async def until(self, fact: Callable[[], bool], *, what: str, timeout_s: float = 60.0) -> None:
        """Wait for a look at which the fact holds, with its every part seen after this call. Raises Stuck."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._looked.wait()
                await self._looked.wait()  # the first of them may have been half over
                while not fact():
                    await self._looked.wait()
        except TimeoutError:
            log = "\n".join(self._stage.peik_log()[-15:])
            raise Stuck(narration.STUCK.format(seconds=int(timeout_s), what=what, log=log)) from None

    async def quiet(self) -> None:
        """Wait until nothing is under way."""
        await self.until(lambda: self.now.is_peik_up and not self.now.waiting, what="for all letters to end")

    def _flow_in(self, arrivals: int) -> None:
        now = asyncio.get_running_loop().time()
        if not self._bucket_ends_at:
            self._bucket_ends_at = now + _BUCKET_S
        while now >= self._bucket_ends_at:
            self._flow.append(0)
            self._bucket_ends_at += _BUCKET_S
        self._flow[-1] += arrivals

    async def _ask_peik(self) -> tuple[Stats | None, bool]:
        try:
            return await self._stage.peik.stats(), await self._stage.peik.is_route_open()
        except Unanswered:
            return None, False
