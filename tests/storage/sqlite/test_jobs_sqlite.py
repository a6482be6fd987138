"""What is SQLite's own of jobs: what queries cost, one commit for many, clocks put back, several processes on one file."""

import asyncio
import os
import re
from typing import Any

import msgspec
import pytest

from peik.clock import SystemClock
from peik.core.letter import State
from peik.errors import Conflict
from peik.jobs.model import JobEnd, JobFilter
from peik.jobs.store import JobRetention, Quota, RunNews
from peik.storage.sqlite.jobs import SQL
from peik.storage.sqlite.store import SqliteStore
from tests.storage.acts import HOUR, NOW
from tests.storage.job_acts import KIND, a_job, queue, queued, ran, settle, take, take_one, taken, terms, the_job
from tests.storage.places import SqlitePlace
from tests.storage.sqlite import job_programs
from tests.storage.sqlite.test_cost import Meter

# Every query that looks at each row of a table, and why it may. All others must find their rows by an index.
MAY_SCAN = {
    "draw_numbers": "one row",
    "tallies": "six rows for each kind",
    "drop_tallies": "the same",
}
WIDTHS = {
    "join_lines": 5,
    "leave_lines": 5,
    "find_keys": 2,
    "used": 3,
    "use": 5,
    "add": 17,
    "join_due": 2,
    "begin": 6,
    "beat": 6,
    "save": 16,
}


# ---- cost ----


def _plan(store: SqliteStore, sql: str, width: int = 1) -> str:
    one = f"({','.join('?' * width)})"
    sql = sql.replace("{rows}", f"{one}, {one}, {one}").replace("{where}", "j.user_id = :user AND j.id < :before")
    named = dict.fromkeys(re.findall(r":(\w+)", sql))
    rows = store._connection.execute(f"EXPLAIN QUERY PLAN {sql}", named or [None] * sql.count("?"))
    return "\n".join(row[3] for row in rows)


async def test_only_these_queries_look_at_every_row(place: SqlitePlace) -> None:
    async with place.open() as store:
        plans = {name: _plan(store, sql, WIDTHS.get(name, 1)) for name, sql in SQL.items()}
    scan = re.compile(r"^SCAN (?!\d+-ROW|CONSTANT ROW|\(subquery)", re.MULTILINE)
    assert {name for name, plan in plans.items() if scan.search(plan)} == set(MAY_SCAN)
    # Those that run are few enough to be sorted.
    assert {name for name, plan in plans.items() if "TEMP B-TREE" in plan} == {"lost"}


async def test_a_users_jobs_are_found_by_user_in_whichever_state(place: SqlitePlace) -> None:
    async with place.open() as store:
        meter = Meter(store._reader)
        await queue(store.jobs, *(a_job("many") for _ in range(2000)))
        (mine,) = await queue(store.jobs, a_job("one"))
        found = await store.jobs.jobs(JobFilter(user="one", state=State.WAITING), before=None, limit=50)
        assert [job.id for job in found] == [mine]
        assert meter.steps() < 200


async def _take_steps(store: SqliteStore, meter: Meter, **how: Any) -> int:
    meter.steps()
    jobs = await take(store.jobs, 32, **how)
    assert len(jobs) == 32
    steps = meter.steps()
    await settle(store.jobs, *(ran(job) for job in jobs))
    return steps


async def test_a_take_costs_the_same_however_many_wait(place: SqlitePlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, *(a_job(f"u{n}") for n in range(100)))
        meter = Meter(store._connection)
        await _take_steps(store, meter)  # the first use of a statement costs more
        few = await _take_steps(store, meter)
        for _ in range(4):
            await queue(store.jobs, *(a_job(f"u{n % 4000}") for n in range(5000)))
        await _take_steps(store, meter)
        many = await _take_steps(store, meter)
        assert many < few * 1.5, (few, many)


