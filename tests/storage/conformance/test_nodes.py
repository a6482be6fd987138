"""Nodes that share a store share its bots: fairly, each bot one node's, and never two at once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from peik.core.letter import Letter
from peik.core.lifecycle import settle
from peik.core.nodes import CHORES
from peik.core.token import Token
from peik.outbox.store import BotRecord, Marked
from tests.storage.acts import BROKE_OFF, NOW, SENT, accept, draft, find, state
from tests.storage.places import BOT, OTHER_BOT
from tests.storage.shared_places import SHARED, SharedPlace

BOTS = (11, 12, 13, 14, 15, 16)
ALL = {CHORES, BOT, OTHER_BOT, *BOTS}  # nine leases
SHORT_S = 0.3


@pytest.fixture(params=SHARED, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    return request.param(tmp_path)


@asynccontextmanager
async def crew(place: SharedPlace, size: int) -> AsyncIterator[list[Any]]:
    """So many nodes on a store with eight bots. None of them has given a sign of life yet."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(place.open(is_owner=False)) for _ in range(size)]
        for bot_id in BOTS:
            await add_bot(nodes[0], bot_id)
        yield nodes


async def add_bot(store: Any, bot_id: int) -> None:
    await store.save_bot(BotRecord(bot_id=bot_id, token=Token(f"{bot_id}:secret")))


async def beat(store: Any, **how: bool) -> dict[int, int]:
    return dict((await store.nodes.beat(**how)).leases)


async def share_out(place: SharedPlace, *stores: Any) -> list[set[int]]:
    """What each node holds once all have lived for a while, and those that had too much have let it go."""
    for store in stores:
        await store.nodes.beat()
    place.season()
    for _ in range(2):
        for store in stores:
            answer = await store.nodes.beat()
            await store.nodes.release(sorted(answer.leases)[: answer.surplus])
    held = [set(await beat(store)) for store in stores]
    assert sum(map(len, held)) == len(set().union(*held))  # no lease is two nodes'
    return held


async def step(store: Any, epoch: int, *, marks: Sequence[Letter] = (), settled: Sequence[Any] = ()) -> Marked:
    answered: asyncio.Future[Marked] = asyncio.get_running_loop().create_future()
    store.advance(settled, marks, epoch=epoch, at_ms=NOW, done=answered.set_result)
    return await answered


async def takes(store: Any, epoch: int, letter: Letter) -> bool:
    marked = await step(store, epoch, marks=[letter])
    assert marked.error is None
    return marked.taken is None or letter.id in marked.taken


# ---- fair shares ----


async def test_a_node_alone_acts_for_all(place: SharedPlace) -> None:
    async with crew(place, 1) as (one,):
        answer = await one.nodes.beat()
        assert set(answer.leases) == ALL
        assert (answer.surplus, answer.is_whole) == (0, False)
        assert await beat(one) == dict(answer.leases)  # it goes on, under the same epochs


async def test_nodes_that_come_get_their_share_from_those_that_have_more(place: SharedPlace) -> None:
    async with crew(place, 3) as (one, two, three):
        assert set(await beat(one)) == ALL
        assert set(await beat(two)) == set()  # nothing is free yet,
        assert (await one.nodes.beat()).surplus == 0  # and nobody makes room for who may be gone in a moment
        place.season()
        assert (await one.nodes.beat()).surplus == 4
        held = await share_out(place, one, two)
        assert (sorted(map(len, held)), set().union(*held)) == ([4, 5], ALL)
        held = await share_out(place, one, two, three)
        assert (sorted(map(len, held)), set().union(*held)) == ([3, 3, 3], ALL)


@pytest.mark.parametrize("size", [2, 4, 5, 7])
async def test_nobody_goes_without_though_shares_cannot_be_equal(place: SharedPlace, size: int) -> None:
    async with crew(place, size) as nodes:
        await beat(nodes[0])
        for _ in range(size):  # some beats later
            held = await share_out(place, *nodes)
        assert set().union(*held) == ALL
        least = len(ALL) // size
        assert min(map(len, held)) >= least
        assert all(answer.surplus == 0 for answer in [await node.nodes.beat() for node in nodes])


