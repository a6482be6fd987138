"""The one way in: updates are stored, then told. Whoever brought them confirms them to Telegram only after that."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence

from peik.clock import Clock
from peik.core.arrival import Update, opens_chat
from peik.core.letter import Chat
from peik.errors import StoreUnavailable
from peik.events import Arrived, Events
from peik.inbox_ports import InboxStore, TakenIn

Spoke = Callable[[int, Collection[Chat]], Awaitable[None]]


class Intake:
    """`spoke` hears which chats of a bot can be written to, as their updates show: one that was shut may be opened."""

    def __init__(self, *, store: InboxStore, clock: Clock, events: Events, spoke: Spoke) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._spoke = spoke

    async def take_in(
        self,
        bot_id: int,
        updates: Sequence[Update],
        *,
        last_update_id: int | None,
        is_new_epoch: bool = False,
        expired: int = 0,
    ) -> TakenIn:
        """Make updates durable. Raises StoreUnavailable, and then nothing may be confirmed."""
        taken = await self._store.take_in(
            bot_id,
            updates,
            at_ms=self._clock.wall_ms(),
            last_update_id=last_update_id,
            is_new_epoch=is_new_epoch,
            expired=expired,
        )
        self._events.tell(
            Arrived(bot_id=bot_id, stored=taken.stored, duplicates=taken.duplicates, last_number=taken.last_number)
        )
        opened = _opened(updates)
        if opened:
            # The updates are safe. A chat that stays shut for want of a commit is found open by its next daily probe.
            with contextlib.suppress(StoreUnavailable):
                await self._spoke(bot_id, opened)
        return taken


def _opened(updates: Sequence[Update]) -> set[Chat]:
    """The chats that can be written to, as far as the last word on each says so."""
    opened: set[Chat] = set()
    for update in updates:
        match opens_chat(update):
            case True:
                opened.add(update.lane)
            case False:
                opened.discard(update.lane)
    return opened
