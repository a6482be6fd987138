"""Files of letters on the server, in parts: a hash for each, by place, and a sorted set of all of them by when they came.

They do not go through the store's commits: a part is large, and nobody's letter shall wait behind it.
"""

from collections.abc import Sequence
from typing import Any

import redis.asyncio as aioredis
from redis import exceptions

from peik.storage.redis.client import RedisClient


class RedisFiles:
    """See `peik.core.nodes.FileStore`. Keeping a part again changes nothing, so that a lost answer is simply asked for anew."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._all = client.prefix + "parts_kept"

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        await self._client.keep_part(blob, place, part)

    async def part(self, blob: str, place: int) -> bytes | None:
        found: bytes | None = await self._client.ask(self._client.redis.hget(self._key(blob), str(place)))
        return found

    async def drop_files(self, blobs: Sequence[str]) -> None:
        if not blobs:
            return
        both = self._client.redis.pipeline(transaction=True)
        both.unlink(*(self._key(blob) for blob in blobs))
        both.zrem(self._all, *blobs)
        await self._client.ask(both.execute())

    async def kept_files(self) -> dict[str, int]:
        """Walked in steps: there may be as many as letters."""
        kept: dict[str, int] = {}
        cursor = 0
        while True:
            page: tuple[int, list[tuple[bytes, float]]] = await self._client.ask(
                self._client.redis.zscan(self._all, cursor, count=1000)
            )
            cursor, rows = page
            kept.update((blob.decode(), int(at_ms)) for blob, at_ms in rows)
            if not cursor:
                return kept

    def _key(self, blob: str) -> str:
        return f"{self._client.prefix}parts:{blob}"


# How much a server keeps when it dies, told in sentences for `peik doctor` and the start.


async def weaknesses(redis: "aioredis.Redis") -> list[str]:
    """What stands between an answer and a disk, or between a letter and its delivery. Empty: nothing that can be told."""
    try:
        info: dict[str, Any] = await redis.info("everything")
    except exceptions.ResponseError:
        return ["This Redis user may not ask INFO: whether anything is durable cannot be told."]
    return [*_of_role(info), *await _of_log(redis, info), *_of_memory(info)]


def _of_role(info: dict[str, Any]) -> list[str]:
    if info.get("role") in ("slave", "replica"):
        return ["This Redis is a replica: it takes no writes, or loses them. Name the primary in PEIK_STORE."]
    return []


async def _of_log(redis: "aioredis.Redis", info: dict[str, Any]) -> list[str]:
    if not int(info.get("aof_enabled", 0)):
        return ["Redis has no append-only file: a restart may lose everything. Set: appendonly yes."]
    found: list[str] = []
    if info.get("aof_last_write_status", "ok") != "ok":
        found.append("Redis failed to write its append-only file the last time. Check its disk.")
    try:
        policy = (await redis.config_get("appendfsync")).get("appendfsync")
    except exceptions.ResponseError:
        return [*found, "This Redis user may not ask CONFIG: how often the append-only file is synced cannot be told."]
    if policy != "always":
        lost = "up to a second" if policy == "everysec" else "some tens of seconds"
        found.append(f"Redis has appendfsync {policy}: a power cut may lose {lost} of accepted letters. Set: always.")
    return found


def _of_memory(info: dict[str, Any]) -> list[str]:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if not int(info.get("maxmemory", 0)) or not policy.startswith("allkeys"):
        return []  # the others throw away what expires by itself, and nothing of ours does
    return [f"Redis may throw away letters when its memory is full ({policy}). Set: maxmemory-policy noeviction."]
