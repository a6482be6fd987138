"""What time does: scheduled letters join, late ones expire, ended ones go into the log and their files with them."""

from peik.core.lifecycle import Move, end_unsent
from peik.outbox.store import Retention, Stub, Tally
from tests.storage.acts import (
    HOUR,
    LATER,
    NEVER,
    NOW,
    SENT,
    accept,
    advance,
    attempt,
    conclude,
    draft,
    enclosed,
    find,
    front,
    mark,
    state,
    tally,
)
from tests.storage.places import OTHER_BOT, Place

KEEP = Retention(completed_ms=7 * HOUR, dead_ms=30 * HOUR, log_ms=90 * HOUR)


async def test_what_ended_is_told_by_the_minute(place: Place) -> None:
    minute = NOW // 60_000
    async with place.open() as store:
        later = NOW + 60_000
        for chat, at_ms, end in ((1, NOW, SENT), (2, later, SENT), (3, later, SENT), (4, later, NEVER)):
            await accept(store, draft(chat))
            (letter,) = await front(store, chat)
            await attempt(store, letter, end, at_ms=at_ms)
        (cancelled,) = await accept(store, draft(5))
        await store.cancel(cancelled, at_ms=NOW)
        everything = {minute: (1, 0), minute + 1: (2, 1)}
        assert await store.ended_by_minute(since_ms=NOW - HOUR, until_ms=NOW + HOUR) == everything
        assert await store.ended_by_minute(since_ms=NOW + 60_000, until_ms=NOW + HOUR) == {minute + 1: (2, 1)}
        assert await store.ended_by_minute(since_ms=NOW - HOUR, until_ms=NOW + 60_000) == {minute: (1, 0)}
        assert await store.ended_by_minute(since_ms=NOW + HOUR, until_ms=NOW + 2 * HOUR) == {}


async def test_scheduled_letters_join_the_end_of_their_lane_in_due_order(place: Place) -> None:
    async with place.open() as store:
        late, soon, far = await accept(store, *(draft(send_at_ms=NOW + ms) for ms in (20, 10, 99)))
        (plain,) = await accept(store, draft())
        assert await tally(store) == Tally(waiting=1, delayed=3)
        assert await store.join_due(at_ms=NOW + 9, limit=10) == (0, NOW + 10)
        assert await store.join_due(at_ms=NOW + 20, limit=10) == (2, NOW + 99)
        assert [(one.id, one.number) for one in await front(store)] == [(plain, 1), (soon, 2), (late, 3)]
        assert await tally(store) == Tally(waiting=3, delayed=1)
        assert await state(store, far) == "delayed"
    assert [(one.id, one.number) for one in place.heard.accepted] == [(plain, 1), (soon, 2), (late, 3)]


async def test_joining_is_bounded_and_goes_on_where_it_stopped(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(chat, send_at_ms=NOW + chat) for chat in range(1, 301)))
        await accept(store, draft(1, bot_id=OTHER_BOT, send_at_ms=NOW + 1))
        joined = [await store.join_due(at_ms=NOW + 300, limit=100) for _ in range(4)]
    assert [count for count, _ in joined] == [100, 100, 100, 1]
    own = [one for one in place.heard.accepted if one.bot_id != OTHER_BOT]
    assert [(one.id, one.number) for one in own] == list(zip(ids, range(1, 301), strict=True))


async def test_a_letter_whose_time_has_come_already_is_not_set_apart(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(send_at_ms=NOW))
        assert [one.id for one in await front(store)] == [letter_id]


async def test_letters_that_back_off_are_not_taken_for_scheduled_ones(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft())
        await attempt(store, await find(store, letter_id), LATER)
        assert await store.join_due(at_ms=NOW + HOUR, limit=10) == (0, None)


async def test_late_letters_fail_wherever_they_stand_unless_in_flight(place: Place) -> None:
    terms = {"expires_at_ms": NOW + 10}
    async with place.open() as store:
        lane, flying, apart, later = await accept(
            store,
            draft(1, **terms),
            draft(2, **terms),
            draft(3, send_at_ms=NOW + 50, **terms),
            draft(4, expires_at_ms=NOW + 99),
        )
        await mark(store, await find(store, flying))
        assert await store.expire(at_ms=NOW + 9, limit=10) == ([], NOW + 10)
        expired, next_at = await store.expire(at_ms=NOW + 10, limit=10)
        assert {one.id: (str(one.state), one.failed_reason) for one in expired} == {
            lane: ("failed", "expired"),
            apart: ("failed", "expired"),
        }
        assert next_at == NOW + 10  # the one in flight
        assert await tally(store) == Tally(active=1, waiting=1, failed=2)
        assert await state(store, later) == "waiting"
    assert sorted(one.letter_id for one in place.heard.removed) == [lane, apart]
    assert Stub(letter_id=lane, bot_id=7, lane=(1, 0)) in place.heard.removed


async def test_ended_letters_go_after_their_time_and_the_others_stay(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(chat) for chat in range(1, 6)))
        done, dead, shut, waiting, flying = [await find(store, one) for one in ids]
        await attempt(store, done, SENT)
        await attempt(store, dead, NEVER)
        await advance(store, [end_unsent(shut, Move.SHUT_OUT, "blocked", at_ms=NOW)], [])
        await mark(store, flying)
        gone = []
        for hours in (7, 8, 29, 31, 1000):
            await store.clean(KEEP, at_ms=NOW + hours * HOUR, limit=100)
            gone.append([one for one in ids if await state(store, one) == "gone"])
        assert gone == [[], [done.id], [done.id], [done.id, dead.id, shut.id], [done.id, dead.id, shut.id]]
        assert await tally(store) == Tally(waiting=1, active=1)
        assert await state(store, waiting.id) == "waiting"


async def test_cleaning_is_bounded_and_says_how_much_went(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(chat, idempotency_key=f"k{chat}", digest="d") for chat in range(25)))
        letters = [await find(store, one) for one in ids]
        await mark(store, *letters)
        for letter in letters:
            await conclude(store, letter, SENT)
        counts = [(await store.clean(KEEP, at_ms=NOW + 8 * HOUR, limit=10))[0] for _ in range(4)]
        assert counts == [10, 10, 5, 0]
        keys = [(await store.clean(KEEP, at_ms=NOW + 48 * HOUR, limit=10))[0] for _ in range(4)]
        assert keys == [10, 10, 5, 0]


async def test_files_are_needed_until_their_letter_has_ended_well(place: Place) -> None:
    files = {name: (enclosed(name),) for name in ("sent", "dead", "waits", "later")}
    async with place.open() as store:
        sent, dead, _, _ = await accept(
            store,
            draft(1, enclosed=files["sent"]),
            draft(2, enclosed=files["dead"]),
            draft(3, enclosed=files["waits"]),
            draft(4, enclosed=files["later"], send_at_ms=NOW + 1),
        )
        assert (await find(store, sent)).enclosed == files["sent"]
        await attempt(store, await find(store, sent), SENT)
        await attempt(store, await find(store, dead), NEVER)
        assert place.freed == ["sent"]
        assert await store.blobs() == {"dead", "waits", "later"}
        _, blobs = await store.clean(KEEP, at_ms=NOW + 31 * HOUR, limit=10)
        assert "dead" in blobs
        assert await store.blobs() == {"waits", "later"}
        assert not set(blobs) & {"waits", "later"}
