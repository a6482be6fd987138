"""What happens to arrivals because time passes: read ones go, unread ones near their end are told of, idle consumers are
forgotten. Runs in the process that owns the store."""

import asyncio

from peik.clock import Clock
from peik.errors import StoreUnavailable
from peik.events import ConsumerExpired, Events, StoreFailed, UnreadDropped, UnreadNearEnd
from peik.inbox_ports import ArrivalRetention, InboxStore

PAGE = 1000
CLEAN_S = 300.0
RETRY_S = 2.0
NEAR_END = 0.8  # of the time that unread arrivals are kept


class Upkeep:
    def __init__(self, *, store: InboxStore, clock: Clock, events: Events, retention: ArrivalRetention) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._retention = retention
        self._near: set[int] = set()  # consumers of which it was told; once, until they have read what was so old
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None  # once: a second cancel would keep a reading from ending its transaction

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
                wait_s = CLEAN_S
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the inbox's upkeep", why=error.detail))
                wait_s = RETRY_S
            await asyncio.sleep(wait_s)

    async def look(self) -> None:
        await self._warn()
        await self._clean()

    async def _warn(self) -> None:
        """Before anything goes, so that the last warning is not one too late."""
        warned_ms = int(self._retention.unread_ms * NEAR_END)
        now = self._clock.wall_ms()
        near: set[int] = set()
        for tally in await self._store.inbox_tallies():
            consumer, oldest = tally.consumer, tally.oldest_open_at_ms
            if oldest is None or now - oldest < warned_ms:
                continue
            near.add(consumer.id)
            if consumer.id not in self._near:
                ends_at_ms = oldest + self._retention.unread_ms
                self._events.tell(
                    UnreadNearEnd(
                        bot_id=consumer.bot_id, consumer=consumer.name, oldest_at_ms=oldest, ends_at_ms=ends_at_ms
                    )
                )
        self._near = near

    async def _clean(self) -> None:
        """In small commits, so that what comes in does not wait behind a big one."""
        gone = PAGE
        unread: dict[int, int] = {}
        while gone >= PAGE:
            cleaned = await self._store.clean_arrivals(self._retention, at_ms=self._clock.wall_ms(), limit=PAGE)
            gone = cleaned.gone
            for bot_id, count in cleaned.unread.items():
                unread[bot_id] = unread.get(bot_id, 0) + count
            for consumer in cleaned.expired:
                self._events.tell(ConsumerExpired(bot_id=consumer.bot_id, consumer=consumer.name))
        self._events.tell_all([UnreadDropped(bot_id=bot_id, count=count) for bot_id, count in unread.items()])
