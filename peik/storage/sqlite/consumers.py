"""Who reads arrivals in the SQLite store, and how far each is. Functions on a connection, no state."""

from collections.abc import Iterable, Mapping, Sequence

import apsw

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, ConsumerProgress, Span, advanced
from peik.core.letter import Chat
from peik.errors import Conflict, NotFound
from peik.inbox.store import Burial, Consumer, Deferral
from peik.storage.sqlite import rows as inbox_rows
from peik.storage.sqlite.rows import (
    ARRIVAL,
    arrivals_from_json,
    consumer_from_row,
    encode_allowed,
    encode_numbers,
    progress_of,
)
from peik.storage.sqlite.statements import Row, Value, load, run_many

_SQL = load("sqlite_inbox.sql")
PAGE = _SQL["page"].replace("{arrival}", ARRIVAL)
PAGE_OF_BOT = _SQL["page_of_bot"].replace("{arrival}", ARRIVAL)

CLOCK_SLACK_MS = 3600 * 1000  # clocks are set back now and then; see `id_at`


TOO_MANY = (
    "Bot {subject} has {more} consumers besides the default one, and may have no more. Remove those that nobody uses "
    "(`peik consumers`), or raise PEIK_CONSUMERS_MAX."
)

# ---- who ----


def consumers(connection: apsw.Connection, bot_id: int | None) -> list[Consumer]:
    if bot_id is None:
        return _consumers(connection, "true", ())
    return _consumers(connection, "c.bot_id = ?", (bot_id,))


def consumer(connection: apsw.Connection, bot_id: int, name: str) -> Consumer | None:
    return next(iter(_consumers(connection, "c.bot_id = ? AND c.name = ?", (bot_id, name))), None)


def by_id(connection: apsw.Connection, consumer_id: int) -> Consumer:
    for found in _consumers(connection, "c.id = ?", (consumer_id,)):
        return found
    raise unknown(consumer_id)


def check_room(known: list[Consumer], name: str, most: int) -> None:
    """Raises Conflict if a consumer of this name would be one too many of its bot."""
    named = {one.name for one in known} - {DEFAULT_CONSUMER}
    if name != DEFAULT_CONSUMER and name not in named and len(named) >= most:
        raise Conflict(code="too_many_consumers", detail=TOO_MANY.format(subject=known[0].bot_id, more=most))


def unknown(consumer_id: int) -> NotFound:
    return NotFound(code="unknown_consumer", detail=f"There is no consumer {consumer_id} here (any more).")


def _consumers(connection: apsw.Connection, where: str, bound: Row) -> list[Consumer]:
    rows = connection.execute(_SQL["consumers"].replace("{where}", where), bound)
    return [consumer_from_row(row) for row in rows]


def ensure(connection: apsw.Connection, bot_id: int, name: str, at_ms: int, most: int | None = None) -> Consumer:
    check_bot(connection, bot_id)
    if most is not None:
        check_room(consumers(connection, bot_id), name, most)
    connection.execute(_SQL["make_consumer"], {"bot": bot_id, "name": name, "at": at_ms})
    found = consumer(connection, bot_id, name)
    assert found is not None
    return found


def check_bot(connection: apsw.Connection, bot_id: int) -> None:
    """A bot that was removed a moment ago must not leave an inbox behind."""
    if not list(connection.execute(_SQL["known_bot"], (bot_id,))):
        raise NotFound(code="unknown_bot", detail=f"Bot {bot_id} is not known here. Add it with its token first.")


def save(connection: apsw.Connection, one: Consumer) -> None:
    row = (str(one.kind), one.url, one.secret, encode_allowed(one.allowed), one.connections_max, one.id)
    connection.execute(_SQL["save_consumer"], row)
    if not connection.changes():
        raise unknown(one.id)


def touch(connection: apsw.Connection, seen: Mapping[int, int]) -> None:
    run_many(connection, _SQL["touch_consumers"], list(seen.items()))


def remove(connection: apsw.Connection, consumer_id: int) -> None:
    """It is forgotten with all that is only its own. Its replays, which nobody sees any more, go with the next upkeep."""
    if by_id(connection, consumer_id).name == DEFAULT_CONSUMER:
        raise Conflict(
            code="default_consumer",
            detail="The default consumer stays as long as its bot, so that nothing that comes is without a reader.",
        )
    drop(connection, consumer_id)


def drop(connection: apsw.Connection, consumer_id: int) -> None:
    for name in ("drop_spans", "drop_watermarks", "drop_deliveries", "drop_consumer"):
        connection.execute(_SQL[name], (consumer_id,))


# ---- what it reads ----


