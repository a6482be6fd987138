"""Taking up what an owner before us left behind: holds, the last minute's sends, and what was in flight."""

import asyncio
from collections.abc import Callable, Sequence

from peik.clock import Clock
from peik.core.lifecycle import Settlement
from peik.core.outcome import Uncertain
from peik.core.pace import Pace
from peik.engine.chatbook import ChatBook
from peik.engine.leases import Lease
from peik.engine.steps import Settling, settling
from peik.errors import StoreUnavailable
from peik.events import Events, Recovered, StoreFailed
from peik.ports import Marked, Store

STORE_RETRY_S = 1.0
_CRASHED = Uncertain(why="Peik ended while it was in flight")


class TakingUp:
    """What a sender does first, before it reads a lane."""

    def __init__(
        self,
        bot_id: int,
        lease: Lease,
        *,
        store: Store,
        clock: Clock,
        events: Events,
        chats: ChatBook,
        pace: Callable[[], Pace],  # the bot may be given other limits meanwhile
    ) -> None:
        self._bot_id = bot_id
        self._lease = lease
        self._store = store
        self._clock = clock
        self._events = events
        self._chats = chats
        self._pace = pace

    async def run(self) -> None:
        """Take up what an owner before us left behind. A store that fails just now is asked until it answers."""
        while True:
            try:
                await self._take_up()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(bot_id=self._bot_id, what="what was left behind", why=error.detail))
                await asyncio.sleep(STORE_RETRY_S)
            else:
                return

    async def _take_up(self) -> None:
        """Holds, the last minute's sends, and what was in flight. All is read before any of it counts."""
        await self._chats.load()
        bot_held_until = await self._store.bot_held_until(self._bot_id)
        recent = await self._store.recent_tries(self._bot_id, since_ms=self._clock.wall_ms() - 60_000)
        left = await self._store.left_in_flight(self._bot_id, epoch=self._lease.epoch)
        pace, now, at_ms = self._pace(), self._clock.mono(), self._clock.wall_ms()
        self._chats.hold(pace, now, at_ms)
        pace.hold_bot(now + (bot_held_until - at_ms) / 1000)
        for sent in recent:
            # A clock that was put back shows sends of the future: they count as of now, and never hold a chat for longer.
            ago_s = max(0.0, (at_ms - sent.at_ms) / 1000)
            pace.remember(sent.chat, now - ago_s, weight=sent.weight)
        for letter in left:
            pace.remember(letter.chat, now, weight=letter.weight)
        if left:
            # Marked and never settled: it may have arrived. Lanes are read only after this is stored.
            await self._store_surely([settling(letter, _CRASHED, at_ms) for letter in left])
            self._events.tell(Recovered(bot_id=self._bot_id, count=len(left)))

    async def _store_surely(self, settlements: Sequence[Settling]) -> None:
        while True:
            error = (await self._settled_now([settlement for settlement, _, _ in settlements])).error
            if error is None:
                self._events.tell_all([told for _, _, told in settlements])
                return
            if not isinstance(error, StoreUnavailable):
                raise error
            self._events.tell(StoreFailed(bot_id=self._bot_id, what="what was in flight", why=error.detail))
            await asyncio.sleep(STORE_RETRY_S)

    async def _settled_now(self, settlements: Sequence[Settlement]) -> Marked:
        stored: asyncio.Future[Marked] = asyncio.get_running_loop().create_future()

        def done(marked: Marked) -> None:
            if not stored.done():  # the lease was lost meanwhile, and nobody is here to hear it
                stored.set_result(marked)

        self._store.advance(settlements, [], epoch=self._lease.epoch, at_ms=self._clock.wall_ms(), done=done)
        return await stored
