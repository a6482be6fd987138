"""Several nodes on one schema: numbers without gaps, one answer to each question, and leases under real locks."""

import asyncio
from contextlib import AsyncExitStack

import asyncpg

from peik.core.lifecycle import Move, end_unsent
from peik.core.nodes import CHORES
from peik.core.token import Token
from peik.errors import Conflict
from peik.outbox.store import BotRecord, Tally
from tests.storage.acts import (
    NOW,
    SENT,
    accept,
    advance,
    conclude,
    draft,
    find,
    front,
    left_in_flight,
    mark,
    state,
    tally,
)
from tests.storage.places import BOT, OTHER_BOT
from tests.storage.postgres.facts import locked_out, until
from tests.storage.postgres_place import PostgresPlace


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


# ---- leases ----


async def test_nodes_that_beat_at_once_never_hold_the_same_lease(place: PostgresPlace) -> None:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(place.open(is_owner=False)) for _ in range(4)]
        for bot_id in range(100, 140):
            await nodes[0].save_bot(BotRecord(bot_id=bot_id, token=Token(f"{bot_id}:secret")))
        for turn in range(10):
            beats = await asyncio.gather(*(node.nodes.beat() for node in nodes))
            held = [bot_id for beat in beats for bot_id in beat.leases]
            assert len(held) == len(set(held)) == 43
            if turn % 3 == 2:
                place.expire_leases()
            await asyncio.gather(
                *(node.nodes.release(list(beat.leases)[turn:]) for node, beat in zip(nodes, beats, strict=True))
            )


async def test_a_lease_changes_hands_only_after_every_commit_that_marks_under_it(place: PostgresPlace) -> None:
    async with place.open(), place.open(is_owner=False) as next_one:
        marking = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await marking.execute(f"BEGIN; SELECT 1 FROM leases WHERE bot_id = {BOT} FOR KEY SHARE")  # as `mark` does
        place.expire_leases()
        assert set((await next_one.nodes.beat()).leases) == {CHORES, OTHER_BOT}  # it waits for nobody
        await marking.execute("COMMIT")
        assert set((await next_one.nodes.beat()).leases) == {CHORES, OTHER_BOT, BOT}
        await marking.close()


async def test_the_lock_of_a_mark_is_the_one_that_keeps_its_lease(place: PostgresPlace) -> None:
    async with place.open() as owner, place.open(is_owner=False) as next_one:
        letter = await find(owner, (await accept(owner, draft(1)))[0])
        # Somebody holds the letter's index entry, so that the marking commit stands still in its middle.
        blocker = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await blocker.execute(f"BEGIN; INSERT INTO marks VALUES ({letter.id}, {BOT}, 0, 0, 0)")
        marked = asyncio.create_task(mark(owner, letter))
        await until(lambda: locked_out(place, 1))
        assert BOT in (await owner.nodes.beat()).leases  # going on waits for no mark
        place.expire_leases()
        assert BOT not in (await next_one.nodes.beat()).leases
        await blocker.execute("ROLLBACK")
        await blocker.close()
        assert await marked == [letter.id]
        epoch = (await next_one.nodes.beat()).leases[BOT]
        assert await next_one.left_in_flight(BOT, epoch=epoch) == [letter]


async def test_a_mark_that_meets_a_lease_on_its_way_to_another_waits_and_does_not_take(place: PostgresPlace) -> None:
    async with place.open() as zombie:
        letter = await find(zombie, (await accept(zombie, draft(1)))[0])
        taking = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
        await taking.execute(
            f"""
            BEGIN;
            SELECT 1 FROM leases WHERE bot_id = {BOT} FOR UPDATE;
            UPDATE leases SET node = 'another', epoch = nextval('epochs') WHERE bot_id = {BOT}
            """
        )
        marked = asyncio.create_task(mark(zombie, letter))
        await until(lambda: locked_out(place, 1))
        await taking.execute("COMMIT")
        assert await marked == []
        await taking.close()


async def test_who_has_lost_a_lease_takes_nothing_from_the_next_one_and_ends_nothing(place: PostgresPlace) -> None:
    async with place.open() as zombie:
        letter, waiting = [await find(zombie, one) for one in await accept(zombie, draft(1), draft(2))]
        place.expire_leases()
        async with place.open() as owner:
            assert await mark(owner, letter) == [letter.id]
            assert await left_in_flight(zombie) == []
            await advance(zombie, [end_unsent(waiting, Move.SHUT_OUT, "shut once", at_ms=NOW)], [])
            assert await state(owner, waiting.id) == "waiting"
            await conclude(owner, letter, SENT)
            assert await state(owner, letter.id) == "completed"
