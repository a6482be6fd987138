"""The inbox as every SQL store keeps it: sources and outages, who reads, what people ask of arrivals, and what time does to them.

What is hot (taking in, reading ahead, settling) is each database's own.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, Arrival, Span, spans_of
from peik.core.letter import Chat, State
from peik.errors import Conflict
from peik.inbox.store import (
    ArrivalDelivery,
    ArrivalFilter,
    ArrivalRetention,
    ArrivalsCleaned,
    ArrivalView,
    Consumer,
    Deferral,
    InboxState,
    InboxTally,
    OutageRecord,
)
from peik.secrets.seals import Seals
from peik.storage.consumers import (
    Sql,
    check_bot,
    check_room,
    consumer_named,
    consumers_of,
    drop_consumer,
    find_consumers,
    id_at,
    lock,
    unknown,
)
from peik.storage.news import NodeNews
from peik.storage.rules import CLOCK_SLACK_MS, opened, sealed
from peik.storage.sql import NamedQuery, Row, SqlSession, filled
from peik.storage.sqlite.intake import DUPLICATES_MS
from peik.storage.sqlite.rows import (
    PHASE_DEAD,
    PHASE_PUT_OFF,
    delivery_from_row,
    encode_allowed,
    outage_from_row,
    state_from_row,
)

T = TypeVar("T")
Ids = tuple[int, int | None]  # above this one, and below that one if any
Tell = Callable[[Any, NodeNews], None]


def _of_consumers(_: object, news: NodeNews) -> None:
    """Something about who reads, or about outages: the other nodes hear of it."""
    news.consumers()


def _of_nothing(_: object, news: NodeNews) -> None: ...


class ArrivalWalk(msgspec.Struct, frozen=True, kw_only=True):
    """Ids by one walk along one index, or along one lane's stretches; {order} is still open."""

    sql: NamedQuery
    bound: dict[str, Any]
    consumer_id: int = 0
    stretches: range | None = None


