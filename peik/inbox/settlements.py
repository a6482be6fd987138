"""Stores what became of one consumer's arrivals: all that ended while the last commit was under way goes into the next.

Nothing that was handled is forgotten while the store does not answer: it is kept and offered again until it takes.
"""

import asyncio
from collections.abc import Callable, Sequence

from peik.bell import Bell
from peik.clock import Clock
from peik.core.spans import Progress, spans_of
from peik.errors import StoreUnavailable
from peik.events import Event, Events, StoreFailed, StoreRecovered
from peik.inbox_ports import Burial, Deferral, InboxStore

RETRY_S = 2.0


class _Ended:
    """What ended since the last commit, and what is told of it after the next."""

    def __init__(self) -> None:
        self.over: list[int] = []
        self.deferred: list[Deferral] = []
        self.dead: list[Burial] = []
        self.told: list[Event] = []

    def __len__(self) -> int:
        return len(self.over) + len(self.deferred) + len(self.dead)


class Settlements:
    """`stored` hears the consumer's progress after every commit. Raises NotFound when the consumer is gone."""

    def __init__(
        self,
        consumer_id: int,
        *,
        store: InboxStore,
        clock: Clock,
        events: Events,
        stored: Callable[[Progress], None],
    ) -> None:
        self._consumer_id = consumer_id
        self._store = store
        self._clock = clock
        self._events = events
        self._stored = stored
        self._ended = _Ended()
        self._under_way = 0
        self._bell = Bell()
        self._idle_bell = Bell()
        self.is_stuck = False  # the store does not take what ended

    def __len__(self) -> int:
        """How many are not stored yet."""
        return len(self._ended) + self._under_way

    def over(self, numbers: Sequence[int], *told: Event) -> None:
        self._add(told)
        self._ended.over += numbers

    def deferred(self, deferral: Deferral, *told: Event) -> None:
        self._add(told)
        self._ended.deferred.append(deferral)

    def dead(self, burial: Burial, *told: Event) -> None:
        self._add(told)
        self._ended.dead.append(burial)

    def _add(self, told: Sequence[Event]) -> None:
        self._ended.told += told
        self._bell.ring()

    async def run(self) -> None:
        while True:
            await self._bell.wait()
            while self._ended:
                await self._commit()
            self._idle_bell.ring()

    async def finish(self) -> None:
        """Until everything is stored. Somebody must be in `run`."""
        while len(self):
            await self._idle_bell.wait()

    async def _commit(self) -> None:
        ended, self._ended = self._ended, _Ended()
        self._under_way = len(ended)
        progress = await self._settle(ended)
        self._under_way = 0
        self._stored(progress)
        self._events.tell_all(ended.told)

    async def _settle(self, ended: _Ended) -> Progress:
        while True:
            try:
                progress = await self._store.settle_arrivals(
                    self._consumer_id,
                    over=spans_of(ended.over),
                    deferred=ended.deferred,
                    dead=ended.dead,
                    at_ms=self._clock.wall_ms(),
                )
            except StoreUnavailable as error:
                if not self.is_stuck:
                    self.is_stuck = True
                    self._events.tell(StoreFailed(what="settling arrivals", why=error.detail))
                await asyncio.sleep(RETRY_S)
                continue
            if self.is_stuck:
                self.is_stuck = False
                self._events.tell(StoreRecovered())
            return progress
