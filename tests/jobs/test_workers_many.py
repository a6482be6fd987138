"""Many users and several nodes: limits, turns, and nothing lost, whoever dies."""

import asyncio
import random
import statistics
from collections import defaultdict

import pytest

from peik.core.letter import State
from peik.jobs.job import Job
from peik.jobs.model import JobRequest
from tests.jobs.story import Crowd, Node, Play, Stage, history, play, play_on_a_file

pytestmark = pytest.mark.gate  # kills at random

USERS = 200
EACH = 5


async def queue_all(stage: Stage, nodes: list[Node]) -> dict[str, list[int]]:
    """By user, in the order in which they were queued."""
    ids: dict[str, list[int]] = defaultdict(list)
    for turn in range(EACH):
        for user in range(USERS):
            node = nodes[(user + turn) % len(nodes)]
            queued = await node.service.queue([JobRequest(kind="download", user=str(user))])
            ids[str(user)].append(queued[0].job_id)
    return ids


def tell_spread(waits: list[float], what: str) -> None:
    cuts = statistics.quantiles(waits, n=20)
    print(  # noqa: T201  the numbers are part of what is shown: pytest -rP
        f"{what}: waited min {min(waits):.0f} s, median {statistics.median(waits):.0f} s, "
        f"95 % {cuts[-1]:.0f} s, max {max(waits):.0f} s"
    )


@pytest.mark.parametrize("on", [play, play_on_a_file])
def test_a_thousand_downloads_of_two_hundred_users(on: Play) -> None:
    async def story(stage: Stage) -> None:
        chance = random.Random(1)
        crowd = Crowd(stage.clock, lambda job: chance.uniform(5, 60))
        stage.kind("download", crowd, concurrency=32, per_user=2)
        ids = await queue_all(stage, [stage.node(name) for name in ("one", "two", "three")])
        await stage.quiet()

        assert (crowd.most, crowd.most_of_a_job) == (32, 1)
        assert crowd.most_of_one <= 2
        jobs = [await stage.get(job_id) for of_user in ids.values() for job_id in of_user]
        assert [job.state for job in jobs] == [State.COMPLETED] * USERS * EACH
        assert set(crowd.runs.values()) == {1}
        for turn in range(EACH):
            tell_spread([crowd.began[of_user[turn]] for of_user in ids.values()], f"job {turn + 1} of each user")
        # Turns: nobody's first waits for another's third. (Some begin while the last ones are still being queued.)
        last_first = max(crowd.began[of_user[0]] for of_user in ids.values())
        first_third = min(crowd.began[of_user[2]] for of_user in ids.values())
        assert last_first < first_third
        last_third = max(crowd.began[of_user[2]] for of_user in ids.values())
        first_fifth = min(crowd.began[of_user[4]] for of_user in ids.values())
        assert last_third < first_fifth

    on(story)


def test_nobody_has_more_places_than_he_may_even_if_the_rest_stays_free() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 10.0)
        stage.kind("download", crowd, concurrency=32, per_user=2)
        nodes = [stage.node(name) for name in ("one", "two", "three")]
        for user in ("a", "b", "c"):
            await nodes[0].service.queue([JobRequest(kind="download", user=user) for _ in range(20)])
        await stage.quiet()
        assert (crowd.most, crowd.most_of_one) == (6, 2)
        assert 100 <= stage.clock.mono() < 105, "no place stood empty: who ends makes room at once"

    play(story)


def test_one_user_with_a_thousand_jobs_keeps_nobody_waiting() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 10.0)
        stage.kind("download", crowd, concurrency=8, per_user=8)
        node = stage.node()
        await node.service.queue([JobRequest(kind="download", user="greedy") for _ in range(1000)])
        await asyncio.sleep(100)
        asked_at = stage.clock.mono()
        modest = await stage.queue("download", user="modest")
        await stage.until(modest, State.ACTIVE)
        assert stage.clock.mono() - asked_at <= 11, "the next free place is his"
        assert crowd.most == 8

    play(story)


@pytest.mark.parametrize(("seed", "on"), [(0, play), (1, play), (2, play_on_a_file)])
def test_the_same_with_workers_killed_at_random(seed: int, on: Play) -> None:
    async def story(stage: Stage) -> None:
        chance = random.Random(seed)
        crowd = Crowd(stage.clock, lambda job: chance.uniform(5, 60))
        stage.kind("download", crowd, concurrency=32, per_user=2, attempts=50)
        names = ["one", "two", "three"]
        ids = await queue_all(stage, [stage.node(name) for name in names])
        for _ in range(12):
            await asyncio.sleep(chance.uniform(5, 60))
            victim = chance.choice(names)
            await stage.kill(victim)
            await asyncio.sleep(chance.uniform(0, 40))
            stage.node(victim)
        await stage.quiet()

        assert crowd.most <= 32
        assert crowd.most_of_one <= 2
        assert crowd.most_of_a_job == 1
        jobs = [await stage.get(job_id) for of_user in ids.values() for job_id in of_user]
        assert [job.state for job in jobs] == [State.COMPLETED] * USERS * EACH
        lost = sum(history(job).count("lost") for job in jobs)
        assert lost > 10, "somebody died in the middle of something"
        assert crowd.runs.total() <= USERS * EACH + lost
        assert all(history(job).count("done") == 1 for job in jobs)
        waits = [crowd.began[job.id] for job in jobs]
        tell_spread(waits, f"seed {seed}, {lost} runs lost")

    on(story)


def test_a_host_that_is_down_for_a_minute() -> None:
    """Jobs wait instead of failing: those that meet it first pay one attempt at most, those that probe it nothing."""

    async def story(stage: Stage) -> None:
        tries: list[float] = []

        async def work(job: Job) -> None:
            async with job.host("example.com"):
                tries.append(stage.clock.mono())
                await asyncio.sleep(1)
                if stage.clock.mono() < 60:
                    raise ConnectionRefusedError(111, "Connection refused")

        stage.kind("download", work, attempts=2, concurrency=8)
        ids = await queue_all_of([stage.node(name) for name in ("one", "two")], 100)
        await stage.quiet()
        jobs = [await stage.get(job_id) for job_id in ids]
        assert {job.state for job in jobs} == {State.COMPLETED}
        in_vain = [at for at in tries if at < 59]
        assert len(in_vain) <= 2 * (8 + 5), "on each node who was there already, and a few probes"
        assert max(job.attempts_made for job in jobs) == 2
        assert sum(job.attempts_made - 1 for job in jobs) <= 2 * 3
        assert stage.clock.mono() < 60 + 60 + 100 / 8 * 2
        assert stage.surprises() == []

    play(story)


async def queue_all_of(nodes: list[Node], count: int) -> list[int]:
    queued = await nodes[0].service.queue([JobRequest(kind="download", user=str(at)) for at in range(count)])
    return [one.job_id for one in queued]


def test_a_worker_that_knows_another_kind_does_not_touch_this_one() -> None:
    async def story(stage: Stage) -> None:
        stage.kind("other", Crowd(stage.clock, lambda job: 1.0))
        stage.node()
        job_id = await stage.queue("download")
        await asyncio.sleep(60)
        assert (await stage.get(job_id)).state is State.WAITING

    play(story)
