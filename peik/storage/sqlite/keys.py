"""Keys of the API in the SQLite store. Functions on a connection or a batch, no state."""

from collections.abc import Mapping

import apsw
import msgspec

from peik.admin.model import Key, Scope
from peik.errors import Conflict
from peik.storage.sqlite import reads
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.statements import load, run_many

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
