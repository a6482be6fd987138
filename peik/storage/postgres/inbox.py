"""The inbox of the PostgreSQL store. What is asked goes into the store's own commits and reads; the work itself is in the
modules beside this one."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, Arrival, ConsumerProgress, Span, Update, spans_of
from peik.core.letter import Chat
from peik.inbox.store import (
    ArrivalFilter,
    ArrivalRetention,
    ArrivalsCleaned,
    ArrivalView,
    Burial,
    Consumer,
    Deferral,
    InboxState,
    InboxTally,
    OutageRecord,
    TakenIn,
)
from peik.secrets.seals import PLAIN, Seals
from peik.storage.postgres import arrivals, consumers
from peik.storage.postgres.arrivals import OVER_FOR
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.queries import filled, load
from peik.storage.postgres.session import PostgresSession, Row
from peik.storage.postgres.writer import PostgresWays
from peik.storage.rules import opened, sealed
from peik.storage.sqlite.intake import DUPLICATES_MS, IntakeCall
from peik.storage.sqlite.rows import outage_from_row, state_from_row

# What sources and their watchers ask of the PostgreSQL store: where an inbox stands, outages, what MTProto clients
# saw.


_SQL = load("inbox.sql")


async def state(session: PostgresSession, bot_id: int) -> InboxState | None:
    row = await session.row(_SQL["inbox"], bot=bot_id)
    return None if row is None else state_from_row(tuple(row))


async def open_inbox(session: PostgresSession, bot_id: int, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
    await consumers.check_bot(session, bot_id)
    await session.rows(_SQL["lock_inboxes"], bots=[bot_id])
    before = await state(session, bot_id) or InboxState(bot_id=bot_id)
    await session.run(_SQL["open_inbox"], bot=bot_id, server=server, at=at_ms)
    await consumers.ensure(session, bot_id, DEFAULT_CONSUMER, at_ms)
    now = await state(session, bot_id)
    assert now is not None
    return before, now


async def note_seen(session: PostgresSession, bot_id: int, at_ms: int) -> None:
    await session.run(_SQL["note_seen"], bot=bot_id, at=at_ms)


async def open_outage(
    session: PostgresSession, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last: int
) -> OutageRecord:
    ((outage_id,),) = await session.returned(
        _SQL["open_outage"], bot=bot_id, began_at=began_at_ms, ended_at=ended_at_ms, last=last
    )
    await session.run(_SQL["forget_outages"], bot=bot_id)
    return OutageRecord(id=outage_id, bot_id=bot_id, began_at_ms=began_at_ms, ended_at_ms=ended_at_ms, last_number=last)


async def outages(session: PostgresSession, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
    rows = await session.rows(_SQL["open_outages" if is_open else "outages"], bot=bot_id)
    return [outage_from_row(tuple(row)) for row in rows]


async def settle_outage(session: PostgresSession, outage_id: int, at_ms: int) -> None:
    await session.run(_SQL["settle_outage"], outage=outage_id, at=at_ms)


async def note_handled(session: PostgresSession, bot_id: int, messages: Sequence[tuple[int, int]], at_ms: int) -> int:
    """How many of these messages were here and open. Under the inbox's lock: what comes in meanwhile finds the note."""
    noted = list(dict.fromkeys(messages))
    if not noted:
        return 0
    await session.rows(_SQL["lock_inboxes"], bots=[bot_id])
    chats, ids = zip(*noted, strict=True)
    await session.run(_SQL["note_handled"], bot=bot_id, chats=chats, messages=ids, at=at_ms)
    default = await consumers.consumer(session, bot_id, DEFAULT_CONSUMER)
    if default is None:
        return 0
    first = await session.number(_SQL["first_open"], bot=bot_id, watermark=default.progress.watermark)
    if not first:
        return 0
    found = await session.rows(_SQL["handled_here"], bot=bot_id, chats=chats, messages=ids, at=at_ms, first=first)
    open_ones = [number for (number,) in found if not default.progress.is_over(number)]
    await consumers.settle(session, default.id, over=spans_of(open_ones), deferred=(), dead=(), at_ms=at_ms)
    return len(open_ones)


# What time does to arrivals in the PostgreSQL store: read ones go, unread ones go later and are counted, idle readers
# go.
#
# An arrival goes when everybody has had it for long enough, not when it has been here for long enough. How far the
# readers were at an earlier time is known from hourly checkpoints.


_ARRIVALS_SQL = load("arrivals.sql")
OLD_ONES = filled(_ARRIVALS_SQL["old_ones"], is_over=OVER_FOR)

_NOTES_PER_CALL_MAX = 10_000  # they are small
_ALL = 0  # `only_for` of what is for everybody
_EVERY_ID = 2**63 - 1


