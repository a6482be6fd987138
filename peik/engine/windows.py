"""Keeps the lanes of one bot filled from the store: fronts of lanes that ran empty, and lanes that are not in memory yet."""

import asyncio
from collections.abc import Callable, Sequence

from peik.clock import Clock
from peik.core.lanes import Lanes, Room
from peik.core.letter import RANKS, LaneKey
from peik.errors import StoreUnavailable
from peik.ports import Store

PAUSE_S = 1.0  # after a look around that found nothing new, or a store that did not answer


class Windows:
    def __init__(
        self, bot_id: int, lanes: Lanes, store: Store, room: Room, *, clock: Clock, ring: Callable[[], None]
    ) -> None:
        self._bot_id = bot_id
        self._lanes = lanes
        self._store = store
        self._letters = room.letters_per_lane
        self._clock = clock
        self._ring = ring
        self._cursors: list[LaneKey | None] = [None] * RANKS
        self._not_before = [0.0] * RANKS
        self._is_sweeping = False
        self._found_nothing = [False] * RANKS

    def read(self, now: float, group: asyncio.TaskGroup) -> None:
        """Start whatever reading the lanes ask for. One sweep at a time, so that nothing is judged by two snapshots."""
        keys = self._lanes.loads()
        if keys:
            group.create_task(self._load(keys))
        if self._is_sweeping:
            return
        for rank in range(RANKS):
            if now >= self._not_before[rank] and self._lanes.is_hungry(rank, now):
                self._is_sweeping = True
                group.create_task(self._sweep(rank))
                return

    def next_at(self, now: float) -> float | None:
        """When to look again after a pause, for who has just called `read` with the same `now`."""
        if self._is_sweeping:
            return None
        later = [at for rank, at in enumerate(self._not_before) if at > now and self._lanes.may_be_beyond(rank)]
        return min(later) if later else None

    async def _load(self, keys: Sequence[LaneKey]) -> None:
        try:
            found = await self._store.fronts(self._bot_id, keys, letters=self._letters)
        except StoreUnavailable:
            await asyncio.sleep(PAUSE_S)
            self._lanes.load_failed(keys)
        else:
            for key in keys:
                front = found[key]
                self._lanes.loaded(key, front.letters, more=front.more)
        self._ring()

    async def _sweep(self, rank: int) -> None:
        after = self._cursors[rank]
        self._lanes.sweep_begins()
        try:
            room = self._lanes.sweep_room(rank)
            letters = self._lanes.sweep_letters(rank)
            found = await self._store.sweep(self._bot_id, rank, after, lanes=room, letters=letters)
        except StoreUnavailable:
            self._not_before[rank] = self._clock.mono() + PAUSE_S
        else:
            fronts = {key: (front.letters, front.more) for key, front in found.lanes.items()}
            is_whole = after is None and found.last is None
            added = self._lanes.swept(rank, fronts, is_whole=is_whole)
            self._cursors[rank] = found.last
            self._found_nothing[rank] = added == 0 and (self._found_nothing[rank] or after is None)
            if found.last is None and self._found_nothing[rank]:
                # Once around and nothing that is not here already: all of it waits for its own time.
                self._not_before[rank] = self._clock.mono() + PAUSE_S
        finally:
            self._is_sweeping = False
        self._ring()
