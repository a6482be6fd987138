"""Keys of the API in the SQLite store. Functions on a connection or a batch, no state."""

from collections.abc import Mapping, Sequence

import apsw
import msgspec

from peik.admin.model import Key, Scope
from peik.errors import Conflict
from peik.outbox.store import Hook, HookContent, HookDeferred, HooksDue
from peik.secrets.seals import Seals, place_of_key
from peik.storage.sqlite import reads
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.rows import STATE_OF_PHASE
from peik.storage.sqlite.statements import Row, load, run_many

_SQL = load("sqlite_keys.sql")

KEYS_MAX = 1000  # they are all kept in memory, and read whole when one changes

_scopes = msgspec.json.Decoder(tuple[Scope, ...]).decode
_bot_ids = msgspec.json.Decoder(frozenset[int]).decode


def read(connection: apsw.Connection) -> tuple[int, list[Key]]:
    """Every key in force, and the generation that they are of."""
    with connection:  # one snapshot for both
        number = generation(connection)
        found = [_key(row) for row in connection.execute(_SQL["keys"])]
    return number, found


def _key(row: tuple[object, ...]) -> Key:
    key_id, digest, name, scopes, bot_ids, created_at, expires_at, last_used_at, webhook_url = row
    return msgspec.convert(
        {
            "id": key_id,
            "digest": digest,
            "name": name,
            "scopes": _scopes(str(scopes)),
            "bot_ids": None if bot_ids is None else _bot_ids(str(bot_ids)),
            "created_at_ms": created_at,
            "expires_at_ms": expires_at,
            "last_used_at_ms": last_used_at,
            "webhook_url": webhook_url,
        },
        Key,
    )


def generation(connection: apsw.Connection) -> int:
    return reads.number(connection, _SQL["generation"])


def add(batch: SqliteBatch, key: Key, webhook_secret: str | None) -> Key:
    """Keep a key; it gets its id here. Raises Conflict if there are too many."""
    if reads.number(batch.connection, _SQL["count"]) >= KEYS_MAX:
        raise Conflict(code="too_many_keys", detail=f"There are {KEYS_MAX} keys. Revoke those that nobody uses.")
    bot_ids = None if key.bot_ids is None else msgspec.json.encode(sorted(key.bot_ids)).decode()
    row = (
        key.digest,
        key.name,
        msgspec.json.encode(key.scopes).decode(),
        bot_ids,
        key.created_at_ms,
        key.expires_at_ms,
        key.webhook_url,
        webhook_secret,
    )
    ((key_id,),) = batch.connection.execute(_SQL["add"], row)
    return msgspec.structs.replace(key, id=key_id)


def revoke(batch: SqliteBatch, key_id: int, at_ms: int) -> bool:
    """Whether there was such a key."""
    return bool(list(batch.connection.execute(_SQL["revoke"], (at_ms, key_id))))


def note_use(batch: SqliteBatch, used: Mapping[int, int]) -> None:
    run_many(batch.connection, _SQL["note_use"], list(used.items()))


def secret(batch: SqliteBatch, name: str, candidate: str) -> str:
    """The secret of this name; the candidate, if there is none yet."""
    batch.connection.execute(_SQL["keep_secret"], (name, candidate))
    found = reads.text(batch.connection, _SQL["secret"], (name,))
    assert found is not None
    return found


# Webhooks that wait to be told, in the SQLite store. Functions on a connection or a batch, no state.


_HOOKS_SQL = load("sqlite_hooks.sql")


def due_hooks(
    connection: apsw.Connection, seals: Seals, *, at_ms: int, after: str, endpoints: int, each: int
) -> HooksDue:
    """What is due at the endpoints after a given one, the oldest of each first."""
    found: list[Hook] = []
    last: str | None = after
    with connection:  # one snapshot
        for _ in range(endpoints):
            last = reads.text(connection, _HOOKS_SQL["next_endpoint"], (last,))
            if last is None:
                break
            found.extend(_hook(row, seals) for row in connection.execute(_HOOKS_SQL["due"], (last, at_ms, each)))
        next_at = reads.number(connection, _HOOKS_SQL["next_due"], (at_ms,)) or None
    return HooksDue(hooks=found, last=last, next_at_ms=next_at)


def _hook(row: Sequence[object], seals: Seals) -> Hook:
    hook_id, endpoint, url, secret, letter_id, phase, at, tries, digest = row
    assert isinstance(phase, int)
    if isinstance(secret, str) and isinstance(digest, bytes):
        secret = seals.open(secret, place=place_of_key(digest))
    named = {
        "id": hook_id,
        "endpoint": endpoint,
        "url": url,
        "secret": secret,
        "letter_id": letter_id,
        "state": STATE_OF_PHASE[phase],
        "at_ms": at,
        "tries": tries,
    }
    return msgspec.convert(named, Hook)


def hook_content(connection: apsw.Connection, hook: Hook) -> HookContent:
    body = reads.text(connection, _HOOKS_SQL["body"], (hook.id,))
    return HookContent(body=body, letter=reads.view(connection, hook.letter_id, hook.at_ms) if body is None else None)


def settle_hooks(batch: SqliteBatch, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
    if over:
        run_many(batch.connection, _HOOKS_SQL["drop"], [(hook_id,) for hook_id in over])
    if deferred:
        rows: list[Row] = [(one.hook_id, one.due_at_ms, one.tries, one.body) for one in deferred]
        run_many(batch.connection, _HOOKS_SQL["defer"], rows)
