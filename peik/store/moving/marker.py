"""Whether a store holds only a part of what is being moved to it. Such a store must not be served."""

from typing import Any

import apsw
import msgspec

from peik.errors import StartError
from peik.store.moving.queries import load

KEY = "moving"  # in Redis; elsewhere it is a table of this name


class _Told(msgspec.Struct):
    origin: str
    ended_at_ms: int | None = None


def refuse_half(progress: str | bytes | None) -> None:
    """Raises StartError if this progress is that of a move that has not ended."""
    if progress is None:
        return
    told = msgspec.json.decode(progress, type=_Told)
    if told.ended_at_ms is None:
        raise StartError(
            f"This store holds only a part of what is being moved to it from {told.origin}. "
            "Let `peik migrate` with the same --from and --to go on to its end; it continues where it stopped."
        )


def check_sqlite(connection: apsw.Connection) -> None:
    """For `SqliteStore.open`, before the first read."""
    sql = load("sqlite.sql")
    ((has_marker,),) = connection.execute(sql["has_marker"])
    if has_marker:
        refuse_half(next((row[0] for row in connection.execute(sql["progress"])), None))


async def check_postgres(connection: Any) -> None:
    """For `PostgresStore.open`, after the schema was brought up to date. `connection` is asyncpg's."""
    sql = load("postgres.sql")
    if await connection.fetchval(sql["has_marker"]):
        refuse_half(await connection.fetchval(sql["progress"]))


async def check_redis(redis: Any, prefix: str) -> None:
    """For `RedisStore.open`. `redis` is redis-py's client."""
    refuse_half(await redis.get(prefix + KEY))
