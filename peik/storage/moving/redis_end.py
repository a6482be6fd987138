"""The end of a move that is a prefix of a Redis or Valkey server."""

import time
from collections.abc import Sequence
from typing import Any

from redis import exceptions

from peik.errors import Conflict, NotFound
from peik.storage.moving import ends as progresses
from peik.storage.moving import redis_rows
from peik.storage.moving.ends import MoveProgress, RecordPage
from peik.storage.moving.marker import KEY, MOVED
from peik.storage.moving.records import KINDS, MovedInbox, Record
from peik.storage.moving.redis_reads import RedisReading
from peik.storage.moving.redis_rows import RedisBatch
from peik.storage.moving.redis_writes import Surroundings, write
from peik.storage.redis import letters
from peik.storage.redis.client import RedisClient, translate
from peik.storage.redis.files import RedisFiles

_RECENT_MS = 120_000  # as RECENT_MS in moving.lua


class RedisEnd:
    """See `End`. A server has no snapshot for a walk that takes minutes: an origin in use may be read half old and half new."""

    def __init__(self, url: str) -> None:
        self._client = RedisClient(url)
        self._tries_since_ms = int(time.time() * 1000) - _RECENT_MS
        self._epochs: dict[int, int] = {}
        prefix = self._client.prefix.partition("{")[0]
        self.shown = f"{self._client.shown}?prefix={prefix}"
        self.files = RedisFiles(self._client)

    async def open(self, *, is_target: bool) -> None:
        await self._client.open()
        self._reading = RedisReading(self._client.redis, self._client.prefix)
        if not is_target and not await self._client.redis.exists(
            *map(self._key, ("bots", "ids", "arrival_ids", "job_ids", "shelves"))
        ):
            raise NotFound(code="no_store", detail=f"There is no store of Peik's at {self.shown}. Look at --from.")

    async def close(self) -> None:
        await self._client.close()

    def _key(self, name: str) -> str:
        return self._client.prefix + name

    async def used_by(self) -> str | None:
        seconds, micros = await self._client.redis.time()
        now_ms = seconds * 1000 + micros // 1000
        alive: list[Any] = await self._client.redis.zrangebyscore(
            self._key("alive"), f"({now_ms}", "+inf", start=0, num=1
        )
        return f"{self.shown} is in use: the node {alive[0].decode()} runs on it" if alive else None

    async def lives(self) -> int:
        return int(await self._client.redis.get(self._key("epoch")) or 0)

    async def look_again(self) -> None:
        self._reading = RedisReading(self._client.redis, self._client.prefix)

    async def counts(self) -> dict[str, int]:
        found = await self._reading.counts()
        return {kind: found[kind] for kind in KINDS}

    async def page(self, kind: str, cursor: str | None, limit: int) -> RecordPage:
        return await self._reading.page(kind, cursor, limit)

    async def job_states(self) -> dict[str, int]:
        return await self._reading.job_states()

    async def blobs(self) -> list[str]:
        return sorted(await letters.blobs(self._client))

    async def progress(self) -> MoveProgress | None:
        found = await self._client.redis.get(self._key(KEY))
        return None if found is None else progresses.decode(found)

    async def moved_to(self) -> str | None:
        found = await self._client.redis.get(self._key(MOVED))
        return found.decode() if isinstance(found, bytes) else found

    async def note_moved(self, target: str | None) -> None:
        if target is None:
            await self._client.redis.delete(self._key(MOVED))
        else:
            await self._client.redis.set(self._key(MOVED), target)

    async def begin(self, progress: MoveProgress) -> None:
        await self._client.redis.set(self._key(KEY), progresses.encode(progress))

    async def write(self, kind: str, records: Sequence[Record], progress: MoveProgress) -> None:
        batch = RedisBatch(self._client.prefix)
        if kind == "arrivals" and not self._epochs:
            inboxes = (await self._reading.page("inboxes", None, 10**9)).records
            self._epochs = {one.bot_id: one.epoch for one in inboxes if isinstance(one, MovedInbox)}
        write(batch, records, Surroundings(tries_since_ms=self._tries_since_ms, epochs=self._epochs))
        batch.text(KEY, progresses.encode(progress))
        pipe: Any
        async with self._client.redis.pipeline(transaction=True) as pipe:
            # Whoever takes the move over writes here, and then this transaction does not happen.
            await pipe.watch(self._key(KEY))
            before = await pipe.get(self._key(KEY))
            if before is None or progresses.decode(before).run != progress.run:
                raise Conflict(code="replaced", detail="Another `peik migrate` has taken this move over.")
            await batch.prepare(pipe)
            pipe.multi()
            batch.put(pipe)
            await pipe.execute()

    def fit(self, record: Record) -> Record:
        return redis_rows.fit(record)

    def explain(self, error: BaseException) -> BaseException:
        return translate(error) if isinstance(error, exceptions.RedisError) else error
