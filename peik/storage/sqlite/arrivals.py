"""What people ask of arrivals in the SQLite store: find, count, replay, retry, clear. Functions on a connection, no state."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import apsw
import msgspec

from peik.core.arrival import DEFAULT_CONSUMER, Arrival
from peik.core.letter import State
from peik.inbox.store import ArrivalDelivery, ArrivalFilter, ArrivalView, Consumer, InboxTally
from peik.storage.rules import ways_of
from peik.storage.sqlite import consumers
from peik.storage.sqlite import rows as inbox_rows
from peik.storage.sqlite.rows import PHASE_DEAD, PHASE_PUT_OFF, delivery_from_row, encode_numbers, number
from peik.storage.sqlite.statements import Row, Value, insert_many, load, run_many

_SQL = load("sqlite_arrivals.sql")
_INBOX = load("sqlite_inbox.sql")

_OVER = _SQL["is_over"].replace("{watermark}", ":watermark").replace("{consumer}", ":consumer")
OVER_FOR = _SQL["is_over"].replace("{watermark}", "c.watermark").replace("{consumer}", "c.id")
DELIVERIES = _SQL["deliveries"].replace("{is_over}", OVER_FOR)

_STORY = "SELECT 1 FROM deliveries AS d WHERE d.consumer_id = :consumer AND d.number = a.number"
_STATE_SQL = {
    State.WAITING: f"NOT {_OVER} AND NOT EXISTS ({_STORY} AND d.phase = 0 AND d.due_at > :now)",
    State.DELAYED: "d.due_at > :now",
    State.COMPLETED: f"{_OVER} AND NOT EXISTS ({_STORY} AND d.phase = 3)",
    State.FAILED: "true",
}
_PHASE_OF = {State.DELAYED: PHASE_PUT_OFF, State.FAILED: PHASE_DEAD}

Ids = tuple[int, int | None]  # above this one, and below that one if any


class _Walk(msgspec.Struct, frozen=True, kw_only=True):
    """Ids by one walk along one index, or along one lane's stretches; {order} is still open."""

    sql: str
    bound: dict[str, Value]
    consumer_id: int = 0
    stretches: range | None = None

    def parts(self, *, order: str) -> Iterator[dict[str, Value]]:
        """What is bound, once for each stretch, in this order."""
        if self.stretches is None:
            yield self.bound
            return
        for stretch in self.stretches if order == "ASC" else reversed(self.stretches):
            yield self.bound | {"stretch": stretch}


# ---- finding ----


def find(
    connection: apsw.Connection, wanted: ArrivalFilter, *, before: int | None, limit: int, at_ms: int
) -> list[ArrivalView]:
    ids = find_ids(connection, wanted, (0, before), order="DESC", limit=limit, at_ms=at_ms)
    return _views(connection, ids, wanted.consumer, at_ms)


def one(connection: apsw.Connection, arrival_id: int, at_ms: int) -> ArrivalView | None:
    return next(iter(_views(connection, [arrival_id], None, at_ms)), None)


def count(connection: apsw.Connection, wanted: ArrivalFilter, at_ms: int) -> int:
    total = 0
    for walk in _walks(connection, wanted, (0, None), at_ms):
        sql = _SQL["count"].replace("{walk}", walk.sql).replace("{order}", "ASC")
        for bound in walk.parts(order="ASC"):
            ((counted,),) = connection.execute(sql, bound | {"limit": -1})
            total += counted
    return total


def last_id(connection: apsw.Connection) -> int:
    ((found,),) = connection.execute(_SQL["last_id"])
    return int(found)


def find_ids(
    connection: apsw.Connection, wanted: ArrivalFilter, between: Ids, *, order: str, limit: int, at_ms: int
) -> list[int]:
    ids: list[int] = []
    for walk in _walks(connection, wanted, between, at_ms):
        ids += _follow(connection, walk, order=order, limit=limit)
    return sorted(ids, reverse=order == "DESC")[:limit]


def _follow(connection: apsw.Connection, walk: _Walk, *, order: str, limit: int) -> list[int]:
    sql = _SQL["ids"].replace("{walk}", walk.sql).replace("{order}", order)
    ids: list[int] = []
    for bound in walk.parts(order=order):
        ((text,),) = connection.execute(sql, bound | {"limit": limit - len(ids)})
        ids += msgspec.json.decode(text, type=list[int])
        if len(ids) >= limit:
            break
    return ids


