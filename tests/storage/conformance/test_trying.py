"""A letter is marked, tried and settled: only as it was read, only under one's own epoch, and seen by who comes after."""

import asyncio
import json

import msgspec
import pytest

from peik.core.letter import OnUncertain
from peik.core.lifecycle import Move, end_unsent, settle
from peik.core.outcome import Outcome
from peik.outbox.store import SentMessage, Tally
from tests.storage.acts import (
    BROKE_OFF,
    HOUR,
    LATER,
    NEVER,
    NO_NETWORK,
    NOW,
    SENT,
    accept,
    advance,
    attempt,
    conclude,
    draft,
    edit,
    find,
    front,
    left_in_flight,
    mark,
    state,
    tally,
)
from tests.storage.places import BOT, OTHER_BOT, Place


async def test_a_mark_takes_only_while_the_letter_waits_as_it_was_read(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, draft(1), draft(2), draft(3))
        first, second, third = [await find(store, one) for one in ids]
        await attempt(store, second, LATER)
        assert await mark(store, first, second, third) == [ids[0], ids[2]]
        assert await mark(store, first) == []  # in flight already
        assert await tally(store) == Tally(active=2, delayed=1)


async def test_a_letter_that_has_ended_or_left_its_place_cannot_be_marked(place: Place) -> None:
    async with place.open() as store:
        sent, old = await accept(store, draft(1), edit())
        first, second = await find(store, sent), await find(store, old)
        await attempt(store, first, SENT)
        await accept(store, edit())
        elsewhere = msgspec.structs.replace(await find(store, old + 1), number=99)
        assert await mark(store, first, second, elsewhere) == []


@pytest.mark.parametrize(
    ("outcome", "ends", "counted"),
    [
        (SENT, "completed", Tally(waiting=1, completed=1)),
        (NO_NETWORK, "waiting", Tally(waiting=2)),
        (LATER, "delayed", Tally(waiting=1, delayed=1)),
        (BROKE_OFF, "delayed", Tally(waiting=1, delayed=1)),
        (NEVER, "failed", Tally(waiting=1, failed=1)),
    ],
)
async def test_each_outcome_is_stored_and_counted(place: Place, outcome: Outcome, ends: str, counted: Tally) -> None:
    async with place.open() as store:
        letter_id, _ = await accept(store, draft(1), draft(2))
        letter = await find(store, letter_id)
        await mark(store, letter)
        assert await tally(store) == Tally(waiting=1, active=1)
        assert await state(store, letter_id) == "active"
        await conclude(store, letter, outcome)
        assert await tally(store) == counted
    async with place.open() as store:
        assert await state(store, letter_id) == ends
        assert (await tally(store, NOW + HOUR)).delayed == 0  # what backed off simply waits when it is due


@pytest.mark.parametrize("move", [Move.EXPIRE, Move.SHUT_OUT, Move.ORPHAN])
async def test_letters_end_without_a_try_unless_they_are_in_flight(place: Place, move: Move) -> None:
    async with place.open() as store:
        ids = await accept(store, draft(1), draft(2))
        waiting, flying = [await find(store, one) for one in ids]
        await mark(store, flying)
        await advance(store, [end_unsent(one, move, "because", at_ms=NOW) for one in (waiting, flying)], [])
        assert await tally(store) == Tally(failed=1, active=1)
        view = await store.letter(waiting.id)
        assert view is not None
        assert (view.failed_reason, json.loads(view.history or "")[0]["words"]) == ("because", "because")


