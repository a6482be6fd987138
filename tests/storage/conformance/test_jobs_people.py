"""What people ask of jobs: which there are, how many, where one stands, what a day allows; and what leaves in the end."""

from typing import Any

import pytest

from peik.core.letter import State
from peik.errors import Conflict
from peik.jobs.model import JobEnd, JobFilter
from peik.jobs.store import STANDING_COUNTED_MAX, JobRetention, JobStore, JobTally, Quota
from tests.storage.acts import HOUR, NOW
from tests.storage.job_acts import KIND, a_job, end, queue, queued, ran, settle, take, take_one, taken, terms, the_job
from tests.storage.places import Place

DAY = 24 * HOUR
MIDNIGHT = NOW - NOW % DAY
KEEP = JobRetention(completed_ms=HOUR, failed_ms=2 * HOUR)


async def found(jobs: JobStore, *, before: int | None = None, limit: int = 100, **wanted: Any) -> list[int]:
    return [job.id for job in await jobs.jobs(JobFilter(**wanted), before=before, limit=limit)]


async def ahead(jobs: JobStore, *job_ids: int) -> list[int]:
    standings = [await jobs.standing(job_id) for job_id in job_ids]
    return [one.ahead for one in standings if one is not None]


# ---- finding ----


async def test_the_newest_come_first_page_by_page(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n}") for n in range(7)))
        newest = ids[::-1]
        assert await found(store.jobs) == newest
        assert await found(store.jobs, limit=3) == newest[:3]
        assert await found(store.jobs, limit=3, before=newest[2]) == newest[3:6]
        assert await found(store.jobs, before=ids[0]) == []
        (job,) = await store.jobs.jobs(JobFilter(), before=None, limit=1)
        assert job == await the_job(store.jobs, ids[-1])


async def test_jobs_are_found_by_kind_user_state_and_age(place: Place) -> None:
    async with place.open() as store:
        ann, bob = await queue(store.jobs, a_job("ann"), a_job("bob"))
        report, later = await queue(
            store.jobs, a_job("ann", kind="report"), a_job("ann", run_at_ms=NOW + HOUR), at_ms=NOW + 5
        )
        assert await found(store.jobs, kind="report") == [report]
        assert await found(store.jobs, user="ann") == [later, report, ann]
        assert await found(store.jobs, user="") == []
        assert await found(store.jobs, state=State.DELAYED) == [later]
        assert await found(store.jobs, since_ms=NOW + 5) == [later, report]
        assert await found(store.jobs, kind=KIND, user="ann", state=State.WAITING, since_ms=NOW) == [ann]
        assert await found(store.jobs, kind=KIND, before=later) == [bob, ann]
        job = await take_one(store.jobs)
        assert await found(store.jobs, state=State.ACTIVE) == [ann]
        assert await found(store.jobs, state=State.WAITING) == [report, bob]
        await end(store.jobs, job, JobEnd.HOPELESS)
        assert await found(store.jobs, state=State.FAILED, user="ann") == [ann]


async def test_those_that_run_are_known_by_their_node(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(), a_job("bob"), a_job("cid"))
        running = await take(store.jobs, 2)
        assert sorted(await store.jobs.active(), key=lambda job: job.id) == running
        assert sorted(await store.jobs.active(store.nodes.node), key=lambda job: job.id) == running
        assert await store.jobs.active("nobody") == []
        await settle(store.jobs, *map(ran, running))
        assert await store.jobs.active() == []


# ---- counting ----