async def test_a_take_passes_over_those_that_are_full_and_no_more(place: SqlitePlace) -> None:
    async with place.open() as store:
        within = terms(200, 1)
        await queue(store.jobs, *(a_job(f"u{n % 100}") for n in range(5000)))
        meter = Meter(store._connection)
        await _take_steps(store, meter, within=within)  # the first use of a statement costs more
        nobody_full = await _take_steps(store, meter, within=within)
        await queue(store.jobs, *(a_job(f"full{n % 50}", rank=0) for n in range(5000)))
        assert len(await taken(store.jobs, 50, within=within)) == 50
        # Each of the fifty costs a look at its line, whatever waits in it.
        assert await _take_steps(store, meter, within=within) - nobody_full < 50 * 40


async def test_a_standing_is_counted_over_lines_and_not_over_jobs(place: SqlitePlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, *(a_job(f"u{n % 20}") for n in range(8000)))
        (last,) = await queue(store.jobs, a_job("last"))
        meter = Meter(store._reader)
        standing = await store.jobs.standing(last)
        assert standing is not None
        assert standing.ahead == 20
        assert meter.steps() < 2000


async def test_a_thousand_jobs_are_one_commit(place: SqlitePlace) -> None:
    async with place.open() as store:
        commits: list[int] = []
        store._connection.set_commit_hook(lambda: bool(commits.append(1)))
        await queue(store.jobs, *(a_job(f"u{n}") for n in range(1000)))
        assert len(commits) == 1
        jobs = await take(store.jobs, 1000)
        await settle(store.jobs, *map(ran, jobs))
        assert (len(jobs), len(commits)) == (1000, 3)
        await asyncio.gather(*(queue(store.jobs, a_job(f"u{n}")) for n in range(50)))
        assert len(commits) == 4
        await store.jobs.reap(at_ms=NOW, limit=100)
        assert await taken(store.jobs, kind="unknown") == []
        store._connection.set_commit_hook(None)


async def test_one_who_asks_for_too_much_fails_alone(place: SqlitePlace) -> None:
    async with place.open() as store:
        quotas = {KIND: Quota(jobs=1)}
        answers = await asyncio.gather(
            *(store.jobs.queue([a_job(f"u{n % 6}")], quotas=quotas, at_ms=NOW) for n in range(12)),
            return_exceptions=True,
        )
        assert [isinstance(one, Conflict) for one in answers] == [False] * 6 + [True] * 6
        assert (await store.jobs.tallies())[KIND].waiting == 6
        assert store._connection.execute("SELECT sum(jobs) FROM job_lines").fetchone() == (6,)


async def test_many_that_are_due_at_once_join_in_parts_and_the_bell_goes_on(place: SqlitePlace) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(run_at_ms=NOW + 5) for _ in range(2500)))
        assert await taken(store.jobs, 1, at_ms=NOW + 5) == ids[:1]
        assert (await store.jobs.tallies())[KIND].delayed == 1500
        assert await store.jobs.next_due([KIND]) == NOW + 5
        wide = terms(5000, 5000)
        assert await taken(store.jobs, 5000, within=wide, at_ms=NOW + 5) == ids[1:2000]
        assert await taken(store.jobs, 5000, within=wide, at_ms=NOW + 5) == ids[2000:]


# ---- clocks ----


async def test_a_clock_that_was_put_back_keeps_no_dead_workers_job(place: SqlitePlace) -> None:
    async with place.open() as store:
        (job_id,) = await queue(store.jobs, a_job())
        await take_one(store.jobs, lease_ms=1000)
        place.clock.now_ms -= 100 * HOUR
        assert await store.jobs.next_due([KIND]) == place.clock.now_ms + 1000
        assert await store.jobs.reap(at_ms=NOW, limit=10) == []
        place.clock.pass_ms(999)
        assert await store.jobs.reap(at_ms=NOW, limit=10) == []
        place.clock.pass_ms(1)
        assert [one.job.id for one in await store.jobs.reap(at_ms=NOW, limit=10)] == [job_id]


async def test_a_worker_that_lives_keeps_its_job_though_the_clock_is_put_back(place: SqlitePlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job())
        job = await take_one(store.jobs, lease_ms=1000)
        place.clock.now_ms -= HOUR
        for _ in range(5):
            (beaten,) = await store.jobs.beat([RunNews(job_id=job.id, run=job.run)], lease_ms=1000)
            assert beaten.is_ours
            assert await store.jobs.reap(at_ms=NOW, limit=10) == []
            place.clock.pass_ms(999)
        assert (await the_job(store.jobs, job.id)).run == 1