def page(
    connection: apsw.Connection, consumer_id: int, after: int, *, limit: int, bytes_max: int, lane: Chat | None
) -> list[Arrival]:
    if lane is None:
        bound: dict[str, Value] = {"consumer": consumer_id, "after": after, "limit": limit, "bytes": bytes_max}
        return _arrivals(connection, PAGE, bound)
    for (bot_id,) in connection.execute(_SQL["bot_of"], (consumer_id,)):
        return inbox_rows.page(
            connection, bot_id, lane, after, consumer_id=consumer_id, limit=limit, bytes_max=bytes_max
        )
    return []


def page_of_bot(connection: apsw.Connection, bot_id: int, after: int, *, limit: int) -> list[Arrival]:
    return _arrivals(connection, PAGE_OF_BOT, {"bot": bot_id, "after": after, "limit": limit})


def _arrivals(connection: apsw.Connection, sql: str, bound: dict[str, Value]) -> list[Arrival]:
    for (text,) in connection.execute(sql, bound):
        return arrivals_from_json(str(text))
    return []


def deferrals(connection: apsw.Connection, consumer_id: int) -> list[Deferral]:
    rows = connection.execute(_SQL["deferrals"], {"consumer": consumer_id})
    return [Deferral(number=row[0], tries=row[1], due_at_ms=row[2], lane=row[3]) for row in rows]


def id_at(connection: apsw.Connection, at_ms: int) -> int:
    """The first id that was received then or later, found in twenty steps: ids rise with time.

    They do so as far as the clock does; who asks leaves CLOCK_SLACK_MS of room on the safe side.
    """
    ((low, high),) = connection.execute(_SQL["id_range"])
    while low < high:
        middle = (low + high) // 2
        row = next(connection.execute(_SQL["received_at"], (middle,)))
        if row[1] < at_ms:
            low = row[0] + 1
        else:
            high = middle
    return int(low)


# ---- how far it is ----


def settle(
    connection: apsw.Connection,
    consumer_id: int,
    *,
    over: Sequence[Span],
    deferred: Sequence[Deferral],
    dead: Sequence[Burial],
    at_ms: int,
) -> ConsumerProgress:
    for bot_id, watermark, last, spans, has_put_off in list(connection.execute(_SQL["progress"], (consumer_id,))):
        before = progress_of(watermark, spans)
        # Whoever is late changes nothing: what is over is over, and what is not there yet cannot be.
        put_off: list[Row] = [
            (consumer_id, one.number, one.tries, one.due_at_ms, one.entry)
            for one in deferred
            if one.number <= last and not before.is_over(one.number)
        ]
        if put_off:
            run_many(connection, _SQL["defer"], put_off)
        given_up = [one for one in dead if one.number <= last and not before.is_over(one.number)]
        if given_up:
            run_many(
                connection,
                _SQL["bury"],
                [(consumer_id, one.number, one.tries, one.reason, at_ms, one.entry) for one in given_up],
            )
        done = [(first, min(end, last)) for first, end in over]
        if done and (has_put_off or put_off):
            bound = {"consumer": consumer_id, "spans": encode_numbers(done), "at": at_ms}
            connection.execute(_SQL["complete"], bound)
        done += [(one.number, one.number) for one in given_up]
        return _advance(connection, bot_id, consumer_id, before, done, last)
    raise unknown(consumer_id)


def settle_default(connection: apsw.Connection, bot_id: int, over: Sequence[Span], *, at_ms: int) -> None:
    found = consumer(connection, bot_id, DEFAULT_CONSUMER)
    if found is not None:
        settle(connection, found.id, over=over, deferred=(), dead=(), at_ms=at_ms)


def _advance(
    connection: apsw.Connection,
    bot_id: int,
    consumer_id: int,
    before: ConsumerProgress,
    over: Iterable[Span],
    last: int,
) -> ConsumerProgress:
    """Store what is over now, and jump over numbers that this reader never sees: one seek for each such gap."""
    after = advanced(before, over)
    while after.watermark < last:
        bound = {"bot": bot_id, "consumer": consumer_id, "after": after.watermark}
        ((seen,),) = connection.execute(_SQL["next_seen"], bound)
        gap_end = last if seen is None else seen - 1
        if gap_end == after.watermark:
            break
        after = advanced(after, [(after.watermark + 1, gap_end)])
    _store(connection, consumer_id, before, after)
    return after


def _store(connection: apsw.Connection, consumer_id: int, before: ConsumerProgress, after: ConsumerProgress) -> None:
    if after.watermark != before.watermark:
        connection.execute(_SQL["advance"], (after.watermark, consumer_id))
    if after.spans == before.spans:
        return
    kept = {first for first, _ in after.spans}
    closed = [first for first, _ in before.spans if first not in kept]
    if closed:
        connection.execute(_SQL["close_spans"], {"consumer": consumer_id, "firsts": encode_numbers(closed)})
    known = set(before.spans)
    changed: list[Row] = [(consumer_id, *span) for span in after.spans if span not in known]
    if changed:
        run_many(connection, _SQL["keep_spans"], changed)