async def test_jobs_are_counted_by_kind_and_state(place: Place) -> None:
    async with place.open() as store:
        assert all(tally == JobTally() for tally in (await store.jobs.tallies()).values())
        await queue(store.jobs, *(a_job() for _ in range(6)), a_job(run_at_ms=NOW + HOUR), a_job(kind="report"))
        tallies = await store.jobs.tallies()
        assert tallies == {KIND: JobTally(waiting=6, delayed=1), "report": JobTally(waiting=1)}
        one, two, three, _ = await take(store.jobs, 4)
        await settle(store.jobs, ran(one), ran(two, JobEnd.HOPELESS), ran(three, JobEnd.CANCELLED))
        expected = JobTally(waiting=2, delayed=1, active=1, completed=1, failed=1, cancelled=1)
        assert (await store.jobs.tallies())[KIND] == expected
        await store.jobs.retry(two.id, at_ms=NOW)
        expected = JobTally(waiting=3, delayed=1, active=1, completed=1, cancelled=1)
        assert (await store.jobs.tallies())[KIND] == expected
    async with place.open() as store:
        assert (await store.jobs.tallies())[KIND] == expected


# ---- standing ----


async def test_a_job_knows_how_many_go_before_it_if_every_user_has_one(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n}") for n in range(30)))
        await queue(store.jobs, a_job("x", rank=3), a_job("y", kind="report"), a_job("z", run_at_ms=NOW + HOUR))
        assert await ahead(store.jobs, *ids) == list(range(30))
        urgent = await queue(store.jobs, a_job("x", rank=1), a_job("y", rank=0))
        assert await ahead(store.jobs, *urgent, ids[0], ids[29]) == [1, 0, 2, 31]
        await take(store.jobs, 5)
        assert await ahead(store.jobs, ids[29]) == [26]
        await store.jobs.cancel(ids[28], reason="", at_ms=NOW)
        assert await ahead(store.jobs, ids[29]) == [25]


async def test_a_job_knows_how_many_go_before_it_as_lines_take_turns(place: Place) -> None:
    async with place.open() as store:
        drafts = [a_job(user) for user in ("ann", "ann", "ann", "bob", "cid", "cid", "ann", "dan")]
        ids = await queue(store.jobs, *drafts)
        places = dict(zip(ids, await ahead(store.jobs, *ids), strict=True))
        order = await taken(store.jobs)
        assert [places[job_id] for job_id in order] == list(range(len(ids)))


async def test_a_standing_tells_what_runs_and_how_long_runs_take(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n}") for n in range(9)))
        one, two, three = await take(store.jobs, 3)
        standing = await store.jobs.standing(ids[-1])
        assert (standing.ahead, standing.running, standing.mean_run_ms) == (5, 3, None)
        await settle(store.jobs, ran(two, JobEnd.HOPELESS), at_ms=NOW + 77)  # says nothing about how long one takes
        assert (await store.jobs.standing(ids[-1])).mean_run_ms is None
        await settle(store.jobs, ran(one), at_ms=NOW + 1000)
        standing = await store.jobs.standing(ids[-1])
        assert (standing.running, standing.mean_run_ms) == (1, 1000)
        await settle(store.jobs, ran(three), at_ms=NOW + 9000)
        assert 1000 < (await store.jobs.standing(ids[-1])).mean_run_ms < 9000


async def test_the_mean_goes_with_the_last_runs(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, *(a_job() for _ in range(62)))
        first = await take_one(store.jobs)
        await settle(store.jobs, ran(first), at_ms=NOW + HOUR)
        for _ in range(60):
            await settle(store.jobs, ran(await take_one(store.jobs)), at_ms=NOW + 2000)
        (last,) = await found(store.jobs, state=State.WAITING)
        assert 1900 <= (await store.jobs.standing(last)).mean_run_ms <= 10_000


async def test_only_a_waiting_job_has_a_standing(place: Place) -> None:
    async with place.open() as store:
        first, later = await queue(store.jobs, a_job(), a_job(run_at_ms=NOW + 5))
        assert await store.jobs.standing(later) is None
        assert await store.jobs.standing(later + 1) is None
        job = await take_one(store.jobs)
        assert await store.jobs.standing(first) is None
        await end(store.jobs, job)
        assert await store.jobs.standing(first) is None