class SqlInbox(ABC):
    """See `peik.inbox.store.InboxStore`. Made by the store when it is opened."""

    sql: ClassVar[Sql]
    _clock: Clock
    _seals: Seals

    # ---- each database's own ----

    @abstractmethod
    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        """`is_whole`: all queries of it see one snapshot."""

    @abstractmethod
    async def _in_commit(
        self, work: Callable[[SqlSession], Awaitable[T]], *, inboxes: Iterable[int] = (), tell: Tell = _of_nothing
    ) -> T:
        """Run something in the next commit, with these inboxes locked; its answer, once that is durable. `tell` adds to what
        the other nodes hear of it."""

    @abstractmethod
    async def _settle(self, one: SqlSession, consumer_id: int, over: Sequence[Span], at_ms: int) -> None: ...

    @abstractmethod
    async def _those(self, one: SqlSession, ids: Sequence[int]) -> list[Arrival]:
        """In the order in which they came."""

    @abstractmethod
    async def _handled_here(
        self, one: SqlSession, bot_id: int, noted: Sequence[tuple[int, int]], *, after: int, at_ms: int
    ) -> list[int]:
        """The numbers of these messages' arrivals above one, but for edits that came after the note."""

    @abstractmethod
    async def _lane_walk(
        self, one: SqlSession, wanted: ArrivalFilter, terms: Sequence[str], bound: dict[str, Any]
    ) -> ArrivalWalk: ...

    @abstractmethod
    async def _follow(self, one: SqlSession, walk: ArrivalWalk, *, order: str, limit: int) -> list[int]: ...

    @abstractmethod
    async def _count(self, one: SqlSession, walk: ArrivalWalk) -> int: ...

    @abstractmethod
    def _text_term(self, text: str) -> tuple[str, dict[str, Any]]:
        """A condition on what an update says, and what is bound to it."""

    def _lane(self, chat: Chat) -> object:
        """As a column keeps it."""
        return chat

    def _chat(self, lane: Any) -> Chat | None:
        return lane  # type: ignore[no-any-return]

    # ---- sources ----

    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        async def work(one: SqlSession) -> tuple[InboxState, InboxState]:
            await check_bot(one, self.sql["known_bot"], bot_id)
            await lock(one, self.sql, "lock_inboxes", bots=[bot_id])
            before = await self._state(one, bot_id) or InboxState(bot_id=bot_id)
            await one.run(self.sql["open_inbox"], bot=bot_id, server=server, at=at_ms)
            await self._ensure(one, bot_id, DEFAULT_CONSUMER, at_ms, None)
            now = await self._state(one, bot_id)
            assert now is not None
            return before, now

        def tell(states: tuple[InboxState, InboxState], news: NodeNews) -> None:
            if states[0] == InboxState(bot_id=bot_id):
                news.consumers()  # its default consumer was made

        return await self._in_commit(work, inboxes=[bot_id], tell=tell)

    async def inbox(self, bot_id: int) -> InboxState | None:
        return await self._in_read(lambda one: self._state(one, bot_id))

    async def _state(self, one: SqlSession, bot_id: int) -> InboxState | None:
        rows = await one.rows(self.sql["inbox"], bot=bot_id)
        return state_from_row(tuple(rows[0])) if rows else None

    async def note_seen(self, bot_id: int, *, at_ms: int) -> None:
        await self._in_commit(lambda one: one.run(self.sql["note_seen"], bot=bot_id, at=at_ms), inboxes=[bot_id])

    # ---- consumers ----

    async def consumers(self, bot_id: int | None = None) -> list[Consumer]:
        found = await self._in_read(lambda one: consumers_of(one, self.sql, bot_id))
        return [opened(one, self._seals) for one in found]

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        found = await self._in_read(lambda one: consumer_named(one, self.sql, bot_id, name))
        if found is None:
            found = await self._in_commit(
                lambda one: self._ensure(one, bot_id, name, at_ms, most), inboxes=[bot_id], tell=_of_consumers
            )
        return opened(found, self._seals)

    async def _ensure(self, one: SqlSession, bot_id: int, name: str, at_ms: int, most: int | None) -> Consumer:
        await check_bot(one, self.sql["known_bot"], bot_id)
        await lock(one, self.sql, "lock_inboxes", bots=[bot_id])  # where it begins must not move meanwhile
        if most is not None:
            check_room(await consumers_of(one, self.sql, bot_id), name, most)
        await one.run(self.sql["make_consumer"], bot=bot_id, name=name, at=at_ms)
        found = await consumer_named(one, self.sql, bot_id, name)
        assert found is not None
        return found

    async def save_consumer(self, consumer: Consumer) -> None:
        stored = sealed(consumer, self._seals)
        bound = {
            "kind": str(stored.kind),
            "url": stored.url,
            "secret": stored.secret,
            "allowed": encode_allowed(stored.allowed),
            "connections_max": stored.connections_max,
            "consumer": stored.id,
        }

        async def work(one: SqlSession) -> None:
            if not await one.run(self.sql["save_consumer"], **bound):
                raise unknown(stored.id)

        await self._in_commit(work, tell=_of_consumers)

    async def touch_consumers(self, seen: Mapping[int, int]) -> None:
        await self._in_commit(lambda one: one.write_many(self.sql["touch_consumers"], list(seen.items())))

    async def remove_consumer(self, consumer_id: int) -> None:
        """It is forgotten with all that is only its own. Its replays, which nobody sees any more, go with the next upkeep."""

        async def work(one: SqlSession) -> None:
            if (await self._by_id(one, consumer_id)).name == DEFAULT_CONSUMER:
                raise Conflict(
                    code="default_consumer",
                    detail="The default consumer stays as long as its bot, so that nothing that comes is without a reader.",
                )
            await drop_consumer(one, self.sql, consumer_id)

        await self._in_commit(work, tell=_of_consumers)

    async def _by_id(self, one: SqlSession, consumer_id: int) -> Consumer:
        for found in await find_consumers(one, self.sql, "c.id = :consumer", consumer=consumer_id):
            return found
        raise unknown(consumer_id)

    async def deferrals(self, consumer_id: int) -> list[Deferral]:
        rows = await self._in_read(lambda one: one.rows(self.sql["deferrals"], consumer=consumer_id))
        return [
            Deferral(number=number, tries=tries, due_at_ms=due_at, lane=self._chat(lane))
            for number, tries, due_at, lane in rows
        ]

    # ---- outages ----

    async def open_outage(self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int) -> OutageRecord:
        bound = {"bot": bot_id, "began_at": began_at_ms, "ended_at": ended_at_ms, "last": last_number}

        async def work(one: SqlSession) -> OutageRecord:
            ((outage_id,),) = await one.returned(self.sql["open_outage"], **bound)
            await one.run(self.sql["forget_outages"], bot=bot_id)
            return outage_from_row((outage_id, *bound.values(), None))

        return await self._in_commit(work, tell=_of_consumers)

    async def outages(self, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
        query = self.sql["open_outages" if is_open else "outages"]
        return [outage_from_row(tuple(row)) for row in await self._in_read(lambda one: one.rows(query, bot=bot_id))]

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None:
        await self._in_commit(
            lambda one: one.run(self.sql["settle_outage"], outage=outage_id, at=at_ms), tell=_of_consumers
        )

    # ---- MTProto clients ----

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]], *, at_ms: int) -> int:
        """How many of these messages were here and open. Under the inbox's lock: what comes in meanwhile finds the note."""
        noted = list(dict.fromkeys(messages))

        async def work(one: SqlSession) -> int:
            await lock(one, self.sql, "lock_inboxes", bots=[bot_id])
            rows = [(bot_id, chat, message_id, at_ms) for chat, message_id in noted]
            await one.write_many(self.sql["note_handled"], rows)
            default = await consumer_named(one, self.sql, bot_id, DEFAULT_CONSUMER)
            if default is None:
                return 0
            found = await self._handled_here(one, bot_id, noted, after=default.progress.watermark, at_ms=at_ms)
            open_ones = [number for number in found if not default.progress.is_over(number)]
            if open_ones:
                await self._settle(one, default.id, spans_of(open_ones), at_ms)
            return len(open_ones)

        return await self._in_commit(work, inboxes=[bot_id]) if noted else 0

    # ---- people: finding ----

    async def find_arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        at_ms = self._clock.wall_ms()

        async def work(one: SqlSession) -> list[ArrivalView]:
            ids = await self._find(one, wanted, (0, before), order="DESC", limit=limit, at_ms=at_ms)
            return await self._views(one, ids, wanted.consumer, at_ms)

        return await self._in_read(work, is_whole=True)

    async def arrival(self, arrival_id: int) -> ArrivalView | None:
        at_ms = self._clock.wall_ms()
        return next(
            iter(await self._in_read(lambda one: self._views(one, [arrival_id], None, at_ms), is_whole=True)), None
        )

    async def count_arrivals(self, wanted: ArrivalFilter) -> int:
        at_ms = self._clock.wall_ms()

        async def work(one: SqlSession) -> int:
            return sum([await self._count(one, walk) for walk in await self._walks(one, wanted, (0, None), at_ms)])

        return await self._in_read(work, is_whole=True)

    async def last_arrival_id(self) -> int:
        return await self._in_read(lambda one: one.number(self.sql["last_id"]))

    async def _find(
        self, one: SqlSession, wanted: ArrivalFilter, between: Ids, *, order: str, limit: int, at_ms: int
    ) -> list[int]:
        ids: list[int] = []
        for walk in await self._walks(one, wanted, between, at_ms):
            ids += await self._follow(one, walk, order=order, limit=limit)
        return sorted(ids, reverse=order == "DESC")[:limit]

    async def _views(self, one: SqlSession, ids: Sequence[int], consumer: str | None, at_ms: int) -> list[ArrivalView]:
        deliveries: dict[int, list[ArrivalDelivery]] = defaultdict(list)
        query = filled(self.sql["deliveries"], is_over=over_for(self.sql))
        for row in await one.rows(query, ids=list(ids), name=consumer):
            deliveries[row[0]].append(delivery_from_row(tuple(row)[1:], at_ms=at_ms))
        found = {arrival.id: arrival for arrival in await self._those(one, ids)}
        return [ArrivalView(arrival=found[each], deliveries=tuple(deliveries[each])) for each in ids if each in found]

    # ---- what a filter means ----

    async def _walks(self, one: SqlSession, wanted: ArrivalFilter, between: Ids, at_ms: int) -> list[ArrivalWalk]:
        """What a filter wants: one walk, or one for each bot or consumer where only so an index helps."""
        terms, bound = await self._where(one, wanted, between)
        bound["now"] = at_ms
        bots = None if wanted.bot_ids is None else sorted(wanted.bot_ids)
        whose: dict[str, Any] = {"bot_id": wanted.bot_id, "bot_ids": bots}
        if wanted.state is not None or wanted.consumer is not None:
            return await self._walks_of_consumers(one, wanted, whose, terms, bound)
        if wanted.chat is not None:
            rows = await one.rows(self.sql["filtered_bots"], **whose)
            return [await self._lane_walk(one, wanted, terms, bound | {"bot": row[0]}) for row in rows]
        if wanted.bot_id is not None:
            terms.append(self.sql["of_bot"].written)
        if wanted.bot_ids is not None:
            terms.append(self.sql["of_bots"].written)
        return [self._walk("find_any", terms, bound | whose)]

    async def _walks_of_consumers(
        self,
        one: SqlSession,
        wanted: ArrivalFilter,
        whose: dict[str, Any],
        terms: list[str],
        bound: dict[str, Any],
    ) -> list[ArrivalWalk]:
        states = _states(self.sql)
        if wanted.state is not None and wanted.state not in states:
            return []
        state_terms = [] if wanted.state is None else [states[wanted.state]]
        walks: list[ArrivalWalk] = []
        rows = await one.rows(self.sql["filtered_consumers"], **whose, name=wanted.consumer or DEFAULT_CONSUMER)
        for consumer_id, bot_id, watermark in rows:
            own: dict[str, Any] = {"bot": bot_id, "consumer": consumer_id, "watermark": watermark}
            if wanted.state in _PHASE_OF:
                own["phase"] = _PHASE_OF[wanted.state]
                chat = [] if wanted.chat is None else ["a.lane = :chat"]
                walk = self._walk("find_with_story", [*state_terms, *chat, *terms], bound | own)
            elif wanted.chat is not None:
                seen = ["a.only_for IN (0, :consumer)", *state_terms, *terms]
                walk = await self._lane_walk(one, wanted, seen, bound | own)
            else:
                own["above"] = watermark if wanted.state is State.WAITING else 0
                walk = self._walk("find_for_consumer", [*state_terms, *terms], bound | own)
            walks.append(msgspec.structs.replace(walk, consumer_id=consumer_id))
        return walks

    def _walk(self, name: str, terms: Sequence[str], bound: dict[str, Any]) -> ArrivalWalk:
        return ArrivalWalk(sql=filled(self.sql[name], where=" AND ".join(terms) or "true"), bound=bound)

    async def _where(self, one: SqlSession, wanted: ArrivalFilter, between: Ids) -> tuple[list[str], dict[str, Any]]:
        """The conditions that stand in any walk, and what is bound to them."""
        since_id = until_id = None  # so that a walk ends there, and not at the other end of the table
        if wanted.since_ms is not None:
            since_id = await id_at(one, self.sql, wanted.since_ms - CLOCK_SLACK_MS)
        if wanted.until_ms is not None:
            until_id = await id_at(one, self.sql, wanted.until_ms + CLOCK_SLACK_MS)
        plain: tuple[tuple[str, object, str], ...] = (
            ("type", wanted.type, "a.type = :type"),
            ("user_id", wanted.user_id, "a.user_id = :user_id"),
            ("since", wanted.since_ms, "a.received_at >= :since"),
            ("since_id", since_id, "a.id >= :since_id"),
            ("until", wanted.until_ms, "a.received_at <= :until"),
            ("until_id", until_id, "a.id < :until_id"),
            ("first", wanted.first_number, "a.number >= :first"),
            ("last", wanted.last_number, "a.number <= :last"),
            ("above_id", between[0] or None, "a.id > :above_id"),
            ("below_id", between[1], "a.id < :below_id"),
        )
        terms = [term for _, value, term in plain if value is not None]
        bound: dict[str, Any] = {name: value for name, value, _ in plain if value is not None}
        if wanted.chat is not None:
            bound["chat"] = self._lane(wanted.chat)
        if wanted.is_original:
            terms.append("a.replay_of IS NULL")
        if wanted.text is not None:
            term, said = self._text_term(wanted.text)
            terms.append(term)
            bound |= said
        return terms, bound

    # ---- people: handing on once more ----

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        async def find(one: SqlSession) -> list[int]:
            """What a consumer can be given again: originals of its own bot."""
            bot_id = (await self._by_id(one, consumer_id)).bot_id
            if wanted.bot_id not in (None, bot_id) or (wanted.bot_ids is not None and bot_id not in wanted.bot_ids):
                return []
            own = msgspec.structs.replace(wanted, bot_id=bot_id, is_original=True)
            return await self._find(one, own, (after, up_to + 1), order="ASC", limit=limit, at_ms=at_ms)

        async def copy(one: SqlSession) -> dict[int, list[int]]:
            """Those that are gone, or of another bot, are left out."""
            bot_id = (await self._by_id(one, consumer_id)).bot_id
            await lock(one, self.sql, "lock_inboxes", bots=[bot_id])
            rows = await one.rows(self.sql["still_here"], ids=ids, bot=bot_id)
            return {bot_id: await self._copy(one, bot_id, [row[0] for row in rows], consumer_id, at_ms)}

        # Found by a reader, so that a filter that finds few among many keeps no commit waiting.
        ids = await self._in_read(find, is_whole=True)
        if not ids:
            return 0, None
        made = await self._in_commit(copy, tell=_of_copies)
        return sum(map(len, made.values())), ids[-1] if len(ids) == limit else None

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        async def work(one: SqlSession) -> dict[int, list[int]]:
            made: dict[int, list[int]] = {}
            for consumer_id, dead in await self._dead(one, wanted, at_ms, limit):
                bot_id = (await self._by_id(one, consumer_id)).bot_id
                copies = await self._copy(one, bot_id, [arrival.id for arrival in dead], consumer_id, at_ms)
                made.setdefault(bot_id, []).extend(copies)
                await self._drop_stories(one, consumer_id, dead)
            return made

        made = await self._in_commit(work, tell=_of_copies)
        return [arrival_id for ids in made.values() for arrival_id in ids]

    async def clear_dead_arrivals(self, wanted: ArrivalFilter, *, limit: int) -> int:
        at_ms = self._clock.wall_ms()

        async def work(one: SqlSession) -> int:
            cleared = 0
            for consumer_id, dead in await self._dead(one, wanted, at_ms, limit):
                await self._drop_stories(one, consumer_id, dead)
                cleared += len(dead)
            return cleared

        return await self._in_commit(work)

    async def _dead(
        self, one: SqlSession, wanted: ArrivalFilter, at_ms: int, limit: int
    ) -> list[tuple[int, list[Arrival]]]:
        """Dead arrivals by consumer, the oldest first: they go back in the order in which they came. Under their inboxes' locks:
        two nodes that retry the same ones do so once."""
        failed = msgspec.structs.replace(wanted, state=State.FAILED)
        walks = await self._walks(one, failed, (0, None), at_ms)
        await lock(one, self.sql, "lock_inboxes", bots=sorted({walk.bound["bot"] for walk in walks}))
        found: list[tuple[int, list[Arrival]]] = []
        for walk in walks:
            ids = await self._follow(one, walk, order="ASC", limit=limit)
            limit -= len(ids)
            if ids:
                found.append((walk.consumer_id, await self._those(one, ids)))
        return found

    async def _drop_stories(self, one: SqlSession, consumer_id: int, arrivals: Sequence[Arrival]) -> None:
        numbers = [arrival.number for arrival in arrivals]
        await one.run(self.sql["drop_stories"], consumer=consumer_id, numbers=numbers)

    async def _copy(self, one: SqlSession, bot_id: int, ids: Sequence[int], consumer_id: int, at_ms: int) -> list[int]:
        """Each of these arrivals as a replay with the bot's next number. The new ids."""
        if not ids:
            return []
        ((after,),) = await one.returned(self.sql["take_numbers"], bot=bot_id, count=len(ids), at=at_ms)
        bound = {"arrivals": list(ids), "first": after - len(ids), "consumer": consumer_id, "at": at_ms}
        return sorted(row[0] for row in await one.returned(self.sql["replay"], **bound))

    # ---- people: counting ----

    async def inbox_tallies(self, bot_id: int | None = None) -> list[InboxTally]:
        at_ms = self._clock.wall_ms()

        async def work(one: SqlSession) -> list[InboxTally]:
            found = await consumers_of(one, self.sql, bot_id)
            return [await self._tally(one, consumer, at_ms) for consumer in found]

        return await self._in_read(work, is_whole=True)

    async def _tally(self, one: SqlSession, consumer: Consumer, at_ms: int) -> InboxTally:
        bound = {
            "bot": consumer.bot_id,
            "consumer": consumer.id,
            "watermark": consumer.progress.watermark,
            "now": at_ms,
        }
        ((still_open, delayed, failed, oldest),) = await one.rows(self.sql["tally"], **bound)
        return InboxTally(
            consumer=consumer, open=still_open - delayed, delayed=delayed, failed=failed, oldest_open_at_ms=oldest
        )

    # ---- upkeep ----

    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned:
        """Read ones go, unread ones go later and are counted, idle readers go.

        An arrival goes when everybody has had it for long enough, not when it has been here for long enough. How far the readers
        were at an earlier time is known from hourly checkpoints.
        """

        async def work(one: SqlSession) -> ArrivalsCleaned:
            rows = await one.rows(self.sql["idle_consumers"], before=at_ms - retention.idle_ms, limit=limit)
            idle = [await self._by_id(one, row[0]) for row in rows]
            for consumer in idle:
                await drop_consumer(one, self.sql, consumer.id)
            await one.run(self.sql["forget_checkpoints"], at=at_ms, before=at_ms - retention.read_ms)
            await one.run(self.sql["checkpoint"], at=at_ms)
            forgotten_before = at_ms - retention.handled_ms
            await one.run(self.sql["forget_handled"], before=forgotten_before, limit=_NOTES_PER_CALL_MAX)
            broom = _Broom(one, self.sql, self._settle, retention, at_ms, limit)
            await broom.look()
            for (bot_id,) in await one.rows(self.sql["inboxes"]):
                await broom.sweep(bot_id)
            return ArrivalsCleaned(gone=limit - broom.left, unread=dict(broom.unread), expired=tuple(idle))

        def tell(cleaned: ArrivalsCleaned, news: NodeNews) -> None:
            if cleaned.expired:
                news.consumers()

        return await self._in_commit(work, tell=tell)


