"""The sender looks for work: fronts of lanes in their order, and a cursor that passes every lane once."""

from typing import Any

from peik.core.letter import RANKS, UNASKED_RANK, Draft, Priority
from peik.outbox.store import Store
from tests.storage.acts import LATER, accept, conclude, draft, find, front, mark, sweep_all
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


# ---- priorities that were judged: they count between chats, and in its lane order stays as accepted ----

HIGH, NORMAL, BULK = (one.rank for one in (Priority.HIGH, Priority.NORMAL, Priority.BULK))


def judged(chat: int = 1, *, rank: int = HIGH, **terms: Any) -> Draft:
    return draft(chat, rank=rank, is_judged=True, **terms)


async def order(store: Store, chat: int = 1, thread: int = 0) -> list[tuple[int, int]]:
    return [(one.id, one.rank) for one in await front(store, chat, thread)]


async def test_an_answer_lifts_what_came_before_it_and_passes_only_bulk_that_was_said(place: Place) -> None:
    async with place.open() as store:
        unasked, normal, bulk, urgent = await accept(
            store, judged(rank=UNASKED_RANK), draft(), draft(rank=BULK), draft(rank=0)
        )
        (elsewhere,) = await accept(store, judged(2, rank=UNASKED_RANK))
        (threaded,) = await accept(store, draft(1, thread=7))
        (answer,) = await accept(store, judged())
        assert await order(store) == [(urgent, 0), (unasked, HIGH), (normal, HIGH), (answer, HIGH), (bulk, BULK)]
        assert await order(store, 2) == [(elsewhere, UNASKED_RANK)]
        assert await order(store, 1, 7) == [(threaded, NORMAL)]
        assert {stub.lane for stub in place.heard.joined} == {(1, 0)}
        view = await store.letter(unasked)
        assert view is not None
        assert view.rank == HIGH
    async with place.open() as store:
        assert [key for key, _ in await sweep_all(store, HIGH, lanes=9)] == [(1, 0)]
        assert [key for key, _ in await sweep_all(store, UNASKED_RANK, lanes=9)] == [(2, 0)]
        assert [one for one, _ in await order(store)] == [urgent, unasked, normal, answer, bulk]


async def test_what_is_accepted_in_one_commit_keeps_its_order_as_well(place: Place) -> None:
    async with place.open() as store:
        first, second, third, fourth = await accept(
            store, judged(rank=UNASKED_RANK), judged(rank=NORMAL), judged(2, rank=UNASKED_RANK), judged()
        )
        assert await order(store) == [(first, HIGH), (second, HIGH), (fourth, HIGH)]
        assert await order(store, 2) == [(third, UNASKED_RANK)]


async def test_a_normal_letter_that_was_judged_lifts_the_unasked_alone(place: Place) -> None:
    async with place.open() as store:
        unasked, bulk = await accept(store, judged(rank=UNASKED_RANK), draft(rank=BULK))
        (normal,) = await accept(store, judged(rank=NORMAL))
        assert await order(store) == [(unasked, NORMAL), (normal, NORMAL), (bulk, BULK)]
        (said,) = await accept(store, draft(rank=HIGH))  # by hand: it goes before
        assert [one for one, _ in await order(store)] == [said, unasked, normal, bulk]


async def test_one_in_flight_is_lifted_too_and_stands_before_the_answer_again(place: Place) -> None:
    async with place.open() as store:
        (flying,) = await accept(store, judged(rank=UNASKED_RANK))
        letter = await find(store, flying)
        await mark(store, letter)
        (answer,) = await accept(store, judged())
        await conclude(store, letter, LATER)
        assert await order(store) == [(flying, HIGH), (answer, HIGH)]
        await mark(store, await find(store, flying), at_ms=place.clock.now_ms + 60_000)


async def test_a_letter_that_is_named_is_lifted_with_all_that_it_must_not_pass(place: Place) -> None:
    async with place.open() as store:
        before, chained = await accept(store, judged(2, rank=UNASKED_RANK), draft(3, rank=BULK))
        named, after = await accept(store, draft(2, awaits=chained), draft(2))
        (answer,) = await accept(store, judged(1, awaits=named))
        assert await order(store, 2) == [(before, HIGH), (named, HIGH), (after, NORMAL)]
        assert await order(store, 3) == [(chained, HIGH)]
        assert await order(store, 1) == [(answer, HIGH)]
        assert {stub.lane for stub in place.heard.joined} == {(2, 0), (3, 0)}


async def test_a_letter_that_stands_apart_is_lifted_and_comes_back_as_it_was_lifted(place: Place) -> None:
    async with place.open() as store:
        (first,) = await accept(store, draft(3))
        (parked,) = await accept(store, judged(2, rank=UNASKED_RANK, awaits=first))
        await store.park(await find(store, parked))
        await accept(store, judged(1, awaits=parked))
        assert await order(store, 2) == []
        assert await order(store, 3) == [(first, HIGH)]
        await store.cancel(first, at_ms=place.clock.now_ms)
        assert await order(store, 2) == [(parked, HIGH)]