async def clean(session: PostgresSession, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
    expired = await _drop_idle(session, at_ms - retention.idle_ms, limit)
    read_before = at_ms - retention.read_ms
    await session.run(_ARRIVALS_SQL["forget_checkpoints"], at=at_ms, before=read_before)
    await session.run(_ARRIVALS_SQL["checkpoint"], at=at_ms)
    await session.run(_ARRIVALS_SQL["forget_handled"], before=at_ms - retention.handled_ms, limit=_NOTES_PER_CALL_MAX)
    broom = _Broom(session, retention, at_ms, limit)
    await broom.look()
    for (bot_id,) in await session.rows(_ARRIVALS_SQL["inboxes"]):
        await broom.sweep(bot_id)
    return ArrivalsCleaned(gone=limit - broom.left, unread=dict(broom.unread), expired=expired)


async def _drop_idle(session: PostgresSession, before_ms: int, limit: int) -> tuple[Consumer, ...]:
    rows = await session.rows(_ARRIVALS_SQL["idle_consumers"], before=before_ms, limit=limit)
    idle = [await consumers.by_id(session, row[0]) for row in rows]
    for consumer in idle:
        await consumers.drop(session, consumer.id)
    return tuple(idle)


class _Broom:
    """One call of `clean`: what goes, bot by bot, until the limit is reached."""

    def __init__(self, session: PostgresSession, retention: ArrivalRetention, at_ms: int, limit: int) -> None:
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
        slack_ms = consumers.CLOCK_SLACK_MS
        self._old_end = await consumers.id_at(self._session, self._received_before + slack_ms)
        # Duplicates are known by what is stored. A reader that had it two days ago got it two days ago, or earlier.
        if self._retention.read_ms < DUPLICATES_MS:
            self._read_end = await consumers.id_at(self._session, self._at_ms - DUPLICATES_MS)
        before = self._at_ms - self._retention.read_ms
        for bot_id, consumer_id, floor in await self._session.rows(_ARRIVALS_SQL["floors"], before=before):
            self._floors[bot_id][consumer_id] = floor

    async def sweep(self, bot_id: int) -> None:
        floors = self._floors[bot_id]
        known = [floor for floor in floors.values() if floor is not None]
        if len(known) == len(floors) > 0:
            await self._drop_read(bot_id, _ALL, min(known))
        await self._drop_old(bot_id, _ALL)
        for (owner,) in await self._session.rows(_ARRIVALS_SQL["replay_owners"], bot=bot_id):
            # A replay whose reader is gone is seen by nobody: as if it had been read for ever.
            floor = floors.get(owner) if owner in floors else _EVERY_ID
            if floor is not None:
                await self._drop_read(bot_id, owner, floor)
            await self._drop_old(bot_id, owner)
        if bot_id in self.unread:
            for consumer_id in floors:
                await consumers.settle(self._session, consumer_id, over=(), deferred=(), dead=(), at_ms=self._at_ms)

    async def _drop_read(self, bot_id: int, only_for: int, floor: int) -> None:
        bound = self._bound(bot_id, only_for)
        rows = await self._session.rows(_ARRIVALS_SQL["read_ones"], **bound, floor=floor, id_end=self._read_end)
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
            await self._session.run(_ARRIVALS_SQL["drop_their_stories"], bot=bot_id, numbers=[row[1] for row in rows])
            await self._session.run(_ARRIVALS_SQL["drop_arrivals"], ids=[row[0] for row in rows])
            self.left -= len(rows)


async def forget_bot(session: PostgresSession, bot_id: int) -> None:
    """Everything that a bot's inbox holds goes with the bot."""
    for consumer in await consumers.consumers(session, bot_id):
        await consumers.drop(session, consumer.id)
    for name in ("forget_bot_arrivals", "forget_bot_outages", "forget_bot_handled", "forget_bot_inbox"):
        await session.run(_ARRIVALS_SQL[name], bot=bot_id)


T = TypeVar("T")


class PostgresInbox:
    """See `peik.inbox.store.InboxStore`. Made by the store when it is opened."""

    def __init__(self, ways: PostgresWays, *, clock: Clock, seals: Seals = PLAIN) -> None:
        self._write, self._collect, self._read, self._look = ways.write, ways.collect, ways.read, ways.look
        self._seals = seals
        self._clock = clock

    # ---- sources ----

    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        async def work(batch: PostgresBatch) -> tuple[InboxState, InboxState]:
            before, now = await open_inbox(batch.session, bot_id, server, at_ms)
            if before == InboxState(bot_id=bot_id):
                batch.telling.consumers()  # its default consumer was made
            return before, now

        return await self._write(work, inboxes=[bot_id])

    async def inbox(self, bot_id: int) -> InboxState | None:
        return await self._read(lambda session: state(session, bot_id))

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
        async def add(batch: PostgresBatch) -> Callable[[], TakenIn]:
            call = IntakeCall(
                bot_id,
                updates,
                at_ms=at_ms,
                last_update_id=last_update_id,
                is_new_epoch=is_new_epoch,
                expired=expired,
            )
            await batch.intake.add(call)
            return lambda: call.taken

        return await self._collect(add, weight=len(updates) + 1, inboxes=[bot_id])

    async def note_seen(self, bot_id: int, *, at_ms: int) -> None:
        await self._write(lambda batch: note_seen(batch.session, bot_id, at_ms), inboxes=[bot_id])

    # ---- consumers ----

    async def consumers(self, bot_id: int | None = None) -> list[Consumer]:
        found = await self._read(lambda session: consumers.consumers(session, bot_id))
        return [opened(one, self._seals) for one in found]

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        found = await self._read(lambda session: consumers.consumer(session, bot_id, name))
        if found is not None:
            return opened(found, self._seals)
        made = await self._change(
            lambda session: consumers.ensure(session, bot_id, name, at_ms, most), inboxes=[bot_id]
        )
        return opened(made, self._seals)

    async def save_consumer(self, consumer: Consumer) -> None:
        stored = sealed(consumer, self._seals)
        await self._change(lambda session: consumers.save(session, stored))

    async def touch_consumers(self, seen: Mapping[int, int]) -> None:
        await self._write(lambda batch: consumers.touch(batch.session, seen))

    async def remove_consumer(self, consumer_id: int) -> None:
        await self._change(lambda session: consumers.remove(session, consumer_id))

    # ---- handing on ----

    async def arrivals_after(
        self, consumer_id: int, number: int, *, limit: int, bytes_max: int = 4 << 20, lane: Chat | None = None
    ) -> list[Arrival]:
        return await self._read(
            lambda one: consumers.page(one, consumer_id, number, limit=limit, bytes_max=bytes_max, lane=lane)
        )

    async def arrivals_from(self, bot_id: int, number: int, *, limit: int) -> list[Arrival]:
        return await self._read(lambda one: consumers.page_of_bot(one, bot_id, number, limit=limit))

    async def deferrals(self, consumer_id: int) -> list[Deferral]:
        return await self._read(lambda session: consumers.deferrals(session, consumer_id))

    async def settle_arrivals(
        self,
        consumer_id: int,
        *,
        over: Sequence[Span] = (),
        deferred: Sequence[Deferral] = (),
        dead: Sequence[Burial] = (),
        at_ms: int,
    ) -> ConsumerProgress:
        return await self._write(
            lambda batch: consumers.settle(
                batch.session, consumer_id, over=over, deferred=deferred, dead=dead, at_ms=at_ms
            )
        )

    # ---- outages ----

    async def open_outage(self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int) -> OutageRecord:
        return await self._change(
            lambda session: open_outage(
                session, bot_id, began_at_ms=began_at_ms, ended_at_ms=ended_at_ms, last=last_number
            )
        )

    async def outages(self, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
        return await self._read(lambda session: outages(session, bot_id, is_open=is_open))

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None:
        await self._change(lambda session: settle_outage(session, outage_id, at_ms))

    async def _change(self, work: Callable[[PostgresSession], Awaitable[T]], *, inboxes: Iterable[int] = ()) -> T:
        """Something about who reads, or about outages: the other nodes hear of it."""

        async def told(batch: PostgresBatch) -> T:
            batch.telling.consumers()
            return await work(batch.session)

        return await self._write(told, inboxes=inboxes)

    # ---- MTProto clients ----

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]], *, at_ms: int) -> int:
        return await self._write(lambda batch: note_handled(batch.session, bot_id, messages, at_ms), inboxes=[bot_id])

    # ---- people ----

    async def find_arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda one: arrivals.find(one, wanted, before=before, limit=limit, at_ms=at_ms))

    async def arrival(self, arrival_id: int) -> ArrivalView | None:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda session: arrivals.one(session, arrival_id, at_ms))

    async def count_arrivals(self, wanted: ArrivalFilter) -> int:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda session: arrivals.count(session, wanted, at_ms))

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        # Found by a reader, so that a filter that finds few among many keeps no commit waiting.
        ids = await self._look(
            lambda session: arrivals.find_for_replay(
                session, wanted, consumer_id, (after, up_to + 1), limit=limit, at_ms=at_ms
            )
        )
        if not ids:
            return 0, None
        made = await self._write(
            lambda batch: arrivals.replay(batch.session, batch.telling, ids, consumer_id, at_ms=at_ms)
        )
        return len(made), ids[-1] if len(ids) == limit else None

    async def last_arrival_id(self) -> int:
        return await self._look(arrivals.last_id)

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        return await self._write(
            lambda batch: arrivals.retry_dead(batch.session, batch.telling, wanted, at_ms=at_ms, limit=limit)
        )

    async def clear_dead_arrivals(self, wanted: ArrivalFilter, *, limit: int) -> int:
        at_ms = self._clock.wall_ms()
        return await self._write(lambda batch: arrivals.clear_dead(batch.session, wanted, at_ms=at_ms, limit=limit))

    async def inbox_tallies(self, bot_id: int | None = None) -> list[InboxTally]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda session: arrivals.tallies(session, bot_id, at_ms))

    # ---- upkeep ----

    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
        async def work(batch: PostgresBatch) -> ArrivalsCleaned:
            cleaned = await clean(batch.session, retention, at_ms=at_ms, limit=limit)
            if cleaned.expired:
                batch.telling.consumers()
            return cleaned

        return await self._write(work)
