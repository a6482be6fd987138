"""What time does to arrivals in the PostgreSQL store: read ones go, unread ones go later and are counted, idle readers go.

An arrival goes when everybody has had it for long enough, not when it has been here for long enough. How far the readers
were at an earlier time is known from hourly checkpoints.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from peik.inbox_ports import ArrivalRetention, ArrivalsCleaned, Consumer
from peik.store.inbox_intake import DUPLICATES_MS
from peik.store.postgres import inbox_consumers
from peik.store.postgres.inbox_people import OVER_FOR
from peik.store.postgres.queries import filled, load
from peik.store.postgres.session import Row, Session

_SQL = load("arrivals.sql")
OLD_ONES = filled(_SQL["old_ones"], is_over=OVER_FOR)

_NOTES_PER_CALL_MAX = 10_000  # they are small
_ALL = 0  # `only_for` of what is for everybody
_EVERY_ID = 2**63 - 1


async def clean(session: Session, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
    expired = await _drop_idle(session, at_ms - retention.idle_ms, limit)
    read_before = at_ms - retention.read_ms
    await session.run(_SQL["forget_checkpoints"], at=at_ms, before=read_before)
    await session.run(_SQL["checkpoint"], at=at_ms)
    await session.run(_SQL["forget_handled"], before=at_ms - retention.handled_ms, limit=_NOTES_PER_CALL_MAX)
    broom = _Broom(session, retention, at_ms, limit)
    await broom.look()
    for (bot_id,) in await session.rows(_SQL["inboxes"]):
        await broom.sweep(bot_id)
    return ArrivalsCleaned(gone=limit - broom.left, unread=dict(broom.unread), expired=expired)


async def _drop_idle(session: Session, before_ms: int, limit: int) -> tuple[Consumer, ...]:
    rows = await session.rows(_SQL["idle_consumers"], before=before_ms, limit=limit)
    idle = [await inbox_consumers.by_id(session, row[0]) for row in rows]
    for consumer in idle:
        await inbox_consumers.drop(session, consumer.id)
    return tuple(idle)


class _Broom:
    """One call of `clean`: what goes, bot by bot, until the limit is reached."""

    def __init__(self, session: Session, retention: ArrivalRetention, at_ms: int, limit: int) -> None:
        self._session = session
        self._retention = retention
        self._at_ms = at_ms
        self.left = limit
        self.unread: Counter[int] = Counter()
        self._received_before = at_ms - max(retention.unread_ms, DUPLICATES_MS)
        self._died_since = at_ms - retention.unread_ms
        self._old_end = 0
        self._read_end = _EVERY_ID
        self._floors: dict[int, dict[int, int | None]] = defaultdict(dict)

    async def look(self) -> None:
        slack_ms = inbox_consumers.CLOCK_SLACK_MS
        self._old_end = await inbox_consumers.id_at(self._session, self._received_before + slack_ms)
        # Duplicates are known by what is stored. A reader that had it two days ago got it two days ago, or earlier.
        if self._retention.read_ms < DUPLICATES_MS:
            self._read_end = await inbox_consumers.id_at(self._session, self._at_ms - DUPLICATES_MS)
        before = self._at_ms - self._retention.read_ms
        for bot_id, consumer_id, floor in await self._session.rows(_SQL["floors"], before=before):
            self._floors[bot_id][consumer_id] = floor

    async def sweep(self, bot_id: int) -> None:
        floors = self._floors[bot_id]
        known = [floor for floor in floors.values() if floor is not None]
        if len(known) == len(floors) > 0:
            await self._drop_read(bot_id, _ALL, min(known))
        await self._drop_old(bot_id, _ALL)
        for (owner,) in await self._session.rows(_SQL["replay_owners"], bot=bot_id):
            # A replay whose reader is gone is seen by nobody: as if it had been read for ever.
            floor = floors.get(owner) if owner in floors else _EVERY_ID
            if floor is not None:
                await self._drop_read(bot_id, owner, floor)
            await self._drop_old(bot_id, owner)
        if bot_id in self.unread:
            for consumer_id in floors:
                await inbox_consumers.settle(
                    self._session, consumer_id, over=(), deferred=(), dead=(), at_ms=self._at_ms
                )

    async def _drop_read(self, bot_id: int, only_for: int, floor: int) -> None:
        bound = self._bound(bot_id, only_for)
        rows = await self._session.rows(_SQL["read_ones"], **bound, floor=floor, id_end=self._read_end)
        await self._drop(bot_id, rows)

    async def _drop_old(self, bot_id: int, only_for: int) -> None:
        bound = self._bound(bot_id, only_for)
        rows = await self._session.rows(OLD_ONES, **bound, received_before=self._received_before, id_end=self._old_end)
        await self._drop(bot_id, rows)
        unread = sum(row[2] for row in rows)
        if unread:
            self.unread[bot_id] += unread

    def _bound(self, bot_id: int, only_for: int) -> dict[str, int]:
        return {"bot": bot_id, "only_for": only_for, "limit": self.left, "died_since": self._died_since}

    async def _drop(self, bot_id: int, rows: Sequence[Row]) -> None:
        if rows:
            await self._session.run(_SQL["drop_their_stories"], bot=bot_id, numbers=[row[1] for row in rows])
            await self._session.run(_SQL["drop_arrivals"], ids=[row[0] for row in rows])
            self.left -= len(rows)


async def forget_bot(session: Session, bot_id: int) -> None:
    """Everything that a bot's inbox holds goes with the bot."""
    for consumer in await inbox_consumers.consumers(session, bot_id):
        await inbox_consumers.drop(session, consumer.id)
    for name in ("forget_bot_arrivals", "forget_bot_outages", "forget_bot_handled", "forget_bot_inbox"):
        await session.run(_SQL[name], bot=bot_id)
