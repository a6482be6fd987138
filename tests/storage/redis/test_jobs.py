"""Jobs on Redis: indexes in step with what they are about, no walks over those that wait, rules that Lua has to know as Python
has them."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from peik.core.letter import State
from peik.errors import Conflict, NotFound
from peik.jobs import store as job_rules
from peik.jobs.model import JobEnd, JobFilter, JobRecord
from peik.jobs.store import STANDING_COUNTED_MAX, JobRetention, JobStore, Quota, RunNews
from peik.storage.redis.jobs import PHASES
from tests.storage.acts import HOUR, NOW
from tests.storage.job_acts import KIND, SHORT_MS, a_job, end, queue, ran, settle, take, take_one, taken, terms, the_job
from tests.storage.redis_place import RedisPlace

GONE = JobRetention(completed_ms=0, failed_ms=0)

# ---- in step ----


def kept(place: RedisPlace) -> dict[str, Any]:
    """All that is there about jobs, by key, but what goes up for ever and what outlives jobs."""
    found: dict[str, Any] = {}
    skipped = (
        "job_numbers",
        "job_ids",
        "job_lease_ms",
        "job_means",
        "job_days",
        "job_kinds",
        "job_day_jobs",
        "job_day_bytes",
    )
    with place.server.client() as client:
        for raw in client.scan_iter(match=f"{place.key('job')}*", count=10_000):
            name = raw.decode().removeprefix(place.key(""))
            if name.split(":")[0] in skipped:
                continue
            match client.type(raw):
                case b"hash":
                    found[name] = {field.decode(): value for field, value in client.hgetall(raw).items()}
                case b"zset":
                    found[name] = [one.decode() for one in client.zrange(raw, 0, -1)]
                case b"set":
                    found[name] = {one.decode() for one in client.smembers(raw)}
    return found


def audit(place: RedisPlace) -> Counter[State]:
    """Every index and count, made anew from records and states alone: raises if what is kept is not the same. How many jobs stand
    where."""
    found = kept(place)
    records = {job_id: msgspec.msgpack.decode(raw) for job_id, raw in found.pop("jobs", {}).items()}
    states = {job_id: msgspec.msgpack.decode(raw) for job_id, raw in found.pop("job_state", {}).items()}
    for beside in ("job_progress", "job_notices"):
        assert found.pop(beside, {}).keys() <= records.keys()
    assert states.keys() <= records.keys()

    members: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    stands: Counter[State] = Counter()
    for job_id, (kind, user, rank, *_, extras) in records.items():
        state = PHASES[states.get(job_id, {}).get("p", 0)]
        stands[state] += 1
        counts[f"job_tally:{kind}"][state] += 1
        counts["job_blocks"][str(int(job_id) // 1000)] += 1
        if user:
            members[f"job_of:{user}"].add(job_id)
        if "k" in extras:
            counts["job_keys"][f"{len(kind)}:{kind}:{extras['k']}"] = int(job_id)
        match state:
            case State.WAITING:
                members[f"job_line:{rank}:{len(kind)}:{kind}:{user}"].add(job_id)
                members[f"job_lines:{rank}:{kind}"].add(user)
                counts[f"job_waiting:{kind}"][str(rank)] += 1
            case State.DELAYED:
                members[f"job_due:{kind}"].add(job_id.zfill(16))
            case State.ACTIVE:
                members[f"job_leases:{kind}"].add(job_id)
                counts[f"job_running:{kind}"][user] += 1
            case State.FAILED:
                members["job_dead"].add(job_id)
            case _:
                members["job_done"].add(job_id)

    there = {name: value for name, value in found.items() if isinstance(value, dict)}
    assert {name: set(value) for name, value in found.items() if name not in there} == members
    assert {name: _counted(value) for name, value in there.items() if _counted(value)} == counts
    return stands


def _counted(value: dict[str, bytes]) -> Counter[str]:
    """The first number of each; a tally that went down to nothing is none."""
    return +Counter({field: int(raw.split(b" ")[0]) for field, raw in value.items()})


class Storm:
    """Workers, people and upkeep on several nodes, all at once: nobody waits for anybody."""

    def __init__(self, nodes: list[JobStore], seed: int) -> None:
        self.nodes = nodes
        self.chance = random.Random(seed)
        self.begun: list[tuple[int, int]] = []
        self.ended = 0

    async def worker(self) -> None:
        node = self.chance.choice(self.nodes)
        for _ in range(25):
            mine = await take(node, 3, within=terms(12, 3), lease_ms=SHORT_MS, at_ms=NOW + HOUR)
            self.begun += [(job.id, job.run) for job in mine]
            await node.beat([RunNews(job_id=job.id, run=job.run, progress=0.5) for job in mine], lease_ms=SHORT_MS)
            ways = (JobEnd.DONE, JobEnd.DONE, JobEnd.FAILED, JobEnd.PUT_OFF, JobEnd.HOPELESS, JobEnd.LATE)
            over = [ran(job, self.chance.choice(ways)) for job in mine if self.chance.random() < 0.8]
            self.ended += sum(one is not None for one in await settle(node, *over, at_ms=NOW + HOUR))

    async def people(self, ids: list[int]) -> None:
        for _ in range(40):
            node, job_id = self.chance.choice(self.nodes), self.chance.choice(ids)
            try:
                if self.chance.random() < 0.5:
                    await node.cancel(job_id, reason="enough", at_ms=NOW + HOUR)
                else:
                    await node.retry(job_id, at_ms=NOW + HOUR)
            except (Conflict, NotFound):
                pass

    async def upkeep(self) -> None:
        for _ in range(30):
            await self.chance.choice(self.nodes).reap(at_ms=NOW + HOUR, limit=5)
            await asyncio.sleep(0.001)
        await self.chance.choice(self.nodes).clean(GONE, at_ms=NOW + HOUR, limit=20)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_meets_at_once_every_index_stays_in_step(place: RedisPlace, seed: int) -> None:
    async with AsyncExitStack() as stack:
        nodes = [(await stack.enter_async_context(place.open(is_owner=False))).jobs for _ in range(3)]
        storm = Storm(nodes, seed)
        drafts = [
            a_job(
                storm.chance.choice(("ann", "bob", "c:d", "")),
                rank=storm.chance.choice((1, 2, 3)),
                run_at_ms=storm.chance.choice((None, NOW + 50)),
                key=storm.chance.choice((None, f"k{index}")),
                backoff_ms=0,
            )
            for index in range(150)
        ]
        ids = await queue(nodes[0], *drafts)
        await asyncio.gather(*(storm.worker() for _ in range(6)), storm.people(ids), storm.people(ids), storm.upkeep())
        stands = audit(place)
        assert len(storm.begun) == len(set(storm.begun)) > 40  # no run was given twice
        assert storm.ended > 20
        assert stands[State.ACTIVE] <= 12


async def test_jobs_that_have_left_leave_nothing_behind(place: RedisPlace) -> None:
    async with place.open() as store:
        drafts = [a_job(f"u{index % 7}", key=f"k{index}", rank=index % 4) for index in range(40)]
        await queue(store.jobs, *drafts, a_job(""), a_job(run_at_ms=NOW + 1))
        jobs = await take(store.jobs, 999, at_ms=NOW + 1)
        await store.jobs.beat([RunNews(job_id=job.id, run=1, progress=1.0) for job in jobs], lease_ms=HOUR)
        await store.jobs.note(jobs[0].id, "told")
        await settle(store.jobs, *(ran(job, JobEnd.HOPELESS if job.id % 2 else JobEnd.DONE) for job in jobs))
        assert audit(place)[State.FAILED] == 21
        assert await store.jobs.clean(GONE, at_ms=NOW + 2, limit=999) == 42
        assert kept(place) == {}


async def test_days_that_are_over_leave_but_yesterday(place: RedisPlace) -> None:
    async with place.open() as store:
        for days in (0, 1, 2):
            await queue(store.jobs, a_job(), at_ms=NOW + days * job_rules.DAY_MS)
        await store.jobs.clean(GONE, at_ms=NOW + 2 * job_rules.DAY_MS, limit=1)
        used = [await store.jobs.used_today(KIND, "ann", at_ms=NOW + days * job_rules.DAY_MS) for days in (0, 1, 2)]
        assert used == [(0, 0), (1, 0), (1, 0)]


async def test_names_that_hold_the_sign_between_names_do_not_meet(place: RedisPlace) -> None:
    async with place.open() as store:
        one, two = await queue(store.jobs, a_job("c", kind="a:b", key="k"), a_job("b:c", kind="a", key="b:k"))
        (three,) = await queue(store.jobs, a_job("c", kind="a:b", key="l"))
        assert len({one, two, three}) == 3
        assert await taken(store.jobs, kind="a") == [two]
        assert await taken(store.jobs, kind="a:b") == [one, three]
        assert [job.id for job in await store.jobs.jobs(JobFilter(user="c"), before=None, limit=9)] == [three, one]
        audit(place)


# ---- many ----


async def calls(place: RedisPlace, act: Callable[[], Awaitable[object]]) -> int:
    """How many commands the server ran for this, those within scripts among them."""
    with place.server.client() as client:
        client.config_resetstat()
        await act()
        return sum(int(one["calls"]) for one in client.info("commandstats").values())


async def test_what_waits_is_not_walked(place: RedisPlace) -> None:
    """The first thirty users of 2,000 are full. Taking asks the server as often as if few waited."""
    within = terms(60, 1)
    async with place.open() as store:
        await queue(store.jobs, *(a_job(f"full{index}") for index in range(30)))
        full = await take(store.jobs, 30, within=within)
        await queue(store.jobs, *(a_job(f"full{index}") for index in range(30)))  # at the front of all
        few = [a_job(f"u{index}") for index in range(16)]
        await queue(store.jobs, *few)
        begun: list[JobRecord] = []

        async def act() -> None:
            begun.extend(await take(store.jobs, 16, within=within))

        among_few = await calls(place, act)
        assert [job.user for job in begun] == [one.user for one in few]
        await settle(store.jobs, *map(ran, begun))
        begun.clear()
        for _ in range(5):
            await queue(store.jobs, *(a_job(f"u{index}") for index in range(2000)))
        among_many = await calls(place, act)
        assert [job.user for job in begun] == [one.user for one in few]
        assert among_many <= among_few + 10
        assert len(full) == 30


async def test_where_a_job_stands_is_exact_over_many_lines(place: RedisPlace) -> None:
    """More lines than one call looks at."""
    users = [f"u{index}" for index in range(1300)]
    async with place.open() as store:
        await queue(
            store.jobs, *map(a_job, users), *map(a_job, users[::3]), *map(a_job, users[::5]), a_job("x", rank=1)
        )
        some = random.Random(5).sample(range(1, 1995), 25)
        ahead = {job_id: standing.ahead for job_id in some if (standing := await store.jobs.standing(job_id))}
        order = await taken(store.jobs, 9999, within=terms(9999, 9999))
        assert ahead == {job_id: order.index(job_id) for job_id in some}


async def test_where_a_job_stands_among_more_lines_than_are_counted_is_told_at_once(place: RedisPlace) -> None:
    async with place.open() as store:
        for start in range(0, STANDING_COUNTED_MAX, 1000):
            await queue(store.jobs, *(a_job(f"u{start + index}") for index in range(1000)))
        first, second = await queue(store.jobs, a_job("last"), a_job("last"))
        for job_id in (first, second):
            assert (standing := await store.jobs.standing(job_id))
            assert standing.ahead == STANDING_COUNTED_MAX
            assert await calls(place, lambda job_id=job_id: store.jobs.standing(job_id)) < 20


async def test_a_user_finds_its_jobs_among_many(place: RedisPlace) -> None:
    async with place.open() as store:
        (first,) = await queue(store.jobs, a_job("zoe"))
        await queue(store.jobs, *(a_job(f"u{index}") for index in range(5000)))
        (last,) = await queue(store.jobs, a_job("zoe"))
        asked = await calls(place, lambda: store.jobs.jobs(JobFilter(user="zoe"), before=None, limit=9))
        assert asked < 20
        assert [one.id for one in await store.jobs.jobs(JobFilter(user="zoe"), before=None, limit=9)] == [last, first]


async def test_more_due_jobs_than_one_call_moves_all_join_before_any_begins(place: RedisPlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, *(a_job("ann", run_at_ms=NOW + 1) for _ in range(2300)))
        (urgent,) = await queue(store.jobs, a_job("bob", run_at_ms=NOW + 2, rank=0))
        assert await taken(store.jobs, 1, at_ms=NOW + 2) == [urgent]
        assert (await store.jobs.tallies())[KIND].waiting == 2300


async def test_a_job_that_ran_again_and_again_keeps_what_it_had(place: RedisPlace) -> None:
    """Lua writes the state each time: what Python put there comes back as it was."""
    async with place.open() as store:
        await queue(store.jobs, a_job(attempts=90, backoff_ms=0, params='{"name":"گزارش"}'))
        for number in range(1, 61):
            job = await take_one(store.jobs)
            assert (job.run, job.attempts_made) == (number, number - 1)
            after = await end(store.jobs, job, JobEnd.FAILED, reason="خطا" * 100, bytes_used=1 << 33)
        assert after.bytes_used == 60 << 33
        assert (await the_job(store.jobs, after.id)).history == after.history


# ---- rules that Lua has, too ----


async def test_the_mean_is_reckoned_as_the_rules_say(place: RedisPlace) -> None:
    chance = random.Random(1)
    async with place.open() as store:
        await queue(store.jobs, *(a_job() for _ in range(202)))
        mean = None
        for _ in range(200):
            lasted = chance.choice((chance.randrange(64), chance.randrange(100_000)))
            mean = job_rules.new_mean_ms(mean, lasted)
            await end(store.jobs, await take_one(store.jobs), at_ms=NOW + lasted)
            standing = await store.jobs.standing(202)
            assert standing is not None
            assert standing.mean_run_ms == mean


@pytest.mark.parametrize("jobs", [None, 0, 2, 3, 4])
@pytest.mark.parametrize("size", [None, 0, 9, 10, 11])
async def test_a_quota_allows_what_the_rules_allow(place: RedisPlace, jobs: int | None, size: int | None) -> None:
    quotas = {KIND: Quota(jobs=jobs, bytes=size)}
    async with place.open() as store:
        await queue(store.jobs, a_job(), a_job("bob"))
        await end(store.jobs, await take_one(store.jobs), bytes_used=10)
        ruled = refusal(lambda: job_rules.check_quotas(quotas, {(KIND, "ann"): (1, 10)}, {(KIND, "ann"): 2}))
        if ruled is None:
            assert len(await store.jobs.queue([a_job(), a_job()], quotas=quotas, at_ms=NOW)) == 2
        else:
            with pytest.raises(Conflict) as caught:
                await store.jobs.queue([a_job(), a_job()], quotas=quotas, at_ms=NOW)
            assert str(caught.value) == ruled


def refusal(act: Callable[[], None]) -> str | None:
    try:
        act()
    except Conflict as problem:
        return str(problem)
    return None