def _views(connection: apsw.Connection, ids: Sequence[int], consumer: str | None, at_ms: int) -> list[ArrivalView]:
    deliveries: dict[int, list[ArrivalDelivery]] = defaultdict(list)
    for row in run_many(connection, DELIVERIES, [(arrival_id, consumer) for arrival_id in ids]):
        deliveries[number(row[0])].append(delivery_from_row(row[1:], at_ms=at_ms))
    found = {arrival.id: arrival for arrival in inbox_rows.those(connection, ids)}
    return [ArrivalView(arrival=found[one], deliveries=tuple(deliveries[one])) for one in ids if one in found]


# ---- what a filter means ----


def _walks(connection: apsw.Connection, wanted: ArrivalFilter, between: Ids, at_ms: int) -> Iterator[_Walk]:
    """What a filter wants: one walk, or one for each bot or consumer where only so an index helps."""
    terms, bound = _where(connection, wanted, between)
    bound["now"] = at_ms
    bots = None if wanted.bot_ids is None else msgspec.json.encode(sorted(wanted.bot_ids)).decode()
    whose: dict[str, Value] = {"bot_id": wanted.bot_id, "bot_ids": bots}
    if wanted.state is not None or wanted.consumer is not None:
        if wanted.state is None or wanted.state in _STATE_SQL:
            yield from _walks_of_consumers(connection, wanted, whose, terms, bound)
    elif wanted.chat is not None:
        for (bot_id,) in list(connection.execute(_SQL["filtered_bots"], whose)):
            yield _lane_walk(connection, wanted, terms, bound | {"bot": bot_id}, bot_id)
    else:
        # A plus keeps the planner from sorting all that a bot has: this walk ends when the page is full.
        if wanted.bot_id is not None:
            terms.append("+a.bot_id = :bot_id")
        if wanted.bot_ids is not None:
            terms.append("+a.bot_id IN (SELECT value FROM json_each(:bot_ids))")
        yield _walk("find_any", terms, bound | whose)


def _walks_of_consumers(
    connection: apsw.Connection,
    wanted: ArrivalFilter,
    whose: dict[str, Value],
    terms: list[str],
    bound: dict[str, Value],
) -> Iterator[_Walk]:
    state_terms = [] if wanted.state is None else [_STATE_SQL[wanted.state]]
    asked = whose | {"name": wanted.consumer or DEFAULT_CONSUMER}
    for consumer_id, bot_id, watermark in list(connection.execute(_SQL["filtered_consumers"], asked)):
        own: dict[str, Value] = {"bot": bot_id, "consumer": consumer_id, "watermark": watermark}
        if wanted.state in _PHASE_OF:
            own["phase"] = _PHASE_OF[wanted.state]
            chat = [] if wanted.chat is None else ["a.lane = :chat"]
            walk = _walk("find_with_story", [*state_terms, *chat, *terms], bound | own)
        elif wanted.chat is not None:
            seen = ["a.only_for IN (0, :consumer)", *state_terms, *terms]
            walk = _lane_walk(connection, wanted, seen, bound | own, bot_id)
        else:
            own["above"] = watermark if wanted.state is State.WAITING else 0
            walk = _walk("find_for_consumer", [*state_terms, *terms], bound | own)
        yield msgspec.structs.replace(walk, consumer_id=consumer_id)


def _walk(name: str, terms: Sequence[str], bound: dict[str, Value]) -> _Walk:
    return _Walk(sql=_SQL[name].replace("{where}", " AND ".join(terms) or "true"), bound=bound)


def _lane_walk(
    connection: apsw.Connection, wanted: ArrivalFilter, terms: Sequence[str], bound: dict[str, Value], bot_id: int
) -> _Walk:
    walk = _walk("find_in_lane", terms, bound)
    along = inbox_rows.stretches(connection, bot_id, first=wanted.first_number, last=wanted.last_number)
    return msgspec.structs.replace(walk, stretches=along)


