"""The inbox of the SQLite store. What is asked goes into the store's own commits and reads; the work itself is in the
modules beside this one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import apsw

from peik.clock import Clock
from peik.core.arrival import Arrival, Update
from peik.core.letter import Chat
from peik.core.spans import Progress, Span
from peik.inbox_ports import (
    ArrivalFilter,
    ArrivalRetention,
    ArrivalsCleaned,
    ArrivalView,
    Burial,
    Consumer,
    Deferral,
    InboxState,
    InboxTally,
    Outage,
    TakenIn,
)
from peik.seals import PLAIN, Seals
from peik.store import inbox_consumers, inbox_people, inbox_sources, inbox_upkeep
from peik.store.commit import Batch
from peik.store.inbox_intake import Call
from peik.store.seal_rules import opened, sealed

T = TypeVar("T")


class Write(Protocol):
    """Runs something in the next commit; its answer, once that is durable."""

    async def __call__(self, work: Callable[[Batch], T], /) -> T: ...


class Collect(Protocol):
    """Adds something to the next commit that is written together with all of its kind; how to read its answer then."""

    async def __call__(self, add: Callable[[Batch], Callable[[], T]], /, *, weight: int) -> T: ...


class Read(Protocol):
    async def __call__(self, work: Callable[[apsw.Connection], T], /) -> T: ...


class SqliteInbox:
    """See `peik.inbox_ports.InboxStore`. Made by the store when it is opened."""

    def __init__(self, *, write: Write, collect: Collect, read: Read, clock: Clock, seals: Seals = PLAIN) -> None:
        self._write = write
        self._seals = seals
        self._collect = collect
        self._read = read
        self._clock = clock

    # ---- sources ----

    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        return await self._write(lambda batch: inbox_sources.open_inbox(batch.connection, bot_id, server, at_ms))

    async def inbox(self, bot_id: int) -> InboxState | None:
        return await self._read(lambda connection: inbox_sources.state(connection, bot_id))

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
        def add(batch: Batch) -> Callable[[], TakenIn]:
            call = Call(
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
        await self._write(lambda batch: inbox_sources.note_seen(batch.connection, bot_id, at_ms))

    # ---- consumers ----

    async def consumers(self, bot_id: int | None = None) -> list[Consumer]:
        found = await self._read(lambda connection: inbox_consumers.consumers(connection, bot_id))
        return [opened(one, self._seals) for one in found]

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        found = await self._read(lambda connection: inbox_consumers.consumer(connection, bot_id, name))
        if found is not None:
            return opened(found, self._seals)
        made = await self._write(lambda batch: inbox_consumers.ensure(batch.connection, bot_id, name, at_ms, most))
        return opened(made, self._seals)

    async def save_consumer(self, consumer: Consumer) -> None:
        stored = sealed(consumer, self._seals)
        await self._write(lambda batch: inbox_consumers.save(batch.connection, stored))

    async def touch_consumers(self, seen: Mapping[int, int]) -> None:
        await self._write(lambda batch: inbox_consumers.touch(batch.connection, seen))

    async def remove_consumer(self, consumer_id: int) -> None:
        await self._write(lambda batch: inbox_consumers.remove(batch.connection, consumer_id))

    # ---- handing on ----

    async def arrivals_after(
        self, consumer_id: int, number: int, *, limit: int, bytes_max: int = 4 << 20, lane: Chat | None = None
    ) -> list[Arrival]:
        return await self._read(
            lambda one: inbox_consumers.page(one, consumer_id, number, limit=limit, bytes_max=bytes_max, lane=lane)
        )

    async def arrivals_from(self, bot_id: int, number: int, *, limit: int) -> list[Arrival]:
        return await self._read(lambda one: inbox_consumers.page_of_bot(one, bot_id, number, limit=limit))

    async def deferrals(self, consumer_id: int) -> list[Deferral]:
        return await self._read(lambda connection: inbox_consumers.deferrals(connection, consumer_id))

    async def settle_arrivals(
        self,
        consumer_id: int,
        *,
        over: Sequence[Span] = (),
        deferred: Sequence[Deferral] = (),
        dead: Sequence[Burial] = (),
        at_ms: int,
    ) -> Progress:
        return await self._write(
            lambda batch: inbox_consumers.settle(
                batch.connection, consumer_id, over=over, deferred=deferred, dead=dead, at_ms=at_ms
            )
        )

    # ---- outages ----

    async def open_outage(self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int) -> Outage:
        return await self._write(
            lambda batch: inbox_sources.open_outage(
                batch.connection, bot_id, began_at_ms=began_at_ms, ended_at_ms=ended_at_ms, last=last_number
            )
        )

    async def outages(self, bot_id: int, *, is_open: bool) -> list[Outage]:
        return await self._read(lambda connection: inbox_sources.outages(connection, bot_id, is_open=is_open))

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None:
        await self._write(lambda batch: inbox_sources.settle_outage(batch.connection, outage_id, at_ms))

    # ---- MTProto clients ----

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]], *, at_ms: int) -> int:
        return await self._write(lambda batch: inbox_sources.note_handled(batch.connection, bot_id, messages, at_ms))

    # ---- people ----

    async def find_arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda one: inbox_people.find(one, wanted, before=before, limit=limit, at_ms=at_ms))

    async def arrival(self, arrival_id: int) -> ArrivalView | None:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda connection: inbox_people.one(connection, arrival_id, at_ms))

    async def count_arrivals(self, wanted: ArrivalFilter) -> int:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda connection: inbox_people.count(connection, wanted, at_ms))

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        # Found by the reader, so that a filter that finds few among many keeps no commit waiting.
        ids = await self._look(
            lambda connection: inbox_people.find_for_replay(
                connection, wanted, consumer_id, (after, up_to + 1), limit=limit, at_ms=at_ms
            )
        )
        if not ids:
            return 0, None
        made = await self._write(lambda batch: inbox_people.replay(batch.connection, ids, consumer_id, at_ms=at_ms))
        return len(made), ids[-1] if len(ids) == limit else None

    async def last_arrival_id(self) -> int:
        return await self._look(inbox_people.last_id)

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        return await self._write(
            lambda batch: inbox_people.retry_dead(batch.connection, wanted, at_ms=at_ms, limit=limit)
        )

    async def clear_dead_arrivals(self, wanted: ArrivalFilter, *, limit: int) -> int:
        at_ms = self._clock.wall_ms()
        return await self._write(
            lambda batch: inbox_people.clear_dead(batch.connection, wanted, at_ms=at_ms, limit=limit)
        )

    async def inbox_tallies(self, bot_id: int | None = None) -> list[InboxTally]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda connection: inbox_people.tallies(connection, bot_id, at_ms))

    # ---- upkeep ----

    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
        return await self._write(
            lambda batch: inbox_upkeep.clean(batch.connection, retention, at_ms=at_ms, limit=limit)
        )

    async def _look(self, work: Callable[[apsw.Connection], T]) -> T:
        """Read something that takes several queries, all of one snapshot."""

        def whole(connection: apsw.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")

        return await self._read(whole)
