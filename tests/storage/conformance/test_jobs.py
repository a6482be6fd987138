"""Jobs wait in lines, and go in turns: by rank, by ticket, within the terms of their kind."""

import asyncio

import pytest

from peik.core.letter import Backoff, Priority, State
from peik.errors import Conflict
from peik.jobs.model import JobEnd
from tests.storage.acts import HOUR, NOW
from tests.storage.job_acts import (
    KIND,
    SHORT_MS,
    a_job,
    end,
    lose,
    queue,
    queued,
    ran,
    settle,
    take,
    take_one,
    taken,
    terms,
    the_job,
)
from tests.storage.places import Place

# ---- queueing ----


async def test_a_job_is_kept_as_it_was_asked_for(place: Place) -> None:
    draft = a_job(
        "ann",
        params='{"url":"https://example.org/ö"}',
        rank=Priority.HIGH.rank,
        attempts=5,
        backoff_ms=700,
        backoff=Backoff.FIXED,
        timeout_ms=60_000,
        key="k",
        digest="d",
        notice='{"chat":1}',
        metadata='{"a":1}',
        bytes_max=1 << 40,
    )
    async with place.open() as store:
        (job_id,) = await queue(store.jobs, draft)
    async with place.open() as store:
        job = await the_job(store.jobs, job_id)
    assert (job.kind, job.user, job.params, job.rank) == (KIND, "ann", draft.params, draft.rank)
    assert (job.attempts, job.backoff_ms, job.backoff, job.timeout_ms) == (5, 700, Backoff.FIXED, 60_000)
    assert (job.key, job.notice, job.metadata, job.bytes_max) == ("k", '{"chat":1}', '{"a":1}', 1 << 40)
    assert (job.state, job.attempts_made, job.run, job.history) == (State.WAITING, 0, 0, "[]")
    assert (job.created_at_ms, job.due_at_ms, job.started_at_ms, job.ended_at_ms) == (NOW, None, None, None)
    assert (job.node, job.ends_at_ms, job.is_cancelling, job.progress, job.result) == (None, None, False, None, None)


async def test_ids_rise_in_the_order_of_asking(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n % 7}") for n in range(300)))
        ids += await queue(store.jobs, a_job())
        assert ids == sorted(set(ids))
        assert await store.jobs.job(ids[-1] + 1) is None
        assert await queue(store.jobs) == []


async def test_a_job_for_later_is_delayed_and_one_for_the_past_waits(place: Place) -> None:
    async with place.open() as store:
        later, past = await queued(store.jobs, a_job(run_at_ms=NOW + 1), a_job(run_at_ms=NOW))
        assert (later.state, past.state) == (State.DELAYED, State.WAITING)
        assert (await the_job(store.jobs, later.job_id)).due_at_ms == NOW + 1
        assert (await the_job(store.jobs, past.job_id)).due_at_ms is None


# ---- keys ----


async def test_the_same_key_is_the_same_job_whatever_became_of_it(place: Place) -> None:
    async with place.open() as store:
        (first,) = await queued(store.jobs, a_job(key="k", digest="d"))
        (again,) = await queued(store.jobs, a_job(key="k", digest="d"))
        assert not first.is_repeat
        assert (again.job_id, again.state, again.is_repeat) == (first.job_id, State.WAITING, True)
        await end(store.jobs, await take_one(store.jobs))
        (again,) = await queued(store.jobs, a_job(key="k", digest="d"))
        assert (again.job_id, again.state, again.is_repeat) == (first.job_id, State.COMPLETED, True)
        assert await taken(store.jobs) == []


async def test_a_key_counts_within_its_kind(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, a_job(key="k", digest="d"), a_job(key="k", digest="e", kind="report"))
        assert len(set(ids)) == 2


async def test_the_same_key_twice_in_one_question_is_one_job(place: Place) -> None:
    async with place.open() as store:
        answers = await queued(store.jobs, a_job(key="k", digest="d"), a_job("bob"), a_job(key="k", digest="d"))
        assert [one.is_repeat for one in answers] == [False, False, True]
        assert answers[0].job_id == answers[2].job_id
        assert len(await taken(store.jobs)) == 2


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_a_key_of_another_job_stops_the_whole_question(place: Place, is_at_once: bool) -> None:
    async with place.open() as store:
        first, clash = a_job(key="k", digest="d"), a_job(key="k", digest="other")
        if not is_at_once:
            await queue(store.jobs, first)
        with pytest.raises(Conflict) as caught:
            await queue(store.jobs, *([first] if is_at_once else []), a_job("bob"), clash)
        assert caught.value.code == "idempotency_key_reused"
        assert len(await taken(store.jobs)) == (0 if is_at_once else 1)


