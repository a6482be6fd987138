"""Jobs go on in the other store: each in its place, whoever's turn it was, and nobody has more of a day than before."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from peik.clock import SystemClock
from peik.core.letter import State
from peik.errors import Conflict
from peik.jobs.model import JobFilter
from peik.jobs.store import JobStore, JobTally, Quota
from peik.storage.moving import move as moving
from peik.storage.moving.move import Ends, MoveWatch, end_of, move
from peik.storage.moving.records import KINDS as ALL_KINDS
from tests.storage.acts import HOUR, NOW
from tests.storage.all_places import PLACES, pairs
from tests.storage.job_acts import (
    KIND,
    SHORT_MS,
    a_job,
    end,
    pass_leases,
    queue,
    queued,
    ran,
    settle,
    take_one,
    taken,
    terms,
    the_job,
)
from tests.storage.moving.filling import FULL, ODD_KIND, fill, folder, moved, taken_back, url_of
from tests.storage.moving.test_refusing import disturbed
from tests.storage.places import Place, SqlitePlace

KINDS = (KIND, ODD_KIND)
USERS = ("ann", "bob", "", "زهرا", "eve", "a:b", "late")


@pytest.fixture(params=pairs(all_others=pytest.mark.gate))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Place]:
    origin, target = request.param
    return origin(folder(tmp_path, "from")), target(folder(tmp_path, "to"))


async def seen(jobs: JobStore) -> dict[str, Any]:
    """What workers, people and programs see of jobs."""
    ids = range(1, 40)
    filters = [JobFilter(user=user) for user in USERS] + [JobFilter(state=state) for state in State] + [JobFilter()]
    tallies = await jobs.tallies()
    return {
        "jobs": [await jobs.job(one) for one in ids],
        "found": [[job.id for job in await jobs.jobs(one, before=None, limit=50)] for one in filters],
        "standings": [await jobs.standing(one) for one in ids],
        "tallies": {kind: tallies.get(kind) for kind in KINDS},
        "days": [await jobs.used_today(kind, user, at_ms=NOW) for kind in KINDS for user in USERS],
        "active": [job.id for job in await jobs.active()],
    }


async def order(jobs: JobStore) -> list[int]:
    """All that wait, as they begin: one by one, so that each draws its ticket."""
    begun: list[int] = []
    for kind in KINDS:
        while one := await taken(jobs, 1, kind=kind):
            begun += one
    return begun


async def test_the_other_store_shows_the_same_and_gives_them_out_in_the_same_order(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
        before = await seen(store.jobs)
    await moved(origin, target)
    async with target.open() as store:
        after = await seen(store.jobs)
        assert after == before
        there = await order(store.jobs)
    async with (await taken_back(origin)).open() as store:
        here = await order(store.jobs)
    assert there == here
    assert len(here) == before["tallies"][KIND].waiting + before["tallies"][ODD_KIND].waiting
    assert here != sorted(here), "turns were not in the order of ids"
    assert any(standing is not None and standing.mean_run_ms == 800 for standing in before["standings"])
    assert set(before["tallies"][KIND].__struct_fields__) == {*State}
    assert all(getattr(before["tallies"][KIND], state) for state in State), "there was one of every state"


async def test_who_comes_after_the_move_comes_after_all_others(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
        last = max(job.id for job in await store.jobs.jobs(JobFilter(), before=None, limit=100))
    await moved(origin, target)
    async with target.open() as store:
        jobs = store.jobs
        (new, more) = await queue(jobs, a_job("new"), a_job("bob"))
        assert (new, more) == (last + 2, last + 3)  # the last id of all was that of a job that is gone
        ahead = [await jobs.standing(one) for one in (new, more)]
        waits = (await jobs.tallies())[KIND].waiting
        assert ahead[0] is not None
        assert ahead[1] is not None
        begun = await order(jobs)
        assert (begun.index(new), begun.index(more)) == (ahead[0].ahead, ahead[1].ahead)
        bobs = [one for one in begun if (await the_job(jobs, one)).user == "bob"]
        assert bobs[-1] == more
        assert len(begun) == waits + 1


async def test_keys_and_days_are_known_in_the_other_store(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    async with origin.open() as store:
        await fill(store)
        (keyed,) = [one for one in await store.jobs.jobs(JobFilter(), before=None, limit=100) if one.key == "k:1"]
        count, size_bytes = await store.jobs.used_today(KIND, "ann", at_ms=NOW)
    await moved(origin, target)
    async with target.open() as store:
        jobs = store.jobs
        (again,) = await queued(jobs, a_job("ann", key="k:1", digest="same as", **FULL))
        assert (again.job_id, again.is_repeat) == (keyed.id, True)
        with pytest.raises(Conflict, match="used for another job"):
            await queue(jobs, a_job("ann", key="k:1", digest="another"))
        assert size_bytes == 12_345 + 7
        await jobs.queue([a_job()], quotas={KIND: Quota(jobs=count + 1)}, at_ms=NOW)
        for quota in (Quota(jobs=count + 1), Quota(bytes=size_bytes)):
            with pytest.raises(Conflict, match="a day"):
                await jobs.queue([a_job()], quotas={KIND: quota}, at_ms=NOW)
        job = await take_one(jobs, at_ms=NOW)
        await end(jobs, job, bytes_used=5)
        assert sum([(await jobs.used_today(KIND, user, at_ms=NOW))[1] for user in USERS]) == size_bytes + 5


async def test_a_run_whose_worker_died_before_the_move_is_given_up_after_it(pair: tuple[Place, Place]) -> None:
    origin, target = pair
    origin.clock.now_ms = SystemClock().wall_ms()  # as on a machine: all clocks of stores say about the same
    async with origin.open() as store:
        await queue(store.jobs, a_job("ann", attempts=2), a_job("ann"))
        run = await take_one(store.jobs, lease_ms=SHORT_MS)
    await moved(origin, target)
    target.clock.now_ms = SystemClock().wall_ms()
    await pass_leases(target)
    async with target.open() as store:
        jobs = store.jobs
        assert await the_job(jobs, run.id) == run
        assert await taken(jobs, 1, within=terms(concurrency=1)) == [], "it still has its place among those that run"
        assert await jobs.next_due([KIND]) == run.ends_at_ms
        (lost,) = await jobs.reap(at_ms=NOW + 10, limit=10)
        assert (lost.job.id, lost.job.state, lost.job.attempts_made) == (run.id, State.WAITING, 1)
        assert await settle(jobs, ran(run)) == [None], "its worker comes too late"
        assert await order(jobs) == [run.id + 1, run.id], "it went to the end of its line"
        assert (await the_job(jobs, run.id)).run == run.run + 1


@pytest.mark.parametrize("kind", [kind for kind in PLACES if kind.__name__ != "PostgresPlace"])
async def test_on_a_clock_that_is_behind_no_lease_lasts_for_longer_than_one_is_given_for(
    kind: type[Place], tmp_path: Path
) -> None:
    origin, target = SqlitePlace(folder(tmp_path, "from")), kind(folder(tmp_path, "to"))
    target.clock.now_ms = SystemClock().wall_ms()
    origin.clock.now_ms = target.clock.now_ms + 100 * HOUR
    async with origin.open() as store:
        await queue(store.jobs, a_job())
        run = await take_one(store.jobs)
    await moved(origin, target)
    async with target.open() as store:
        assert await store.jobs.reap(at_ms=NOW, limit=10) == []
        (job,) = await store.jobs.active()
        assert job.ends_at_ms is not None
        assert run.ends_at_ms is not None
        assert job.ends_at_ms < run.ends_at_ms - HOUR


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("is_target", [True, False])
async def test_a_move_that_stops_at_every_page_ends_with_the_same(
    kind: type[Place], is_target: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are added page by page: none may be added twice, and none be forgotten."""
    monkeypatch.setattr(moving, "PAGE", 7)
    one, other = kind(folder(tmp_path, "one")), SqlitePlace(folder(tmp_path, "other"))
    origin, target = (other, one) if is_target else (one, other)
    async with origin.open() as store:
        await queue(store.jobs, *(a_job(f"u{number % 5}", rank=number % 3) for number in range(40)))
        await end(store.jobs, await take_one(store.jobs), at_ms=NOW + 5)
        await take_one(store.jobs)
        before = await seen(store.jobs)
    stops = 0
    while not await moved_a_page(origin, target):
        stops += 1
    assert stops >= 3
    async with target.open() as store:
        assert await seen(store.jobs) == before
        there = await order(store.jobs)
    async with (await taken_back(origin)).open() as store:
        assert await order(store.jobs) == there
    assert len(there) == 38


