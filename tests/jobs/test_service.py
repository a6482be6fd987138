"""What the doors ask: queueing with its checks, standing, waiting, quotas, and old jobs that go."""

import asyncio
from typing import Any

import pytest

from peik.core.events import StoreFailed
from peik.core.letter import Backoff, State
from peik.errors import Conflict, NotFound, Problem, StoreUnavailable
from peik.jobs.events import JobsQueued
from peik.jobs.job import Job
from peik.jobs.model import JobFilter, JobRequest
from peik.jobs.service import CLEAN_S, JobsUpkeep, JobTurn, Used, drafted
from peik.jobs.store import JobRetention, JobTally, Quota
from tests.jobs.story import Crowd, Stage, play

DAY_MS = 86_400_000


async def nothing(job: Job) -> None:
    pass


async def failing(job: Job) -> None:
    raise ValueError("no")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kind": ""}, "bad_kind"),
    ({"kind": "a b"}, "bad_kind"),
    ({"kind": "a" * 65}, "bad_kind"),
    ({"user": "x" * 129}, "bad_user"),
    ({"user": "a\x00b"}, "bad_user"),
    ({"user": "\ud800"}, "bad_user"),
    ({"priority": 3}, "bad_priority"),
    ({"attempts": 0}, "bad_attempts"),
    ({"attempts": 101}, "bad_attempts"),
    ({"backoff_ms": -1}, "bad_backoff_ms"),
    ({"timeout_s": 0}, "bad_timeout_s"),
    ({"timeout_s": float("nan")}, "bad_timeout_s"),
    ({"run_at_ms": 10**15}, "bad_run_at"),
    ({"key": ""}, "bad_idempotency_key"),
    ({"key": "x" * 256}, "bad_idempotency_key"),
    ({"params": {"a": object()}}, "bad_params"),
    ({"params": {"a": "x" * 65_536}}, "params_too_large"),
    ({"metadata": {"a": "x" * 8_192}}, "metadata_too_large"),
    ({"notice": {"language": "fa"}}, "bad_notice"),
]


@pytest.mark.parametrize(("terms", "code"), BAD, ids=[f"{code}-{at}" for at, (_, code) in enumerate(BAD)])
def test_what_cannot_be_a_job(terms: dict[str, Any], code: str) -> None:
    async def story(stage: Stage) -> None:
        service = stage.node().service
        with pytest.raises(Problem) as caught:
            await service.queue([JobRequest(kind="work"), JobRequest(**{"kind": "work", **terms})])
        assert caught.value.code == code
        assert await service.find(JobFilter()) == [], "all or none"

    play(story)


def test_what_a_key_stands_for_is_the_same_in_every_version() -> None:
    """A key is kept with its job, and a repeat after an upgrade is the same job: a new field counts only where it is given."""
    bare = JobRequest(kind="download", key="k")
    full = JobRequest(
        kind="download",
        params={"url": "ü"},
        user="ann",
        priority=1,
        attempts=2,
        backoff_ms=5,
        backoff=Backoff.FIXED,
        timeout_s=1.5,
        run_at_ms=7,
        key="k",
        notice={"chat_id": 5},
        metadata={"a": 1},
    )
    assert drafted(bare, None, at_ms=0).digest == "bb71009c73c857e73d92dda2f02b1f5e"
    assert drafted(full, None, at_ms=0).digest == "1ad93e46cabf32d7e9b951a49127d5f4"


@pytest.mark.parametrize("count", [0, 1001])
def test_a_batch_has_a_bound(count: int) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(Problem, match="From 1 to 1000"):
            await stage.node().service.queue([JobRequest(kind="work")] * count)

    play(story)


def test_a_job_is_as_its_kind_says_unless_it_says_otherwise() -> None:
    async def story(stage: Stage) -> None:
        fixed = Backoff.FIXED
        stage.kind("work", nothing, attempts=7, backoff_ms=0, backoff=fixed, timeout_s=60, folder_bytes=5)
        await stage.node().stop(0)
        usual = await stage.get(await stage.queue())
        assert (usual.attempts, usual.backoff_ms, usual.backoff, usual.timeout_ms, usual.bytes_max) == (
            *(7, 0, fixed),
            *(60_000, 5),
        )
        own = await stage.get(
            await stage.queue(attempts=1, backoff_ms=9, backoff=Backoff.EXPONENTIAL, timeout_s=0.5, priority=2)
        )
        assert (own.attempts, own.backoff_ms, own.backoff, own.timeout_ms, own.rank) == (
            *(1, 9, Backoff.EXPONENTIAL),
            *(500, 0),
        )
        elsewhere = await stage.get(await stage.queue("unknown"))
        assert (elsewhere.attempts, elsewhere.timeout_ms, elsewhere.state) == (3, None, State.WAITING)

    play(story)


def test_a_key_makes_a_repeat_the_same_job() -> None:
    async def story(stage: Stage) -> None:
        service = stage.node().service  # nobody here does such work: it waits
        asked = JobRequest(kind="work", key="a", params={"x": 1, "y": 2}, notice={"chat_id": 5})
        (first,) = await service.queue([asked])
        again = JobRequest(kind="work", key="a", params={"y": 2, "x": 1}, notice={"chat_id": 5})
        (second,) = await service.queue([again])
        assert (second.job_id, second.is_repeat) == (first.job_id, True)
        assert stage.heard.of(first.job_id) == [("changed", State.WAITING)]
        with pytest.raises(Conflict) as caught:
            await service.queue([JobRequest(kind="work", key="a", params={"x": 2})])
        assert caught.value.code == "idempotency_key_reused"
        assert [event.count for event in stage.told if isinstance(event, JobsQueued)] == [1]

    play(story)