# ---- order and turns ----


async def test_jobs_of_one_user_go_in_the_order_in_which_they_came(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job() for _ in range(20)))
        assert await taken(store.jobs, 7) == ids[:7]
        assert await taken(store.jobs, 100) == ids[7:]
        assert await taken(store.jobs, 100) == []


async def test_users_take_turns_however_many_jobs_one_of_them_has(place: Place) -> None:
    async with place.open() as store:
        ann = await queue(store.jobs, *(a_job("ann") for _ in range(5)))
        bob = await queue(store.jobs, a_job("bob"), a_job("bob"))
        nobody = await queue(store.jobs, a_job(""))
        order = [ann[0], bob[0], nobody[0], ann[1], bob[1], *ann[2:]]
        assert await taken(store.jobs, 2) == order[:2]
        assert await taken(store.jobs, 4) == order[2:6]
        assert await taken(store.jobs, 9) == order[6:]


async def test_who_comes_again_stands_behind_those_who_wait(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job("ann"))
        (bob,) = await queue(store.jobs, a_job("bob"))
        await take_one(store.jobs)
        (ann,) = await queue(store.jobs, a_job("ann"))  # her line was empty: another ticket
        assert await taken(store.jobs) == [bob, ann]


async def test_a_better_rank_goes_first_and_takes_turns_of_its_own(place: Place) -> None:
    async with place.open() as store:
        bulk = await queue(store.jobs, a_job("ann", rank=3), a_job("bob", rank=3))
        normal = await queue(store.jobs, a_job("ann"), a_job("ann"), a_job("bob"))
        high = await queue(store.jobs, a_job("ann", rank=1), a_job("ann", rank=1))
        assert await taken(store.jobs) == [*high, normal[0], normal[2], normal[1], *bulk]


async def test_kinds_do_not_meet(place: Place) -> None:
    async with place.open() as store:
        mine, theirs = await queue(store.jobs, a_job(), a_job(kind="report"))
        assert await taken(store.jobs, within=terms(1, 1)) == [mine]
        assert await taken(store.jobs, within=terms(1, 1), kind="report") == [theirs]
        assert await taken(store.jobs, kind="unknown") == []


# ---- terms ----


