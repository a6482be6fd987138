"""Letters come in: numbered without gaps, heard of in order, all or nothing, and once per idempotency key."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from peik.core.letter import Draft, Letter, OnUncertain, State
from peik.errors import BadInput, Conflict, NotFound
from peik.outbox.store import AcceptedLetter, Retention
from tests.storage.acts import HOUR, NOW, SENT, accept, all_lanes, attempt, draft, find, front, state, tally
from tests.storage.places import BOT, OTHER_BOT, Place, Recorder

KEEP = Retention(completed_ms=7 * HOUR, dead_ms=30 * HOUR, log_ms=90 * HOUR)


async def test_what_was_accepted_comes_back_as_it_was_given(place: Place) -> None:
    given = draft(-100, text="پیک 📨 \\u0000", thread=4, weight=0, rank=1, attempts=9, backoff_ms=5, timeout_ms=70)
    async with place.open() as store:
        await accept(store, given)
    async with place.open() as store:
        (letter,) = await front(store, -100, 4)
    for name in ("method", "params", "chat", "thread", "weight", "rank", "attempts", "backoff_ms", "timeout_ms"):
        assert getattr(letter, name) == getattr(given, name), name


@pytest.mark.parametrize("on_uncertain", OnUncertain)
@pytest.mark.parametrize("counts", [False, True])
async def test_what_an_uncertain_try_means_is_kept(place: Place, on_uncertain: OnUncertain, *, counts: bool) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(5, on_uncertain=on_uncertain, counts_uncertain=counts))
    async with place.open() as store:
        letter, view = await find(store, letter_id), await store.letter(letter_id)
    assert view is not None
    assert (letter.on_uncertain, view.on_uncertain) == (on_uncertain, on_uncertain)
    assert letter.counts_uncertain is (counts and on_uncertain is OnUncertain.RESEND)  # who holds it counts nothing


@pytest.mark.parametrize(
    "labels", [{"user_id": "u1"}, {"message_type": "bill"}, {"user_id": "u1", "message_type": "bill", "metadata": "{}"}]
)
async def test_labels_are_kept_with_and_without_metadata(place: Place, labels: dict[str, str]) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(**labels))
        view = await store.letter(letter_id)
    assert view is not None
    assert {name: getattr(view, name) for name in labels} == labels


async def test_numbers_have_no_gaps_over_many_callers_and_bots(place: Place) -> None:
    async def caller(who: int) -> None:
        for turn in range(10):
            await accept(store, draft(who, bot_id=BOT), draft(turn, bot_id=OTHER_BOT), draft(who, bot_id=BOT))

    async with place.open() as store:
        await asyncio.gather(*(caller(who) for who in range(20)))
        heard = {bot_id: [one.number for one in place.heard.accepted if one.bot_id == bot_id] for bot_id in (7, 8)}
        counted = await tally(store)
    assert heard == {BOT: list(range(1, 401)), OTHER_BOT: list(range(1, 201))}
    assert counted.waiting == 400


async def test_two_processes_number_their_letters_in_one_order(place: Place) -> None:
    async with place.open() as owner, place.open(is_owner=False) as other:
        await asyncio.gather(*(accept(store, draft(who)) for who in range(20) for store in (owner, other)))
        assert sorted(one.number for one in place.heard.accepted) == list(range(1, 41))
        assert (await tally(owner)).waiting == 40


async def test_the_listener_hears_of_letters_in_order_and_before_the_caller(place: Place) -> None:
    async def caller(who: int) -> None:
        for _ in range(5):
            (letter_id,) = await accept(store, draft(who))
            assert letter_id in {one.id for one in place.heard.accepted}

    async def clock() -> None:
        for _ in range(5):
            await store.join_due(at_ms=NOW + HOUR, limit=2)

    async with place.open() as store:
        await accept(store, *(draft(3, send_at_ms=NOW + 1) for _ in range(10)))
        await asyncio.gather(*(caller(who) for who in range(10)), clock(), *(caller(who) for who in range(10)))
    numbers = [one.number for one in place.heard.accepted]
    assert numbers == list(range(1, 111))


async def test_a_listener_that_fails_keeps_no_caller_waiting(place: Place) -> None:
    class Clumsy(Recorder):
        def on_accepted(self, letters: Sequence[Letter]) -> None:
            raise ZeroDivisionError

    surprises: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context["exception"]))
    async with place.open() as store:
        store.listen(Clumsy())
        await asyncio.gather(*(accept(store, draft(who)) for who in range(3)))
        assert (await tally(store)).waiting == 3
    # A store may tell all letters of a commit together, so how often it failed is not said.
    assert {type(one) for one in surprises} == {ZeroDivisionError}


async def test_a_batch_is_stored_as_a_whole_or_not_at_all(place: Place) -> None:
    async with place.open() as store:
        with pytest.raises(NotFound):
            await accept(store, draft(1), draft(1, bot_id=99), draft(1))
        assert await all_lanes(store) == {}
        await accept(store, draft(1))
        assert [one.number for one in await front(store)] == [1]
        assert (await tally(store)).waiting == 1
    assert len(place.heard.accepted) == 1


@pytest.mark.parametrize("bad", [draft(bot_id=99), draft(idempotency_key="used", digest="other")])
async def test_a_bad_draft_in_a_group_commit_fails_alone(place: Place, bad: Draft) -> None:
    async with place.open() as store:
        await accept(store, draft(0, idempotency_key="used", digest="one"))
        drafts = [draft(chat) for chat in range(1, 20)]
        drafts.insert(9, bad)
        ended = await asyncio.gather(*(accept(store, one) for one in drafts), return_exceptions=True)
        failed = [one for one in ended if isinstance(one, BaseException)]
        assert len(failed) == 1
        assert isinstance(ended[9], NotFound | Conflict)
        assert len(await all_lanes(store)) == 20
    assert [one.number for one in place.heard.accepted] == list(range(1, 21))


async def test_an_empty_batch_is_no_work(place: Place) -> None:
    async with place.open() as store:
        assert await store.accept([], at_ms=NOW) == []


# ---- idempotency keys ----


async def test_what_comes_too_late_is_taken_only_as_a_repeat(place: Place) -> None:
    async with place.open() as store:
        given = draft(idempotency_key="k", digest="d", expires_at_ms=NOW + 5)
        (first,) = await accept(store, given)
        late = msgspec.structs.replace(given, is_too_late=True)
        (again,) = await store.accept([late], at_ms=NOW + 10)
        assert (again.letter_id, again.is_repeat) == (first, True)
        with pytest.raises(BadInput) as caught:
            await accept(store, msgspec.structs.replace(late, idempotency_key="other"))
    assert caught.value.code == "already_expired"


async def test_a_repeat_answers_with_the_letter_that_the_key_made(place: Place) -> None:
    given = draft(idempotency_key="k", digest="d")
    async with place.open() as store:
        (first,) = await store.accept([given], at_ms=NOW)
    async with place.open() as store:
        (again,) = await store.accept([given], at_ms=NOW + 47 * HOUR)
        assert again == AcceptedLetter(letter_id=first.letter_id, state=State.WAITING, is_repeat=True)
        assert not first.is_repeat
        assert (await tally(store)).waiting == 1


async def test_a_repeat_tells_how_the_letter_stands_now(place: Place) -> None:
    given = draft(idempotency_key="k", digest="d")
    async with place.open() as store:
        (letter_id,) = await accept(store, given)
        await attempt(store, await find(store, letter_id), SENT)
        (again,) = await store.accept([given], at_ms=NOW)
    assert again.state is State.COMPLETED


async def test_the_same_key_with_another_body_is_a_conflict(place: Place) -> None:
    async with place.open() as store:
        await accept(store, draft(idempotency_key="k", digest="one"))
        with pytest.raises(Conflict) as caught:
            await accept(store, draft(idempotency_key="k", digest="two"))
        await accept(store, draft(idempotency_key="k", digest="two", bot_id=OTHER_BOT))  # a key belongs to its bot
    assert caught.value.code == "idempotency_key_reused"


async def test_two_of_one_key_in_the_same_commit_are_one_letter(place: Place) -> None:
    given = draft(idempotency_key="k", digest="d")
    async with place.open() as store:
        several = await asyncio.gather(*(store.accept([given, given], at_ms=NOW) for _ in range(3)))
        answers = [one for batch in several for one in batch]
        assert len({one.letter_id for one in answers}) == 1
        assert [one.is_repeat for one in answers] == [False, True, True, True, True, True]
        assert len(await front(store)) == 1
    assert len(place.heard.accepted) == 1


async def test_a_key_is_taken_until_it_is_cleaned_whatever_the_clock_of_a_caller_says(place: Place) -> None:
    async with place.open() as store:
        given = draft(idempotency_key="k", digest="one")
        (first,) = await accept(store, given)
        (second,) = await accept(store, given, at_ms=NOW + 31 * 24 * HOUR)
        await store.clean(KEEP, at_ms=NOW + 48 * HOUR - 1, limit=100)
        (third,) = await accept(store, given, at_ms=NOW + 31 * 24 * HOUR)
        assert first == second == third
        with pytest.raises(Conflict):
            await accept(store, draft(idempotency_key="k", digest="two"), at_ms=NOW + 31 * 24 * HOUR)


async def test_a_key_is_free_again_after_48_hours(place: Place) -> None:
    async with place.open() as store:
        (first,) = await accept(store, draft(idempotency_key="k", digest="one"))
        await store.clean(KEEP, at_ms=NOW + 48 * HOUR, limit=100)
        (second,) = await accept(store, draft(idempotency_key="k", digest="two"), at_ms=NOW + 48 * HOUR)
        (third,) = await accept(store, draft(idempotency_key="k", digest="two"), at_ms=NOW + 49 * HOUR)
        assert second != first
        assert third == second
        assert await state(store, first) == "waiting"
