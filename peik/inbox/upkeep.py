"""What happens to arrivals because time passes: read ones go, unread ones near their end are told of, idle consumers are
forgotten. Runs in the process that owns the store, by settled time.

Nothing unread goes before people were told of it for a while, of time that really passed: whatever clocks and restarts do.
"""

import asyncio

import msgspec

from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing
from peik.core.events import ConsumerExpired, Events, StoreFailed, UnreadDropped, UnreadNearEnd
from peik.errors import StoreUnavailable
from peik.inbox.store import ArrivalRetention, InboxStore

PAGE = 1000
CLEAN_S = 300.0
RETRY_S = 2.0
NEAR_END = 0.8  # of the time that unread arrivals are kept
WARNED_S_MAX = 86_400.0  # so long people have to act on a warning, however late it came
COLLECTION = "unread_warned"
KEY = "consumers"


class InboxUpkeep:
    def __init__(
        self, *, store: InboxStore, documents: DocumentStore, clock: Clock, events: Events, retention: ArrivalRetention
    ) -> None:
        self._store = store
        self._documents = documents
        self._clock = clock
        self._events = events
        self._retention = retention
        # Half of what is left at the warning, so that in ordinary times nothing waits for it.
        self._warned_s = min(WARNED_S_MAX, retention.unread_ms / 1000 * (1 - NEAR_END) / 2)
        # Consumers of which it was told, once, until they have read what was so old; and how long ago, of time that Peik ran.
        self._near: dict[int, float] = {}
        self._kept: dict[int, float] | None = None
        self._looked_at = clock.mono()
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
        at_ms = self._clock.wall_ms()
        await self._clean(await self._warn(at_ms))

    async def _warn(self, at_ms: int) -> ArrivalRetention:
        """Before anything goes; what may go then. No unread arrival of a consumer goes that was not warned of long enough."""
        warned_ms = int(self._retention.unread_ms * NEAR_END)
        before, passed_s = await self._known(), self._clock.mono() - self._looked_at
        near: dict[int, float] = {}
        spared_ms = at_ms - self._retention.unread_ms
        for tally in await self._store.inbox_tallies():
            consumer, oldest = tally.consumer, tally.oldest_open_at_ms
            if oldest is None or at_ms - oldest < warned_ms:
                continue
            near[consumer.id] = before[consumer.id] + passed_s if consumer.id in before else 0.0
            if near[consumer.id] < self._warned_s:
                spared_ms = min(spared_ms, oldest)
            if consumer.id not in self._near:
                ends_at_ms = oldest + self._retention.unread_ms
                self._events.tell(
                    UnreadNearEnd(
                        bot_id=consumer.bot_id, consumer=consumer.name, oldest_at_ms=oldest, ends_at_ms=ends_at_ms
                    )
                )
        await self._keep(near)
        return msgspec.structs.replace(self._retention, unread_ms=at_ms - spared_ms)

    async def _known(self) -> dict[int, float]:
        if self._kept is None:
            document = await self._documents.document(COLLECTION, KEY)
            self._kept = {} if document is None else msgspec.json.decode(document.body, type=dict[int, float])
            self._looked_at = self._clock.mono()  # what passed before was not ours
        return self._kept

    async def _keep(self, near: dict[int, float]) -> None:
        if near != self._kept:
            body = msgspec.json.encode(near).decode() if near else None
            await self._documents.file([Filing(collection=COLLECTION, key=KEY, body=body)])
        self._near = self._kept = near
        self._looked_at = self._clock.mono()

    async def _clean(self, retention: ArrivalRetention) -> None:
        """In small commits, so that what comes in does not wait behind a big one."""
        gone = PAGE
        unread: dict[int, int] = {}
        while gone >= PAGE:
            cleaned = await self._store.clean_arrivals(retention, at_ms=self._clock.wall_ms(), limit=PAGE)
            gone = cleaned.gone
            for bot_id, count in cleaned.unread.items():
                unread[bot_id] = unread.get(bot_id, 0) + count
            for consumer in cleaned.expired:
                self._events.tell(ConsumerExpired(bot_id=consumer.bot_id, consumer=consumer.name))
        self._events.tell_all([UnreadDropped(bot_id=bot_id, count=count) for bot_id, count in unread.items()])