def _where(connection: apsw.Connection, wanted: ArrivalFilter, between: Ids) -> tuple[list[str], dict[str, Value]]:
    """The conditions that stand in any walk, and what is bound to them."""
    since_id = until_id = None  # so that a walk ends there, and not at the other end of the table
    if wanted.since_ms is not None:
        since_id = consumers.id_at(connection, wanted.since_ms - consumers.CLOCK_SLACK_MS)
    if wanted.until_ms is not None:
        until_id = consumers.id_at(connection, wanted.until_ms + consumers.CLOCK_SLACK_MS)
    plain: tuple[tuple[str, Value, str], ...] = (
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
    bound: dict[str, Value] = {name: value for name, value, _ in plain if value is not None}
    if wanted.chat is not None:
        bound["chat"] = wanted.chat
    if wanted.is_original:
        terms.append("a.replay_of IS NULL")
    if wanted.text is not None:
        likes = {f"text{index}": like for index, like in enumerate(likes_of(wanted.text))}
        terms.append("(" + " OR ".join(f"a.payload LIKE :{name} ESCAPE '!'" for name in likes) + ")")
        bound |= likes
    return terms, bound


def likes_of(text: str) -> list[str]:
    """A payload is kept as Telegram wrote it."""
    escaped = (one.replace("!", "!!").replace("%", "!%").replace("_", "!_") for one in ways_of(text))
    return [f"%{one}%" for one in escaped]


# ---- handing on once more ----


def find_for_replay(
    connection: apsw.Connection, wanted: ArrivalFilter, consumer_id: int, between: Ids, *, limit: int, at_ms: int
) -> list[int]:
    """What a consumer can be given again: originals of its own bot."""
    bot_id = consumers.by_id(connection, consumer_id).bot_id
    if wanted.bot_id not in (None, bot_id) or (wanted.bot_ids is not None and bot_id not in wanted.bot_ids):
        return []
    own = msgspec.structs.replace(wanted, bot_id=bot_id, is_original=True)
    return find_ids(connection, own, between, order="ASC", limit=limit, at_ms=at_ms)


def replay(connection: apsw.Connection, ids: Sequence[int], consumer_id: int, *, at_ms: int) -> list[int]:
    """Copies of these arrivals for one consumer. Those that are gone, or of another bot, are left out. The new ids."""
    bot_id = consumers.by_id(connection, consumer_id).bot_id
    rows = connection.execute(_SQL["still_here"], {"ids": encode_numbers(ids), "bot": bot_id})
    return _copy(connection, bot_id, [(row[0], consumer_id) for row in rows], at_ms)


def retry_dead(connection: apsw.Connection, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
    ids: list[int] = []
    for consumer_id, dead in _dead(connection, wanted, at_ms, limit):
        bot_id = consumers.by_id(connection, consumer_id).bot_id
        ids += _copy(connection, bot_id, [(arrival.id, consumer_id) for arrival in dead], at_ms)
        _drop_stories(connection, consumer_id, dead)
    return ids


def clear_dead(connection: apsw.Connection, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> int:
    cleared = 0
    for consumer_id, dead in _dead(connection, wanted, at_ms, limit):
        _drop_stories(connection, consumer_id, dead)
        cleared += len(dead)
    return cleared


def _dead(
    connection: apsw.Connection, wanted: ArrivalFilter, at_ms: int, limit: int
) -> Iterator[tuple[int, list[Arrival]]]:
    """Dead arrivals by consumer, the oldest first: they go back in the order in which they came."""
    failed = msgspec.structs.replace(wanted, state=State.FAILED)
    for walk in list(_walks(connection, failed, (0, None), at_ms)):
        ids = _follow(connection, walk, order="ASC", limit=limit)
        limit -= len(ids)
        if ids:
            yield walk.consumer_id, inbox_rows.those(connection, ids)


def _drop_stories(connection: apsw.Connection, consumer_id: int, arrivals: Sequence[Arrival]) -> None:
    run_many(connection, _SQL["drop_stories"], [(consumer_id, arrival.number) for arrival in arrivals])


def _copy(connection: apsw.Connection, bot_id: int, whose: Sequence[tuple[int, int]], at_ms: int) -> list[int]:
    """(arrival, consumer) each as a replay with the bot's next number."""
    if not whose:
        return []
    ((after,),) = connection.execute(_INBOX["take_numbers"], {"bot": bot_id, "count": len(whose), "at": at_ms})
    rows: list[Row] = [
        (arrival_id, own, consumer_id, at_ms)
        for own, (arrival_id, consumer_id) in enumerate(whose, start=after - len(whose))
    ]
    return insert_many(connection, _INBOX["replay"], rows)


# ---- counting ----


def tallies(connection: apsw.Connection, bot_id: int | None, at_ms: int) -> list[InboxTally]:
    return [_tally(connection, consumer, at_ms) for consumer in consumers.consumers(connection, bot_id)]


def _tally(connection: apsw.Connection, consumer: Consumer, at_ms: int) -> InboxTally:
    bound = {
        "bot": consumer.bot_id,
        "consumer": consumer.id,
        "watermark": consumer.progress.watermark,
        "now": at_ms,
    }
    ((still_open, delayed, failed, oldest),) = connection.execute(_SQL["tally"], bound)
    return InboxTally(
        consumer=consumer, open=still_open - delayed, delayed=delayed, failed=failed, oldest_open_at_ms=oldest
    )