async def test_no_more_of_a_kind_run_than_allowed_over_all_nodes(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await queue(one.jobs, *(a_job(f"u{n}") for n in range(10)))
        first = await take(one.jobs, within=terms(3))
        assert len(first) == 3
        assert await taken(two.jobs, within=terms(3)) == []
        await end(two.jobs, first[1])
        assert len(await taken(two.jobs, within=terms(3))) == 1
        assert len(await taken(two.jobs, within=terms(5))) == 2


async def test_no_more_of_a_user_run_than_allowed_over_all_nodes_and_ranks(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        ann = await queue(one.jobs, *(a_job("ann", rank=rank) for rank in (2, 2, 1, 3)))
        bob = await queue(one.jobs, a_job("bob"))
        first, *others = await take(one.jobs, within=terms(per_user=2))
        assert [first.id, *(job.id for job in others)] == [ann[2], ann[0], bob[0]]
        assert await taken(two.jobs, within=terms(per_user=2)) == []
        await end(one.jobs, first)
        assert await taken(two.jobs, within=terms(per_user=2)) == [ann[1]]


async def test_who_is_passed_over_keeps_its_place(place: Place) -> None:
    async with place.open() as store:
        ann = await queue(store.jobs, *(a_job("ann") for _ in range(3)))
        others = await queue(store.jobs, *(a_job(f"u{n}") for n in range(6)))
        running = await take_one(store.jobs)
        assert running.id == ann[0]
        assert await taken(store.jobs, 5, within=terms(per_user=1)) == others[:5]
        (newcomer,) = await queue(store.jobs, a_job("zoe"))
        await end(store.jobs, running)
        # Her ticket was drawn when her first began: after the others came, before the newcomer did.
        assert await taken(store.jobs, 9, within=terms(per_user=1)) == [others[5], ann[1], newcomer]


async def test_terms_that_allow_nothing_begin_nothing(place: Place) -> None:
    async with place.open() as store:
        (job_id,) = await queue(store.jobs, a_job())
        assert await taken(store.jobs, within=terms(0, 5)) == []
        assert await taken(store.jobs, within=terms(5, 0)) == []
        assert await taken(store.jobs, 0) == []
        assert await taken(store.jobs) == [job_id]


# ---- being taken ----


async def test_a_job_that_begins_is_active_under_a_run_and_a_lease_of_this_node(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job())
        job = await take_one(store.jobs, at_ms=NOW + 7)
        assert (job.state, job.run, job.node) == (State.ACTIVE, 1, store.nodes.node)
        assert (job.started_at_ms, job.attempts_made, job.due_at_ms) == (NOW + 7, 0, None)
        assert job.ends_at_ms is not None
        assert job == await the_job(store.jobs, job.id)


async def test_a_job_is_taken_once_though_all_ask_at_once(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        ids = await queue(one.jobs, *(a_job(f"u{n % 5}") for n in range(40)))
        within = terms(30, 7)
        answers = await asyncio.gather(*(taken(store.jobs, 4, within=within) for store in (one, two) for _ in range(8)))
        begun = [job_id for answer in answers for job_id in answer]
        assert len(begun) == len(set(begun)) == 30
        assert set(begun) <= set(ids)
        users = [job.user for job in await one.jobs.active()]
        assert max(map(users.count, users)) <= 7


# ---- time ----


async def test_delayed_ones_join_their_lines_when_their_time_has_come(place: Place) -> None:
    async with place.open() as store:
        late, early = await queue(store.jobs, a_job(run_at_ms=NOW + 20), a_job(run_at_ms=NOW + 10))
        (waiting,) = await queue(store.jobs, a_job())
        assert await taken(store.jobs, at_ms=NOW + 9) == [waiting]
        # The earlier first, whichever came first; and behind what was in the line before.
        (last,) = await queue(store.jobs, a_job())
        assert await taken(store.jobs, at_ms=NOW + 20) == [last, early, late]


async def test_a_due_one_of_a_better_rank_goes_before_those_that_wait(place: Place) -> None:
    async with place.open() as store:
        (urgent,) = await queue(store.jobs, a_job(run_at_ms=NOW + 10, rank=0))
        (waiting,) = await queue(store.jobs, a_job())
        assert await taken(store.jobs, at_ms=NOW + 10) == [urgent, waiting]


async def test_the_next_time_is_that_of_delayed_jobs_of_these_kinds(place: Place) -> None:
    async with place.open() as store:
        assert await store.jobs.next_due([KIND]) is None
        await queue(store.jobs, a_job(), a_job(run_at_ms=NOW + 2 * HOUR), a_job(run_at_ms=NOW + HOUR))
        await queue(store.jobs, a_job(run_at_ms=NOW + 5, kind="report"))
        assert await store.jobs.next_due([KIND]) == NOW + HOUR
        assert await store.jobs.next_due([KIND, "report"]) == NOW + 5
        assert await store.jobs.next_due(["unknown"]) is None
        assert await store.jobs.next_due([]) is None


async def test_the_next_time_is_that_of_a_lease_that_ends_before(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(), a_job())
        running = await take(store.jobs, 2, lease_ms=HOUR)
        await queue(store.jobs, a_job(run_at_ms=NOW + 10_000 * HOUR))
        assert await store.jobs.next_due([KIND]) == running[0].ends_at_ms
        await settle(store.jobs, *map(ran, running))
        assert await store.jobs.next_due([KIND]) == NOW + 10_000 * HOUR


async def test_a_job_that_runs_again_joins_the_end_of_its_line(place: Place) -> None:
    async with place.open() as store:
        first, second = await queue(store.jobs, a_job(), a_job())
        put_off = await take_one(store.jobs)
        await end(store.jobs, put_off, JobEnd.PUT_OFF, due_at_ms=NOW)
        (third,) = await queue(store.jobs, a_job())
        assert await taken(store.jobs) == [second, first, third]


async def test_a_lost_job_joins_the_end_of_its_line(place: Place) -> None:
    async with place.open() as store:
        first, second = await queue(store.jobs, a_job(), a_job())
        await take_one(store.jobs, lease_ms=SHORT_MS)
        assert [job.id for job in await lose(place, store.jobs)] == [first]
        assert await taken(store.jobs) == [second, first]
