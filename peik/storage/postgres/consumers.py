"""Rows of the inbox as values, where they differ from SQLite's: an arrival's lane is written as a chat is."""

from collections.abc import Iterable, Mapping, Sequence

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, ConsumerProgress, Span, advanced
from peik.core.letter import Chat
from peik.errors import Conflict, NotFound
from peik.inbox.store import Burial, Consumer, Deferral
from peik.storage.postgres import queries
from peik.storage.postgres.queries import filled, load
from peik.storage.postgres.session import PostgresSession, Row
from peik.storage.sqlite.consumers import CLOCK_SLACK_MS, check_room, unknown
from peik.storage.sqlite.rows import ARRIVAL_COLUMNS, consumer_from_row, encode_allowed, progress_of

ARRIVAL = ", ".join(f"a.{column}" for column in ARRIVAL_COLUMNS)


def arrivals_of(rows: Iterable[Row]) -> list[Arrival]:
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


# Who reads arrivals in the PostgreSQL store, and how far each is. Functions on a session, no state.


__all__ = ["CLOCK_SLACK_MS"]  # and all that is defined here

_SQL = load("inbox.sql")
PAGE = filled(_SQL["page"], arrival=ARRIVAL)
LANE_PAGE = filled(_SQL["lane_page"], arrival=ARRIVAL)
PAGE_OF_BOT = filled(_SQL["page_of_bot"], arrival=ARRIVAL)


# ---- who ----


async def consumers(session: PostgresSession, bot_id: int | None) -> list[Consumer]:
    if bot_id is None:
        return await _consumers(session, "true")
    return await _consumers(session, "c.bot_id = :bot", bot=bot_id)


async def consumer(session: PostgresSession, bot_id: int, name: str) -> Consumer | None:
    return next(iter(await _consumers(session, "c.bot_id = :bot AND c.name = :name", bot=bot_id, name=name)), None)


async def by_id(session: PostgresSession, consumer_id: int) -> Consumer:
    for found in await _consumers(session, "c.id = :consumer", consumer=consumer_id):
        return found
    raise unknown(consumer_id)


async def _consumers(session: PostgresSession, where: str, **bound: object) -> list[Consumer]:
    rows = await session.rows(filled(_SQL["consumers"], where=where), **bound)
    return [consumer_from_row(tuple(row)) for row in rows]


async def ensure(session: PostgresSession, bot_id: int, name: str, at_ms: int, most: int | None = None) -> Consumer:
    await check_bot(session, bot_id)
    await session.rows(_SQL["lock_inboxes"], bots=[bot_id])  # where it begins must not move meanwhile
    if most is not None:
        check_room(await consumers(session, bot_id), name, most)
    await session.run(_SQL["make_consumer"], bot=bot_id, name=name, at=at_ms)
    found = await consumer(session, bot_id, name)
    assert found is not None
    return found


async def check_bot(session: PostgresSession, bot_id: int) -> None:
    """A bot that was removed a moment ago must not leave an inbox behind."""
    if not await session.rows(_SQL["known_bot"], bot=bot_id):
        raise NotFound(code="unknown_bot", detail=f"Bot {bot_id} is not known here. Add it with its token first.")


async def save(session: PostgresSession, one: Consumer) -> None:
    changed = await session.run(
        _SQL["save_consumer"],
        kind=str(one.kind),
        url=one.url,
        secret=one.secret,
        allowed=encode_allowed(one.allowed),
        connections_max=one.connections_max,
        consumer=one.id,
    )
    if not changed:
        raise unknown(one.id)


async def touch(session: PostgresSession, seen: Mapping[int, int]) -> None:
    await session.run(_SQL["touch_consumers"], consumers=list(seen), ats=list(seen.values()))


async def remove(session: PostgresSession, consumer_id: int) -> None:
    """It is forgotten with all that is only its own. Its replays, which nobody sees any more, go with the next upkeep."""
    if (await by_id(session, consumer_id)).name == DEFAULT_CONSUMER:
        raise Conflict(
            code="default_consumer",
            detail="The default consumer stays as long as its bot, so that nothing that comes is without a reader.",
        )
    await drop(session, consumer_id)


async def drop(session: PostgresSession, consumer_id: int) -> None:
    await session.rows(_SQL["lock_consumer"], consumer=consumer_id)
    for name in ("drop_spans", "drop_watermarks", "drop_deliveries", "drop_consumer"):
        await session.run(_SQL[name], consumer=consumer_id)


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


async def deferrals(session: PostgresSession, consumer_id: int) -> list[Deferral]:
    return [
        Deferral(number=number, tries=tries, due_at_ms=due_at, lane=None if lane is None else queries.decode(lane))
        for number, tries, due_at, lane in await session.rows(_SQL["deferrals"], consumer=consumer_id)
    ]


async def id_at(session: PostgresSession, at_ms: int) -> int:
    """The first id that was received then or later, found in twenty steps: ids rise with time.

    They do so as far as the clocks do; who asks leaves CLOCK_SLACK_MS of room on the safe side.
    """
    ((low, high),) = await session.rows(_SQL["id_range"])
    while low < high:
        middle = (low + high) // 2
        row = await session.row(_SQL["received_at"], id=middle)
        if row is None:  # it went since: another node cleans up
            high = middle
        elif row[1] < at_ms:
            low = row[0] + 1
        else:
            high = middle
    return int(low)


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
    # Whoever is late changes nothing: what is over is over, and what is not there yet cannot be.
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
    found = await consumer(session, bot_id, DEFAULT_CONSUMER)
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
