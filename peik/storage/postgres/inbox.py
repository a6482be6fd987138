"""The inbox of the PostgreSQL store: what `peik.storage.inbox` leaves to each database."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from peik.clock import Clock
from peik.core.arrival import Arrival, ConsumerProgress, Span, Update
from peik.core.letter import Chat
from peik.inbox.store import ArrivalFilter, Burial, Deferral, TakenIn
from peik.secrets.seals import PLAIN, Seals
from peik.storage.inbox import ArrivalWalk, SqlInbox, Tell
from peik.storage.postgres import consumers, queries
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.consumers import arrivals_of
from peik.storage.postgres.queries import filled, load
from peik.storage.postgres.session import PostgresSession
from peik.storage.postgres.writer import PostgresWays
from peik.storage.sql import SqlSession
from peik.storage.sqlite.inbox import likes_of
from peik.storage.sqlite.intake import IntakeCall
from peik.storage.sqlite.rows import ARRIVAL

T = TypeVar("T")


class PostgresInbox(SqlInbox):
    """See `peik.inbox.store.InboxStore`. Made by the store when it is opened."""

    sql = load("inbox.sql") | load("arrivals.sql")

    def __init__(self, ways: PostgresWays, *, clock: Clock, seals: Seals = PLAIN) -> None:
        self._write, self._collect, self._read, self._look = ways.write, ways.collect, ways.read, ways.look
        self._seals = seals
        self._clock = clock

    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        return await (self._look if is_whole else self._read)(work)

    async def _in_commit(
        self, work: Callable[[SqlSession], Awaitable[T]], *, inboxes: Iterable[int] = (), tell: Tell | None = None
    ) -> T:
        async def told(batch: PostgresBatch) -> T:
            value = await work(batch.session)
            if tell is not None:
                tell(value, batch.telling)
            return value

        return await self._write(told, inboxes=inboxes)

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
                batch.session, consumer_id, over=over, deferred=deferred, dead=dead, at_ms=at_ms
            )
        )

    # ---- what differs ----

    async def _settle(self, one: SqlSession, consumer_id: int, over: Sequence[Span], at_ms: int) -> None:
        assert isinstance(one, PostgresSession)
        await consumers.settle(one, consumer_id, over=over, deferred=(), dead=(), at_ms=at_ms)

    async def _those(self, one: SqlSession, ids: Sequence[int]) -> list[Arrival]:
        assert isinstance(one, PostgresSession)
        return arrivals_of(await one.rows(filled(self.sql["those"], arrival=ARRIVAL), ids=list(ids)))

    async def _handled_here(
        self, one: SqlSession, bot_id: int, noted: Sequence[tuple[int, int]], *, after: int, at_ms: int
    ) -> list[int]:
        first = await one.number(self.sql["first_open"], bot=bot_id, watermark=after)
        chats, ids = [chat for chat, _ in noted], [message_id for _, message_id in noted]
        bound = {"bot": bot_id, "chats": chats, "messages": ids, "at": at_ms, "first": first}
        return [row[0] for row in await one.rows(self.sql["handled_here"], **bound)] if first else []

    async def _lane_walk(
        self, one: SqlSession, wanted: ArrivalFilter, terms: Sequence[str], bound: dict[str, Any]
    ) -> ArrivalWalk:
        return self._walk("find_in_lane", terms, bound)

    async def _follow(self, one: SqlSession, walk: ArrivalWalk, *, order: str, limit: int) -> list[int]:
        return [row[0] for row in await one.rows(filled(walk.sql, order=order), **walk.bound, limit=limit)]

    async def _count(self, one: SqlSession, walk: ArrivalWalk) -> int:
        query = filled(self.sql["count"], walk=walk.sql.written, order="ASC")
        return await one.number(query, **walk.bound, limit=None)

    def _text_term(self, text: str) -> tuple[str, dict[str, Any]]:
        return "a.payload ILIKE ANY (:likes::text[])", {"likes": [_unescaped(like) for like in likes_of(text)]}

    _lane = staticmethod(queries.encode)

    def _chat(self, lane: Any) -> Chat | None:
        return None if lane is None else queries.decode(lane)


def _unescaped(like: str) -> str:
    """A pattern escaped with "!" as one that is escaped with "\\": ILIKE ANY knows no other."""
    like = like.replace("\\", "\\\\")
    return like.replace("!!", "\0").replace("!%", "\\%").replace("!_", "\\_").replace("\0", "!")
