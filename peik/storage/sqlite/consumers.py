"""What readers take of arrivals in the SQLite store, and how far each is. Functions on a connection, no state."""

from collections.abc import Iterable, Sequence

import apsw

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, ConsumerProgress, Span, advanced
from peik.core.letter import Chat
from peik.inbox.store import Burial, Deferral
from peik.storage.consumers import unknown
from peik.storage.sqlite import rows as inbox_rows
from peik.storage.sqlite.rows import ARRIVAL, arrivals_from_json, encode_numbers, progress_of
from peik.storage.sqlite.statements import Row, Value, load, run_many

_SQL = load("sqlite_inbox.sql")
PAGE = _SQL["page"].replace("{arrival}", ARRIVAL)
PAGE_OF_BOT = _SQL["page_of_bot"].replace("{arrival}", ARRIVAL)

# ---- what it reads ----


def page(
    connection: apsw.Connection, consumer_id: int, after: int, *, limit: int, bytes_max: int, lane: Chat | None
) -> list[Arrival]:
    if lane is None:
        bound: dict[str, Value] = {"consumer": consumer_id, "after": after, "limit": limit, "bytes": bytes_max}
        return _arrivals(connection, PAGE, bound)
    for (bot_id,) in connection.execute(_SQL["bot_of"], {"consumer": consumer_id}):
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
        # Anyone who is late changes nothing: what is over is over, and what is not there yet cannot be.
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
    for (consumer_id,) in list(connection.execute(_SQL["id_of"], (bot_id, DEFAULT_CONSUMER))):
        settle(connection, consumer_id, over=over, deferred=(), dead=(), at_ms=at_ms)


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
