"""Webhooks that wait to be told, in the PostgreSQL store. Functions on a session, no state."""

from collections.abc import Sequence

from peik.outbox.store import Hook, HookContent, HookDeferred, HooksDue
from peik.secrets.seals import Seals, place_of_key
from peik.storage.postgres import reads
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession, Row
from peik.storage.sqlite.rows import STATE_OF_PHASE

_SQL = load("hooks.sql")


async def due(session: PostgresSession, seals: Seals, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
    """What is due at the endpoints after a given one, the oldest of each first. In one snapshot."""
    rows = await session.rows(_SQL["due"], at=at_ms, after=after, endpoints=endpoints, each=each)
    is_full = bool(rows) and rows[-1]["place"] >= endpoints
    return HooksDue(
        hooks=[_hook(row, seals) for row in rows if row["id"] is not None],
        last=rows[-1]["endpoint"] if is_full else None,
        next_at_ms=await session.number(_SQL["next_due"], at=at_ms) or None,
    )


def _hook(row: Row, seals: Seals) -> Hook:
    endpoint, _, hook_id, url, secret, letter_id, phase, at, tries, digest = row
    return Hook(
        id=hook_id,
        endpoint=endpoint,
        url=url,
        secret=None if secret is None else seals.open(secret, place=place_of_key(digest)),
        letter_id=letter_id,
        state=STATE_OF_PHASE[phase],
        at_ms=at,
        tries=tries,
    )


async def content(session: PostgresSession, hook: Hook) -> HookContent:
    body = await session.text(_SQL["body"], hook=hook.id)
    if body is not None:
        return HookContent(body=body)
    return HookContent(letter=await reads.view(session, hook.letter_id, hook.at_ms))


async def settle(session: PostgresSession, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
    if over:
        await session.run(_SQL["drop"], hooks=list(over))
    if deferred:
        rows = [(one.hook_id, one.due_at_ms, one.tries, one.body) for one in deferred]
        await session.run(_SQL["defer"], *zip(*rows, strict=True))
