"""What happens to letters because time passes: scheduled ones join their lanes, late ones expire, old ones are cleaned up."""

import asyncio
from collections.abc import Callable, Sequence

from peik.clock import Clock
from peik.core.events import Events, Settled, StoreFailed
from peik.core.letter import State
from peik.core.lifecycle import EXPIRED, Move
from peik.errors import StoreUnavailable
from peik.outbox.store import LetterView, Retention, Store
from peik.wakeup import Wakeup

PAGE = 1000
LOOK_S_MAX = 60.0  # look again at the latest after so long, whatever the store said
CLEAN_S = 300.0
RETRY_S = 2.0


class Timekeeper:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        settled: Clock,
        events: Events,
        retention: Retention,
        remove_blobs: Callable[[Sequence[str]], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._settled = settled
        self._events = events
        self._retention = retention
        self._remove_blobs = remove_blobs
        self._bell = Wakeup()
        self._look_at_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """One node does this for all, under the lease of the chores."""
        self.stop()
        self._task = group.create_task(self.run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None  # once: a second cancel would keep a reading from ending its transaction

    def expect(self, at_ms: int) -> None:
        """Somebody accepted a letter that is due, or expires, then."""
        # The second: the wall clock was set forward, past the look that is planned.
        if at_ms < self._look_at_ms or self._look_at_ms < self._clock.wall_ms():
            self._look_at_ms = at_ms
            self._bell.ring()

    async def run(self) -> None:
        clean_at = self._clock.mono() + CLEAN_S
        while True:
            try:
                await self._look()
                if self._clock.mono() >= clean_at:
                    await self._clean()
                    clean_at = self._clock.mono() + CLEAN_S
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the clock", why=error.detail))
                await asyncio.sleep(RETRY_S)
                continue  # at once: when to look next is what the look would have told
            wait_s = (self._look_at_ms - self._clock.wall_ms()) / 1000
            await self._bell.wait(self._clock.mono() + min(max(wait_s, 0.0), LOOK_S_MAX))

    async def _look(self) -> None:
        at_ms = self._clock.wall_ms()
        self._look_at_ms = at_ms + int(LOOK_S_MAX * 1000)
        joined, expired = PAGE, PAGE
        next_due: int | None = None
        next_expiry: int | None = None
        while joined == PAGE:
            joined, next_due = await self._store.join_due(at_ms=at_ms, limit=PAGE)
        while expired == PAGE:
            views, next_expiry = await self._store.expire(at_ms=at_ms, limit=PAGE)
            self._events.tell_all([_expired(view) for view in views])
            expired = len(views)
        for at in (next_due, next_expiry):
            if at is not None:
                # One that is late and still there is in flight: look again when its try may be over.
                self._look_at_ms = min(self._look_at_ms, max(at, at_ms + 1000))

    async def _clean(self) -> None:
        """In small commits, so that letters that come in do not wait behind a big one."""
        gone = PAGE
        while gone >= PAGE:
            gone, blobs = await self._store.clean(self._retention, at_ms=self._settled.wall_ms(), limit=PAGE)
            self._remove_blobs(blobs)


def _expired(view: LetterView) -> Settled:
    return Settled(
        bot_id=view.bot_id,
        letter_id=view.id,
        method=view.method,
        chat=view.chat,
        move=Move.EXPIRE,
        state=State.FAILED,
        reason=EXPIRED,
        uncertain_tries=view.uncertain_tries,
        trace=view.trace,
    )