def _of_copies(made: Mapping[int, Sequence[int]], news: NodeNews) -> None:
    for bot_id, ids in made.items():
        if ids:
            news.arrivals.add(bot_id)


_NOTES_PER_CALL_MAX = 10_000  # they are small
_ALL = 0  # `only_for` of what is for everybody
_EVERY_ID = 2**63 - 1


class _Broom:
    """One call of `clean_arrivals`: what goes, bot by bot, until the limit is reached."""

    def __init__(
        self,
        one: SqlSession,
        sql: Sql,
        settle: Callable[[SqlSession, int, Sequence[Span], int], Awaitable[None]],
        retention: ArrivalRetention,
        at_ms: int,
        limit: int,
    ) -> None:
        self._one = one
        self._sql = sql
        self._settle = settle
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
        self._old_end = await id_at(self._one, self._sql, self._received_before + CLOCK_SLACK_MS)
        # Duplicates are known by what is stored. A reader that had it two days ago got it two days ago, or earlier.
        if self._retention.read_ms < DUPLICATES_MS:
            self._read_end = await id_at(self._one, self._sql, self._at_ms - DUPLICATES_MS)
        before = self._at_ms - self._retention.read_ms
        for bot_id, consumer_id, floor in await self._one.rows(self._sql["floors"], before=before):
            self._floors[bot_id][consumer_id] = floor

    async def sweep(self, bot_id: int) -> None:
        floors = self._floors[bot_id]
        known = [floor for floor in floors.values() if floor is not None]
        if len(known) == len(floors) > 0:
            await self._drop_read(bot_id, _ALL, min(known))
        await self._drop_old(bot_id, _ALL)
        for (owner,) in await self._one.rows(self._sql["replay_owners"], bot=bot_id):
            # A replay whose reader is gone is seen by nobody: as if it had been read for ever.
            floor = floors.get(owner) if owner in floors else _EVERY_ID
            if floor is not None:
                await self._drop_read(bot_id, owner, floor)
            await self._drop_old(bot_id, owner)
        if bot_id in self.unread:
            for consumer_id in floors:
                await self._settle(self._one, consumer_id, (), self._at_ms)

    async def _drop_read(self, bot_id: int, only_for: int, floor: int) -> None:
        bound = self._bound(bot_id, only_for) | {"floor": floor, "id_end": self._read_end}
        await self._drop(bot_id, await self._one.rows(self._sql["read_ones"], **bound))

    async def _drop_old(self, bot_id: int, only_for: int) -> None:
        bound = self._bound(bot_id, only_for) | {"received_before": self._received_before, "id_end": self._old_end}
        rows = await self._one.rows(filled(self._sql["old_ones"], is_over=over_for(self._sql)), **bound)
        await self._drop(bot_id, rows)
        unread = sum(row[2] for row in rows)
        if unread:
            self.unread[bot_id] += unread

    def _bound(self, bot_id: int, only_for: int) -> dict[str, int]:
        return {"bot": bot_id, "only_for": only_for, "limit": self.left, "died_since": self._died_since}

    async def _drop(self, bot_id: int, rows: Sequence[Row]) -> None:
        if rows:
            numbers = [row[1] for row in rows]
            await self._one.run(self._sql["drop_their_stories"], bot=bot_id, numbers=numbers)
            await self._one.run(self._sql["drop_arrivals"], ids=[row[0] for row in rows])
            self.left -= len(rows)