async def test_those_ahead_are_counted_up_to_a_bound(place: Place) -> None:
    async with place.open() as store:
        drafts = [a_job(f"u{n % 50}") for n in range(1000)]
        for _ in range(STANDING_COUNTED_MAX // 1000 + 1):
            await queue(store.jobs, *drafts)
        (last,) = await queue(store.jobs, a_job("u7", rank=3))
        assert await ahead(store.jobs, last) == [STANDING_COUNTED_MAX]


# ---- a day ----


async def test_a_day_counts_the_jobs_and_bytes_of_each_user_and_kind(place: Place) -> None:
    async with place.open() as store:
        at_ms = MIDNIGHT + HOUR
        await queue(store.jobs, a_job(), a_job(), a_job("bob"), a_job(kind="report"), at_ms=at_ms)
        await queue(store.jobs, a_job(key="k"), a_job(key="k"), at_ms=at_ms)
        await queue(store.jobs, a_job(key="k"), at_ms=at_ms)
        job = await take_one(store.jobs, at_ms=at_ms)
        await end(store.jobs, job, JobEnd.PUT_OFF, bytes_used=70, at_ms=at_ms)
        assert await store.jobs.used_today(KIND, "ann", at_ms=at_ms) == (3, 70)
        assert await store.jobs.used_today(KIND, "bob", at_ms=at_ms) == (1, 0)
        assert await store.jobs.used_today("report", "ann", at_ms=at_ms) == (1, 0)
        assert await store.jobs.used_today("report", "bob", at_ms=at_ms) == (0, 0)
        assert await store.jobs.used_today(KIND, "ann", at_ms=MIDNIGHT - 1) == (0, 0)
        assert await store.jobs.used_today(KIND, "ann", at_ms=MIDNIGHT + DAY) == (0, 0)


async def test_bytes_count_for_the_day_on_which_a_run_ended(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(), at_ms=MIDNIGHT + DAY - 1)
        job = await take_one(store.jobs, at_ms=MIDNIGHT + DAY - 1)
        await end(store.jobs, job, bytes_used=5, at_ms=MIDNIGHT + DAY)
        assert await store.jobs.used_today(KIND, "ann", at_ms=MIDNIGHT + DAY - 1) == (1, 0)
        assert await store.jobs.used_today(KIND, "ann", at_ms=MIDNIGHT + DAY) == (0, 5)


async def test_a_user_cannot_ask_for_more_jobs_than_a_day_allows(place: Place) -> None:
    async with place.open() as store:
        quotas = {KIND: Quota(jobs=3)}
        await store.jobs.queue([a_job(), a_job()], quotas=quotas, at_ms=MIDNIGHT)
        with pytest.raises(Conflict) as caught:
            await store.jobs.queue([a_job("bob"), a_job(), a_job()], quotas=quotas, at_ms=MIDNIGHT)
        assert caught.value.code == "quota"
        assert await store.jobs.used_today(KIND, "bob", at_ms=MIDNIGHT) == (0, 0)  # all or none
        assert (await store.jobs.tallies())[KIND].waiting == 2
        kept = [a_job(key="k"), a_job(key="k"), *(a_job(kind="report") for _ in range(9)), a_job("bob")]
        await store.jobs.queue(kept, quotas=quotas, at_ms=MIDNIGHT)
        await store.jobs.queue([a_job(key="k")], quotas=quotas, at_ms=MIDNIGHT)  # a repeat costs nothing
        with pytest.raises(Conflict):
            await store.jobs.queue([a_job()], quotas=quotas, at_ms=MIDNIGHT + DAY - 1)
        await store.jobs.queue([a_job()], quotas=quotas, at_ms=MIDNIGHT + DAY)


async def test_a_user_who_has_used_up_a_days_bytes_asks_in_vain(place: Place) -> None:
    async with place.open() as store:
        quotas = {KIND: Quota(bytes=100)}
        await store.jobs.queue([a_job() for _ in range(50)], quotas=quotas, at_ms=MIDNIGHT)  # only what is over counts
        one, two = await take(store.jobs, 2)
        await end(store.jobs, one, bytes_used=99, at_ms=MIDNIGHT)
        await store.jobs.queue([a_job()], quotas=quotas, at_ms=MIDNIGHT)
        await end(store.jobs, two, JobEnd.HOPELESS, bytes_used=1, at_ms=MIDNIGHT)
        with pytest.raises(Conflict) as caught:
            await store.jobs.queue([a_job()], quotas=quotas, at_ms=MIDNIGHT)
        assert caught.value.code == "quota"
        await store.jobs.queue([a_job("bob")], quotas=quotas, at_ms=MIDNIGHT)
        await store.jobs.queue([a_job()], quotas=quotas, at_ms=MIDNIGHT + DAY)
        await store.jobs.retry(two.id, at_ms=MIDNIGHT)  # not asked for anew


# ---- leaving ----


async def test_ended_jobs_leave_after_their_time(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, *(a_job() for _ in range(6)), a_job(run_at_ms=NOW + 9 * HOUR))
        done, failed, cancelled, put_off = await take(store.jobs, 4)
        await settle(store.jobs, ran(done), ran(failed, JobEnd.HOPELESS), ran(cancelled, JobEnd.CANCELLED))
        await settle(store.jobs, ran(put_off, JobEnd.FAILED, due_at_ms=NOW + 9 * HOUR))
        await take_one(store.jobs)
        assert await store.jobs.clean(KEEP, at_ms=NOW + HOUR - 1, limit=100) == 0
        assert await store.jobs.clean(KEEP, at_ms=NOW + HOUR + 1, limit=100) == 2
        assert await store.jobs.job(done.id) is await store.jobs.job(cancelled.id) is None
        assert (await the_job(store.jobs, failed.id)).state is State.FAILED
        assert await store.jobs.clean(KEEP, at_ms=NOW + 2 * HOUR + 1, limit=100) == 1
        assert await store.jobs.clean(KEEP, at_ms=NOW + 5000 * HOUR, limit=100) == 0  # what has not ended stays
        assert (await store.jobs.tallies())[KIND] == JobTally(waiting=1, delayed=2, active=1)
        assert done.id not in await found(store.jobs)


async def test_they_leave_in_parts_the_oldest_first(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job() for _ in range(7)))
        for index, job in enumerate(await take(store.jobs)):
            await end(store.jobs, job, at_ms=NOW + index)
        assert await store.jobs.clean(KEEP, at_ms=NOW + DAY, limit=3) == 3
        assert await found(store.jobs) == ids[:2:-1]
        assert await store.jobs.clean(KEEP, at_ms=NOW + DAY, limit=100) == 4
        assert await found(store.jobs) == []


async def test_an_id_is_not_used_again_and_a_key_is_free_after_its_job(place: Place) -> None:
    async with place.open() as store:
        (first,) = await queue(store.jobs, a_job(key="k", digest="d"))
        await end(store.jobs, await take_one(store.jobs))
        await store.jobs.clean(KEEP, at_ms=NOW + DAY, limit=100)
        (again,) = await queued(store.jobs, a_job(key="k", digest="other"), at_ms=NOW + DAY)
        assert not again.is_repeat
        assert again.job_id > first


async def test_what_a_day_has_used_outlives_the_jobs(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(), at_ms=MIDNIGHT)
        await end(store.jobs, await take_one(store.jobs, within=terms(1, 1)), bytes_used=5, at_ms=MIDNIGHT)
        assert await store.jobs.clean(JobRetention(completed_ms=0, failed_ms=0), at_ms=MIDNIGHT + 1, limit=9) == 1
        assert await store.jobs.used_today(KIND, "ann", at_ms=MIDNIGHT + 1) == (1, 5)
