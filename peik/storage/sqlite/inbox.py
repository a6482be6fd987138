"""The inbox of the SQLite store: what `peik.storage.inbox` leaves to each database."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from peik.clock import Clock
from peik.core.arrival import Arrival, ConsumerProgress, Span, Update
from peik.core.letter import Chat
from peik.inbox.store import ArrivalFilter, Burial, Deferral, TakenIn
from peik.secrets.seals import PLAIN, Seals
from peik.storage.executor import at_once
from peik.storage.inbox import ArrivalWalk, SqlInbox, Tell
from peik.storage.rules import ways_of
from peik.storage.sql import SqlSession, filled, load
from peik.storage.sqlite import consumers
from peik.storage.sqlite import rows as inbox_rows
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.intake import IntakeCall
from peik.storage.sqlite.rows import number as number_of
from peik.storage.sqlite.statements import Row, SqliteSession, run_many
from peik.storage.sqlite.writer import SqliteWays

T = TypeVar("T")

_FOLDER = "peik.storage.sqlite"


class SqliteInbox(SqlInbox):
    """See `peik.inbox.store.InboxStore`. Made by the store when it is opened."""

    sql = load(_FOLDER, "sqlite_inbox.sql") | load(_FOLDER, "sqlite_arrivals.sql")

    def __init__(self, ways: SqliteWays, *, clock: Clock, seals: Seals = PLAIN) -> None:
        self._write, self._collect, self._read, self._look = ways.write, ways.collect, ways.read, ways.look
        self._seals = seals
        self._clock = clock

    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        way = self._look if is_whole else self._read
        return await way(lambda connection: at_once(work(SqliteSession(connection))))

    async def _in_commit(
        self, work: Callable[[SqlSession], Awaitable[T]], *, inboxes: Iterable[int] = (), tell: Tell | None = None
    ) -> T:
        return await self._write(lambda batch: at_once(work(SqliteSession(batch.connection))))

    # ---- what is hot ----

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

    async def arrivals_after(
        self, consumer_id: int, number: int, *, limit: int, bytes_max: int = 4 << 20, lane: Chat | None = None
    ) -> list[Arrival]:
        return await self._read(
            lambda one: consumers.page(one, consumer_id, number, limit=limit, bytes_max=bytes_max, lane=lane)
        )

    async def arrivals_from(self, bot_id: int, number: int, *, limit: int) -> list[Arrival]:
        return await self._read(lambda one: consumers.page_of_bot(one, bot_id, number, limit=limit))

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

    # ---- what differs ----

    async def _settle(self, one: SqlSession, consumer_id: int, over: Sequence[Span], at_ms: int) -> None:
        consumers.settle(_connection(one), consumer_id, over=over, deferred=(), dead=(), at_ms=at_ms)

    async def _those(self, one: SqlSession, ids: Sequence[int]) -> list[Arrival]:
        return inbox_rows.those(_connection(one), ids)

    async def _handled_here(
        self, one: SqlSession, bot_id: int, noted: Sequence[tuple[int, int]], *, after: int, at_ms: int
    ) -> list[int]:
        place = inbox_rows.first_from(_connection(one), bot_id, after + 1)
        if place is None:
            return []
        asked: list[Row] = [
            (bot_id, stretch, chat, place.id, message_id, at_ms)
            for stretch in place.stretches
            for chat, message_id in noted
        ]
        found = run_many(_connection(one), self.sql["handled_here"].written, asked)
        return [number_of(row[0]) for row in found]

    async def _lane_walk(
        self, one: SqlSession, wanted: ArrivalFilter, terms: Sequence[str], bound: dict[str, Any]
    ) -> ArrivalWalk:
        along = inbox_rows.stretches(_connection(one), bound["bot"], first=wanted.first_number, last=wanted.last_number)
        return msgspec.structs.replace(self._walk("find_in_lane", terms, bound), stretches=along)

    async def _follow(self, one: SqlSession, walk: ArrivalWalk, *, order: str, limit: int) -> list[int]:
        query = filled(self.sql["ids"], walk=walk.sql.written, order=order)
        ids: list[int] = []
        for bound in _parts(walk, order=order):
            text = await one.text(query, **bound, limit=limit - len(ids))
            ids += msgspec.json.decode(text or "[]", type=list[int])
            if len(ids) >= limit:
                break
        return ids

    async def _count(self, one: SqlSession, walk: ArrivalWalk) -> int:
        query = filled(self.sql["count"], walk=walk.sql.written, order="ASC")
        return sum([await one.number(query, **bound, limit=-1) for bound in _parts(walk, order="ASC")])

    def _text_term(self, text: str) -> tuple[str, dict[str, Any]]:
        likes = {f"text{index}": like for index, like in enumerate(likes_of(text))}
        return "(" + " OR ".join(f"a.payload LIKE :{name} ESCAPE '!'" for name in likes) + ")", likes


def _connection(one: SqlSession) -> apsw.Connection:
    assert isinstance(one, SqliteSession)
    return one.connection


def _parts(walk: ArrivalWalk, *, order: str) -> Iterator[dict[str, Any]]:
    """What is bound, once for each stretch, in this order."""
    if walk.stretches is None:
        yield walk.bound
        return
    for stretch in walk.stretches if order == "ASC" else reversed(walk.stretches):
        yield walk.bound | {"stretch": stretch}


def likes_of(text: str) -> list[str]:
    """A payload is kept as Telegram wrote it."""
    escaped = (one.replace("!", "!!").replace("%", "!%").replace("_", "!_") for one in ways_of(text))
    return [f"%{one}%" for one in escaped]
