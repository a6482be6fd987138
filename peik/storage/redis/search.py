"""What people look for among letters: walked page by page from the newest down, judged here, never all at once."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from peik.core.letter import State, cause_of
from peik.core.trace import LIKELY
from peik.outbox.store import Cause, Counted, LetterFilter, LetterPage, LetterView, LoggedMessage
from peik.storage import rules
from peik.storage.redis.client import RedisClient
from peik.storage.redis.records import chat_of, decode, view_of
from peik.storage.rules import ways_of

BLOCK = 1000  # ids per counter; see moving.lua
PAGE = 200
LOOKED_MAX = 10_000  # letters that are looked at for one page, or one count: each comes here to be judged
CAUSES_LOOKED_MAX = 10_000
LANES_LOOKED_MAX = 5_000  # of each rank, for the oldest letter


async def page(client: RedisClient, wanted: LetterFilter, *, before: int | None, limit: int, at_ms: int) -> LetterPage:
    found: list[LetterView] = []
    looked = 0
    async for ids in _candidates(client, wanted, before):
        for view in await views(client, ids, at_ms):
            if _is_too_old(view, wanted):
                return rules.turned(found, limit=limit, oldest_looked=None)
            if is_wanted(view, wanted):
                found.append(view)
                if len(found) == limit:
                    return rules.turned(found, limit=limit, oldest_looked=None)
        looked += len(ids)
        if looked >= LOOKED_MAX:
            return rules.turned(found, limit=limit, oldest_looked=ids[-1])
    return rules.turned(found, limit=limit, oldest_looked=None)


async def logged(client: RedisClient, below: tuple[int, int], limit: int) -> list[LoggedMessage]:
    """Members of one millisecond have no order there, so that the whole of the last one is read."""
    key, top = client.prefix + "log_age", min(below[0], 2**52)
    places: list[tuple[int, int]] = []
    while len(places) < limit:
        rows: list[tuple[bytes, float]] = await client.ask(
            client.redis.zrevrangebyscore(key, top, "-inf", start=0, num=limit, withscores=True)
        )
        is_end = len(rows) < limit
        if not is_end:
            top = int(rows[-1][1]) - 1
            same: list[tuple[bytes, float]] = await client.ask(
                client.redis.zrangebyscore(key, top + 1, top + 1, withscores=True)
            )
            rows = [row for row in rows if row[1] > top + 1] + same
        places += sorted((place for place in ((int(at), int(one)) for one, at in rows) if place < below), reverse=True)
        if is_end:
            break
    ids = [letter_id for _, letter_id in places[:limit]]
    raws: list[bytes | None] = await client.ask(client.redis.hmget(client.prefix + "log", ids)) if ids else []
    return [_logged_of(one, decode(raw)) for one, raw in zip(ids, raws, strict=True) if raw is not None]


def _logged_of(letter_id: int, line: dict[str, Any]) -> LoggedMessage:
    return LoggedMessage(
        id=letter_id,
        bot_id=int(line["bot"]),
        chat=chat_of(line["chat"]),
        user_id=line.get("user"),
        message_type=line.get("type"),
        method=line["method"],
        state=State(line["status"]),
        attempts_made=int(line["made"]),
        error=line.get("error"),
        message_id=line.get("message"),
        text=line.get("text"),
        created_at_ms=int(line["at"]),
        finished_at_ms=None if line.get("ended") is None else int(line["ended"]),
    )


async def count(client: RedisClient, wanted: LetterFilter, *, most: int, at_ms: int) -> Counted:
    counted = await page(client, wanted, before=None, limit=most, at_ms=at_ms)
    letters = len(counted.letters)
    return Counted(letters=letters, is_least=letters >= most or counted.is_cut)


async def causes(
    client: RedisClient, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int, at_ms: int
) -> list[Cause]:
    members: list[bytes] = await client.ask(
        client.redis.zrevrangebyscore(client.prefix + "dead", "+inf", since_ms or 0, start=0, num=CAUSES_LOOKED_MAX)
    )
    deaths: list[rules.Death] = []
    for start in range(0, len(members), PAGE):
        dead = await views(client, [int(one) for one in members[start : start + PAGE]], at_ms)
        deaths += [
            (view.failed_reason, view.method, 1, view.id, view.settled_at_ms or 0)
            for view in dead
            if view.state is State.FAILED and (bot_ids is None or view.bot_id in bot_ids)
        ]
    return rules.grouped(deaths, limit=limit)


async def oldest_waiting(client: RedisClient) -> dict[int, int]:
    (rows,) = await client.read(["oldest_waiting", LANES_LOOKED_MAX])
    return {int(bot): int(created_at) for bot, created_at in rows}


async def find_dead(client: RedisClient, wanted: LetterFilter, *, limit: int, at_ms: int) -> list[int]:
    """The oldest first: they go back into their lanes in the order in which they were accepted."""
    found: list[int] = []
    dead = sorted(await _members(client, "dead"))
    for start in range(0, len(dead), PAGE):
        for view in await views(client, dead[start : start + PAGE], at_ms):
            if view.state is State.FAILED and is_wanted(view, wanted):
                found.append(view.id)
                if len(found) == limit:
                    return found
    return found


async def views(client: RedisClient, ids: Sequence[int], at_ms: int) -> list[LetterView]:
    if not ids:
        return []
    (rows,) = await client.read(["views", [str(one) for one in ids]])
    return [view_of(one, row, at_ms=at_ms) for one, row in zip(ids, rows, strict=True) if row is not None]


async def _candidates(client: RedisClient, wanted: LetterFilter, before: int | None) -> AsyncIterator[list[int]]:
    """Ids below a given one, the newest first. Letters that are dead or in flight are few among many, and known by themselves."""
    few: list[int] | None = None
    if wanted.ids is not None:
        few = list(wanted.ids)
    elif wanted.state is State.FAILED:
        few = await _members(client, "dead")
    elif wanted.state is State.ACTIVE:
        few = await _in_flight(client)
    if few is not None:
        ids = sorted((one for one in few if before is None or one < before), reverse=True)
        for start in range(0, len(ids), PAGE):
            yield ids[start : start + PAGE]
        return
    async for page in newest(client, "blocks", before):
        yield page


async def _members(client: RedisClient, name: str) -> list[int]:
    members: list[bytes] = await client.ask(client.redis.zrange(client.prefix + name, 0, -1))
    return [int(one) for one in members]


async def _in_flight(client: RedisClient) -> list[int]:
    (ids,) = await client.read(["in_flight"])
    return [int(one) for one in ids]


async def newest(client: RedisClient, name: str, before: int | None) -> AsyncIterator[list[int]]:
    """All ids in use below a given one, from the top down, with those blocks left out of which nothing is here."""
    fields: list[bytes] = await client.ask(client.redis.hkeys(client.prefix + name))
    for block in sorted((int(field) for field in fields), reverse=True):
        first, last = block * BLOCK, block * BLOCK + BLOCK - 1
        if before is not None:
            last = min(last, before - 1)
        for top in range(last, first - 1, -PAGE):
            yield list(range(top, max(top - PAGE, first - 1), -1))


def is_wanted(view: LetterView, wanted: LetterFilter) -> bool:
    same = (
        (wanted.state, view.state),
        (wanted.bot_id, view.bot_id),
        (wanted.chat, view.chat),
        (wanted.user_id, view.user_id),
        (wanted.message_type, view.message_type),
        (wanted.method, view.method),
        (wanted.trace, None if view.trace is None else view.trace.removeprefix(LIKELY)),
    )
    return (
        all(asked is None or asked == has for asked, has in same)
        and (wanted.ids is None or view.id in wanted.ids)
        and (wanted.bot_ids is None or view.bot_id in wanted.bot_ids)
        and (wanted.since_ms is None or view.created_at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or view.created_at_ms <= wanted.until_ms)
        and (wanted.text is None or _has_text(view.params.lower(), wanted.text))
        and (wanted.error is None or wanted.error.lower() in (view.failed_reason or "").lower())
        and (wanted.cause is None or wanted.cause == cause_of(view.failed_reason))
    )


def _has_text(params: str, text: str) -> bool:
    return any(way.lower() in params for way in ways_of(text))


def _is_too_old(view: LetterView, wanted: LetterFilter) -> bool:
    """Whether nothing below it can be wanted: ids rise with time, as far as the clocks do."""
    return wanted.since_ms is not None and view.created_at_ms < wanted.since_ms - rules.CLOCK_SLACK_MS