async def test_a_run_on_a_clock_that_was_put_back_took_no_time(place: SqlitePlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(), a_job())
        await settle(store.jobs, ran(await take_one(store.jobs)), at_ms=NOW - HOUR)
        (waiting,) = await store.jobs.jobs(JobFilter(state=State.WAITING), before=None, limit=5)
        standing = await store.jobs.standing(waiting.id)
        assert standing is not None
        assert standing.mean_run_ms == 0


# ---- the file ----


async def test_what_was_acknowledged_is_there_after_a_crash(place: SqlitePlace) -> None:
    async with place.open() as store:
        first, second = await queue(store.jobs, a_job(key="k"), a_job())
        await settle(store.jobs, ran(await take_one(store.jobs), result='"done"'))
        running = await take_one(store.jobs)
        await place.crash(store)
    async with place.open() as store:
        assert (await the_job(store.jobs, first)).result == '"done"'
        assert await the_job(store.jobs, second) == running
        (again,) = await queued(store.jobs, a_job(key="k"))
        assert (again.job_id, again.is_repeat) == (first, True)


@pytest.mark.parametrize("how", ["cancelled", "cleaned"])
async def test_no_lines_and_no_counts_are_left_behind(place: SqlitePlace, how: str) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n % 7}", rank=n % 3, run_at_ms=NOW + n % 2) for n in range(40)))
        if how == "cancelled":
            for job_id in ids:
                await store.jobs.cancel(job_id, reason="", at_ms=NOW)
        else:
            await settle(store.jobs, *(ran(job, JobEnd.DONE) for job in await take(store.jobs, at_ms=NOW + 1)))
        keep = JobRetention(completed_ms=0, failed_ms=0)
        assert await store.jobs.clean(keep, at_ms=NOW + 72 * HOUR, limit=100) == 40
        for table in ("jobs", "job_lines", "job_tallies", "job_days"):
            assert store._connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


# ---- several processes ----


def _until_ready(*processes: Any) -> None:
    for process in processes:
        assert process.stdout.readline().startswith("ready")
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


async def test_processes_on_one_file_share_the_work_within_the_terms(place: SqlitePlace) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n % 9}") for n in range(150)))
        workers = [job_programs.start(place.path, lease_ms=60_000) for _ in range(2)]
        await asyncio.to_thread(_until_ready, *workers)
        said = [(await asyncio.to_thread(worker.communicate))[0].split() for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0]
        for words in said:
            assert max(map(int, words[::2])) <= job_programs.TERMS.concurrency
            assert max(map(int, words[1::2])) <= job_programs.TERMS.per_user
        jobs = [await the_job(store.jobs, job_id) for job_id in ids]
        assert {(job.state, job.run, job.attempts_made) for job in jobs} == {(State.COMPLETED, 1, 1)}


async def test_a_killed_workers_jobs_begin_again_elsewhere(place: SqlitePlace) -> None:
    place.clock = SystemClock()  # the worker's process has no other
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n}") for n in range(3)))
        worker = job_programs.start(place.path, lease_ms=300, is_lazy=True)
        await asyncio.to_thread(_until_ready, worker)
        line = await asyncio.to_thread(worker.stdout.readline)
        assert [int(word) for word in line.split()] == ids
        worker.kill()
        await asyncio.to_thread(worker.communicate)
        lost: list[int] = []
        while len(lost) < 3:  # its lease ends by the machine's clock
            lost += [one.job.id for one in await store.jobs.reap(at_ms=NOW, limit=10)]
            await asyncio.sleep(0.01)
        again = await take(store.jobs)
        assert [(job.id, job.run, job.attempts_made) for job in again] == [(job_id, 2, 1) for job_id in lost]
        assert {job.node for job in again} == {store.nodes.node}
        history = msgspec.json.decode(again[0].history)
        assert (history[0]["end"], history[0]["node"]) == (
            "lost",
            store.nodes.node.replace(str(os.getpid()), str(worker.pid)),
        )
