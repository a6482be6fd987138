"""The sender looks for work: fronts of lanes in their order, and a cursor that passes every lane once."""

from peik.core.letter import RANKS
from tests.storage.acts import accept, draft, front, sweep_all
from tests.storage.places import BOT, OTHER_BOT, Place

CHATS = (5, -1_001_234_567_890, 2**52, "@name", "@other", "user:5", "bot", "@ünï", '@"quoted"', 6)


async def test_a_lane_is_in_order_of_priority_and_then_of_acceptance(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(1, rank=rank) for rank in (2, 0, 3, 1, 2, 0, 3, 1)))
        assert [one.id for one in await front(store)] == [ids[place] for place in (1, 5, 3, 7, 0, 4, 2, 6)]
        assert [one.order for one in await front(store)] == sorted(one.order for one in await front(store))


async def test_the_cursor_passes_every_lane_exactly_once(place: Place) -> None:
    keys = {(chat, thread) for chat in CHATS for thread in (0, 1, 77)}
    async with place.open() as store:
        await accept(store, *(draft(chat, thread=thread) for chat, thread in keys for _ in range(2)))
        await accept(store, draft(999, bot_id=OTHER_BOT), draft(998, rank=0))
        for lanes in (1, 3, 7, len(keys), 100):
            seen = [key for key, _ in await sweep_all(store, 2, lanes=lanes)]
            assert len(seen) == len(keys)
            assert set(seen) == keys


async def test_a_sweep_brings_the_front_of_each_lane_over_all_ranks(place: Place) -> None:
    async with place.open() as store:
        low, high, _ = await accept(store, draft(1, rank=3), draft(1, rank=0), draft(2, rank=0))
        for rank in (0, 3):
            found = dict(await sweep_all(store, rank, lanes=10))
            assert [one.id for one in found[1, 0].letters] == [high, low]
        assert await sweep_all(store, 1, lanes=10) == []


async def test_more_is_said_exactly_when_there_is_more(place: Place) -> None:
    async with place.open() as store:
        for chat, count in ((1, 2), (2, 3), (3, 4)):
            await accept(store, *(draft(chat, rank=turn % RANKS) for turn in range(count)))
        swept = {
            key[0]: (len(found.letters), found.more) for key, found in await sweep_all(store, 0, lanes=9, letters=3)
        }
        read = await store.fronts(BOT, [(1, 0), (2, 0), (3, 0), (4, 0)], letters=3)
    assert swept == {1: (2, False), 2: (3, False), 3: (3, True)}
    assert {key[0]: (len(found.letters), found.more) for key, found in read.items()} == {**swept, 4: (0, False)}


async def test_a_long_lane_does_not_hide_the_others(place: Place) -> None:
    async with place.open() as store:
        await accept(store, *(draft(5) for _ in range(5000)), draft(4), draft(6), draft("@seven"))
        found = await sweep_all(store, 2, lanes=2, letters=16)
    assert {key: (len(one.letters), one.more) for key, one in found} == {
        (4, 0): (1, False),
        (5, 0): (16, True),
        (6, 0): (1, False),
        ("@seven", 0): (1, False),
    }


async def test_a_number_and_the_same_digits_as_text_are_two_chats(place: Place) -> None:
    async with place.open() as store:
        number, text = await accept(store, draft(12), draft("12"))
        assert [one.id for one in await front(store, 12)] == [number]
        assert [one.id for one in await front(store, "12")] == [text]
        assert {key for key, _ in await sweep_all(store, 2, lanes=1)} == {(12, 0), ("12", 0)}
