"""Everything at once, from a seed: nodes die and stop, the store goes away or loses its answers, people cancel and retry."""

import asyncio
import contextlib
import random

import pytest

from peik.core.letter import State
from peik.errors import Conflict
from peik.jobs.job import Job
from peik.jobs.model import JobRequest
from peik.jobs.outcome import JobLater
from tests.jobs.story import Crowd, Stage, history, play

NAMES = ("one", "two", "three")
JOBS = 200


class Chaos:
    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self._stage = stage
        self._chance = chance

    async def act(self) -> None:
        name = self._chance.choice(NAMES)
        await self._chance.choice([self.kill, self.stop, self.cut_off, self.away, self.deaf, self.cancel, self.retry])(
            name
        )

    async def kill(self, name: str) -> None:
        await self._stage.kill(name)
        await asyncio.sleep(self._chance.uniform(0, 60))
        self._stage.node(name)

    async def stop(self, name: str) -> None:
        await self._stage.nodes.pop(name).stop(self._chance.uniform(0, 20))
        self._stage.node(name)

    async def cut_off(self, name: str) -> None:
        store = self._stage.memory_of(name)
        store.is_cut_off = True
        await asyncio.sleep(self._chance.uniform(1, 90))
        store.is_cut_off = False

    async def away(self, name: str) -> None:
        self._stage.place.is_away = True
        await asyncio.sleep(self._chance.uniform(1, 90))
        self._stage.place.is_away = False

    async def deaf(self, name: str) -> None:
        self._stage.place.loses_answers = True
        await asyncio.sleep(self._chance.uniform(0.1, 40))
        self._stage.place.loses_answers = False

    async def cancel(self, name: str) -> None:
        for _ in range(5):
            with contextlib.suppress(Conflict):
                await self._stage.nodes[name].service.cancel(self._chance.randint(1, JOBS))

    async def retry(self, name: str) -> None:
        for _ in range(5):
            with contextlib.suppress(Conflict):
                await self._stage.nodes[name].service.retry(self._chance.randint(1, JOBS))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_every_job_ends_and_none_runs_twice_at_once(seed: int) -> None:
    async def story(stage: Stage) -> None:
        chance = random.Random(seed)
        crowd = Crowd(stage.clock, lambda job: chance.expovariate(1 / 30))

        async def work(job: Job) -> int:
            if chance.random() < 0.1:
                raise JobLater(chance.uniform(0, 60))
            done = await crowd(job)
            if chance.random() < 0.1:
                raise ConnectionError("reset")
            return done

        stage.kind("work", work, concurrency=12, per_user=2, attempts=100, timeout_s=120)
        nodes = [stage.node(name) for name in NAMES]
        requests = [JobRequest(kind="work", user=str(at % 20)) for at in range(JOBS)]
        await nodes[0].service.queue(requests)
        chaos = Chaos(stage, chance)
        for _ in range(30):
            await asyncio.sleep(chance.expovariate(1 / 15))
            await chaos.act()
        await stage.quiet()
        await asyncio.sleep(60)

        assert crowd.most_of_a_job == 1
        assert crowd.most <= 12
        assert crowd.most_of_one <= 2
        assert crowd.now.total() == 0
        jobs = [await stage.get(job_id) for job_id in range(1, JOBS + 1)]
        assert {job.state for job in jobs} <= {State.COMPLETED, State.CANCELLED}
        assert all((history(job)[-1:] == ["done"]) == (job.state is State.COMPLETED) for job in jobs)
        assert all(node.workers.running() == [] for node in stage.nodes.values())
        assert stage.surprises() == []

    play(story)
