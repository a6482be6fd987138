"""Keys of the API and webhooks that wait to be told, in the Redis store, read as values."""

import msgspec

from peik.admin.model import Key, Scope
from peik.outbox.store import Hook, HooksDue
from peik.secrets.seals import Seals, place_of_key
from peik.storage.redis.client import RedisClient
from peik.storage.redis.records import STATE_OF_PHASE, encode

KEYS_MAX = 1000  # they are all kept in memory, and read whole when one changes


class _KeyRecord(msgspec.Struct, frozen=True):
    digest: str  # in hexadecimal
    name: str
    scopes: tuple[Scope, ...]
    bot_ids: frozenset[int] | None
    created_at_ms: int
    expires_at_ms: int | None
    webhook_url: str | None
    webhook_secret: str | None


_decode_key = msgspec.msgpack.Decoder(_KeyRecord).decode


def record_of(key: Key, webhook_secret: str | None) -> bytes:
    return encode(
        _KeyRecord(
            digest=key.digest.hex(),
            name=key.name,
            scopes=key.scopes,
            bot_ids=key.bot_ids,
            created_at_ms=key.created_at_ms,
            expires_at_ms=key.expires_at_ms,
            webhook_url=key.webhook_url,
            webhook_secret=webhook_secret,
        )
    )


async def read(client: RedisClient) -> tuple[int, list[Key]]:
    """Every key in force, and the generation that they are of."""
    ((number, rows),) = await client.read(["keys"])
    return int(number or 0), sorted((_key(*row) for row in rows), key=lambda key: key.id)


def _key(key_id: bytes, record: bytes, used_at: bytes | None) -> Key:
    one = _decode_key(record)
    return Key(
        id=int(key_id),
        name=one.name,
        digest=bytes.fromhex(one.digest),
        scopes=one.scopes,
        bot_ids=one.bot_ids,
        created_at_ms=one.created_at_ms,
        expires_at_ms=one.expires_at_ms,
        last_used_at_ms=None if used_at is None else int(used_at),
        webhook_url=one.webhook_url,
    )


async def generation(client: RedisClient) -> int:
    found: bytes | None = await client.ask(client.redis.get(client.prefix + "keys_generation"))
    return int(found or 0)


# ---- webhooks ----


class _HookRecord(msgspec.Struct, frozen=True):
    """See `hook` in moving.lua, where it is written."""

    e: str  # endpoint
    k: int | str  # a key, or an address
    letter: str
    p: int  # phase
    at: int
    t: int  # tries


_decode_hook = msgspec.msgpack.Decoder(_HookRecord).decode


async def hooks_due(
    client: RedisClient, seals: Seals, *, at_ms: int, after: str, endpoints: int, each: int
) -> HooksDue:
    ((rows, last, next_at),) = await client.read(["hooks_due", at_ms, after, endpoints, each])
    return HooksDue(
        hooks=[_hook(seals, *row) for row in rows],
        last=None if last is None else last.decode(),
        next_at_ms=None if next_at is None else int(next_at),
    )


def _hook(seals: Seals, hook_id: bytes, record: bytes, key: bytes | None) -> Hook:
    one = _decode_hook(record)
    whose = None if key is None else _decode_key(key)
    return Hook(
        id=int(hook_id),
        endpoint=one.e,
        url=str(one.k) if whose is None else whose.webhook_url or "",
        secret=None if whose is None else _secret(whose, seals),
        letter_id=int(one.letter),
        state=STATE_OF_PHASE[one.p],
        at_ms=one.at,
        tries=one.t,
    )


def _secret(key: _KeyRecord, seals: Seals) -> str | None:
    return seals.maybe_open(key.webhook_secret, place=place_of_key(bytes.fromhex(key.digest)))


async def hook_body(client: RedisClient, hook: Hook) -> str | None:
    found: bytes | None = await client.ask(client.redis.hget(client.prefix + "hook_bodies", str(hook.id)))
    return None if found is None else found.decode()
