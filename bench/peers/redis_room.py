"""A Redis that is emptied before a peer begins, and asked how much it holds."""

from redis.asyncio import Redis


async def emptied(url: str) -> None:
    async with Redis.from_url(url) as redis:
        await redis.flushall()


async def bytes_kept(url: str) -> float:
    """What the data costs in its memory. Buffers of the log come and go, and are no data."""
    async with Redis.from_url(url) as redis:
        told = await redis.info("memory")
    return float(told["used_memory"] - told["mem_aof_buffer"] - told["mem_clients_normal"])
