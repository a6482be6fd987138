"""Webhooks that wait to be told, in the SQLite store. Functions on a connection or a batch, no state."""

from collections.abc import Sequence

import apsw
import msgspec

from peik.outbox.store import Hook, HookContent, HookDeferred, HooksDue
from peik.secrets.seals import Seals, place_of_key
from peik.storage.sqlite import reads
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.rows import STATE_OF_PHASE
from peik.storage.sqlite.statements import Row, load, run_many

_SQL = load("sqlite_hooks.sql")


def due(connection: apsw.Connection, seals: Seals, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
    """What is due at the endpoints after a given one, the oldest of each first."""
    found: list[Hook] = []
    last: str | None = after
    with connection:  # one snapshot
        for _ in range(endpoints):
            last = reads.text(connection, _SQL["next_endpoint"], (last,))
            if last is None:
                break
            found.extend(_hook(row, seals) for row in connection.execute(_SQL["due"], (last, at_ms, each)))
        next_at = reads.number(connection, _SQL["next_due"], (at_ms,)) or None
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


def content(connection: apsw.Connection, hook: Hook) -> HookContent:
    body = reads.text(connection, _SQL["body"], (hook.id,))
    return HookContent(body=body, letter=reads.view(connection, hook.letter_id, hook.at_ms) if body is None else None)


def settle(batch: SqliteBatch, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
    if over:
        run_many(batch.connection, _SQL["drop"], [(hook_id,) for hook_id in over])
    if deferred:
        rows: list[Row] = [(one.hook_id, one.due_at_ms, one.tries, one.body) for one in deferred]
        run_many(batch.connection, _SQL["defer"], rows)
