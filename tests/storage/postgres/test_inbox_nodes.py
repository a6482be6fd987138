"""Several nodes and one inbox: an update that comes to two of them is one arrival, and progress never goes back."""

import asyncio

from peik.core.arrival import ConsumerProgress
from peik.inbox.store import ArrivalFilter, TakenIn
from tests.storage.inbox_acts import (
    FIRST,
    NOW,
    bury,
    message,
    messages,
    named,
    numbers,
    open_inbox,
    progress,
    settle,
    take,
)
from tests.storage.places import BOT
from tests.storage.postgres_place import PostgresPlace


async def test_updates_that_come_to_two_nodes_at_once_are_stored_once_and_in_order(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        default = await open_inbox(one.inbox)
        took: list[TakenIn] = []
        for turn in range(40):  # one by one: a commit of several calls that fails would be tried again in halves
            update = message(FIRST + turn)
            took += await asyncio.gather(*(take(node.inbox, update, last_update_id=None) for node in (one, other)))
        assert (sum(one.stored for one in took), sum(one.duplicates for one in took)) == (40, 40)
        assert await numbers(other.inbox, default) == list(range(FIRST, FIRST + 40))
        rows = await place.run("SELECT number FROM arrivals ORDER BY id")
        assert [row["number"] for row in rows] == list(range(FIRST, FIRST + 40))


async def test_what_two_nodes_settle_at_once_is_over_for_both(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        default = await open_inbox(one.inbox)
        await take(one.inbox, *messages(60))
        await asyncio.gather(
            *(settle((one, other)[turn % 2].inbox, default, FIRST + turn) for turn in range(1, 60) if turn != 30)
        )
        assert await progress(other.inbox, default) == ConsumerProgress(
            watermark=FIRST - 1, spans=((FIRST + 1, FIRST + 29), (FIRST + 31, FIRST + 59))
        )
        await asyncio.gather(settle(one.inbox, default, FIRST), bury(other.inbox, default, FIRST + 30))
        assert await progress(one.inbox, default) == ConsumerProgress(watermark=FIRST + 59)


async def test_one_name_at_two_nodes_at_once_is_one_consumer(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        await open_inbox(one.inbox)
        for name in ("shop", "office", "home"):
            made = await asyncio.gather(*(node.inbox.ensure_consumer(BOT, name, at_ms=NOW) for node in (one, other)))
            assert made[0] == made[1] == await named(one.inbox, name)


async def test_a_dead_arrival_that_two_nodes_retry_at_once_comes_back_once(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        default = await open_inbox(one.inbox)
        await take(one.inbox, *messages(20))
        for turn in range(20):
            await bury(one.inbox, default, FIRST + turn)
            retried = await asyncio.gather(
                *(node.inbox.retry_dead_arrivals(ArrivalFilter(), at_ms=NOW, limit=9) for node in (one, other))
            )
            assert sorted(len(ids) for ids in retried) == [0, 1]
