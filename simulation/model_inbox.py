"""The inbox on the model of a server: production's on SQLite, and the other nodes hear of what was written."""

from collections.abc import Callable, Sequence

from peik.clock import Clock
from peik.core.arrival import Update
from peik.inbox.store import (
    ArrivalFilter,
    ArrivalRetention,
    ArrivalsCleaned,
    Consumer,
    InboxState,
    OutageRecord,
    TakenIn,
)
from peik.storage.news import NodeNews
from peik.storage.sqlite.inbox import SqliteInbox
from peik.storage.sqlite.writer import SqliteWays


class ModelInbox(SqliteInbox):
    """See `peik.inbox.store.InboxStore`. `say` tells the other nodes, after the commit."""

    def __init__(self, ways: SqliteWays, *, clock: Clock, say: Callable[[NodeNews], None]) -> None:
        super().__init__(ways, clock=clock)
        self._say = say

    def _tell(self, what: Callable[[NodeNews], None]) -> None:
        telling = NodeNews()
        what(telling)
        self._say(telling)

    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        before, now = await super().open_inbox(bot_id, server=server, at_ms=at_ms)
        if before == InboxState(bot_id=bot_id):
            self._tell(NodeNews.consumers)  # its default consumer was made
        return before, now

    async def take_in(
        self,
        bot_id: int,
        updates: Sequence[Update],
        *,
        at_ms: int,
        last_update_id: int | None,
        is_new_epoch: bool = False,
        expired: int = 0,
    ) -> TakenIn:
        taken = await super().take_in(
            bot_id,
            updates,
            at_ms=at_ms,
            last_update_id=last_update_id,
            is_new_epoch=is_new_epoch,
            expired=expired,
        )
        if taken.stored:
            self._tell(lambda news: news.arrivals.add(bot_id))
        return taken

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        consumer = await super().ensure_consumer(bot_id, name, at_ms=at_ms, most=most)
        if consumer.created_at_ms == at_ms:
            self._tell(NodeNews.consumers)
        return consumer

    async def save_consumer(self, consumer: Consumer) -> None:
        await super().save_consumer(consumer)
        self._tell(NodeNews.consumers)

    async def remove_consumer(self, consumer_id: int) -> None:
        await super().remove_consumer(consumer_id)
        self._tell(NodeNews.consumers)

    async def open_outage(self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int) -> OutageRecord:
        outage = await super().open_outage(
            bot_id, began_at_ms=began_at_ms, ended_at_ms=ended_at_ms, last_number=last_number
        )
        self._tell(NodeNews.consumers)
        return outage

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None:
        await super().settle_outage(outage_id, at_ms=at_ms)
        self._tell(NodeNews.consumers)

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        made = await super().replay(wanted, consumer_id, after=after, up_to=up_to, limit=limit, at_ms=at_ms)
        self._tell(NodeNews.everything)
        return made

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        made = await super().retry_dead_arrivals(wanted, at_ms=at_ms, limit=limit)
        self._tell(NodeNews.everything)
        return made

    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
        cleaned = await super().clean_arrivals(retention, at_ms=at_ms, limit=limit)
        if cleaned.expired:
            self._tell(NodeNews.consumers)
        return cleaned
