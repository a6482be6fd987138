"""A dead letter that is sent again is like a new one: at the end of its lane, with its counters at zero."""

import pytest

from peik.outbox.store import LetterFilter
from tests.storage.acts import NEVER, NOW, accept, attempt, draft, find, front
from tests.storage.places import BOT, Place


@pytest.mark.parametrize("by_filter", [False, True], ids=["one", "by filter"])
async def test_a_dead_letter_that_is_sent_again_joins_the_end_of_its_lane(place: Place, by_filter: bool) -> None:
    async with place.open() as store:
        dead, second, third = await accept(store, draft(1), draft(1), draft(1))
        await attempt(store, await find(store, dead), NEVER)
        if by_filter:
            assert await store.retry_dead(LetterFilter(bot_id=BOT), at_ms=NOW, limit=9) == 1
        else:
            await store.retry(dead, at_ms=NOW)
        (last,) = await accept(store, draft(1))
        waiting = await front(store)
        assert [one.id for one in waiting] == [second, third, dead, last]
        assert [one.attempts_made for one in waiting] == [0, 0, 0, 0]


async def test_dead_letters_that_are_sent_again_together_keep_their_order(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(1) for _ in range(4)))
        for letter_id in ids[:3]:
            await attempt(store, await find(store, letter_id), NEVER)
        assert await store.retry_dead(LetterFilter(bot_id=BOT), at_ms=NOW, limit=9) == 3
        assert [one.id for one in await front(store)] == [ids[3], *ids[:3]]