async def test_settling_and_marking_again_fit_into_one_step(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        letter = await find(store, letter_id)
        await mark(store, letter)
        marked = await advance(store, [settle(letter, NO_NETWORK, at_ms=NOW)], [letter])
        assert marked.taken is None
        assert await state(store, letter_id) == "active"


async def test_a_settlement_without_a_mark_and_a_second_one_change_nothing(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        letter = await find(store, letter_id)
        await conclude(store, letter, NEVER)
        assert await tally(store) == Tally(waiting=1)
        await mark(store, letter)
        await advance(store, [settle(letter, outcome, at_ms=NOW) for outcome in (SENT, NEVER)], [])
        await conclude(store, letter, NEVER)
        assert await tally(store) == Tally(completed=1)
        assert await state(store, letter_id) == "completed"


async def test_what_a_crash_left_in_flight_is_the_next_owners_to_settle(place: Place) -> None:
    async with place.open() as store:
        flying, waiting, elsewhere = await accept(store, draft(1), draft(2), draft(3, bot_id=OTHER_BOT))
        letter = await find(store, flying)
        await mark(store, letter, await find(store, elsewhere))
        await place.crash(store)
    async with place.open() as store:
        assert await left_in_flight(store) == [letter]
        await conclude(store, letter, BROKE_OFF)
        assert await left_in_flight(store) == []
        assert (await tally(store), await tally(store, bot_id=OTHER_BOT)) == (
            Tally(waiting=1, delayed=1),
            Tally(active=1),
        )
        assert await state(store, waiting) == "waiting"


async def test_a_zombie_neither_marks_nor_settles(place: Place) -> None:
    async with place.open() as zombie:
        flying, waiting = [await find(zombie, one) for one in await accept(zombie, draft(1), draft(2))]
        await mark(zombie, flying)
        place.unseat()
        async with place.open() as owner:
            assert await left_in_flight(owner) == [flying]
            assert await mark(zombie, waiting) == []
            await conclude(zombie, flying, SENT)
            assert await state(owner, flying.id) == "active"
            await conclude(owner, flying, BROKE_OFF)
            assert await mark(owner, waiting) == [waiting.id]
            assert await tally(owner) == Tally(active=1, delayed=1)


@pytest.mark.parametrize("count", [2, 5, 33, 64, 65, 70])
async def test_a_step_of_any_size_settles_what_was_marked_and_nothing_else(place: Place, count: int) -> None:
    async with place.open() as store:
        letters = [
            await find(store, one) for one in await accept(store, *(draft(chat) for chat in range(1, count + 1)))
        ]
        assert await mark(store, *letters[1:]) == [letter.id for letter in letters[1:]]
        await advance(store, [settle(letter, SENT, at_ms=NOW) for letter in letters], [])
        assert await tally(store) == Tally(waiting=1, completed=count - 1)
        views = [await store.letter(letter.id) for letter in letters]
        assert [view is not None and view.result for view in views] == [None] + [SENT.result.decode()] * (count - 1)
        assert await left_in_flight(store) == []


async def test_who_is_not_the_owner_marks_nothing(place: Place) -> None:
    async with place.open() as owner, place.open(is_owner=False) as other:
        (letter_id,) = await accept(owner, draft(1))
        assert await mark(other, await find(other, letter_id)) == []
        assert await mark(owner, await find(owner, letter_id)) == [letter_id]


async def test_the_history_is_bounded_and_keeps_its_beginning_and_its_end(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        letter = await find(store, letter_id)
        for turn in range(150):
            await attempt(store, letter, NO_NETWORK, at_ms=NOW + turn)
        await attempt(store, letter, NEVER, at_ms=NOW + 150)
        view = await store.letter(letter_id)
    assert view is not None
    lines = json.loads(view.history or "")
    assert len(lines) == 100
    assert [line["at"] - NOW for line in lines[:2]] == [0, 1]
    assert lines[-1]["words"] == NEVER.words


async def test_the_last_minutes_sends_are_known_after_a_restart(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, draft(1, weight=3), draft(2), draft(3), draft(4, bot_id=OTHER_BOT))
        for at, letter_id in enumerate(ids):
            await attempt(store, await find(store, letter_id), SENT, at_ms=NOW + at * 1000)
    async with place.open() as store:
        recent = await store.recent_tries(BOT, since_ms=NOW + 1000)
    assert recent == [SentMessage(chat=2, weight=1, at_ms=NOW + 1000), SentMessage(chat=3, weight=1, at_ms=NOW + 2000)]


async def test_the_last_minutes_edits_are_told_from_the_sends(place: Place) -> None:
    async with place.open() as store:
        sent, edited, unsure = await accept(store, draft(1), edit("m5", chat=1), edit("m6", chat=2))
        await attempt(store, await find(store, sent), SENT, at_ms=NOW + 1000)
        await attempt(store, await find(store, edited), SENT, at_ms=NOW + 2000)
        await attempt(store, await find(store, unsure), BROKE_OFF, at_ms=NOW + 3000)
    async with place.open() as store:
        recent = await store.recent_tries(BOT, since_ms=NOW)
    assert recent == [
        SentMessage(chat=1, weight=1, at_ms=NOW + 1000),
        SentMessage(chat=1, weight=1, at_ms=NOW + 2000, is_edit=True),
        SentMessage(chat=2, weight=1, at_ms=NOW + 3000, is_edit=True),
    ]


async def test_senders_that_ask_for_the_last_minutes_sends_at_once_get_their_own_each(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, draft(1), draft(2), draft(3, bot_id=OTHER_BOT), draft(4, bot_id=OTHER_BOT))
        for at, letter_id in enumerate(ids):
            await attempt(store, await find(store, letter_id), SENT, at_ms=NOW + at * 1000)
    async with place.open() as store:
        asked = [(BOT, 0), (OTHER_BOT, 0), (BOT, 1000), (OTHER_BOT, 3000), (999, 0)]
        recent = await asyncio.gather(*(store.recent_tries(bot, since_ms=NOW + after) for bot, after in asked))
        assert [[one.chat for one in tries] for tries in recent] == [[1, 2], [3, 4], [2], [4], []]
        later = (await accept(store, draft(5)))[0]
        await attempt(store, await find(store, later), SENT, at_ms=NOW + 5000)
        assert [one.chat for one in await store.recent_tries(BOT, since_ms=NOW)] == [1, 2, 5]


async def test_tries_that_may_have_arrived_count_among_the_last_minutes_sends(place: Place) -> None:
    async with place.open() as store:
        backing_off, delivered, dead = await accept(store, draft(1), draft(2), draft(3, on_uncertain=OnUncertain.HOLD))
        for at, letter_id in enumerate((backing_off, delivered, dead), start=1):
            await attempt(store, await find(store, letter_id), BROKE_OFF, at_ms=NOW + at * 1000)
        await attempt(store, await find(store, delivered), SENT, at_ms=NOW + 4000)
        await attempt(store, await find(store, backing_off), NO_NETWORK, at_ms=NOW + 5000)  # and waits, not backs off
    async with place.open() as store:
        recent = await store.recent_tries(BOT, since_ms=NOW)
    assert [(one.chat, one.at_ms - NOW) for one in recent] == [(1, 1000), (2, 2000), (3, 3000), (2, 4000)]


async def test_one_lanes_tries_leave_its_neighbours_where_they_are(place: Place) -> None:
    async with place.open() as store:
        first, second, third = await accept(store, draft(1), draft(1), draft(1))
        await attempt(store, await find(store, first), LATER)
        assert [one.id for one in await front(store)] == [first, second, third]
        await attempt(store, (await front(store))[0], SENT)
        assert [one.id for one in await front(store)] == [second, third]
