"""Figures over time: what happened, minute by minute, on all nodes, for the last day and a little more.

Each node files what it counted in a minute as one document. So every node can show the whole. Of the last minutes of a life that
was killed, which nobody filed, the letters themselves tell how many were delivered and how many failed. A store that fails costs
nothing but time: documents wait for it, as many as make an hour.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from peik.clock import Clock
from peik.core.documents import KEY_CHARS_MAX, DocumentStore, Filing
from peik.errors import StoreUnavailable
from peik.monitoring.counts import Counting
from peik.monitoring.values import (
    DELIVERED,
    FAILED,
    FAMILIES,
    PartRow,
    Parts,
    PartSums,
    Point,
    Sums,
    parts_as_document,
    parts_of_document,
)
from peik.wakeup import Wakeup

COLLECTION = "minutes"
MINUTE_MS = 60_000
TICK_MS = 10_000
KEPT_MINUTES = 48 * 60
SHOWN_MINUTES = 25 * 60
UNFILED_MAX = 60  # minutes that wait for a store that fails
AGAIN_S = 5.0  # so often, at most, it is looked for documents of others
LATE_MINUTES = 3  # others file theirs so late, at most
VERY_LATE_S = 300.0  # so often it is looked for what waited for a store that failed
CLEAR_S = 3600.0
PAGE = 1000
LAST_S = 2.0  # for the last document, when Peik ends
MENDED_MINUTES = 60  # so far back it is looked for what nobody filed

Ended = Callable[[int, int], Awaitable[dict[int, tuple[int, int]]]]
_OWN = 0  # in place of a version: this node wrote it, and has counted it


class _Fold(msgspec.Struct, frozen=True, kw_only=True):
    """A series of all that is filed. What happens just now belongs to its last stretch."""

    generation: int
    newest: int  # the stretch that is not over
    points: tuple[Point, ...]  # without that one
    last: Sums
    total: Sums


class Figures:
    def __init__(
        self, *, counting: Counting, documents: DocumentStore, node: str, clock: Clock, settled: Clock
    ) -> None:
        self._began_ms = clock.wall_ms()
        self.counting = counting
        self._documents = documents
        self._clock = clock
        self._settled = settled
        # The start is part of the key: a node of the same name that starts over within the minute has a document of its own.
        name = node.encode("ascii", "replace").decode()[: KEY_CHARS_MAX - 30]
        self._own = f"{name}:{clock.wall_ms():x}"
        self._bell = Wakeup()
        self._minute = self._now_minute()
        self._counted = Sums()  # at the beginning of this minute
        self._looks: deque[tuple[float, Sums]] = deque([(clock.mono(), Sums())], maxlen=7)
        self._minutes: dict[int, Sums] = {}  # those that are over, of all nodes together
        self._mine: dict[int, Sums] = {}  # of this node, which may have to be filed again
        self._unfiled: set[int] = set()
        self._seen: dict[str, int] = {}  # versions of documents, by key
        self._newest: dict[str, tuple[int, Sums]] = {}  # by node, others only: its last minute
        self._generation = 0
        self._folds: dict[tuple[int, int], _Fold] = {}
        self._asked_at: float | None = None
        self._asked_all_at = 0.0
        self._is_wrong = False
        self._cleared_at: float | None = None
        self._turn = asyncio.Lock()
        self.breakdown = Breakdown(counting, documents, own=self._own, clock=clock)

    # ---- showing ----

    async def last(self, hours: float, step_s: int) -> list[Point]:
        """The last hours in steps of whole minutes, the oldest first; the last one is not over. If the store does not answer,
        as far as is known."""
        with contextlib.suppress(StoreUnavailable):
            await self.refresh()
        return list(self.series(hours, step_s)[0])

    def series(self, hours: float, step_s: int) -> tuple[tuple[Point, ...], Point]:
        """The same of what is known here already, and all of it as one."""
        steps = max(1, round(hours * 3600 / step_s))
        fold, live = self._fold(steps, step_s), self._live()
        last = live.copy()
        last.take_up(fold.last)
        live.take_up(fold.total)
        at_ms = fold.newest * step_s * 1000
        points = (*fold.points, last.point(at_ms, step_s))
        return points, live.point(points[0].at_ms, steps * step_s)

    def now(self) -> Point:
        """The last minute: of this node as it is, of others as they filed it."""
        now = self._clock.mono()
        began_at, before = next((look for look in reversed(self._looks) if now - look[0] >= 60), self._looks[0])
        fresh = self.counting.whole.since(before)
        for minute, sums in self._newest.values():
            if minute >= self._now_minute() - 2:
                fresh.take_up(sums)
        seconds = min(max(1, round(now - began_at)), 60 + TICK_MS // 1000)
        return fresh.point(self._clock.wall_ms() - seconds * 1000, seconds)

    async def refresh(self) -> None:
        """Look for what other nodes have filed. Raises StoreUnavailable."""
        async with self._turn:
            now = self._clock.mono()
            if self._asked_at is not None and now - self._asked_at < AGAIN_S:
                return
            newest = self._now_minute()
            if self._asked_at is None:
                first = newest - SHOWN_MINUTES
            elif now - self._asked_all_at >= VERY_LATE_S:
                first = newest - UNFILED_MAX - LATE_MINUTES
            else:
                first = newest - LATE_MINUTES
            await self._read_from(first)
            if self._is_wrong:
                self._start_anew()
                await self._read_from(newest - SHOWN_MINUTES)
            if self._asked_at is None or first < newest - LATE_MINUTES:
                self._asked_all_at = now
            self._asked_at = now
            self._forget()

    # ---- counting ----

    async def run(self) -> None:
        """Until cancelled. While nothing happens, nothing is done."""
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # asked: a library can swallow a cancellation on Python 3.11
            if self._live().is_empty:
                self.counting.when_next(self._bell.ring)
                await self._bell.wait()
            self._minute = self._now_minute()  # nothing was counted before
            is_quiet = False
            while not is_quiet and not task.cancelling():
                left_ms = TICK_MS - self._clock.wall_ms() % TICK_MS
                await self._bell.wait(self._clock.mono() + left_ms / 1000)
                self._looks.append((self._clock.mono(), self.counting.whole.copy()))
                is_quiet = self._turn_minute() and self._live().is_empty
                self.breakdown.take()
                if self._unfiled or self.breakdown.unfiled:
                    await self._file()
                    is_quiet = is_quiet and not self._unfiled and not self.breakdown.unfiled

    async def mend(self, ended: Ended) -> None:
        """Count what ended before this life began and nobody has filed: `ended` tells it, from the letters. By one node
        only. Raises StoreUnavailable."""
        newest = self._began_ms // MINUTE_MS
        first = newest - MENDED_MINUTES
        rows = await ended(first * MINUTE_MS, self._began_ms)
        await self.refresh()
        missing = {minute: Sums() for minute in range(newest, first - 1, -1)}
        for place, which in ((DELIVERED, 0), (FAILED, 1)):
            short = {minute: rows.get(minute, (0, 0))[which] - self._filed(minute, place) for minute in missing}
            # What ended in the last moment of a minute may be counted in the next: all together there are no more than these.
            left = sum(short.values())
            for minute, count in short.items():
                if count > 0 and left > 0:
                    missing[minute].counts[place] = min(count, left)
                    left -= missing[minute].counts[place]
        for minute, sums in missing.items():
            if not sums.is_empty:
                self._own_minute(minute, sums)
        if self._unfiled:
            await self._file()

    def _filed(self, minute: int, place: int) -> int:
        """By others: what this life has counted itself began after all that is looked for."""
        sums, mine = self._minutes.get(minute), self._mine.get(minute)
        return (0 if sums is None else sums.counts[place]) - (0 if mine is None else mine.counts[place])

    async def close(self) -> None:
        """File what is left, if the store takes it quickly."""
        self._end_minute()
        self.breakdown.take()
        if self._unfiled or self.breakdown.unfiled:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._file()

    def _turn_minute(self) -> bool:
        """Whether a minute was over."""
        minute = self._now_minute()
        if minute == self._minute:
            return False
        self._end_minute()
        self._minute = minute
        return True

    def _end_minute(self) -> None:
        fresh = self._live()
        if fresh.is_empty:
            return
        self._counted = self.counting.whole.copy()
        self._own_minute(self._minute, fresh)

    def _own_minute(self, minute: int, sums: Sums) -> None:
        self._add(minute, sums)
        mine = self._mine.setdefault(minute, Sums())
        mine.take_up(sums)  # there was one before if the wall clock was put back, or if it was fixed
        self._unfiled.add(minute)
        self._seen[self._key(minute)] = _OWN
        for old in sorted(self._mine)[:-UNFILED_MAX]:
            del self._mine[old]
            self._unfiled.discard(old)

    def _live(self) -> Sums:
        return self.counting.whole.since(self._counted)

    def _now_minute(self) -> int:
        return self._clock.wall_ms() // MINUTE_MS

    # ---- documents ----

    async def _file(self) -> None:
        """What cannot be filed now is filed a little later, or never: it is no letter."""
        minutes = sorted(self._unfiled)
        filings = [
            Filing(collection=COLLECTION, key=self._key(one), body=self._mine[one].as_document()) for one in minutes
        ]
        parts = dict(self.breakdown.unfiled)
        filings += [Filing(collection=collection, key=key, body=body) for (collection, key), body in parts.items()]
        try:
            await self._documents.file(filings)
            self._unfiled.difference_update(minutes)
            self.breakdown.filed(parts)
            if self._cleared_at is None or self._clock.mono() - self._cleared_at >= CLEAR_S:
                self._cleared_at = self._clock.mono()
                for collection, kept in (
                    (COLLECTION, KEPT_MINUTES),
                    *((one.collection, one.kept) for one in STRETCHES),
                ):
                    oldest = f"{self._settled.wall_ms() // MINUTE_MS - kept:010d}"
                    while await self._documents.clear_collection(collection, until=oldest, limit=PAGE) >= PAGE:
                        pass
        except StoreUnavailable:
            return

    def _key(self, minute: int) -> str:
        return f"{minute:010d}:{self._own}"

    async def _read_from(self, minute: int) -> None:
        after, is_more = f"{minute:010d}", True
        while is_more:
            page = await self._documents.documents(COLLECTION, after=after, limit=PAGE)
            for document in page:
                self._take_in(document.key, document.version, document.body)
            is_more = len(page) >= PAGE
            after = page[-1].key if page else after

    def _take_in(self, key: str, version: int, body: str) -> None:
        minute, _, name = key.partition(":")
        if self._seen.get(key) in (version, _OWN) or not minute.isdecimal():
            return
        try:
            sums = Sums.of_document(body)
        except msgspec.DecodeError:
            return  # of a version that is not known here
        if key in self._seen:
            self._is_wrong = True  # somebody's clock was put back, and what was added cannot be taken away again
        self._seen[key] = version
        self._add(int(minute), sums)
        if int(minute) >= self._newest.get(name, (0, sums))[0]:
            self._newest[name] = (int(minute), sums)

    def _start_anew(self) -> None:
        """What this node may not have filed yet is kept, and everything else is read again."""
        self._minutes, self._newest, self._is_wrong = {}, {}, False
        self._seen = {self._key(minute): _OWN for minute in self._mine}
        for minute, mine in self._mine.items():
            self._add(minute, mine)

    def _add(self, minute: int, sums: Sums) -> None:
        self._minutes.setdefault(minute, Sums()).take_up(sums)
        self._generation += 1

    def _forget(self) -> None:
        oldest = self._now_minute() - SHOWN_MINUTES
        self._minutes = {minute: sums for minute, sums in self._minutes.items() if minute >= oldest}
        self._seen = {key: version for key, version in self._seen.items() if int(key[:10]) >= oldest}
        self._newest = {name: last for name, last in self._newest.items() if last[0] >= oldest}

    # ---- series ----

    def _fold(self, steps: int, step_s: int) -> _Fold:
        newest = self._clock.wall_ms() // 1000 // step_s
        fold = self._folds.get((steps, step_s))
        if fold is None or fold.newest != newest or fold.generation != self._generation:
            if len(self._folds) >= 16:
                self._folds.clear()
            fold = self._folds[steps, step_s] = self._folded(steps, step_s, newest)
        return fold

    def _folded(self, steps: int, step_s: int, newest: int) -> _Fold:
        stretches = {number: Sums() for number in range(newest - steps + 1, newest + 1)}
        for minute, sums in self._minutes.items():
            stretch = stretches.get(minute * 60 // step_s)
            if stretch is not None:
                stretch.take_up(sums)
        total = Sums()
        for stretch in stretches.values():
            total.take_up(stretch)
        last = stretches.pop(newest)
        points = tuple(stretch.point(number * step_s * 1000, step_s) for number, stretch in stretches.items())
        return _Fold(generation=self._generation, newest=newest, points=points, last=last, total=total)


# The same by bot, method and kind of jobs: a document per node for five minutes, and one for the hour, each written anew every
# ten seconds in which something happened. So a restart loses nothing of them, and a kill the last ten seconds.


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    collection: str
    minutes: int
    kept: int  # minutes


STRETCHES = (
    Stretch(collection="figures_5m", minutes=5, kept=26 * 60),
    Stretch(collection="figures_1h", minutes=60, kept=31 * 24 * 60),
)
PARTS_MAX = {"bot": 500, "method": 200, "kind": 200}  # the busiest of a stretch; a document holds 256 KB
PARTS_UNFILED_MAX = 24  # documents that wait for a store that fails
PARTS_PAGE = 100
PARTS_FRESH_S = 5.0


class FigureSpan(msgspec.Struct, frozen=True, kw_only=True):
    """So long, in such steps."""

    steps: int
    step_s: int
    collection: str


SPANS = {
    "3h": FigureSpan(steps=36, step_s=300, collection="figures_5m"),
    "day": FigureSpan(steps=48, step_s=1800, collection="figures_5m"),
    "week": FigureSpan(steps=56, step_s=3 * 3600, collection="figures_1h"),
    "month": FigureSpan(steps=60, step_s=12 * 3600, collection="figures_1h"),
}


class PartsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """All of a span: by family and name, what happened in which of its steps."""

    span: FigureSpan
    first: int  # the number of its first step since 1970
    parts: dict[str, dict[str, dict[int, PartSums]]]

    def rows(self, family: str, sees: Callable[[str], bool] = lambda _: True) -> list[PartRow]:
        """The busiest first."""
        found = [self._row(name, steps) for name, steps in self.parts[family].items() if sees(name)]
        return sorted(found, key=lambda row: (-row.total.done - row.total.failed - row.total.updates, row.name))

    def row(self, family: str, name: str) -> PartRow:
        """All zeros, if nothing is known of it."""
        return self._row(name, self.parts[family].get(name, {}))

    def _row(self, name: str, steps: dict[int, PartSums]) -> PartRow:
        whole, step_s = PartSums(), self.span.step_s
        for sums in steps.values():
            whole.take_up(sums)
        numbers = range(self.first, self.first + self.span.steps)
        points = tuple(steps.get(number, PartSums()).point(number * step_s * 1000, step_s) for number in numbers)
        return PartRow(name=name, total=whole.point(points[0].at_ms, self.span.steps * step_s), points=points)


class Breakdown:
    def __init__(self, counting: Counting, documents: DocumentStore, *, own: str, clock: Clock) -> None:
        self._counting = counting
        self._documents = documents
        self._own = own
        self._clock = clock
        self._now: dict[
            str, tuple[str, Parts]
        ] = {}  # by collection: the key of the stretch that is not over, and what is in it
        self.unfiled: dict[tuple[str, str], str] = {}
        self._kept: dict[str, tuple[float, PartsSeen]] = {}
        self._turn = asyncio.Lock()

    def take(self) -> None:
        """What was counted since, into its stretches. Called at each tick: it belongs to the ten seconds before."""
        fresh = self._counting.take_parts()
        if not any(fresh.values()):
            return
        minute = (self._clock.wall_ms() - TICK_MS // 2) // MINUTE_MS
        for stretch in STRETCHES:
            key = f"{minute // stretch.minutes * stretch.minutes:010d}:{self._own}"
            kept, parts = self._now.get(stretch.collection, ("", {}))
            if kept != key:
                parts = {family: {} for family in FAMILIES}
            for family, named in fresh.items():
                for name, sums in named.items():
                    parts[family].setdefault(name, PartSums()).take_up(sums)
            self._now[stretch.collection] = key, parts
            self.unfiled[stretch.collection, key] = parts_as_document(parts, most=PARTS_MAX)
        for old in sorted(self.unfiled, key=lambda place: place[1])[:-PARTS_UNFILED_MAX]:
            del self.unfiled[old]

    def filed(self, written: dict[tuple[str, str], str]) -> None:
        for place, body in written.items():
            if self.unfiled.get(place) == body:  # else there is more of it by now
                del self.unfiled[place]

    async def seen(self, name: str) -> PartsSeen:
        """Of a span, a few seconds old at most. Raises StoreUnavailable."""
        async with self._turn:  # of many who look, one asks
            kept = self._kept.get(name)
            now = self._clock.mono()
            if kept is None or now - kept[0] >= PARTS_FRESH_S:
                kept = self._kept[name] = now, await self._read(SPANS[name])
            return kept[1]

    async def _read(self, span: FigureSpan) -> PartsSeen:
        newest = self._clock.wall_ms() // 1000 // span.step_s
        seen = PartsSeen(span=span, first=newest - span.steps + 1, parts={family: {} for family in FAMILIES})
        after, is_more = f"{seen.first * span.step_s // 60:010d}", True
        while is_more:
            page = await self._documents.documents(span.collection, after=after, limit=PARTS_PAGE)
            for document in page:
                if (span.collection, document.key) not in self.unfiled:
                    _count_in(seen, document.key, document.body)
            is_more = len(page) >= PARTS_PAGE
            after = page[-1].key if page else after
        for (collection, key), body in self.unfiled.items():
            if collection == span.collection:
                _count_in(seen, key, body)
        return seen


def _count_in(seen: PartsSeen, key: str, body: str) -> None:
    minute, _, _ = key.partition(":")
    try:
        step, parts = int(minute) * 60 // seen.span.step_s, parts_of_document(body)
    except ValueError:
        return  # of a version that is not known here
    if not 0 <= step - seen.first < seen.span.steps:
        return
    for family in FAMILIES:
        for name, sums in parts.get(family, {}).items():
            seen.parts[family].setdefault(name, {}).setdefault(step, PartSums()).take_up(sums)
