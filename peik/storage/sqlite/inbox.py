"""The inbox of the SQLite store. What is asked goes into the store's own commits and reads; the work itself is in the
modules beside this one."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import apsw

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
from peik.storage.rules import opened, sealed
from peik.storage.sqlite import arrivals, consumers
from peik.storage.sqlite import rows as inbox_rows
from peik.storage.sqlite.arrivals import OVER_FOR
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.intake import DUPLICATES_MS, IntakeCall
from peik.storage.sqlite.rows import number, outage_from_row, state_from_row
from peik.storage.sqlite.statements import Row, load, run_many
from peik.storage.sqlite.writer import SqliteWays

# What sources and their watchers ask of the SQLite store: where a bot's inbox stands, outages, what MTProto clients
# saw.


_SQL = load("sqlite_inbox.sql")


def state(connection: apsw.Connection, bot_id: int) -> InboxState | None:
    for row in connection.execute(_SQL["inbox"], (bot_id,)):
        return state_from_row(row)
    return None


def open_inbox(connection: apsw.Connection, bot_id: int, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
    consumers.check_bot(connection, bot_id)
    before = state(connection, bot_id) or InboxState(bot_id=bot_id)
    connection.execute(_SQL["open_inbox"], {"bot": bot_id, "server": server, "at": at_ms})
    consumers.ensure(connection, bot_id, DEFAULT_CONSUMER, at_ms)
    now = state(connection, bot_id)
    assert now is not None
    return before, now


def note_seen(connection: apsw.Connection, bot_id: int, at_ms: int) -> None:
    connection.execute(_SQL["note_seen"], {"bot": bot_id, "at": at_ms})


def open_outage(
    connection: apsw.Connection, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last: int
) -> OutageRecord:
    row = (bot_id, began_at_ms, ended_at_ms, last)
    ((outage_id,),) = connection.execute(_SQL["open_outage"], row)
    connection.execute(_SQL["forget_outages"], {"bot": bot_id})
    return outage_from_row((outage_id, *row, None))


def outages(connection: apsw.Connection, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
    rows = connection.execute(_SQL["open_outages" if is_open else "outages"], (bot_id,))
    return [outage_from_row(row) for row in rows]


def settle_outage(connection: apsw.Connection, outage_id: int, at_ms: int) -> None:
    connection.execute(_SQL["settle_outage"], (at_ms, outage_id))


def note_handled(connection: apsw.Connection, bot_id: int, messages: Sequence[tuple[int, int]], at_ms: int) -> int:
    """How many of these messages were here and open."""
    noted = list(dict.fromkeys(messages))
    if not noted:
        return 0
    rows: list[Row] = [(bot_id, chat, message_id, at_ms) for chat, message_id in noted]
    run_many(connection, _SQL["note_handled"], rows)
    default = consumers.consumer(connection, bot_id, DEFAULT_CONSUMER)
    if default is None:
        return 0
    place = inbox_rows.first_from(connection, bot_id, default.progress.watermark + 1)
    if place is None:
        return 0
    asked: list[Row] = [
        (bot_id, stretch, chat, place.id, message_id, at_ms)
        for stretch in place.stretches
        for chat, message_id in noted
    ]
    found = run_many(connection, _SQL["handled_here"], asked)
    open_ones = [one for (one,) in found if not default.progress.is_over(number(one))]
    over = spans_of([number(one) for one in open_ones])
    consumers.settle(connection, default.id, over=over, deferred=(), dead=(), at_ms=at_ms)
    return len(open_ones)


# What time does to arrivals in the SQLite store: read ones go, unread ones go later and are counted, idle readers go.
#
# An arrival goes when everybody has had it for long enough, not when it has been here for long enough. How far the
# readers were at an earlier time is known from hourly checkpoints.


_ARRIVALS_SQL = load("sqlite_arrivals.sql")
OLD_ONES = _ARRIVALS_SQL["old_ones"].replace("{is_over}", OVER_FOR)

_NOTES_PER_CALL_MAX = 10_000  # they are small
_ALL = 0  # `only_for` of what is for everybody
_EVERY_ID = 2**63 - 1


def clean(connection: apsw.Connection, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
    expired = _drop_idle(connection, at_ms - retention.idle_ms, limit)
    read_before = at_ms - retention.read_ms
    connection.execute(_ARRIVALS_SQL["forget_checkpoints"], {"at": at_ms, "before": read_before})
    connection.execute(_ARRIVALS_SQL["checkpoint"], {"at": at_ms})
    connection.execute(_ARRIVALS_SQL["forget_handled"], (at_ms - retention.handled_ms, _NOTES_PER_CALL_MAX))
    broom = _Broom(connection, retention, at_ms, limit)
    for (bot_id,) in list(connection.execute(_ARRIVALS_SQL["inboxes"])):
        broom.sweep(bot_id)
    return ArrivalsCleaned(gone=limit - broom.left, unread=dict(broom.unread), expired=expired)


def _drop_idle(connection: apsw.Connection, before_ms: int, limit: int) -> tuple[Consumer, ...]:
    found = [row[0] for row in connection.execute(_ARRIVALS_SQL["idle_consumers"], (before_ms, limit))]
    idle = tuple(consumers.by_id(connection, consumer_id) for consumer_id in found)
    for consumer in idle:
        consumers.drop(connection, consumer.id)
    return idle


class _Broom:
    """One call of `clean`: what goes, bot by bot, until the limit is reached."""

    def __init__(self, connection: apsw.Connection, retention: ArrivalRetention, at_ms: int, limit: int) -> None:
        self._connection = connection
        self._at_ms = at_ms
        self.left = limit
        self.unread: Counter[int] = Counter()
        self._received_before = at_ms - max(retention.unread_ms, DUPLICATES_MS)
        self._died_since = at_ms - retention.unread_ms
        self._old_end = consumers.id_at(connection, self._received_before + consumers.CLOCK_SLACK_MS)
        # Duplicates are known by what is stored. A reader that had it two days ago got it two days ago, or earlier.
        is_brief = retention.read_ms < DUPLICATES_MS
        self._read_end = consumers.id_at(connection, at_ms - DUPLICATES_MS) if is_brief else _EVERY_ID
        self._floors: dict[int, dict[int, int | None]] = defaultdict(dict)
        for bot_id, consumer_id, floor in connection.execute(
            _ARRIVALS_SQL["floors"], {"before": at_ms - retention.read_ms}
        ):
            self._floors[bot_id][consumer_id] = floor

    def sweep(self, bot_id: int) -> None:
        floors = self._floors[bot_id]
        known = [floor for floor in floors.values() if floor is not None]
        if len(known) == len(floors) > 0:
            self._drop_read(bot_id, _ALL, min(known))
        self._drop_old(bot_id, _ALL)
        for (owner,) in list(self._connection.execute(_ARRIVALS_SQL["replay_owners"], {"bot": bot_id})):
            # A replay whose reader is gone is seen by nobody: as if it had been read for ever.
            floor = floors.get(owner) if owner in floors else _EVERY_ID
            if floor is not None:
                self._drop_read(bot_id, owner, floor)
            self._drop_old(bot_id, owner)
        if bot_id in self.unread:
            for consumer_id in floors:
                consumers.settle(self._connection, consumer_id, over=(), deferred=(), dead=(), at_ms=self._at_ms)

    def _drop_read(self, bot_id: int, only_for: int, floor: int) -> None:
        bound = self._bound(bot_id, only_for) | {"floor": floor, "id_end": self._read_end}
        self._drop(bot_id, list(self._connection.execute(_ARRIVALS_SQL["read_ones"], bound)))

    def _drop_old(self, bot_id: int, only_for: int) -> None:
        bound = self._bound(bot_id, only_for) | {"received_before": self._received_before, "id_end": self._old_end}
        rows = list(self._connection.execute(OLD_ONES, bound))
        self._drop(bot_id, [row[:2] for row in rows])
        unread = sum(row[2] for row in rows)
        if unread:
            self.unread[bot_id] += unread

    def _bound(self, bot_id: int, only_for: int) -> dict[str, int]:
        return {"bot": bot_id, "only_for": only_for, "limit": self.left, "died_since": self._died_since}

    def _drop(self, bot_id: int, rows: list[tuple[int, int]]) -> None:
        ids: list[Row] = [(arrival_id,) for arrival_id, _ in rows]
        numbers: list[Row] = [(bot_id, number) for _, number in rows]
        run_many(self._connection, _ARRIVALS_SQL["drop_their_stories"], numbers)
        run_many(self._connection, _ARRIVALS_SQL["drop_arrivals"], ids)
        self.left -= len(rows)


def forget_bot(connection: apsw.Connection, bot_id: int) -> None:
    """Everything that a bot's inbox holds goes with the bot."""
    for consumer in consumers.consumers(connection, bot_id):
        consumers.drop(connection, consumer.id)
    for name in ("forget_bot_arrivals", "forget_bot_outages", "forget_bot_handled", "forget_bot_inbox"):
        connection.execute(_ARRIVALS_SQL[name], (bot_id,))


