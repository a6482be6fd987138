"""Between the read and the write of a change everything else may happen; answers get lost, servers die, clocks are set back.
What was judged by what is no longer so is judged anew, and what was answered is there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.core.letter import State
from peik.errors import BadInput, Conflict, InDoubt, NotFound, StoreUnavailable
from peik.jobs.model import JobEnd, JobRecord
from peik.jobs.store import JobRetention, JobStore, RunNews
from peik.storage.redis import RedisStore
from peik.storage.redis.jobs import RedisJobs
from tests.storage.acts import HOUR, NOW
from tests.storage.job_acts import (
    KIND,
    SHORT_MS,
    a_job,
    end,
    lose,
    pass_leases,
    queue,
    ran,
    settle,
    take,
    take_one,
    taken,
    the_job,
)
from tests.storage.redis.test_jobs import audit
from tests.storage.redis.test_lost_answers import Wire, wired
from tests.storage.redis_place import RedisPlace
from tests.storage.redis_server import RedisServer

GONE = JobRetention(completed_ms=0, failed_ms=0)


def between(jobs: RedisJobs, act: Callable[[], Awaitable[object]], *, times: int = 1) -> None:
    """Let this happen after the next read that a change is judged by, and before its write."""
    write = jobs._write
    left = times

    async def later(*asked: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            jobs._write = write  # type: ignore[method-assign]
        await act()
        return await write(*asked, **more)

    jobs._write = later  # type: ignore[method-assign]


async def begun(jobs: JobStore, **how: Any) -> JobRecord:
    await queue(jobs, a_job())
    return await take_one(jobs, **how)


# ---- between read and write ----


async def test_who_is_cancelled_while_its_run_is_judged_does_not_run_again(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await begun(one.jobs)
        between(one.jobs, lambda: two.jobs.cancel(job.id, reason="enough", at_ms=NOW))
        after = await end(one.jobs, job, JobEnd.FAILED)
        assert (after.state, after.failed_reason) == (State.CANCELLED, "enough")
        audit(place)


async def test_what_is_told_while_a_run_is_judged_stays(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await begun(one.jobs)

        async def tell() -> None:
            await two.jobs.note(job.id, "told")
            await two.jobs.beat([RunNews(job_id=job.id, run=1, progress=0.75, progress_text="¾")], lease_ms=HOUR)

        between(one.jobs, tell)
        await settle(one.jobs, ran(job))
        after = await the_job(two.jobs, job.id)
        assert (after.state, after.notice_state) == (State.COMPLETED, "told")
        assert (after.progress, after.progress_text) == (0.75, "¾")


async def test_of_two_who_settle_one_run_at_once_one_does(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await queue(one.jobs, a_job(), a_job("bob"))
        first, second = await take(one.jobs, 2)
        between(one.jobs, lambda: settle(two.jobs, ran(first, JobEnd.HOPELESS)))
        lost, made, again = await settle(one.jobs, ran(first), ran(second), ran(second))
        assert lost is None
        assert again is None
        assert made is not None
        assert (await the_job(one.jobs, first.id)).state is State.FAILED
        assert audit(place) == {State.FAILED: 1, State.COMPLETED: 1}


async def test_a_beat_in_the_last_moment_saves_its_run(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await begun(one.jobs, lease_ms=SHORT_MS)
        await pass_leases(place)
        between(two.jobs, lambda: one.jobs.beat([RunNews(job_id=job.id, run=1)], lease_ms=HOUR))
        assert await two.jobs.reap(at_ms=NOW, limit=9) == []
        assert (await end(one.jobs, job)).state is State.COMPLETED


async def test_a_lost_job_is_lost_once_though_two_nodes_reap(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await begun(one.jobs, lease_ms=SHORT_MS)
        await pass_leases(place)
        others: list[object] = []

        async def reap() -> None:
            others.extend(await one.jobs.reap(at_ms=NOW, limit=9))

        between(two.jobs, reap)
        assert await two.jobs.reap(at_ms=NOW, limit=9) == []
        assert len(others) == 1
        assert (await the_job(one.jobs, job.id)).attempts_made == 1
        audit(place)


async def test_a_job_that_begins_while_it_is_being_cancelled_is_marked(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        (job_id,) = await queue(one.jobs, a_job())
        between(one.jobs, lambda: take(two.jobs))
        after = await one.jobs.cancel(job_id, reason="enough", at_ms=NOW)
        assert (after.state, after.is_cancelling, after.node) == (State.ACTIVE, True, two.nodes.node)
        assert audit(place) == {State.ACTIVE: 1}


async def test_a_job_that_joins_its_line_while_it_is_being_cancelled_leaves_it(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        (job_id,) = await queue(one.jobs, a_job(run_at_ms=NOW + 5))
        between(one.jobs, lambda: take(two.jobs, 0, at_ms=NOW + 5))
        assert (await one.jobs.cancel(job_id, reason="", at_ms=NOW)).state is State.CANCELLED
        assert await taken(two.jobs, at_ms=NOW + 5) == []
        assert audit(place) == {State.CANCELLED: 1}


async def test_a_job_that_leaves_while_it_is_retried_is_not_found(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await end(one.jobs, await begun(one.jobs), JobEnd.HOPELESS)
        between(one.jobs, lambda: two.jobs.clean(GONE, at_ms=NOW, limit=9))
        with pytest.raises(NotFound):
            await one.jobs.retry(job.id, at_ms=NOW)
        assert not audit(place)


async def test_a_dead_job_that_two_retry_at_once_waits_once(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await end(one.jobs, await begun(one.jobs), JobEnd.HOPELESS)
        between(one.jobs, lambda: two.jobs.retry(job.id, at_ms=NOW))
        with pytest.raises(Conflict):
            await one.jobs.retry(job.id, at_ms=NOW)
        assert await taken(one.jobs) == [job.id]


async def test_a_job_that_is_retried_has_no_progress_and_keeps_what_was_told(place: RedisPlace) -> None:
    async with place.open() as store:
        job = await begun(store.jobs)
        news = RunNews(job_id=job.id, run=1, progress=0.5, progress_text="half", notice_state="told")
        await store.jobs.beat([news], lease_ms=HOUR)
        assert (await end(store.jobs, job, JobEnd.HOPELESS)).progress == 0.5
        again = await store.jobs.retry(job.id, at_ms=NOW)
        assert (again.progress, again.progress_text, again.notice_state) == (None, None, "told")
        assert again == await the_job(store.jobs, job.id)


async def test_a_change_that_others_forestall_for_ever_is_given_up(place: RedisPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await begun(one.jobs)
        between(one.jobs, lambda: two.jobs.cancel(job.id, reason="again", at_ms=NOW), times=1000)
        with pytest.raises(StoreUnavailable) as caught:
            await settle(one.jobs, ran(job))
        assert caught.value.code == "store_busy"
        assert (await the_job(two.jobs, job.id)).state is State.ACTIVE


# ---- lost answers, dead servers, clocks ----


@asynccontextmanager
async def on_a_wire(place: RedisPlace) -> AsyncIterator[tuple[RedisStore, Wire]]:
    async with place.open(is_owner=False), wired(place) as (store, wire):
        yield store, wire
    # What the wire carried is over, too: its ends are closed before the loop is.
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


async def test_a_settling_whose_answer_was_lost_is_made_once(place: RedisPlace) -> None:
    async with on_a_wire(place) as (store, wire):
        job = await begun(store.jobs)
        await settle(store.jobs, ran(job))
        job = await begun(store.jobs)
        wire.loses = b"job_change"
        with pytest.raises(InDoubt):
            await settle(store.jobs, ran(job, bytes_used=7))
        assert wire.lost == 1
        assert await settle(store.jobs, ran(job, bytes_used=7)) == [None]
        assert await store.jobs.used_today(KIND, "ann", at_ms=NOW) == (2, 7)


async def test_a_job_with_a_key_whose_answer_was_lost_is_queued_once(place: RedisPlace) -> None:
    async with on_a_wire(place) as (store, wire):
        await queue(store.jobs, a_job("bob"))
        wire.loses = b"job_queue"
        with pytest.raises(InDoubt):
            await queue(store.jobs, a_job(key="k", digest="d"))
        (again,) = await store.jobs.queue([a_job(key="k", digest="d")], quotas={}, at_ms=NOW)
        assert again.is_repeat
        assert (await store.jobs.tallies())[KIND].waiting == 2


async def test_jobs_whose_beginning_nobody_heard_of_come_back_when_their_leases_are_over(place: RedisPlace) -> None:
    async with on_a_wire(place) as (store, wire):
        ids = await queue(store.jobs, a_job(), a_job())
        wire.loses = b"job_take"
        with pytest.raises(InDoubt):
            await take(store.jobs, lease_ms=SHORT_MS)
        assert [job.id for job in await lose(place, store.jobs)] == ids
        assert await taken(store.jobs) == ids


async def test_what_was_answered_outlives_the_server(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        await queue(
            store.jobs, *(a_job(f"u{index}", key=f"k{index}") for index in range(6)), a_job(run_at_ms=NOW + HOUR)
        )
        one, two, three = await take(store.jobs, 3)
        await settle(store.jobs, ran(one), ran(two, JobEnd.HOPELESS))
        await store.jobs.beat([RunNews(job_id=three.id, run=1, progress=0.5)], lease_ms=HOUR)
        known = [await store.jobs.job(job_id) for job_id in range(1, 8)]
        durable.kill()
        with pytest.raises(StoreUnavailable):
            await queue(store.jobs, a_job())
        durable.start()
        assert [await store.jobs.job(job_id) for job_id in range(1, 8)] == known
        assert (await end(store.jobs, three)).state is State.COMPLETED
        assert len(await taken(store.jobs)) == 3
        audit(place)


async def test_a_clock_that_was_set_back_keeps_no_dead_workers_job(place: RedisPlace) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, lease_ms=SHORT_MS)
        with place.server.client() as client:  # as if it had been given a year from now
            client.zincrby(place.key(f"job_leases:{KIND}"), 365 * 24 * HOUR, job.id)
        assert await lose(place, store.jobs) == []  # from now on it has one lease's time
        assert [one.id for one in await lose(place, store.jobs)] == [job.id]


async def test_a_full_server_takes_no_job_in_but_runs_may_end(durable: RedisServer, tmp_path: Path) -> None:
    place = RedisPlace(tmp_path, durable)
    async with place.open() as store:
        job = await begun(store.jobs)
        with durable.client() as client:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreUnavailable) as caught:
                await queue(store.jobs, a_job(), a_job("bob"))
            assert caught.value.code == "store_full"
            assert audit(place) == {State.ACTIVE: 1}
            assert (await end(store.jobs, job)).state is State.COMPLETED
            client.config_set("maxmemory", "0")
        assert audit(place) == {State.COMPLETED: 1}


async def test_what_cannot_be_said_fails_alone(place: RedisPlace) -> None:
    async with place.open() as store:
        with pytest.raises((UnicodeEncodeError, BadInput)):
            await queue(store.jobs, a_job("\ud800"))
        assert await queue(store.jobs, a_job()) == [1]


# ---- news ----

END = -1  # a bot that nobody has: when it is named, all before it has been heard


async def heard(speaker: RedisStore, hearer: RedisStore) -> bool:
    """Whether jobs were in the news until now."""
    speaker._bell.tell(lambda telling: telling.lanes.add(END))
    were_jobs = False
    while True:
        news = await hearer.nodes.news()
        were_jobs |= news.is_jobs
        if END in news.lanes:
            return were_jobs


async def test_what_workers_elsewhere_wait_for_is_news(place: RedisPlace) -> None:
    async with place.open() as speaker, place.open(is_owner=False) as hearer:
        assert not await heard(speaker, hearer)
        first, _ = await queue(speaker.jobs, a_job(), a_job())
        assert await heard(speaker, hearer)
        await settle(speaker.jobs, ran(await take_one(speaker.jobs), JobEnd.HOPELESS))
        assert await heard(speaker, hearer)
        await speaker.jobs.retry(first, at_ms=NOW)
        assert await heard(speaker, hearer)
        await speaker.jobs.cancel(first, reason="", at_ms=NOW)
        assert await heard(speaker, hearer)
        await take_one(speaker.jobs, lease_ms=SHORT_MS)
        assert len(await lose(place, speaker.jobs)) == 1
        assert await heard(speaker, hearer)


async def test_what_changes_nothing_for_others_is_no_news(place: RedisPlace) -> None:
    async with place.open() as speaker, place.open(is_owner=False) as hearer:
        await queue(speaker.jobs, a_job(key="k"))
        assert await heard(speaker, hearer)
        await queue(speaker.jobs, a_job(key="k"))
        with pytest.raises(Conflict):
            await queue(speaker.jobs, a_job("bob"), a_job(key="k", digest="other"))
        job = await take_one(speaker.jobs)
        await speaker.jobs.beat([RunNews(job_id=job.id, run=1, progress=0.1)], lease_ms=HOUR)
        await speaker.jobs.beat([], lease_ms=HOUR)
        await speaker.jobs.note(job.id, "told")
        await settle(speaker.jobs, msgspec.structs.replace(ran(job), run=99))
        await settle(speaker.jobs)
        await speaker.jobs.reap(at_ms=NOW, limit=9)
        await speaker.jobs.clean(GONE, at_ms=NOW, limit=9)
        await speaker.jobs.beat([RunNews(job_id=job.id, run=1)], lease_ms=SHORT_MS)
        await pass_leases(place)
        between(speaker.jobs, lambda: speaker.jobs.beat([RunNews(job_id=job.id, run=1)], lease_ms=HOUR))
        assert await speaker.jobs.reap(at_ms=NOW, limit=9) == []
        assert not await heard(speaker, hearer)
