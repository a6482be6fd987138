"""Accepting on servers instead of a file: Peik on PostgreSQL and on Redis, and what their bare clients can do."""

import time
import uuid

from bench.courier import accept_by_callers
from bench.courier import opened as opened_on
from bench.figures import Figures
from bench.ground import Ground
from bench.load import BOT_ID, params
from bench.loop import run

BATCH = 100
PIPELINED = 100
_TABLE = """CREATE TABLE {name} (id bigserial PRIMARY KEY, bot_id bigint, number bigint, chat bigint, method text,
    params text, created_at bigint)"""
_COLUMNS = ("bot_id", "number", "chat", "method", "params", "created_at")


def postgres_accept(ground: Ground) -> Figures:
    assert ground.postgres is not None
    return {"postgres_50": run(_accept(ground, f"{ground.postgres}?schema=peik_{uuid.uuid4().hex[:8]}"))}


def redis_accept(ground: Ground) -> Figures:
    assert ground.redis_always is not None
    return {"redis_50": run(_accept(ground, f"{ground.redis_always}?prefix=peik_{uuid.uuid4().hex[:8]}"))}


async def _accept(ground: Ground, store: str) -> float:
    async with opened_on(ground, is_paused=False, store=store) as peik:
        await peik.outbox.service.change_bot(BOT_ID, paused="a measurement begins")
        began = time.monotonic()
        await accept_by_callers(peik, ground.letters)
        rate = ground.letters / (time.monotonic() - began)
        assert (await peik.outbox.service.tallies())[BOT_ID].waiting == ground.letters, "a letter is missing"
        return rate


def postgres_ceiling(ground: Ground) -> Figures:
    """asyncpg alone: COPY of 100 rows a transaction."""

    async def copy_all() -> float:
        import asyncpg

        name = f"bare_{uuid.uuid4().hex[:8]}"
        connection = await asyncpg.connect(ground.postgres)
        try:
            await connection.execute(_TABLE.format(name=name))
            texts = [params(number).decode() for number in range(ground.letters)]
            began = time.monotonic()
            for first in range(0, ground.letters, BATCH):
                rows = [
                    (BOT_ID, first + more, (first + more) % 400, "sendMessage", text, 1_763_200_000_000)
                    for more, text in enumerate(texts[first : first + BATCH])
                ]
                await connection.copy_records_to_table(name, records=rows, columns=_COLUMNS)
            rate = ground.letters / (time.monotonic() - began)
            await connection.execute(f"DROP TABLE {name}")
            return rate
        finally:
            await connection.close()

    return {"asyncpg_100": run(copy_all())}


def redis_ceiling(ground: Ground) -> Figures:
    """redis-py alone: XADD, 100 in a pipeline, appendfsync always."""

    async def add_all() -> float:
        from redis.asyncio import Redis

        assert ground.redis_always is not None
        name = f"bare_{uuid.uuid4().hex[:8]}"
        async with Redis.from_url(ground.redis_always) as redis:
            began = time.monotonic()
            for first in range(0, ground.letters, PIPELINED):
                pipeline = redis.pipeline(transaction=False)
                for number in range(first, min(first + PIPELINED, ground.letters)):
                    pipeline.xadd(name, {"p": params(number)})
                await pipeline.execute()
            rate = ground.letters / (time.monotonic() - began)
            await redis.delete(name)
            return rate

    return {"xadd_100": run(add_all())}
