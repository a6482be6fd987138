"""What readers take of arrivals in the PostgreSQL store, and how far each is. Functions on a session, no state."""

from collections.abc import Iterable, Sequence

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, ConsumerProgress, Span, advanced
from peik.core.letter import Chat
from peik.inbox.store import Burial, Deferral
from peik.storage.consumers import consumer_named, unknown
from peik.storage.postgres import queries
from peik.storage.postgres.queries import filled, load
from peik.storage.postgres.session import PostgresSession
from peik.storage.sql import Row
from peik.storage.sqlite.rows import ARRIVAL, progress_of

_SQL = load("inbox.sql")
PAGE = filled(_SQL["page"], arrival=ARRIVAL)
LANE_PAGE = filled(_SQL["lane_page"], arrival=ARRIVAL)
PAGE_OF_BOT = filled(_SQL["page_of_bot"], arrival=ARRIVAL)


def arrivals_of(rows: Iterable[Row]) -> list[Arrival]:
    """An arrival's lane is written as a chat is."""
    return [
        Arrival(
            id=row["id"],
            bot_id=row["bot_id"],
            number=row["number"],
            epoch=row["epoch"],
            update_id=row["update_id"],
            type=row["type"],
            lane=queries.decode(row["lane"]),
            user_id=row["user_id"],
            message_id=row["message_id"],
            sent_at_ms=row["sent_at"],
            received_at_ms=row["received_at"],
            payload=row["payload"],
            replay_of=row["replay_of"],
            only_for=row["only_for"] or None,
        )
        for row in rows
    ]


# ---- what it reads ----


async def page(
    session: PostgresSession, consumer_id: int, after: int, *, limit: int, bytes_max: int, lane: Chat | None
) -> list[Arrival]:
    bot_id = await session.number(_SQL["bot_of"], consumer=consumer_id)
    bound = {"bot": bot_id, "consumer": consumer_id, "after": after, "limit": limit, "bytes": bytes_max}
    if lane is None:
        return arrivals_of(await session.rows(PAGE, **bound))
    return arrivals_of(await session.rows(LANE_PAGE, **bound, lane=queries.encode(lane)))


async def page_of_bot(session: PostgresSession, bot_id: int, after: int, *, limit: int) -> list[Arrival]:
    return arrivals_of(await session.rows(PAGE_OF_BOT, bot=bot_id, after=after, limit=limit))


# ---- how far it is ----


async def settle(
    session: PostgresSession,
    consumer_id: int,
    *,
    over: Sequence[Span],
    deferred: Sequence[Deferral],
    dead: Sequence[Burial],
    at_ms: int,
) -> ConsumerProgress:
    await session.rows(_SQL["lock_consumer"], consumer=consumer_id)
    row = await session.row(_SQL["progress"], consumer=consumer_id)
    if row is None:
        raise unknown(consumer_id)
    bot_id, watermark, last, spans, has_put_off = row
    before = progress_of(watermark, spans)
    # Anyone who is late changes nothing: what is over is over, and what is not there yet cannot be.
    put_off = {one.number: one for one in deferred if one.number <= last and not before.is_over(one.number)}
    await _defer(session, consumer_id, list(put_off.values()))
    given_up = {one.number: one for one in dead if one.number <= last and not before.is_over(one.number)}
    await _bury(session, consumer_id, list(given_up.values()), at_ms)
    done = [(first, min(end, last)) for first, end in over]
    if done and (has_put_off or put_off):
        firsts, lasts = zip(*done, strict=True)
        await session.run(_SQL["complete"], consumer=consumer_id, firsts=firsts, lasts=lasts, at=at_ms)
    done += [(number, number) for number in given_up]
    return await _advance(session, bot_id, consumer_id, before, done, last)


async def _defer(session: PostgresSession, consumer_id: int, put_off: Sequence[Deferral]) -> None:
    if put_off:
        await session.run(
            _SQL["defer"],
            consumer=consumer_id,
            numbers=[one.number for one in put_off],
            tries=[one.tries for one in put_off],
            dues=[one.due_at_ms for one in put_off],
            lines=[one.entry for one in put_off],
        )


async def _bury(session: PostgresSession, consumer_id: int, given_up: Sequence[Burial], at_ms: int) -> None:
    if given_up:
        await session.run(
            _SQL["bury"],
            consumer=consumer_id,
            at=at_ms,
            numbers=[one.number for one in given_up],
            tries=[one.tries for one in given_up],
            reasons=[queries.clean(one.reason) for one in given_up],
            lines=[one.entry for one in given_up],
        )


async def settle_default(session: PostgresSession, bot_id: int, over: Sequence[Span], *, at_ms: int) -> None:
    found = await consumer_named(session, _SQL, bot_id, DEFAULT_CONSUMER)
    if found is not None:
        await settle(session, found.id, over=over, deferred=(), dead=(), at_ms=at_ms)


async def _advance(
    session: PostgresSession, bot_id: int, consumer_id: int, before: ConsumerProgress, over: Iterable[Span], last: int
) -> ConsumerProgress:
    """Store what is over now, and jump over numbers that this reader never sees: one seek for each such gap."""
    after = advanced(before, over)
    while after.watermark < last:
        seen = await session.number(_SQL["next_seen"], bot=bot_id, consumer=consumer_id, after=after.watermark)
        gap_end = min(seen - 1, last) if seen else last
        if gap_end == after.watermark:
            break
        after = advanced(after, [(after.watermark + 1, gap_end)])
    await _store(session, consumer_id, before, after)
    return after


async def _store(session: PostgresSession, consumer_id: int, before: ConsumerProgress, after: ConsumerProgress) -> None:
    if after.watermark != before.watermark:
        await session.run(_SQL["advance"], consumer=consumer_id, watermark=after.watermark)
    if after.spans == before.spans:
        return
    kept = {first for first, _ in after.spans}
    closed = [first for first, _ in before.spans if first not in kept]
    if closed:
        await session.run(_SQL["close_spans"], consumer=consumer_id, firsts=closed)
    changed = [span for span in after.spans if span not in set(before.spans)]
    if changed:
        firsts, lasts = zip(*changed, strict=True)
        await session.run(_SQL["keep_spans"], consumer=consumer_id, firsts=firsts, lasts=lasts)