def test_a_day_has_its_quota() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            (job.folder / "film").write_bytes(b"x" * 600)

        stage.kind("work", work, quota=Quota(jobs=5, bytes=1000))
        service = stage.node().service
        await stage.ended(await stage.queue(user="a"))
        await stage.ended(await stage.queue(user="a"))
        assert await service.used_today("work", "a") == Used(jobs=2, bytes=1200, jobs_max=5, bytes_max=1000)
        with pytest.raises(Conflict, match="1000 bytes"):
            await stage.queue(user="a")
        await service.queue([JobRequest(kind="work", user="b")] * 5)
        with pytest.raises(Conflict, match="5 jobs"):
            await stage.queue(user="b")
        await asyncio.sleep(86_400)
        assert (await stage.ended(await stage.queue(user="a"))).state is State.COMPLETED
        assert await service.used_today("unknown", "a") == Used(jobs=0, bytes=0)

    play(story)


def test_people_hear_when_their_turn_comes() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 60.0)
        stage.kind("work", crowd, concurrency=2)
        service = stage.node().service
        ids = [await stage.queue(user=str(user)) for user in range(8)]
        await stage.until(ids[1], State.ACTIVE)
        assert await service.place(ids[0]) is None
        assert await service.place(ids[2]) == JobTurn(position=1, eta_s=None), "nobody knows yet how long they take"
        await stage.until(ids[3], State.ACTIVE)
        turns = [await service.place(job_id) for job_id in ids[4:]]
        assert [(turn.position, round(turn.eta_s or 0)) for turn in turns if turn] == [
            (1, 0),
            (2, 30),
            (3, 60),
            (4, 90),
        ]
        assert await service.place(999) is None
        elsewhere = await stage.queue("unknown")
        assert await service.place(elsewhere) == JobTurn(position=1, eta_s=None)

    play(story)


def test_who_waits_hears_of_the_end_wherever_it_was() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 20.5)
        stage.kind("work", crowd)
        stage.node("one")
        job_id = await stage.queue()
        await stage.until(job_id, State.ACTIVE)
        other = stage.node("two")
        early = await other.service.wait(job_id, 3)
        assert (early.state, round(stage.clock.mono())) == (State.ACTIVE, 3)
        assert (await other.service.wait(job_id, 100)).state is State.COMPLETED
        assert 20.5 <= stage.clock.mono() < 21
        with pytest.raises(NotFound):
            await other.service.wait(999, 1)
        with pytest.raises(NotFound):
            await other.service.cancel(999)

    play(story)


def test_who_waits_finds_out_without_news() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 20.5)
        stage.kind("work", crowd)
        stage.node("one")
        job_id = await stage.queue()
        await stage.until(job_id, State.ACTIVE)
        other = stage.node("two")
        del stage.nodes["two"]  # nobody passes news on to it
        assert (await other.service.wait(job_id, 100)).state is State.COMPLETED
        assert stage.clock.mono() < 27
        await other.kill()

    play(story)


def test_jobs_are_found_and_counted() -> None:
    async def story(stage: Stage) -> None:
        stage.kind("work", nothing)
        stage.kind("other", failing, attempts=1)
        service = stage.node().service
        done = [await stage.queue(user="a"), await stage.queue(user="b")]
        failed = await stage.queue("other", user="a")
        await stage.quiet()
        assert [job.id for job in await service.find(JobFilter(), limit=2)] == [failed, done[1]]
        assert [job.id for job in await service.find(JobFilter(), before=done[1])] == [done[0]]
        assert [job.id for job in await service.find(JobFilter(user="a", state=State.FAILED))] == [failed]
        assert await service.tallies() == {"work": JobTally(completed=2), "other": JobTally(failed=1)}
        with pytest.raises(Problem, match="limit"):
            await service.find(JobFilter(), limit=0)

    play(story)


def test_a_store_that_is_away_accepts_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.kind("work", nothing)
        stage.node()
        stage.place.is_away = True
        with pytest.raises(StoreUnavailable):
            await stage.queue()
        stage.place.is_away = False
        assert stage.place.jobs == {}

    play(story)


def test_old_jobs_go() -> None:
    async def story(stage: Stage) -> None:
        stage.kind("work", nothing)
        stage.kind("other", failing, attempts=1)
        node = stage.node()
        await node.service.queue([JobRequest(kind="work")] * 900)
        await node.service.queue([JobRequest(kind="work")] * 900)
        failed = await stage.queue("other")
        await stage.quiet()
        is_ours = False
        upkeep = JobsUpkeep(
            store=node.jobs,
            retention=JobRetention(completed_ms=7 * DAY_MS, failed_ms=30 * DAY_MS),
            is_ours=lambda: is_ours,
            clock=stage.clock,
            events=node.events,
        )
        running = asyncio.create_task(upkeep.run())
        stage.clock.wall_offset_s += 8 * 86_400
        await asyncio.sleep(CLEAN_S + 1)
        assert len(stage.place.jobs) == 1801, "another node has the chores"
        is_ours = True
        stage.place.is_away = True
        await asyncio.sleep(3 * CLEAN_S)
        stage.place.is_away = False
        whats = [event.what for event in stage.told if isinstance(event, StoreFailed)]
        assert whats.count("the upkeep of jobs") == 1
        await asyncio.sleep(CLEAN_S)
        assert list(stage.place.jobs) == [failed]
        stage.clock.wall_offset_s += 30 * 86_400
        await asyncio.sleep(CLEAN_S)
        assert stage.place.jobs == {}
        running.cancel()

    play(story)
