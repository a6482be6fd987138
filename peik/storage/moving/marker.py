"""Whether a store holds only a part of what is being moved to it, or was moved away. Such a store must not be served."""

from typing import Any

import apsw
import msgspec

from peik.errors import StartError
from peik.storage.moving.ends import load

KEY = "moving"  # in Redis; elsewhere it is a table of this name
MOVED = "moved"  # in Redis: where everything was moved to; elsewhere it is the table `moved_away`


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


def refuse_moved(target: str | bytes | None) -> None:
    """Raises StartError if everything in this store was moved to another."""
    if target is None:
        return
    shown = target.decode() if isinstance(target, bytes) else target
    raise StartError(
        f"Everything in this store was moved to {shown}: served beside it, this one would send the same letters again. Set "
        "PEIK_STORE to that one. If this one is to be served all the same: peik migrate --from (this store) --take-back."
    )


def check_sqlite(connection: apsw.Connection) -> None:
    """For `SqliteStore.open`, before the first read."""
    sql = load("sqlite.sql")
    ((has_marker,),) = connection.execute(sql["has_marker"])
    if has_marker:
        refuse_half(next((row[0] for row in connection.execute(sql["progress"])), None))
    ((was_moved,),) = connection.execute(sql["has_moved"])
    if was_moved:
        refuse_moved(next((str(row[0]) for row in connection.execute(sql["moved_to"])), None))


async def check_postgres(connection: Any) -> None:
    """For `PostgresStore.open`, after the schema was brought up to date. `connection` is asyncpg's."""
    sql = load("postgres.sql")
    if await connection.fetchval(sql["has_marker"]):
        refuse_half(await connection.fetchval(sql["progress"]))
    if await connection.fetchval(sql["has_moved"]):
        refuse_moved(await connection.fetchval(sql["moved_to"]))


async def check_redis(redis: Any, prefix: str) -> None:
    """For `RedisStore.open`. `redis` is redis-py's client."""
    refuse_half(await redis.get(prefix + KEY))
    refuse_moved(await redis.get(prefix + MOVED))
