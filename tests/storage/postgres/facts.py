"""Facts about the server that stories wait for."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.storage.postgres_place import PostgresPlace

_LOCKED_OUT = "SELECT pid FROM pg_stat_activity WHERE application_name = 'peik' AND wait_event_type = 'Lock'"


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a fact; the story's own time bounds it."""
    while not await fact():  # noqa: ASYNC110  it becomes true on the server, which tells nobody
        await asyncio.sleep(0.005)


async def locked_out(place: PostgresPlace, count: int) -> bool:
    """Whether so many of our connections wait for a lock."""
    return len(await waiting_pids(place)) == count


async def waiting_pids(place: PostgresPlace) -> set[int]:
    """On a connection of its own: within a transaction this view shows one moment only."""
    return {row[0] for row in await place.run(_LOCKED_OUT)}
