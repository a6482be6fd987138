"""What is particular to PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from asyncpg.transaction import Transaction

from peik.archive.postgres.connection import PACKAGE
from peik.archive.sql import migrations
from peik.archive.store import ArchiveRetention, Fed
from tests.archive.places import PostgresPlace, opened
from tests.archive.samples import NOW, line
from tests.storage.servers import postgres


async def _beside(place: PostgresPlace) -> asyncpg.Connection:
    """Somebody else at the same schema."""
    schema = place.url.rpartition("=")[2]
    return await asyncpg.connect(postgres().url, server_settings={"search_path": schema})


async def test_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    other = await _beside(place)
    await other.execute(f"CREATE SCHEMA {place.url.rpartition('=')[2]}")
    await other.execute(migrations(PACKAGE)[0])
    await other.execute("INSERT INTO archive_schema VALUES (1); INSERT INTO updates_states VALUES ('s1', '\\x01')")
    await other.close()
    for number in range(1, 3):
        async with opened(place) as archive:
            assert await archive.updates_state("s1") == b"\1"
            await archive.feed([line(f"k{number}")])
            assert await archive.fed_to() == {"s1": Fed(first=1, last=number)}


@asynccontextmanager
async def _slowly_fed(place: PostgresPlace) -> AsyncIterator[tuple[asyncpg.Connection, Transaction]]:
    """Somebody has told line 2 of s1, and has not committed it yet."""
    other = await _beside(place)
    try:
        slow = other.transaction()
        await slow.start()
        await other.execute("UPDATE feed_ends SET last = 2 WHERE session_id = 's1'")
        await other.execute(f"INSERT INTO feed VALUES ('s1', 'anna', 2, 'b', 'message', NULL, NULL, '{{}}', {NOW + 9})")
        yield other, slow
    finally:
        await other.close()


async def test_whoever_feeds_waits_for_who_feeds_the_same_session(tmp_path: Path) -> None:
    """A line is not seen before one that is not committed yet but has a lower number. Other sessions do not wait."""
    place = PostgresPlace(tmp_path)
    async with opened(place) as archive:
        await archive.feed([line("a")])
        async with _slowly_fed(place) as (other, slow):
            behind = asyncio.create_task(archive.feed([line("b"), line("c")]))
            assert await archive.feed([line("a", session_id="s2")]) == 1
            while not await _waiters(other):
                pass
            assert [one.key for one in await archive.fed("s1", after=0, limit=9)] == ["a"]
            assert (await archive.fed_to())["s1"] == Fed(first=1, last=1)
            await slow.commit()
            assert await behind == 1  # b is there by now
        found = await archive.fed("s1", after=0, limit=9)
        assert [(one.number, one.key) for one in found] == [(1, "a"), (2, "b"), (3, "c")]


async def test_retention_sees_the_line_that_it_waited_for(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    async with opened(place) as archive:
        await archive.feed([line("a")])
        async with _slowly_fed(place) as (other, slow):
            cleaning = asyncio.create_task(archive.clean(ArchiveRetention(feed_ms=1), at_ms=NOW + 5, limit=9))
            while not await _waiters(other):
                pass
            await slow.commit()
            assert await cleaning == 1
        assert await archive.fed_to() == {"s1": Fed(first=2, last=2)}


async def test_who_is_cancelled_while_it_gives_up_a_write_leaves_no_transaction_to_the_next(tmp_path: Path) -> None:
    """asyncpg has to end it then, and calls that a surprise: the story's own end looks for those."""
    place = PostgresPlace(tmp_path)
    async with opened(place) as archive:
        await archive.feed([line("a")])
        async with _slowly_fed(place) as (other, _):
            behind = asyncio.create_task(archive.feed([line("b")]))
            while not await _waiters(other):
                pass
            while not behind.done():
                behind.cancel()
                await asyncio.sleep(0)
            assert behind.cancelled()
        assert await archive.feed([line("c")]) == 1


async def _waiters(connection: asyncpg.Connection) -> int:
    """How many wait for a lock of this connection's."""
    found = await connection.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    return int(found)