class SqliteInbox:
    """See `peik.inbox.store.InboxStore`. Made by the store when it is opened."""

    def __init__(self, ways: SqliteWays, *, clock: Clock, seals: Seals = PLAIN) -> None:
        self._write, self._collect, self._read, self._look = ways.write, ways.collect, ways.read, ways.look
        self._seals = seals
        self._clock = clock

    # ---- sources ----

    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        return await self._write(lambda batch: open_inbox(batch.connection, bot_id, server, at_ms))

    async def inbox(self, bot_id: int) -> InboxState | None:
        return await self._read(lambda connection: state(connection, bot_id))

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
        def add(batch: SqliteBatch) -> Callable[[], TakenIn]:
            call = IntakeCall(
                bot_id,
                updates,
                at_ms=at_ms,
                last_update_id=last_update_id,
                is_new_epoch=is_new_epoch,
                expired=expired,
            )
            batch.intake.add(call)
            return lambda: call.taken

        return await self._collect(add, weight=len(updates) + 1)

    async def note_seen(self, bot_id: int, *, at_ms: int) -> None:
        await self._write(lambda batch: note_seen(batch.connection, bot_id, at_ms))

    # ---- consumers ----

    async def consumers(self, bot_id: int | None = None) -> list[Consumer]:
        found = await self._read(lambda connection: consumers.consumers(connection, bot_id))
        return [opened(one, self._seals) for one in found]

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        found = await self._read(lambda connection: consumers.consumer(connection, bot_id, name))
        if found is not None:
            return opened(found, self._seals)
        made = await self._write(lambda batch: consumers.ensure(batch.connection, bot_id, name, at_ms, most))
        return opened(made, self._seals)

    async def save_consumer(self, consumer: Consumer) -> None:
        stored = sealed(consumer, self._seals)
        await self._write(lambda batch: consumers.save(batch.connection, stored))

    async def touch_consumers(self, seen: Mapping[int, int]) -> None:
        await self._write(lambda batch: consumers.touch(batch.connection, seen))

    async def remove_consumer(self, consumer_id: int) -> None:
        await self._write(lambda batch: consumers.remove(batch.connection, consumer_id))

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
        return await self._read(lambda connection: consumers.deferrals(connection, consumer_id))

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
                batch.connection, consumer_id, over=over, deferred=deferred, dead=dead, at_ms=at_ms
            )
        )

    # ---- outages ----

    async def open_outage(self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int) -> OutageRecord:
        return await self._write(
            lambda batch: open_outage(
                batch.connection, bot_id, began_at_ms=began_at_ms, ended_at_ms=ended_at_ms, last=last_number
            )
        )

    async def outages(self, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
        return await self._read(lambda connection: outages(connection, bot_id, is_open=is_open))

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None:
        await self._write(lambda batch: settle_outage(batch.connection, outage_id, at_ms))

    # ---- MTProto clients ----

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]], *, at_ms: int) -> int:
        return await self._write(lambda batch: note_handled(batch.connection, bot_id, messages, at_ms))

    # ---- people ----

    async def find_arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda one: arrivals.find(one, wanted, before=before, limit=limit, at_ms=at_ms))

    async def arrival(self, arrival_id: int) -> ArrivalView | None:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda connection: arrivals.one(connection, arrival_id, at_ms))

    async def count_arrivals(self, wanted: ArrivalFilter) -> int:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda connection: arrivals.count(connection, wanted, at_ms))

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        # Found by the reader, so that a filter that finds few among many keeps no commit waiting.
        ids = await self._look(
            lambda connection: arrivals.find_for_replay(
                connection, wanted, consumer_id, (after, up_to + 1), limit=limit, at_ms=at_ms
            )
        )
        if not ids:
            return 0, None
        made = await self._write(lambda batch: arrivals.replay(batch.connection, ids, consumer_id, at_ms=at_ms))
        return len(made), ids[-1] if len(ids) == limit else None

    async def last_arrival_id(self) -> int:
        return await self._look(arrivals.last_id)

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        return await self._write(lambda batch: arrivals.retry_dead(batch.connection, wanted, at_ms=at_ms, limit=limit))

    async def clear_dead_arrivals(self, wanted: ArrivalFilter, *, limit: int) -> int:
        at_ms = self._clock.wall_ms()
        return await self._write(lambda batch: arrivals.clear_dead(batch.connection, wanted, at_ms=at_ms, limit=limit))

    async def inbox_tallies(self, bot_id: int | None = None) -> list[InboxTally]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda connection: arrivals.tallies(connection, bot_id, at_ms))

    # ---- upkeep ----

    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
        return await self._write(lambda batch: clean(batch.connection, retention, at_ms=at_ms, limit=limit))