# ---- what others ask of it ----

_PHASE_OF = {State.DELAYED: PHASE_PUT_OFF, State.FAILED: PHASE_DEAD}
_STORY = "SELECT 1 FROM deliveries AS d WHERE d.consumer_id = :consumer AND d.number = a.number"


def _states(sql: Sql) -> dict[State, str]:
    over = filled(sql["is_over"], watermark=":watermark", consumer=":consumer").written
    return {
        State.WAITING: f"NOT {over} AND NOT EXISTS ({_STORY} AND d.phase = 0 AND d.due_at > :now)",
        State.DELAYED: "d.due_at > :now",
        State.COMPLETED: f"{over} AND NOT EXISTS ({_STORY} AND d.phase = 3)",
        State.FAILED: "true",
    }


def over_for(sql: Sql) -> str:
    """Whether an arrival `a` is over for a consumer `c`."""
    return filled(sql["is_over"], watermark="c.watermark", consumer="c.id").written


async def forget_inbox(one: SqlSession, sql: Sql, bot_id: int) -> None:
    """Everything that a bot's inbox holds goes with the bot."""
    for consumer in await consumers_of(one, sql, bot_id):
        await drop_consumer(one, sql, consumer.id)
    for name in ("forget_bot_arrivals", "forget_bot_outages", "forget_bot_handled", "forget_bot_inbox"):
        await one.run(sql[name], bot=bot_id)
