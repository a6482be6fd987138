"""Files of letters on the server, in parts: a hash for each, by place, and a sorted set of all of them by when they came.

They do not go through the store's commits: a part is large, and nobody's letter shall wait behind it.
"""

from collections.abc import Sequence

from peik.store.redis.client import Client


class RedisFiles:
    """See `peik.node_ports.FileStore`. Keeping a part again changes nothing, so that a lost answer is simply asked for anew."""

    def __init__(self, client: Client) -> None:
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
