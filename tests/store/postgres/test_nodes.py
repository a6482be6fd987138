"""Several nodes on one schema: numbers without gaps, one answer to each question, one who sends."""

import asyncio

import asyncpg
import pytest

from peik.errors import Conflict, StartError
from peik.ports import Tally
from tests.store.acts import NOW, SENT, accept, advance, attempt, conclude, draft, find, front, mark, state, tally
from tests.store.places import BOT, OTHER_BOT
from tests.store.postgres.facts import locked_out, until
from tests.store.postgres_place import PostgresPlace

LEASE_IS_OVER = "UPDATE leases SET expires_at = '-infinity'"


async def test_two_nodes_that_accept_at_once_number_without_gaps_and_in_order(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        told = await asyncio.gather(
            *(accept(node, draft(1), draft(2), draft(1, bot_id=OTHER_BOT)) for _ in range(40) for node in (one, other))
        )
        rows = await place.run("SELECT bot_id, id, number FROM letters ORDER BY id")
        assert sorted(row["id"] for row in rows) == sorted(letter_id for ids in told for letter_id in ids)
        for bot_id, count in ((BOT, 160), (OTHER_BOT, 80)):
            assert [row["number"] for row in rows if row["bot_id"] == bot_id] == list(range(1, count + 1))
        lane = [letter.id for letter in await front(one, 1, letters=100)]
        for node in (0, 1):  # what one caller accepted one after the other stands so
            mine = [ids[0] for ids in told[node::2]]
            assert [one for one in lane if one in mine] == sorted(mine)
        assert await tally(other) == Tally(waiting=160)
        assert (one.commits > 1, other.commits > 1) == (True, True)


async def test_one_key_at_two_nodes_at_once_makes_one_letter(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        for turn in range(20):
            call = draft(1, idempotency_key=f"k{turn}", digest="d")
            told = await asyncio.gather(*(node.accept([call], at_ms=NOW) for node in (one, other)))
            assert {answer.letter_id for (answer,) in told} == {told[0][0].letter_id}
            assert sorted(answer.is_repeat for (answer,) in told) == [False, True]
        assert await tally(one) == Tally(waiting=20)


async def test_a_letter_is_either_marked_or_cancelled_whoever_comes_first(place: PostgresPlace) -> None:
    async with place.open() as owner, place.open(is_owner=False) as other:
        for turn in range(30):
            (letter_id,) = await accept(owner, draft(turn))
            letter = await find(owner, letter_id)

            async def cancelled(letter_id: int = letter_id) -> bool:
                try:
                    await other.cancel(letter_id, at_ms=NOW)
                except Conflict:
                    return False
                return True

            taken, was_cancelled = await asyncio.gather(mark(owner, letter), cancelled())
            assert bool(taken) != was_cancelled
            assert await state(owner, letter_id) == ("cancelled" if was_cancelled else "active")


async def test_another_nodes_commits_are_heard_once_and_ones_own_never(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        await one.has_foreign_writes(), await other.has_foreign_writes()
        await accept(one, draft(1))
        await until(other.has_foreign_writes)
        await accept(other, draft(1))
        await until(one.has_foreign_writes)  # a commit later than its own, and its own was not heard before
        assert not await one.has_foreign_writes()
        assert not await other.has_foreign_writes()


async def test_a_commit_of_nothing_rings_no_bell(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        await other.has_foreign_writes()
        assert await one.join_due(at_ms=NOW, limit=10) == (0, None)
        await accept(one, draft(1))  # its bell is the first
        await until(other.has_foreign_writes)
        bells = await place.run("SELECT count(*) FROM letters")
        assert bells[0][0] == 1
        assert not await other.has_foreign_writes()


async def test_nodes_that_stand_in_each_others_way_are_both_served(place: PostgresPlace) -> None:
    async with place.open() as store:
        mine, theirs = await accept(store, draft(1), draft(1, bot_id=OTHER_BOT))
        rival = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await rival.execute(f"BEGIN; SELECT 1 FROM tallies WHERE bot_id = {OTHER_BOT} FOR UPDATE")
        # One commit: it holds the first bot and waits for the second one, which the rival holds …
        both = asyncio.gather(store.cancel(mine, at_ms=NOW), store.cancel(theirs, at_ms=NOW))
        await until(lambda: locked_out(place, 1))
        # … and now the rival wants the first one. PostgreSQL ends one of the two transactions.
        await rival.execute(f"SELECT 1 FROM tallies WHERE bot_id = {BOT} FOR UPDATE; COMMIT")
        await both
        await rival.close()
        assert (await state(store, mine), await state(store, theirs)) == ("cancelled", "cancelled")
        assert "deadlock detected" in place.server.log()


# ---- the right to send ----


async def test_there_is_one_owner_and_the_next_one_is_told_who_it_is(place: PostgresPlace) -> None:
    async with place.open() as owner:
        with pytest.raises(StartError, match=owner.node):
            async with place.open():
                pass
        async with place.open(is_owner=False) as guest:
            assert not await guest.claim()
            assert (owner.is_owner, guest.is_owner) == (True, False)
    async with place.open(is_owner=False) as guest:
        assert await guest.claim()  # given back at the end, not run out
        assert guest.epoch == 2


async def test_a_right_that_is_over_marks_nothing_even_if_nobody_has_taken_it(place: PostgresPlace) -> None:
    async with place.open() as owner:
        flying, waiting = [await find(owner, one) for one in await accept(owner, draft(1), draft(2))]
        assert await mark(owner, flying) == [flying.id]
        await place.run(LEASE_IS_OVER)
        assert await mark(owner, waiting) == []
        await conclude(owner, flying, SENT)  # what it did under its right still counts
        assert await state(owner, flying.id) == "completed"


async def test_who_has_lost_the_right_takes_nothing_from_the_next_one(place: PostgresPlace) -> None:
    async with place.open() as zombie:
        letter = await find(zombie, (await accept(zombie, draft(1)))[0])
        await place.run(LEASE_IS_OVER)
        async with place.open() as owner:
            assert await mark(owner, letter) == [letter.id]
            assert await zombie.left_in_flight(BOT) == []
            await conclude(owner, letter, SENT)
            assert await state(owner, letter.id) == "completed"


async def test_the_right_is_renewed_while_the_node_lives_and_taken_when_it_does_not(place: PostgresPlace) -> None:
    async with place.open(is_owner=False) as living, place.open(is_owner=False) as next_one:
        living._neighbourhood._ttl_s = 0.9
        living._neighbourhood._keeping.cancel()
        living._neighbourhood._keeping = asyncio.create_task(living._neighbourhood._keep())
        assert await living.claim()
        ends = await _ends_at(place)
        await until(lambda: _ends_later(place, ends))
        assert not await next_one.claim()
        living._neighbourhood._keeping.cancel()  # frozen
        await until(next_one.claim)
        assert (living.epoch, next_one.epoch) == (1, 2)
        (letter_id,) = await accept(living, draft(1))
        letter = await find(living, letter_id)
        assert (await advance(living, [], [letter])).taken == frozenset()
        await attempt(next_one, letter, SENT)
        assert await living._neighbourhood._renewed()  # it wakes, and learns
        assert not living.is_owner


async def _ends_at(place: PostgresPlace) -> object:
    return (await place.run("SELECT expires_at FROM leases"))[0][0]


async def _ends_later(place: PostgresPlace, than: object) -> bool:
    return await _ends_at(place) > than


async def test_the_right_changes_hands_only_after_every_commit_that_marks_under_it(place: PostgresPlace) -> None:
    async with place.open(), place.open(is_owner=False) as next_one:
        marking = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await marking.execute("BEGIN; SELECT 1 FROM leases FOR KEY SHARE")  # as `mark` does
        await place.run(LEASE_IS_OVER)
        claimed = asyncio.create_task(next_one.claim())
        await until(lambda: locked_out(place, 1))
        assert not claimed.done()
        await marking.execute("COMMIT")
        assert await claimed
        await marking.close()


async def test_the_lock_of_a_mark_is_the_one_that_a_claim_waits_for(place: PostgresPlace) -> None:
    async with place.open() as owner, place.open(is_owner=False) as next_one:
        letter = await find(owner, (await accept(owner, draft(1)))[0])
        # Somebody holds the letter's index entry, so that the marking commit stands still in its middle.
        blocker = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await blocker.execute(f"BEGIN; INSERT INTO marks VALUES ({letter.id}, {BOT}, 0, 0, 0)")
        marked = asyncio.create_task(mark(owner, letter))
        await until(lambda: locked_out(place, 1))
        await place.run(LEASE_IS_OVER)
        claimed = asyncio.create_task(next_one.claim())
        await until(lambda: locked_out(place, 2))
        await blocker.execute("ROLLBACK")
        await blocker.close()
        assert (await marked, await claimed) == ([letter.id], True)
        assert await next_one.left_in_flight(BOT) == [letter]
