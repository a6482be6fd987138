"""Whatever happens to jobs on two nodes, in whatever order: who goes next is as a model in plain Python says, nobody is passed
over twice, no run meets another of its job, and in the end every job has ended."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from peik.core.letter import Backoff, State
from peik.jobs.model import JobEnd, JobRecord, Ran, judged
from peik.jobs.store import JobStore, JobTally, KindTerms, RunNews
from tests.storage.acts import HOUR
from tests.storage.all_places import LIVES_ON_SERVERS, PLACES
from tests.storage.job_acts import SHORT_MS, a_job, pass_leases
from tests.storage.places import SqlitePlace

STEPS = 120
LIVES = 30
KINDS = ("download", "report")
USERS = ("ann", "bob", "cid", "dan", "")
RANKS = (1, 2, 3)
TERMS = KindTerms(concurrency=4, per_user=2)
LONG_MS = 1000 * HOUR  # no life is so long

Line = tuple[str, int, str]  # kind, rank, user


class Fairness:
    """While a line waits that could go, no other of its rank goes twice. Told of every job that begins."""

    def __init__(self) -> None:
        self._went: dict[Line, set[Line]] = defaultdict(set)  # by who waits: who went meanwhile

    def forget(self, line: Line) -> None:
        """It is empty: whoever joins it next draws another ticket."""
        self._went.pop(line, None)

    def begins(self, line: Line, waiting: Sequence[Line], full: set[tuple[str, str]]) -> None:
        """`waiting` and `full` (by kind and user) as they are after that."""
        could_go = {other for other in waiting if (other[0], other[2]) not in full and other != line}
        for other in list(self._went):
            if other not in could_go:
                del self._went[other]
        for other in could_go:
            if other[:2] == line[:2]:
                assert line not in self._went[other], f"{line} went twice while {other} waited"
                self._went[other].add(line)


class Model:
    """All jobs, their lines and tickets."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRecord] = {}
        self.lines: dict[Line, list[int]] = {}
        self.tickets: dict[Line, int] = {}
        self.last_ticket = 0
        self.fairness = Fairness()

    def line(self, job: JobRecord) -> Line:
        return (job.kind, job.rank, job.user)

    def change(self, job_id: int, **terms: Any) -> None:
        self.jobs[job_id] = _changed(self.jobs[job_id], terms)

    def draw(self, line: Line) -> None:
        self.last_ticket += 1
        self.tickets[line] = self.last_ticket

    def join(self, job_id: int) -> None:
        self.change(job_id, state=State.WAITING, due_at_ms=None)
        line = self.line(self.jobs[job_id])
        if line not in self.lines:
            self.draw(line)
        self.lines.setdefault(line, []).append(job_id)

    def leave(self, job_id: int) -> None:
        line = self.line(self.jobs[job_id])
        self.lines[line].remove(job_id)
        if not self.lines[line]:
            del self.lines[line], self.tickets[line]
            self.fairness.forget(line)

    def in_state(self, *states: State, kind: str | None = None) -> list[JobRecord]:
        return [job for job in self.jobs.values() if job.state in states and kind in (None, job.kind)]

    def running(self, kind: str) -> Counter[str]:
        return Counter(job.user for job in self.in_state(State.ACTIVE, kind=kind))

    def take(self, kind: str, limit: int, now: int) -> list[int]:
        for job in sorted(self.in_state(State.DELAYED, kind=kind), key=lambda job: (job.due_at_ms, job.id)):
            if job.due_at_ms is not None and job.due_at_ms <= now:
                self.join(job.id)
        begun: list[int] = []
        while len(begun) < limit and self.running(kind).total() < TERMS.concurrency:
            running = self.running(kind)
            open_lines = [line for line in self.lines if line[0] == kind and running[line[2]] < TERMS.per_user]
            if not open_lines:
                break
            line = min(open_lines, key=lambda one: (one[1], self.tickets[one]))
            job_id = self.lines[line][0]
            self.leave(job_id)
            if line in self.lines:
                self.draw(line)
            self.change(job_id, state=State.ACTIVE, run=self.jobs[job_id].run + 1)
            begun.append(job_id)
            full = {(kind, user) for user, count in self.running(kind).items() if count >= TERMS.per_user}
            self.fairness.begins(line, [one for one in self.lines if one[0] == kind], full)
        return begun

    def settle(self, run: Ran, now: int) -> None:
        job = self.jobs[run.job_id]
        verdict = judged(job, run, at_ms=now)
        self.change(
            job.id,
            state=verdict.state,
            attempts_made=verdict.attempts_made,
            due_at_ms=verdict.due_at_ms,
            is_cancelling=False,
        )
        if verdict.state is State.DELAYED and (verdict.due_at_ms or 0) <= now:
            self.join(job.id)


