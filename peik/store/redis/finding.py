"""What people look for among letters: walked page by page from the newest down, judged here, never all at once."""

from collections.abc import AsyncIterator, Sequence

from peik.core.letter import State
from peik.ports import LetterFilter, LetterView
from peik.store.redis.client import Client
from peik.store.redis.records import view_of

BLOCK = 1000  # ids per counter; see moving.lua
PAGE = 200


async def find(client: Client, wanted: LetterFilter, *, before: int | None, limit: int, at_ms: int) -> list[LetterView]:
    found: list[LetterView] = []
    async for ids in _candidates(client, wanted, before):
        for view in await views(client, ids, at_ms):
            if is_wanted(view, wanted):
                found.append(view)
                if len(found) == limit:
                    return found
    return found


async def find_dead(client: Client, wanted: LetterFilter, *, limit: int, at_ms: int) -> list[int]:
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


async def views(client: Client, ids: Sequence[int], at_ms: int) -> list[LetterView]:
    if not ids:
        return []
    (rows,) = await client.read(["views", [str(one) for one in ids]])
    return [view_of(one, row, at_ms=at_ms) for one, row in zip(ids, rows, strict=True) if row is not None]


async def _candidates(client: Client, wanted: LetterFilter, before: int | None) -> AsyncIterator[list[int]]:
    """Ids below a given one, the newest first. Dead letters are few among many and have an index of their own."""
    if wanted.state is State.FAILED:
        dead = sorted((one for one in await _members(client, "dead") if before is None or one < before), reverse=True)
        for start in range(0, len(dead), PAGE):
            yield dead[start : start + PAGE]
        return
    async for page in newest(client, "blocks", before):
        yield page


async def _members(client: Client, name: str) -> list[int]:
    members: list[bytes] = await client.ask(client.redis.zrange(client.prefix + name, 0, -1))
    return [int(one) for one in members]


async def newest(client: Client, name: str, before: int | None) -> AsyncIterator[list[int]]:
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
    )
    return (
        all(asked is None or asked == has for asked, has in same)
        and (wanted.bot_ids is None or view.bot_id in wanted.bot_ids)
        and (wanted.since_ms is None or view.created_at_ms >= wanted.since_ms)
        and (wanted.text is None or wanted.text.lower() in view.params.lower())
        and (wanted.error is None or wanted.error.lower() in (view.failed_reason or "").lower())
    )