async def moved_a_page(origin: Place, target: Place) -> bool:
    """One run that is interrupted after the first page of its own; whether it came to its end."""
    steps = 0

    def step(records: int) -> None:
        nonlocal steps
        steps += records > 0
        if steps == 3:
            raise KeyboardInterrupt

    def begin(words: str, total: int) -> None:
        nonlocal steps
        steps = 0 if words == "Moving" else -(10**6)

    ends = Ends(origin=end_of(url_of(origin)), target=end_of(url_of(target)))
    try:
        await move(ends, clock=SystemClock(), watch=MoveWatch(begin=begin, step=step))
    except KeyboardInterrupt:
        return False
    return True


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
async def test_what_becomes_of_a_job_meanwhile_is_noticed(kind: type[Place], tmp_path: Path) -> None:
    origin = kind(folder(tmp_path, "from"))
    async with origin.open() as store:
        job, _ = await queue(store.jobs, a_job(), a_job())  # the line is there after it as before

    async def cancel() -> None:
        async with origin.open(is_owner=False) as store:
            await store.jobs.cancel(job, reason="by hand", at_ms=NOW)

    assert await disturbed(origin, SqlitePlace(folder(tmp_path, "to")), "Moving", cancel) == "origin_changed"


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
async def test_jobs_alone_make_a_store_that_is_not_empty(kind: type[Place], tmp_path: Path) -> None:
    origin, target = SqlitePlace(folder(tmp_path, "from")), kind(folder(tmp_path, "to"))
    for place in (origin, target):
        async with place.open() as store:
            await queue(store.jobs, a_job())
    with pytest.raises(Conflict, match=r"not empty \(.*1 jobs, 1 job_lines, 1 job_days"):
        await moved(origin, target)


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
async def test_a_rehearsal_is_not_disturbed_by_those_who_come_and_go(kind: type[Place], tmp_path: Path) -> None:
    origin, target = kind(folder(tmp_path, "from")), SqlitePlace(folder(tmp_path, "to"))
    pages = 0

    async def come_and_go() -> None:
        async with origin.open(is_owner=False) as store:
            assert await taken(store.jobs, 1) == [1]
            await queue(store.jobs, a_job("new"))

    def step(records: int) -> None:
        """The first step is what was moved before; then comes one for each kind, which has one page."""
        nonlocal pages
        pages += 1
        if pages == 2 + list(ALL_KINDS).index("jobs"):
            thread = threading.Thread(target=lambda: asyncio.run(come_and_go()))
            thread.start()
            thread.join()

    async with origin.open() as store:
        await queue(store.jobs, a_job(), a_job("bob"))
        ends = Ends(origin=end_of(url_of(origin)), target=end_of(url_of(target)))
        told = await move(ends, clock=SystemClock(), while_in_use=True, watch=MoveWatch(step=step))
        assert (await store.jobs.tallies())[KIND] == JobTally(waiting=2, active=1), "it came to pass meanwhile"
    assert told.counts["jobs"] == 2