def _changed(job: JobRecord, terms: dict[str, Any]) -> JobRecord:
    known = {name: getattr(job, name) for name in job.__struct_fields__}
    return JobRecord(**(known | terms))


class Life:
    """One seed's story on two nodes."""

    def __init__(self, place: Any, seed: int, nodes: Sequence[JobStore]) -> None:
        self.place = place
        self.chance = random.Random(seed)
        self.nodes = nodes
        self.model = Model()
        self.doomed: set[int] = set()  # under a lease that is over soon, and no worker beats

    @property
    def now(self) -> int:
        return self.place.clock.now_ms

    @property
    def node(self) -> JobStore:
        return self.chance.choice(self.nodes)

    async def live(self) -> None:
        deeds = (
            self.queue,
            self.take,
            self.take,
            self.die,
            self.settle,
            self.settle,
            self.reap,
            self.cancel,
            self.retry,
        )
        for _ in range(STEPS):
            await self.chance.choice(deeds)()
            if self.chance.random() < 0.3:
                self.place.clock.pass_ms(self.chance.choice((1, 50, 2000)))
            await self.check()
        await self.drain()

    async def queue(self) -> None:
        drafts = [
            a_job(
                self.chance.choice(USERS),
                kind=self.chance.choice(KINDS),
                rank=self.chance.choice(RANKS),
                attempts=self.chance.randint(1, 3),
                backoff_ms=self.chance.choice((0, 100)),
                backoff=Backoff.FIXED,
                run_at_ms=self.chance.choice((None, None, self.now + self.chance.randint(-5, 60))),
            )
            for _ in range(self.chance.randint(1, 6))
        ]
        answers = await self.node.queue(drafts, quotas={}, at_ms=self.now)
        for draft, answer in zip(drafts, answers, strict=True):
            job = await self.node.job(answer.job_id)
            assert job is not None
            assert job.id not in self.model.jobs
            assert (job.kind, job.user, job.rank) == (draft.kind, draft.user, draft.rank)
            is_later = draft.run_at_ms is not None and draft.run_at_ms > self.now
            self.model.jobs[job.id] = _changed(job, {"state": State.DELAYED})
            if not is_later:
                self.model.join(job.id)

    async def take(self, lease_ms: int = LONG_MS) -> list[int]:
        kind, limit = self.chance.choice(KINDS), self.chance.randint(1, 6)
        begun = await self.node.take(kind, TERMS, limit=limit, lease_ms=lease_ms, at_ms=self.now)
        ids = [job.id for job in begun]
        assert ids == self.model.take(kind, limit, self.now)
        assert all(job.run == self.model.jobs[job.id].run for job in begun)
        return ids

    async def die(self) -> None:
        """A worker takes jobs, and is not heard of again."""
        self.doomed.update(await self.take(lease_ms=SHORT_MS))

    async def settle(self) -> None:
        running = self.model.in_state(State.ACTIVE)
        some = self.chance.sample(running, k=self.chance.randint(0, len(running)))
        ways = (JobEnd.DONE, JobEnd.DONE, JobEnd.FAILED, JobEnd.HOPELESS, JobEnd.PUT_OFF, JobEnd.CANCELLED, JobEnd.LATE)
        runs = [Ran(job_id=job.id, run=job.run, end=self.chance.choice(ways)) for job in some]
        late = [Ran(job_id=job.id, run=job.run - 1, end=JobEnd.DONE) for job in running]  # those of the run before
        answers = await self.node.settle([*late, *runs], at_ms=self.now)
        assert answers[: len(late)] == [None] * len(late)
        for run, answer in zip(runs, answers[len(late) :], strict=True):
            self.model.settle(run, self.now)
            self.doomed.discard(run.job_id)
            assert answer is not None
            assert answer.job.state is self.model.jobs[run.job_id].state

    async def reap(self) -> None:
        await pass_leases(self.place)
        lost = await self.node.reap(at_ms=self.now, limit=100)
        assert {one.job.id for one in lost} == self.doomed
        for one in lost:
            job = self.model.jobs[one.job.id]
            self.model.settle(Ran(job_id=job.id, run=job.run, end=JobEnd.LOST), self.now)
            (beaten,) = await self.node.beat([RunNews(job_id=job.id, run=job.run)], lease_ms=HOUR)
            assert not beaten.is_ours
        self.doomed.clear()

    async def cancel(self) -> None:
        living = self.model.in_state(State.WAITING, State.DELAYED, State.ACTIVE)
        if not living:
            return
        job = self.chance.choice(living)
        await self.node.cancel(job.id, reason="enough", at_ms=self.now)
        if job.state is State.ACTIVE:
            self.model.change(job.id, is_cancelling=True)
            return
        if job.state is State.WAITING:
            self.model.leave(job.id)
        self.model.change(job.id, state=State.CANCELLED, due_at_ms=None)

    async def retry(self) -> None:
        dead = self.model.in_state(State.FAILED, State.CANCELLED)
        if dead:
            job = self.chance.choice(dead)
            await self.node.retry(job.id, at_ms=self.now)
            self.model.change(job.id, attempts_made=0)
            self.model.join(job.id)

    async def check(self) -> None:
        tallies = await self.node.tallies()
        for kind in KINDS:
            counts = Counter(str(job.state) for job in self.model.jobs.values() if job.kind == kind)
            assert tallies.get(kind, JobTally()) == JobTally(**counts)
        active = await self.node.active()
        assert sorted(job.id for job in active) == sorted(job.id for job in self.model.in_state(State.ACTIVE))
        for kind in KINDS:
            users = Counter(job.user for job in active if job.kind == kind)
            assert users.total() <= TERMS.concurrency
            assert all(count <= TERMS.per_user for count in users.values())

    async def drain(self) -> None:
        """Every worker lives from now on: whatever was queued ends."""
        self.place.clock.pass_ms(HOUR)
        for _ in range(1000):
            await self.reap()
            for job in self.model.in_state(State.ACTIVE):
                (answer,) = await self.node.settle([Ran(job_id=job.id, run=job.run, end=JobEnd.DONE)], at_ms=self.now)
                assert answer is not None
                self.model.settle(Ran(job_id=job.id, run=job.run, end=JobEnd.DONE), self.now)
            if all(job.state.is_final for job in self.model.jobs.values()):
                break
            await self.take()
        assert all(job.state.is_final for job in self.model.jobs.values())
        for job_id, known in self.model.jobs.items():
            job = await self.node.job(job_id)
            assert job is not None
            assert (job.state, job.run, job.attempts_made) == (known.state, known.run, known.attempts_made)
        assert [await self.node.standing(job_id) for job_id in self.model.jobs] == [None] * len(self.model.jobs)


def _lives() -> list[Any]:
    counts = {place: LIVES if place is SqlitePlace else LIVES_ON_SERVERS for place in PLACES}
    return [
        pytest.param(place, seed, id=f"{place.__name__}-{seed}") for place in PLACES for seed in range(counts[place])
    ]


@pytest.mark.parametrize(("place_type", "seed"), _lives())
async def test_any_life_of_jobs_is_as_the_model_says(place_type: type[Any], seed: int, tmp_path: Path) -> None:
    place = place_type(tmp_path)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(place.open())
        two = await stack.enter_async_context(place.open(is_owner=False))
        await Life(place, seed, (one.jobs, two.jobs)).live()
