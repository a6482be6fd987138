"""How an engine changes a broadcast: only while it is the one that works on it, and only from the phase that it saw."""

from collections.abc import Callable

from msgspec.structs import replace

from peik.broadcasts.book import Book, Lines
from peik.broadcasts.moving import moved, told
from peik.broadcasts.records import Broadcast
from peik.clock import Clock
from peik.core.broadcast import Step
from peik.events import Events
from peik.outreach_events import BroadcastAdvanced


class Overtaken(Exception):
    """Somebody else has changed it meanwhile: what was about to be done may be wrong now. It is read anew."""


class Pen:
    def __init__(self, book: Book, *, holder: str, clock: Clock, events: Events) -> None:
        self._book = book
        self._holder = holder
        self._clock = clock
        self._events = events

    async def claim(self, broadcast: Broadcast) -> Broadcast:
        """From now on nobody else's work on it is stored."""
        if broadcast.holder == self._holder:
            return broadcast
        changed = await self._book.change(broadcast.id, lambda old: replace(old, holder=self._holder))
        assert changed is not None
        return changed[1]

    async def write(self, seen: Broadcast, change: Callable[[Broadcast], Broadcast], lines: Lines = ()) -> Broadcast:
        """What became of it. Raises Overtaken, and then nothing is stored."""

        def checked(old: Broadcast) -> Broadcast:
            if old.holder != self._holder or old.phase is not seen.phase:
                raise Overtaken
            return change(old)

        changed = await self._book.change(seen.id, checked, lines)
        assert changed is not None
        old, new = changed
        if new.phase is not old.phase:
            self._events.tell(told(new))
        if (new.counts, new.total) != (old.counts, old.total):
            self._events.tell(
                BroadcastAdvanced(bot_id=new.bot_id, broadcast_id=new.id, total=new.total, done=new.counts.done)
            )
        return new

    async def move(
        self, seen: Broadcast, step: Step, *, reason: str | None = None, until_ms: int | None = None
    ) -> Broadcast:
        def change(old: Broadcast) -> Broadcast:
            new = moved(old, step, at_ms=self._clock.wall_ms(), reason=reason, until_ms=until_ms)
            assert new is not None, (step, old.phase)
            return new

        return await self.write(seen, change)
