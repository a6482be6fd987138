"""Keys of the API in the PostgreSQL store. Functions on a session or a batch, no state."""

from collections.abc import Mapping, Sequence

import msgspec

from peik.admin.model import Key, Scope
from peik.errors import Conflict
from peik.outbox.store import Hook, HookContent, HookDeferred, HooksDue
from peik.secrets.seals import Seals, place_of_key
from peik.storage.postgres import reads
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession, Row
from peik.storage.sqlite.keys import KEYS_MAX
from peik.storage.sqlite.rows import STATE_OF_PHASE

_SQL = load("keys.sql")

_scopes = msgspec.json.Decoder(tuple[Scope, ...]).decode
_bot_ids = msgspec.json.Decoder(frozenset[int]).decode


async def read(session: PostgresSession) -> tuple[int, list[Key]]:
    """Every key in force, and the generation that they are of. In one snapshot."""
    return await generation(session), [_key(row) for row in await session.rows(_SQL["keys"])]


def _key(row: Row) -> Key:
    return Key(
        id=row["id"],
        digest=row["digest"],
        name=row["name"],
        scopes=_scopes(row["scopes"]),
        bot_ids=None if row["bot_ids"] is None else _bot_ids(row["bot_ids"]),
        created_at_ms=row["created_at"],
        expires_at_ms=row["expires_at"],
        last_used_at_ms=row["last_used_at"],
        webhook_url=row["webhook_url"],
    )


async def generation(session: PostgresSession) -> int:
    return await session.number(_SQL["generation"])


async def add(session: PostgresSession, key: Key, webhook_secret: str | None) -> Key:
    """Keep a key; it gets its id here. Raises Conflict if there are too many."""
    await session.run(_SQL["lock_keys"])
    if await session.number(_SQL["count"]) >= KEYS_MAX:
        raise Conflict(code="too_many_keys", detail=f"There are {KEYS_MAX} keys. Revoke those that nobody uses.")
    bot_ids = None if key.bot_ids is None else msgspec.json.encode(sorted(key.bot_ids)).decode()
    ((key_id,),) = await session.returned(
        _SQL["add"],
        key.digest,
        key.name,
        msgspec.json.encode(key.scopes).decode(),
        bot_ids,
        key.created_at_ms,
        key.expires_at_ms,
        key.webhook_url,
        webhook_secret,
    )
    return msgspec.structs.replace(key, id=key_id)


async def revoke(session: PostgresSession, key_id: int, at_ms: int) -> bool:
    """Whether there was such a key."""
    await session.run(_SQL["lock_keys"])
    return bool(await session.run(_SQL["revoke"], key=key_id, at=at_ms))


async def note_use(session: PostgresSession, used: Mapping[int, int]) -> None:
    await session.run(_SQL["note_use"], keys=list(used), ats=list(used.values()))


async def secret(session: PostgresSession, name: str, candidate: str) -> str:
    """The secret of this name; the candidate, if there is none yet."""
    await session.run(_SQL["keep_secret"], name=name, value=candidate)
    found = await session.text(_SQL["secret"], name=name)
    assert found is not None
    return found


# Webhooks that wait to be told, in the PostgreSQL store. Functions on a session, no state.


_HOOKS_SQL = load("hooks.sql")


async def due_hooks(
    session: PostgresSession, seals: Seals, *, at_ms: int, after: str, endpoints: int, each: int
) -> HooksDue:
    """What is due at the endpoints after a given one, the oldest of each first. In one snapshot."""
    rows = await session.rows(_HOOKS_SQL["due"], at=at_ms, after=after, endpoints=endpoints, each=each)
    is_full = bool(rows) and rows[-1]["place"] >= endpoints
    return HooksDue(
        hooks=[_hook(row, seals) for row in rows if row["id"] is not None],
        last=rows[-1]["endpoint"] if is_full else None,
        next_at_ms=await session.number(_HOOKS_SQL["next_due"], at=at_ms) or None,
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


async def hook_content(session: PostgresSession, hook: Hook) -> HookContent:
    body = await session.text(_HOOKS_SQL["body"], hook=hook.id)
    if body is not None:
        return HookContent(body=body)
    return HookContent(letter=await reads.view(session, hook.letter_id, hook.at_ms))


async def settle_hooks(session: PostgresSession, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
    if over:
        await session.run(_HOOKS_SQL["drop"], hooks=list(over))
    if deferred:
        rows = [(one.hook_id, one.due_at_ms, one.tries, one.body) for one in deferred]
        await session.run(_HOOKS_SQL["defer"], *zip(*rows, strict=True))
