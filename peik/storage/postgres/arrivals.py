"""What people ask of arrivals in the PostgreSQL store: find, count, replay, retry, clear. Functions on a session, no state."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from peik.core.arrival import DEFAULT_CONSUMER, Arrival
from peik.core.letter import State
from peik.inbox.store import ArrivalDelivery, ArrivalFilter, ArrivalView, Consumer, InboxTally
from peik.storage.news import NodeNews
from peik.storage.postgres import consumers, queries
from peik.storage.postgres.consumers import ARRIVAL, arrivals_of
from peik.storage.postgres.queries import filled, load, made
from peik.storage.postgres.session import PostgresSession
from peik.storage.sqlite.arrivals import Ids, likes_of
from peik.storage.sqlite.rows import PHASE_DEAD, PHASE_PUT_OFF, delivery_from_row

_SQL = load("arrivals.sql")
_INBOX = load("inbox.sql")
THOSE = filled(_SQL["those"], arrival=ARRIVAL)

_OVER = filled(_SQL["is_over"], watermark=":watermark", consumer=":consumer").written
OVER_FOR = filled(_SQL["is_over"], watermark="c.watermark", consumer="c.id").written
DELIVERIES = filled(_SQL["deliveries"], is_over=OVER_FOR)

_STORY = "SELECT 1 FROM deliveries AS d WHERE d.consumer_id = :consumer AND d.number = a.number"
_STATE_SQL = {
    State.WAITING: f"NOT {_OVER} AND NOT EXISTS ({_STORY} AND d.phase = 0 AND d.due_at > :now)",
    State.DELAYED: "d.due_at > :now",
    State.COMPLETED: f"{_OVER} AND NOT EXISTS ({_STORY} AND d.phase = 3)",
    State.FAILED: "true",
}
_PHASE_OF = {State.DELAYED: PHASE_PUT_OFF, State.FAILED: PHASE_DEAD}


class _Walk(msgspec.Struct, frozen=True, kw_only=True):
    """Ids by one walk along one index; {order} is still open."""

    sql: str
    bound: dict[str, object]
    consumer_id: int = 0


# ---- finding ----


async def find(
    session: PostgresSession, wanted: ArrivalFilter, *, before: int | None, limit: int, at_ms: int
) -> list[ArrivalView]:
    ids = await find_ids(session, wanted, (0, before), order="DESC", limit=limit, at_ms=at_ms)
    return await _views(session, ids, wanted.consumer, at_ms)


async def one(session: PostgresSession, arrival_id: int, at_ms: int) -> ArrivalView | None:
    return next(iter(await _views(session, [arrival_id], None, at_ms)), None)


async def count(session: PostgresSession, wanted: ArrivalFilter, at_ms: int) -> int:
    total = 0
    for walk in await _walks(session, wanted, (0, None), at_ms):
        query = made(_SQL["count"].written.replace("{walk}", walk.sql).replace("{order}", "ASC"))
        total += await session.number(query, **walk.bound, limit=None)
    return total


async def last_id(session: PostgresSession) -> int:
    return await session.number(_SQL["last_id"])


async def find_ids(
    session: PostgresSession, wanted: ArrivalFilter, between: Ids, *, order: str, limit: int, at_ms: int
) -> list[int]:
    ids: list[int] = []
    for walk in await _walks(session, wanted, between, at_ms):
        ids += await _follow(session, walk, order=order, limit=limit)
    return sorted(ids, reverse=order == "DESC")[:limit]


async def _follow(session: PostgresSession, walk: _Walk, *, order: str, limit: int) -> list[int]:
    rows = await session.rows(made(walk.sql.replace("{order}", order)), **walk.bound, limit=limit)
    return [row[0] for row in rows]


async def _views(session: PostgresSession, ids: Sequence[int], consumer: str | None, at_ms: int) -> list[ArrivalView]:
    deliveries: dict[int, list[ArrivalDelivery]] = defaultdict(list)
    for row in await session.rows(DELIVERIES, ids=ids, name=consumer):
        deliveries[row[0]].append(delivery_from_row(tuple(row)[1:], at_ms=at_ms))
    found = {arrival.id: arrival for arrival in await _those(session, ids)}
    return [ArrivalView(arrival=found[one], deliveries=tuple(deliveries[one])) for one in ids if one in found]


async def _those(session: PostgresSession, ids: Sequence[int]) -> list[Arrival]:
    return arrivals_of(await session.rows(THOSE, ids=ids))


# ---- what a filter means ----


async def _walks(session: PostgresSession, wanted: ArrivalFilter, between: Ids, at_ms: int) -> list[_Walk]:
    """What a filter wants: one walk, or one for each bot or consumer where only so an index helps."""
    terms, bound = await _where(session, wanted, between)
    bound["now"] = at_ms
    whose: dict[str, object] = {
        "bot_id": wanted.bot_id,
        "bot_ids": None if wanted.bot_ids is None else sorted(wanted.bot_ids),
    }
    if wanted.state is not None or wanted.consumer is not None:
        if wanted.state is not None and wanted.state not in _STATE_SQL:
            return []
        return await _walks_of_consumers(session, wanted, whose, terms, bound)
    if wanted.chat is not None:
        rows = await session.rows(_SQL["filtered_bots"], **whose)
        return [_walk("find_in_lane", terms, bound | {"bot": row[0]}) for row in rows]
    # Plus nought keeps the planner from sorting all that a bot has: this walk ends when the page is full.
    if wanted.bot_id is not None:
        terms.append("a.bot_id + 0 = :bot_id")
    if wanted.bot_ids is not None:
        terms.append("a.bot_id + 0 = ANY (:bot_ids::bigint[])")
    return [_walk("find_any", terms, bound | whose)]


async def _walks_of_consumers(
    session: PostgresSession,
    wanted: ArrivalFilter,
    whose: dict[str, object],
    terms: list[str],
    bound: dict[str, object],
) -> list[_Walk]:
    state_terms = [] if wanted.state is None else [_STATE_SQL[wanted.state]]
    walks: list[_Walk] = []
    rows = await session.rows(_SQL["filtered_consumers"], **whose, name=wanted.consumer or DEFAULT_CONSUMER)
    for consumer_id, bot_id, watermark in rows:
        own: dict[str, object] = {"bot": bot_id, "consumer": consumer_id, "watermark": watermark}
        if wanted.state in _PHASE_OF:
            own["phase"] = _PHASE_OF[wanted.state]
            chat = [] if wanted.chat is None else ["a.lane = :chat"]
            walk = _walk("find_with_story", [*state_terms, *chat, *terms], bound | own)
        elif wanted.chat is not None:
            walk = _walk("find_in_lane", ["a.only_for IN (0, :consumer)", *state_terms, *terms], bound | own)
        else:
            own["above"] = watermark if wanted.state is State.WAITING else 0
            walk = _walk("find_for_consumer", [*state_terms, *terms], bound | own)
        walks.append(msgspec.structs.replace(walk, consumer_id=consumer_id))
    return walks


def _walk(name: str, terms: Sequence[str], bound: dict[str, object]) -> _Walk:
    return _Walk(sql=_SQL[name].written.replace("{where}", " AND ".join(terms) or "true"), bound=bound)


async def _where(session: PostgresSession, wanted: ArrivalFilter, between: Ids) -> tuple[list[str], dict[str, object]]:
    """The conditions that stand in any walk, and what is bound to them."""
    since_id = until_id = None  # so that a walk ends there, and not at the other end of the table
    if wanted.since_ms is not None:
        since_id = await consumers.id_at(session, wanted.since_ms - consumers.CLOCK_SLACK_MS)
    if wanted.until_ms is not None:
        until_id = await consumers.id_at(session, wanted.until_ms + consumers.CLOCK_SLACK_MS)
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
    bound: dict[str, object] = {name: value for name, value, _ in plain if value is not None}
    if wanted.chat is not None:
        bound["chat"] = queries.encode(wanted.chat)
    if wanted.is_original:
        terms.append("a.replay_of IS NULL")
    if wanted.text is not None:
        terms.append("a.payload ILIKE ANY (:likes::text[])")
        bound["likes"] = [_unescaped(like) for like in likes_of(wanted.text)]
    return terms, bound


def _unescaped(like: str) -> str:
    """A pattern escaped with "!" as one that is escaped with "\\": ILIKE ANY knows no other."""
    like = like.replace("\\", "\\\\")
    return like.replace("!!", "\0").replace("!%", "\\%").replace("!_", "\\_").replace("\0", "!")


# ---- handing on once more ----


async def find_for_replay(
    session: PostgresSession, wanted: ArrivalFilter, consumer_id: int, between: Ids, *, limit: int, at_ms: int
) -> list[int]:
    """What a consumer can be given again: originals of its own bot."""
    bot_id = (await consumers.by_id(session, consumer_id)).bot_id
    if wanted.bot_id not in (None, bot_id) or (wanted.bot_ids is not None and bot_id not in wanted.bot_ids):
        return []
    own = msgspec.structs.replace(wanted, bot_id=bot_id, is_original=True)
    return await find_ids(session, own, between, order="ASC", limit=limit, at_ms=at_ms)


async def replay(
    session: PostgresSession, telling: NodeNews, ids: Sequence[int], consumer_id: int, *, at_ms: int
) -> list[int]:
    """Copies of these arrivals for one consumer. Those that are gone, or of another bot, are left out. The new ids."""
    bot_id = (await consumers.by_id(session, consumer_id)).bot_id
    await session.rows(_INBOX["lock_inboxes"], bots=[bot_id])
    rows = await session.rows(_SQL["still_here"], ids=ids, bot=bot_id)
    return await _copy(session, telling, bot_id, [row[0] for row in rows], consumer_id, at_ms)


async def retry_dead(
    session: PostgresSession, telling: NodeNews, wanted: ArrivalFilter, *, at_ms: int, limit: int
) -> list[int]:
    ids: list[int] = []
    for consumer_id, dead in await _dead(session, wanted, at_ms, limit):
        bot_id = (await consumers.by_id(session, consumer_id)).bot_id
        ids += await _copy(session, telling, bot_id, [arrival.id for arrival in dead], consumer_id, at_ms)
        await _drop_stories(session, consumer_id, dead)
    return ids


async def clear_dead(session: PostgresSession, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> int:
    cleared = 0
    for consumer_id, dead in await _dead(session, wanted, at_ms, limit):
        await _drop_stories(session, consumer_id, dead)
        cleared += len(dead)
    return cleared


async def _dead(
    session: PostgresSession, wanted: ArrivalFilter, at_ms: int, limit: int
) -> list[tuple[int, list[Arrival]]]:
    """Dead arrivals by consumer, the oldest first: they go back in the order in which they came. Under their inboxes' locks:
    two nodes that retry the same ones do so once."""
    failed = msgspec.structs.replace(wanted, state=State.FAILED)
    walks = await _walks(session, failed, (0, None), at_ms)
    bots = sorted({bot for walk in walks if isinstance(bot := walk.bound["bot"], int)})
    await session.rows(_INBOX["lock_inboxes"], bots=bots)
    found: list[tuple[int, list[Arrival]]] = []
    for walk in walks:
        ids = await _follow(session, walk, order="ASC", limit=limit)
        limit -= len(ids)
        if ids:
            found.append((walk.consumer_id, await _those(session, ids)))
    return found


async def _drop_stories(session: PostgresSession, consumer_id: int, arrivals: Sequence[Arrival]) -> None:
    numbers = [arrival.number for arrival in arrivals]
    await session.run(_SQL["drop_stories"], consumer=consumer_id, numbers=numbers)


async def _copy(
    session: PostgresSession, telling: NodeNews, bot_id: int, ids: Sequence[int], consumer_id: int, at_ms: int
) -> list[int]:
    """Each of these arrivals as a replay with the bot's next number."""
    if not ids:
        return []
    telling.arrivals(bot_id)
    ((after,),) = await session.returned(_INBOX["take_numbers"], bot=bot_id, count=len(ids), at=at_ms)
    numbers = list(range(after - len(ids), after))
    rows = await session.returned(_INBOX["replay"], arrivals=list(ids), numbers=numbers, consumer=consumer_id, at=at_ms)
    return sorted(row[0] for row in rows)


# ---- counting ----


async def tallies(session: PostgresSession, bot_id: int | None, at_ms: int) -> list[InboxTally]:
    return [await _tally(session, one, at_ms) for one in await consumers.consumers(session, bot_id)]


async def _tally(session: PostgresSession, consumer: Consumer, at_ms: int) -> InboxTally:
    ((still_open, delayed, failed, oldest),) = await session.rows(
        _SQL["tally"],
        bot=consumer.bot_id,
        consumer=consumer.id,
        watermark=consumer.progress.watermark,
        now=at_ms,
    )
    return InboxTally(
        consumer=consumer, open=still_open - delayed, delayed=delayed, failed=failed, oldest_open_at_ms=oldest
    )
