"""The inbox of the PostgreSQL store. What is asked goes into the store's own commits and reads; the work itself is in the
modules beside this one."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

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
from peik.store.inbox_intake import Call
from peik.store.postgres import inbox_consumers, inbox_people, inbox_sources, inbox_upkeep
from peik.store.postgres.commit import Batch
from peik.store.postgres.session import Session
from peik.store.seal_rules import opened, sealed

T = TypeVar("T")


class Write(Protocol):
    """Runs something in the next commit; its answer, once that is durable. `inboxes` are locked before it."""

    async def __call__(self, work: Callable[[Batch], Awaitable[T]], /, *, inboxes: Iterable[int] = ()) -> T: ...


class Collect(Protocol):
    """Adds something to the next commit that is written together with all of its kind; how to read its answer then."""

    async def __call__(
        self, add: Callable[[Batch], Awaitable[Callable[[], T]]], /, *, weight: int, inboxes: Iterable[int]
    ) -> T: ...


class Read(Protocol):
    async def __call__(self, work: Callable[[Session], Awaitable[T]], /) -> T: ...


class PostgresInbox:
    """See `peik.inbox_ports.InboxStore`. Made by the store when it is opened. `look` reads all of one snapshot."""

    def __init__(
        self, *, write: Write, collect: Collect, read: Read, look: Read, clock: Clock, seals: Seals = PLAIN
    ) -> None:
        self._write = write
        self._seals = seals
        self._collect = collect
        self._read = read
        self._look = look
        self._clock = clock

    # ---- sources ----

    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        async def work(batch: Batch) -> tuple[InboxState, InboxState]:
            before, now = await inbox_sources.open_inbox(batch.session, bot_id, server, at_ms)
            if before == InboxState(bot_id=bot_id):
                batch.telling.consumers()  # its default consumer was made
            return before, now

        return await self._write(work, inboxes=[bot_id])

    async def inbox(self, bot_id: int) -> InboxState | None:
        return await self._read(lambda session: inbox_sources.state(session, bot_id))

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
        async def add(batch: Batch) -> Callable[[], TakenIn]:
            call = Call(
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
        await self._write(lambda batch: inbox_sources.note_seen(batch.session, bot_id, at_ms), inboxes=[bot_id])

    # ---- consumers ----

    async def consumers(self, bot_id: int | None = None) -> list[Consumer]:
        found = await self._read(lambda session: inbox_consumers.consumers(session, bot_id))
        return [opened(one, self._seals) for one in found]

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        found = await self._read(lambda session: inbox_consumers.consumer(session, bot_id, name))
        if found is not None:
            return opened(found, self._seals)
        made = await self._change(
            lambda session: inbox_consumers.ensure(session, bot_id, name, at_ms, most), inboxes=[bot_id]
        )
        return opened(made, self._seals)

    async def save_consumer(self, consumer: Consumer) -> None:
        stored = sealed(consumer, self._seals)
        await self._change(lambda session: inbox_consumers.save(session, stored))

    async def touch_consumers(self, seen: Mapping[int, int]) -> None:
        await self._write(lambda batch: inbox_consumers.touch(batch.session, seen))

    async def remove_consumer(self, consumer_id: int) -> None:
        await self._change(lambda session: inbox_consumers.remove(session, consumer_id))

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
        return await self._read(lambda session: inbox_consumers.deferrals(session, consumer_id))

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
                batch.session, consumer_id, over=over, deferred=deferred, dead=dead, at_ms=at_ms
            )
        )

    # ---- outages ----

    async def open_outage(self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int) -> Outage:
        return await self._change(
            lambda session: inbox_sources.open_outage(
                session, bot_id, began_at_ms=began_at_ms, ended_at_ms=ended_at_ms, last=last_number
            )
        )

    async def outages(self, bot_id: int, *, is_open: bool) -> list[Outage]:
        return await self._read(lambda session: inbox_sources.outages(session, bot_id, is_open=is_open))

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None:
        await self._change(lambda session: inbox_sources.settle_outage(session, outage_id, at_ms))

    async def _change(self, work: Callable[[Session], Awaitable[T]], *, inboxes: Iterable[int] = ()) -> T:
        """Something about who reads, or about outages: the other nodes hear of it."""

        async def told(batch: Batch) -> T:
            batch.telling.consumers()
            return await work(batch.session)

        return await self._write(told, inboxes=inboxes)

    # ---- MTProto clients ----

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]], *, at_ms: int) -> int:
        return await self._write(
            lambda batch: inbox_sources.note_handled(batch.session, bot_id, messages, at_ms), inboxes=[bot_id]
        )

    # ---- people ----

    async def find_arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda one: inbox_people.find(one, wanted, before=before, limit=limit, at_ms=at_ms))

    async def arrival(self, arrival_id: int) -> ArrivalView | None:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda session: inbox_people.one(session, arrival_id, at_ms))

    async def count_arrivals(self, wanted: ArrivalFilter) -> int:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda session: inbox_people.count(session, wanted, at_ms))

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        # Found by a reader, so that a filter that finds few among many keeps no commit waiting.
        ids = await self._look(
            lambda session: inbox_people.find_for_replay(
                session, wanted, consumer_id, (after, up_to + 1), limit=limit, at_ms=at_ms
            )
        )
        if not ids:
            return 0, None
        made = await self._write(
            lambda batch: inbox_people.replay(batch.session, batch.telling, ids, consumer_id, at_ms=at_ms)
        )
        return len(made), ids[-1] if len(ids) == limit else None

    async def last_arrival_id(self) -> int:
        return await self._look(inbox_people.last_id)

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        return await self._write(
            lambda batch: inbox_people.retry_dead(batch.session, batch.telling, wanted, at_ms=at_ms, limit=limit)
        )

    async def clear_dead_arrivals(self, wanted: ArrivalFilter, *, limit: int) -> int:
        at_ms = self._clock.wall_ms()
        return await self._write(lambda batch: inbox_people.clear_dead(batch.session, wanted, at_ms=at_ms, limit=limit))

    async def inbox_tallies(self, bot_id: int | None = None) -> list[InboxTally]:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda session: inbox_people.tallies(session, bot_id, at_ms))

    # ---- upkeep ----

    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
        async def work(batch: Batch) -> ArrivalsCleaned:
            cleaned = await inbox_upkeep.clean(batch.session, retention, at_ms=at_ms, limit=limit)
            if cleaned.expired:
                batch.telling.consumers()
            return cleaned

        return await self._write(work)
