"""A waiting edit gives way to a newer one of the same target, ends as that one ends, and comes back if it was never sent."""

import asyncio

import pytest

from peik.core.letter import State
from peik.core.lifecycle import EXPIRED, Move, end_unsent
from peik.core.outcome import Outcome
from peik.errors import Conflict
from peik.outbox.store import Followed, Hook, LetterFilter, LetterView, Retention, Store, Stub, Tally
from tests.storage.acts import (
    BROKE_OFF,
    HOUR,
    LATER,
    NEVER,
    NOW,
    SENT,
    accept,
    advance,
    attempt,
    draft,
    edit,
    enclosed,
    find,
    front,
    mark,
    state,
    tally,
)
from tests.storage.places import OTHER_BOT, Place

ADDRESS = "https://shop.example/ends"


async def view_of(store: Store, letter_id: int) -> LetterView:
    view = await store.letter(letter_id)
    assert view is not None
    return view


async def order(store: Store, chat: int | str = 1) -> list[int]:
    return [one.id for one in await front(store, chat)]


async def hooks(store: Store) -> list[Hook]:
    return list((await store.hooks_due(at_ms=NOW + HOUR, after="", endpoints=10, each=10)).hooks)


async def test_a_newer_edit_takes_the_place_of_the_waiting_one(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        others = await accept(store, edit(target="m6"), edit(bot_id=OTHER_BOT), draft())
        (new,) = await accept(store, edit(text="newer"))
        view = await view_of(store, old)
        assert (str(view.state), view.merged_into, view.settled_at_ms) == ("delayed", new, None)
        assert await order(store) == [others[0], others[2], new]
        assert await tally(store) == Tally(waiting=3, delayed=1)
    assert place.heard.removed == [Stub(letter_id=old, bot_id=7, lane=(1, 0), into=new)]


@pytest.mark.parametrize(
    ("outcome", "ends", "reason", "result"),
    [(SENT, State.COMPLETED, None, '{"message_id":11}'), (NEVER, State.FAILED, "Bad Request: wrong", None)],
    ids=["delivered", "refused"],
)
async def test_merged_edits_end_as_the_newest_ends(
    place: Place, outcome: Outcome, ends: State, reason: str | None, result: str | None
) -> None:
    async with place.open() as store:
        (first,) = await accept(store, edit(hook=ADDRESS, trace="u1"))
        (second,) = await accept(store, edit())
        (third,) = await accept(store, edit(), at_ms=NOW + 1)
        assert await hooks(store) == []
        await attempt(store, await find(store, third), outcome, NOW + 5)
        views = [await view_of(store, one) for one in (first, second, third)]
        assert {(one.state, one.failed_reason, one.result, one.settled_at_ms) for one in views} == {
            (ends, reason, result, NOW + 5)
        }
        assert [one.merged_into for one in views] == [second, third, None]
        told = await hooks(store)
        assert [(one.letter_id, one.state) for one in told] == [(first, ends)], "its end is told once"
        counted = Tally(completed=3) if ends is State.COMPLETED else Tally(failed=3)
        assert await tally(store) == counted
        assert len(await store.recent_tries(7, since_ms=NOW)) == (1 if ends is State.COMPLETED else 0)
    assert sorted(place.heard.followed, key=lambda one: one.letter_id) == [
        Followed(
            letter_id=letter_id,
            bot_id=7,
            method="editMessageText",
            chat=1,
            state=ends,
            reason=reason,
            uncertain_tries=0,
            merged_into=into,
            trace=trace,
        )
        for letter_id, into, trace in ((first, second, "u1"), (second, third, None))
    ]


async def test_an_edit_comes_back_to_its_place_when_the_newer_is_taken_back(place: Place) -> None:
    async with place.open() as store:
        (first,) = await accept(store, edit())
        (between,) = await accept(store, draft())
        (second,) = await accept(store, edit())
        (third,) = await accept(store, edit())
        await store.cancel(third, at_ms=NOW)
        assert await order(store) == [between, second]
        assert (await view_of(store, first)).merged_into == second
        await store.cancel(second, at_ms=NOW)
        assert await order(store) == [first, between]
        assert (await view_of(store, first)).merged_into is None
        assert await tally(store) == Tally(waiting=2, cancelled=2)
        await attempt(store, await find(store, first), SENT)
        assert await state(store, first) == "completed"
    assert [one.letter_id for one in place.heard.joined] == [second, first]
    assert place.heard.followed == []


async def test_what_is_taken_back_while_it_is_merged_leaves_the_others_with_the_newest(place: Place) -> None:
    async with place.open() as store:
        first, second, third = [(await accept(store, edit()))[0] for _ in range(3)]
        await store.cancel(second, at_ms=NOW)
        assert (await view_of(store, first)).merged_into == third
        await store.cancel(third, at_ms=NOW)
        assert await order(store) == [first]


async def test_many_that_are_taken_back_at_once(place: Place) -> None:
    async with place.open() as store:
        first, second, third = [(await accept(store, edit(user_id=user)))[0] for user in ("ann", "bob", "bob")]
        gone = await store.cancel_all(LetterFilter(user_id="bob"), at_ms=NOW, limit=10)
        assert {one.id for one in gone} == {second, third}
        assert await order(store) == [first]
        assert await tally(store) == Tally(waiting=1, cancelled=2)


async def test_an_edit_comes_back_when_the_newer_expires_unsent(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit(expires_at_ms=NOW + 10))
        (new,) = await accept(store, edit(expires_at_ms=NOW + 20))
        assert (await store.expire(at_ms=NOW + 15, limit=9))[0] == [], "what is merged does not expire by itself"
        expired, next_at = await store.expire(at_ms=NOW + 20, limit=9)
        assert [one.id for one in expired] == [new]
        assert (await order(store), next_at) == ([old], NOW + 10)
        await store.expire(at_ms=NOW + 20, limit=9)
        assert (await view_of(store, old)).failed_reason == EXPIRED


async def test_the_sender_finds_the_newer_too_late(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (new,) = await accept(store, edit())
        await advance(store, [end_unsent(await find(store, new), Move.EXPIRE, EXPIRED, at_ms=NOW)], [])
        assert await order(store) == [old]


async def test_nobody_comes_back_after_a_try_that_may_have_arrived(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (new,) = await accept(store, edit(expires_at_ms=NOW + 9))
        await attempt(store, await find(store, new), BROKE_OFF)
        await store.expire(at_ms=NOW + 9, limit=9)
        assert [(await view_of(store, one)).failed_reason for one in (old, new)] == [EXPIRED, EXPIRED]


async def test_an_unreachable_chat_fails_both(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        stale = await find(store, old)
        (new,) = await accept(store, edit())
        await advance(store, [end_unsent(stale, Move.SHUT_OUT, "blocked", at_ms=NOW)], [])
        assert await state(store, old) == "delayed", "it has no place of its own any more"
        await advance(store, [end_unsent(await find(store, new), Move.SHUT_OUT, "blocked", at_ms=NOW)], [])
        assert [(await view_of(store, one)).failed_reason for one in (old, new)] == ["blocked", "blocked"]


async def test_who_backs_off_comes_back_with_his_time(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        await attempt(store, await find(store, old), LATER)
        (new,) = await accept(store, edit())
        assert await store.join_due(at_ms=NOW + HOUR, limit=9) == (0, None)
        await store.cancel(new, at_ms=NOW)
        assert [(one.id, one.due_at_ms, one.attempts_made) for one in await front(store)] == [(old, NOW + 2000, 1)]
        assert await tally(store) == Tally(delayed=1, cancelled=1)


async def test_who_comes_back_follows_its_chat(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, draft(-5, method="editMessageText", target="m5"))
        (new,) = await accept(store, draft(-5, method="editMessageText", target="m5"))
        await store.readdress(7, -5, -1005)
        await store.cancel(new, at_ms=NOW)
        assert [(one.id, one.is_moved) for one in await front(store, -1005)] == [(old, True)]


async def test_a_merged_edit_waits_through_a_crash(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit(idempotency_key="k", digest="d"))
        (new,) = await accept(store, edit())
        await place.crash(store)
    async with place.open() as store:
        (again,) = await store.accept([edit(idempotency_key="k", digest="d")], at_ms=NOW)
        assert (again.letter_id, again.state, again.is_repeat) == (old, State.DELAYED, True)
        await attempt(store, await find(store, new), SENT)
        assert await state(store, old) == "completed"


async def test_a_dead_edit_that_is_sent_again_is_on_its_own(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (new,) = await accept(store, edit())
        await attempt(store, await find(store, new), NEVER)
        await store.retry(old, at_ms=NOW)
        assert (await view_of(store, old)).merged_into is None
        await attempt(store, await find(store, old), SENT)
        assert (await state(store, old), await state(store, new)) == ("completed", "failed")


async def test_a_merged_edit_cannot_be_changed(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (new,) = await accept(store, edit())
        for rank, due in ((0, None), (None, NOW), (None, NOW + HOUR)):
            with pytest.raises(Conflict, match=f"gave way to letter {new}"):
                await store.change(old, rank=rank, due_at_ms=due, at_ms=NOW)


async def test_neither_retention_nor_a_bots_end_forgets_a_merged_edit(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (new,) = await accept(store, edit())
        keep = Retention(completed_ms=0, dead_ms=0, log_ms=HOUR)
        assert (await store.clean(keep, at_ms=NOW + HOUR, limit=9))[0] == 0
        assert await store.forgetting.drop_letters([old]) == 0
        with pytest.raises(Conflict, match="still has 2 letters"):
            await store.remove_bot(7)
        await attempt(store, await find(store, new), SENT)
        assert (await store.clean(keep, at_ms=NOW + HOUR, limit=9))[0] == 2


async def test_an_edit_in_flight_is_left_alone(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        await mark(store, await find(store, old))
        (new,) = await accept(store, edit())
        assert (await state(store, old), await state(store, new)) == ("active", "waiting")
    assert place.heard.removed == []


async def test_of_many_edits_in_one_commit_only_the_last_is_offered(place: Place) -> None:
    async with place.open() as store:
        batch, alone, last = await asyncio.gather(
            accept(store, edit(), edit()), accept(store, edit()), accept(store, edit())
        )
        assert await order(store) == last
        assert [await state(store, one) for one in batch + alone] == ["delayed"] * 3
        assert await tally(store) == Tally(waiting=1, delayed=3)
        await attempt(store, await find(store, last[0]), SENT)
        assert await tally(store) == Tally(completed=4)
    assert [one.id for one in place.heard.accepted] == last


async def test_the_files_of_a_merged_edit_live_as_long_as_it_may_come_back(place: Place) -> None:
    async with place.open() as store:
        await accept(store, edit(enclosed=(enclosed("old"),)))
        (new,) = await accept(store, edit(enclosed=(enclosed("new"),)))
        assert await store.blobs() == {"old", "new"}
        await attempt(store, await find(store, new), SENT)
        assert await store.blobs() == set()
    assert sorted(place.freed) == ["new", "old"]


async def test_what_refers_to_a_merged_edit_waits_until_that_ends(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        early, late = await accept(store, draft(2, awaits=old), draft(3, awaits=old))
        await store.park(await find(store, early))
        (new,) = await accept(store, edit())
        await store.park(await find(store, late))
        assert await tally(store) == Tally(waiting=1, delayed=3)
        await store.cancel(new, at_ms=NOW)
        assert [one.letter_id for one in place.heard.joined] == [old]
        (newest,) = await accept(store, edit())
        await attempt(store, await find(store, newest), SENT)
        assert [one.letter_id for one in place.heard.joined] == [old, early, late]
        assert await tally(store) == Tally(waiting=2, completed=2, cancelled=1)
        assert (await find(store, early)).awaits == old


async def test_an_edit_that_refers_to_another_does_not_replace_it(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (new,) = await accept(store, edit(awaits=old))
        assert await order(store) == [old, new]


async def test_a_scheduled_edit_replaces_nothing_before_its_time(place: Place) -> None:
    async with place.open() as store:
        (old,) = await accept(store, edit())
        (later,) = await accept(store, edit(send_at_ms=NOW + 5))
        (new,) = await accept(store, edit())
        assert [await state(store, one) for one in (old, later, new)] == ["delayed", "delayed", "waiting"]
        assert [(await view_of(store, one)).merged_into for one in (old, later)] == [new, None]
