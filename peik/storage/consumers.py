"""Who reads arrivals, as every SQL store keeps it. Functions on a session and the queries of its dialect, no state."""

from collections.abc import Mapping

from peik.core.arrival import DEFAULT_CONSUMER
from peik.errors import Conflict, NotFound
from peik.inbox.store import Consumer
from peik.storage.sql import NamedQuery, SqlSession, filled
from peik.storage.sqlite.rows import consumer_from_row

Sql = Mapping[str, NamedQuery]


async def consumers_of(one: SqlSession, sql: Sql, bot_id: int | None) -> list[Consumer]:
    if bot_id is None:
        return await find_consumers(one, sql, "true")
    return await find_consumers(one, sql, "c.bot_id = :bot", bot=bot_id)


async def consumer_named(one: SqlSession, sql: Sql, bot_id: int, name: str) -> Consumer | None:
    return next(iter(await find_consumers(one, sql, "c.bot_id = :bot AND c.name = :name", bot=bot_id, name=name)), None)


async def find_consumers(one: SqlSession, sql: Sql, where: str, **bound: object) -> list[Consumer]:
    rows = await one.rows(filled(sql["consumers"], where=where), **bound)
    return [consumer_from_row(tuple(row)) for row in rows]


async def check_bot(one: SqlSession, known_bot: NamedQuery, bot_id: int) -> None:
    """A bot that was removed a moment ago must leave nothing behind."""
    if not await one.rows(known_bot, bot=bot_id):
        raise NotFound(code="unknown_bot", detail=f"Bot {bot_id} is not known here. Add it with its token first.")


async def id_at(one: SqlSession, sql: Sql, at_ms: int) -> int:
    """The first id that was received then or later, found in twenty steps: ids rise with time.

    They do so as far as the clocks do; who asks leaves CLOCK_SLACK_MS of room on the safe side.
    """
    ((low, high),) = await one.rows(sql["id_range"])
    while low < high:
        middle = (low + high) // 2
        rows = await one.rows(sql["received_at"], id=middle)
        if rows and rows[0][1] < at_ms:
            low = rows[0][0] + 1
        else:  # or it went since: another node cleans up
            high = middle
    return int(low)


async def drop_consumer(one: SqlSession, sql: Sql, consumer_id: int) -> None:
    await lock(one, sql, "lock_consumer", consumer=consumer_id)
    for name in ("drop_spans", "drop_watermarks", "drop_deliveries", "drop_consumer"):
        await one.run(sql[name], consumer=consumer_id)


async def lock(one: SqlSession, sql: Sql, name: str, **bound: object) -> None:
    """On a file, where one writes at a time, there is nothing to lock."""
    if name in sql:
        await one.rows(sql[name], **bound)


TOO_MANY = (
    "Bot {subject} has {more} consumers besides the default one, and may have no more. Remove those that nobody uses "
    "(`peik consumers`), or raise PEIK_CONSUMERS_MAX."
)


def check_room(known: list[Consumer], name: str, most: int) -> None:
    """Raises Conflict if a consumer of this name would be one too many of its bot."""
    named = {one.name for one in known} - {DEFAULT_CONSUMER}
    if name != DEFAULT_CONSUMER and name not in named and len(named) >= most:
        raise Conflict(code="too_many_consumers", detail=TOO_MANY.format(subject=known[0].bot_id, more=most))


def unknown(consumer_id: int) -> NotFound:
    return NotFound(code="unknown_consumer", detail=f"There is no consumer {consumer_id} here (any more).")