async def test_a_node_that_dies_again_and_again_takes_no_bot_out_of_service(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        await share_out(place, one, two)
        for _ in range(3):
            looping = place.make(is_owner=False)
            await looping.open()
            assert await beat(looping) == {}
            answers = [await node.nodes.beat() for node in (one, two)]
            assert set().union(*(answer.leases for answer in answers)) == ALL
            assert [answer.surplus for answer in answers] == [0, 0]
            await looping.abandon()  # it seems to live for as long as a lease lasts


async def test_what_nobody_takes_for_long_is_taken_beyond_the_share(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        first, _ = await share_out(place, one, two)
        await two.nodes.release(await beat(two))  # and it does not come back for them
        assert set(await beat(one)) == first
        place.free_for_long()
        assert set(await beat(one)) == ALL
        assert (await one.nodes.beat()).surplus == 4  # when it does, it gets its share


async def test_what_the_dead_held_is_shared_by_the_living(place: SharedPlace) -> None:
    async with crew(place, 3) as (one, two, three):
        await share_out(place, one, two, three)
        place.expire_leases()  # and the third never comes back
        held = await share_out(place, one, two)
        assert (sorted(map(len, held)), set().union(*held)) == ([4, 5], ALL)
        assert {record.name for record in await one.nodes.nodes()} == {one.nodes.node, two.nodes.node}


async def test_leases_end_by_themselves_when_no_beat_comes(place: SharedPlace) -> None:
    async with place.open(is_owner=False) as living:
        frozen = type(living)(place.url, clock=place.clock, lease_s=SHORT_S)
        await frozen.open()
        assert frozen.nodes.lease_s == SHORT_S
        first = await beat(frozen)
        while set(held := await beat(living)) != {CHORES, BOT, OTHER_BOT}:  # noqa: ASYNC110  time passes on the server
            await asyncio.sleep(0.01)
        assert all(held[bot_id] > first[bot_id] for bot_id in held)
        await frozen.close()
        assert await beat(living) == held  # closing gives back what is one's own, and nothing else


async def test_a_node_that_drains_takes_nothing_and_is_asked_to_let_go_of_all(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        await share_out(place, one, two)
        answer = await one.nodes.beat(is_draining=True)
        assert answer.surplus == len(answer.leases) == 5
        await one.nodes.release(list(answer.leases))
        assert await beat(one, is_draining=True) == {}
        assert set(await beat(two)) == ALL
        assert [record.is_draining for record in await two.nodes.nodes()] in ([True, False], [False, True])


async def test_a_node_can_be_asked_to_drain_and_to_take_part_again(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        await share_out(place, one, two)
        assert await two.nodes.drain_node(one.nodes.node, is_draining=True)
        answer = await one.nodes.beat()
        assert answer.surplus == len(answer.leases) == 5
        await one.nodes.release(list(answer.leases))
        assert (await beat(one), set(await beat(two))) == ({}, ALL)
        (drained,) = [record for record in await two.nodes.nodes() if record.is_draining]
        assert drained.name == one.nodes.node
        assert await two.nodes.drain_node(one.nodes.node, is_draining=False)
        assert sorted(map(len, await share_out(place, one, two))) == [4, 5]
        assert not await two.nodes.drain_node("nobody", is_draining=True)


async def test_a_node_that_closes_gives_everything_back_at_once(place: SharedPlace) -> None:
    async with crew(place, 1) as (one,):
        async with place.open(is_owner=False) as two:
            await share_out(place, one, two)
            assert await two.nodes.take_lock("backup")
        assert set(await beat(one)) == ALL
        assert not await one.nodes.is_locked("backup")
        assert [record.name for record in await one.nodes.nodes()] == [one.nodes.node]


async def test_who_never_beats_holds_nothing_and_is_not_counted(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, guest):
        assert set(await beat(one)) == ALL
        assert (await one.nodes.beat()).surplus == 0
        await accept(guest, draft(1))
        assert [record.name for record in await guest.nodes.nodes()] == [one.nodes.node]


async def test_a_node_is_shown_with_what_it_holds(place: SharedPlace) -> None:
    async with crew(place, 1) as (one,):
        assert await one.nodes.nodes() == []
        node = type(one)(place.url, clock=place.clock, address="http://10.0.0.5:8081")
        await node.open()
        held = await beat(node)
        (record,) = await one.nodes.nodes()
        assert (record.name, record.address, record.is_draining) == (node.nodes.node, "http://10.0.0.5:8081", False)
        assert sorted(record.bots) == sorted(held)
        assert record.version
        assert 0 < record.started_at_ms <= record.seen_at_ms
        await node.close()


# ---- bots come and go ----


async def test_a_new_bot_is_leased_once(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        await share_out(place, one, two)
        await add_bot(one, 99)
        held = [await beat(one), await beat(two)]
        assert sorted(99 in some for some in held) == [False, True]


async def test_a_removed_bot_loses_its_lease_and_has_a_new_epoch_if_it_returns(place: SharedPlace) -> None:
    async with crew(place, 1) as (one,):
        first = (await beat(one))[11]
        await one.remove_bot(11)
        assert set(await beat(one)) == ALL - {11}
        await add_bot(one, 11)
        assert (await beat(one))[11] > first


# ---- epochs ----


async def test_epochs_rise_whenever_a_lease_is_taken(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        epochs = [(await beat(one))[BOT]]
        for _ in range(3):
            await one.nodes.release([BOT])
            epochs.append((await beat(one))[BOT])
        place.expire_leases()
        epochs.append((await beat(two))[BOT])
        assert epochs == sorted(set(epochs))
        assert epochs[0] > 0


async def test_a_lease_that_was_over_and_not_taken_goes_on_under_its_epoch(place: SharedPlace) -> None:
    async with crew(place, 1) as (one,):
        held = await beat(one)
        first, second = [await find(one, letter_id) for letter_id in await accept(one, draft(1), draft(2))]
        assert await takes(one, held[BOT], first)
        place.expire_leases()
        assert not await takes(one, held[BOT], second)  # it is over, although nobody else has it
        assert await beat(one) == held
        assert await takes(one, held[BOT], second)
        await step(one, held[BOT], settled=[settle(first, SENT, at_ms=NOW)])
        assert await state(one, first.id) == "completed"


async def test_a_settlement_counts_after_the_lease_was_over_if_nobody_took_it(place: SharedPlace) -> None:
    async with crew(place, 1) as (one,):
        held = await beat(one)
        letter = await find(one, (await accept(one, draft(1)))[0])
        assert await takes(one, held[BOT], letter)
        place.expire_leases()
        await step(one, held[BOT], settled=[settle(letter, SENT, at_ms=NOW)])
        assert await state(one, letter.id) == "completed"


# ---- zombies ----


async def test_a_node_acts_for_its_own_bots_and_for_no_other(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        before = await beat(one)
        await two.nodes.beat()
        flying, theirs, mine = [
            await find(one, letter_id)
            for letter_id in await accept(one, draft(1, bot_id=OTHER_BOT), draft(2, bot_id=OTHER_BOT), draft(1))
        ]
        assert await takes(one, before[OTHER_BOT], flying)
        await one.nodes.release([OTHER_BOT])
        after = await beat(two)
        assert set(after) == {OTHER_BOT}
        assert not await takes(one, before[OTHER_BOT], theirs)
        assert not await takes(two, before[BOT] - 1, mine)
        assert await takes(one, before[BOT], mine)
        assert await two.left_in_flight(OTHER_BOT, epoch=after[OTHER_BOT]) == [flying]
        assert await one.left_in_flight(OTHER_BOT, epoch=before[OTHER_BOT]) == []
        await step(one, before[OTHER_BOT], settled=[settle(flying, SENT, at_ms=NOW)])
        assert await state(one, flying.id) == "active"
        await step(two, after[OTHER_BOT], settled=[settle(flying, BROKE_OFF, at_ms=NOW)])
        assert await state(one, flying.id) == "delayed"
        assert await takes(two, after[OTHER_BOT], theirs)


async def test_steps_of_several_bots_in_one_commit_are_judged_each_by_its_own_lease(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        before = await beat(one)
        drafts = [draft(1, bot_id=bot_id) for bot_id in (BOT, OTHER_BOT, 11)]
        letters = [await find(one, letter_id) for letter_id in await accept(one, *drafts)]
        await two.nodes.beat()
        await one.nodes.release([OTHER_BOT])
        after = await beat(two)
        taken = await asyncio.gather(*(takes(one, before[letter.bot_id], letter) for letter in letters))
        assert taken == [True, False, True]
        assert await takes(two, after[OTHER_BOT], letters[1])


async def test_a_lease_that_was_let_go_marks_nothing_even_if_nobody_has_it(place: SharedPlace) -> None:
    async with crew(place, 1) as (one,):
        held = await beat(one)
        letter = await find(one, (await accept(one, draft(1)))[0])
        await one.nodes.release([BOT])
        assert not await takes(one, held[BOT], letter)


# ---- locks ----


async def test_a_lock_is_one_nodes_at_a_time(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        assert not await one.nodes.is_locked("backup")
        assert await one.nodes.take_lock("backup")
        assert await one.nodes.take_lock("backup")
        assert not await two.nodes.take_lock("backup")
        assert await two.nodes.take_lock("migration")
        await two.nodes.drop_lock("backup")  # not its own
        assert await two.nodes.is_locked("backup")
        await one.nodes.drop_lock("backup")
        assert not await one.nodes.is_locked("backup")
        assert await two.nodes.take_lock("backup")


async def test_a_lock_goes_on_with_the_beats_and_ends_without_them(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        assert await one.nodes.take_lock("backup")
        place.expire_leases()
        assert not await two.nodes.is_locked("backup")
        await one.nodes.beat()  # nobody took it meanwhile
        assert await two.nodes.is_locked("backup")
        place.expire_leases()
        assert await two.nodes.take_lock("backup")
        await one.nodes.beat()
        assert not await one.nodes.take_lock("backup")


# ---- bells that were missed ----


async def test_the_newest_numbers_are_known_of_ones_own_bots(place: SharedPlace) -> None:
    async with crew(place, 2) as (one, two):
        await share_out(place, one, two)
        await accept(two, draft(1), draft(1), draft(1, bot_id=OTHER_BOT), draft(1, send_at_ms=NOW + 1))
        numbers = {**await one.nodes.last_numbers(), **await two.nodes.last_numbers()}
        assert (numbers[BOT], numbers[OTHER_BOT]) == (2, 1)
        mine = await one.nodes.last_numbers()
        assert set(mine) <= set(await beat(one))
        assert mine.get(BOT, 0) == (2 if BOT in await beat(one) else 0)


async def test_new_letters_are_those_that_wait_in_their_lanes(place: SharedPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        held = await beat(one)
        ids = await accept(
            two, draft(1), draft(2), draft(3), draft(4, send_at_ms=NOW + 1), draft(5, bot_id=OTHER_BOT), draft(6)
        )
        flying, waiting, cancelled, _, _, last = ids
        assert await takes(one, held[BOT], await find(one, flying))
        await two.cancel(cancelled, at_ms=NOW)
        assert [letter.id for letter in await one.nodes.new_letters([(BOT, ids[0], ids[-1])])] == [waiting, last]
        assert [letter.id for letter in await one.nodes.new_letters([(BOT, last, last)])] == [last]
        assert await one.nodes.new_letters([(BOT, last + 1, last + 100)]) == []
        assert await one.nodes.new_letters([(BOT, waiting, waiting)]) == [await find(one, waiting)]
