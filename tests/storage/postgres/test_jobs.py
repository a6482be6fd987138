"""Jobs under real locks: several nodes on one schema, connections that are lost, and what the others hear."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from peik.core.letter import State
from peik.errors import Conflict, InDoubt
from peik.jobs.model import JobEnd
from peik.jobs.store import JobRetention, RunNews
from peik.storage.postgres.jobs import WaitingLine, take_turns
from peik.storage.postgres.store import PostgresStore
from tests.storage.acts import BOT, HOUR, NOW, accept, draft
from tests.storage.job_acts import KIND, a_job, end, queue, queued, ran, settle, take, take_one, taken, terms, the_job
from tests.storage.postgres.facts import locked_out, until
from tests.storage.postgres.proxy import Break, Proxy
from tests.storage.postgres_place import PostgresPlace


@asynccontextmanager
async def a_rival_with(place: PostgresPlace, kind: str) -> AsyncIterator[None]:
    """Somebody else holds the lock of a kind."""
    rival = await asyncpg.connect(place.server.url, server_settings={"search_path": place.schema})
    try:
        async with rival.transaction():
            await rival.execute("SELECT 1 FROM job_kinds WHERE kind = $1 FOR UPDATE", kind)
            yield
    finally:
        await rival.close()


# ---- two nodes ----


async def test_two_nodes_that_take_at_the_same_moment_stay_within_the_terms(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await queue(one.jobs, *(a_job(f"u{n % 4}") for n in range(40)))
        async with a_rival_with(place, KIND):
            # Both have seen that there is room for all of them.
            taking = [asyncio.ensure_future(take(node.jobs, 5, within=terms(7, 2))) for node in (one, two)]
            await until(lambda: locked_out(place, 2))
        begun = [job for jobs in await asyncio.gather(*taking) for job in jobs]
        assert len({job.id for job in begun}) == 7
        assert sorted(Counter(job.user for job in begun).values()) == [1, 2, 2, 2]


async def test_however_two_nodes_take_and_end_the_terms_hold_and_what_is_counted_is_there(place: PostgresPlace) -> None:
    within, rng = terms(5, 2), random.Random(4)
    async with place.open() as one, place.open(is_owner=False) as two:

        async def work(node: PostgresStore) -> None:
            for _ in range(25):
                await queue(node.jobs, *(a_job(f"u{rng.randrange(6)}", rank=rng.randrange(4)) for _ in range(3)))
                jobs = await take(node.jobs, 3, within=within)
                await _check_terms(place, concurrency=5, per_user=2)
                ways = [rng.choice((JobEnd.DONE, JobEnd.PUT_OFF, JobEnd.FAILED, JobEnd.HOPELESS)) for _ in jobs]
                await settle(node.jobs, *(ran(job, way) for job, way in zip(jobs, ways, strict=True)))
                await _cancel_any(node, rng)

        await asyncio.gather(work(one), work(two))
        await one.jobs.clean(JobRetention(completed_ms=0, failed_ms=HOUR), at_ms=NOW, limit=20)
        await _check_counts(place)
        while jobs := await take(two.jobs, within=within, at_ms=NOW + HOUR):
            await settle(one.jobs, *map(ran, jobs))
        await _check_counts(place)
        (tally,) = (await one.jobs.tallies()).values()
        assert (tally.waiting, tally.delayed, tally.active) == (0, 0, 0)


async def _cancel_any(node: PostgresStore, rng: random.Random) -> None:
    for job_id in rng.sample(range(1, 100), 3):
        job = await node.jobs.job(job_id)
        if job is not None and job.state is State.WAITING and rng.random() < 0.5:
            try:
                await node.jobs.cancel(job_id, reason="enough", at_ms=NOW)
            except Conflict:
                continue  # it has just ended


async def _check_terms(place: PostgresPlace, *, concurrency: int, per_user: int) -> None:
    rows = await place.run("SELECT user_id, count(*) FROM jobs WHERE state = 'active' GROUP BY user_id")
    assert sum(row[1] for row in rows) <= concurrency
    assert max((row[1] for row in rows), default=0) <= per_user


async def _check_counts(place: PostgresPlace) -> None:
    """Lines and counts say what the jobs themselves say."""
    lines = await place.run("SELECT kind, rank, user_id, waiting::bigint FROM job_lines ORDER BY 1, 2, 3")
    assert lines == await place.run(
        "SELECT kind, rank, user_id, count(*) FROM jobs WHERE state = 'waiting' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    counts = " , ".join(f"count(*) FILTER (WHERE state = '{state}') AS {state}" for state in State)
    said = await place.run(f"SELECT {', '.join(State)} FROM job_kinds")
    assert said == await place.run(f"SELECT {counts} FROM jobs")


async def test_who_waits_for_a_kind_holds_none_that_comes_after_it(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await queue(one.jobs, a_job(kind="a"), a_job(kind="b"))
        async with a_rival_with(place, "a"):
            waiting = asyncio.ensure_future(queue(one.jobs, a_job(kind="b"), a_job(kind="a")))
            await until(lambda: locked_out(place, 1))
            assert len(await taken(two.jobs, kind="b")) == 1
            assert not waiting.done()
        await waiting


async def test_two_nodes_that_make_the_same_kinds_are_both_served(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        for turn in range(10):
            kinds = [f"k{turn}-{n}" for n in range(6)]
            drafts = [a_job(kind=kind) for kind in kinds]
            await asyncio.gather(queue(one.jobs, *drafts), queue(two.jobs, *reversed(drafts)))
        tallies = await one.jobs.tallies()
        assert len(tallies) == 60
        assert {tally.waiting for tally in tallies.values()} == {2}


async def test_no_letter_waits_for_the_lock_of_a_kind(place: PostgresPlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job())
        async with a_rival_with(place, KIND):
            waiting = asyncio.ensure_future(queue(store.jobs, a_job()))
            await until(lambda: locked_out(place, 1))
            await accept(store, draft(1))
            assert not waiting.done()
        await waiting


async def test_a_question_that_is_refused_does_not_fail_its_neighbours_of_the_same_commit(place: PostgresPlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(key="k", digest="d"))
        before = store.commits
        asked = [a_job(key="k", digest="other"), a_job("bob"), a_job("with \0 in it"), a_job("cid")]
        answers = await asyncio.gather(*(queue(store.jobs, one) for one in asked), return_exceptions=True)
        assert [getattr(one, "code", None) for one in answers] == ["idempotency_key_reused", None, "bad_value", None]
        assert (await store.jobs.tallies())[KIND].waiting == 3
        assert store.commits > before
        await _check_counts(place)


# ---- connections that are lost ----


@pytest.mark.parametrize("breaks", [Break.BEFORE, Break.AFTER])
async def test_what_is_in_doubt_may_be_asked_again(place: PostgresPlace, breaks: Break) -> None:
    is_stored = breaks is Break.AFTER
    async with Proxy(place.server.port).running() as proxy, place.open() as watcher:
        store = PostgresStore(place.url.replace(f":{place.server.port}/", f":{proxy.port}/"), clock=place.clock)
        await store.open()
        proxy.breaks = breaks
        with pytest.raises(InDoubt):
            await queue(store.jobs, a_job(key="k", digest="d"))
        (answer,) = await queued(store.jobs, a_job(key="k", digest="d"))
        assert answer.is_repeat == is_stored
        job = await take_one(store.jobs)
        proxy.breaks = breaks
        with pytest.raises(InDoubt):
            await settle(store.jobs, ran(job, bytes_used=5))
        (again,) = await settle(store.jobs, ran(job, bytes_used=5))
        assert (again is None) == is_stored
        after = await the_job(watcher.jobs, job.id)
        assert (after.state, after.attempts_made, after.bytes_used) == (State.COMPLETED, 1, 5)
        assert await watcher.jobs.used_today(KIND, job.user, at_ms=NOW) == (1, 5)
        await _check_counts(place)
        await store.close()


async def test_a_connection_that_ends_between_two_questions_is_made_anew(place: PostgresPlace) -> None:
    async with place.open() as store:
        (first,) = await queue(store.jobs, a_job())
        for _ in range(3):
            await place.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'peik'")
            await end(store.jobs, await take_one(store.jobs), JobEnd.PUT_OFF)
        assert (await the_job(store.jobs, first)).run == 3


async def test_words_that_no_text_can_hold_end_a_run_all_the_same(place: PostgresPlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(), a_job())
        one, two = await take(store.jobs)
        assert (
            await end(store.jobs, one, JobEnd.HOPELESS, reason="a\0b")
        ).failed_reason == "a\N{REPLACEMENT CHARACTER}b"
        assert (await end(store.jobs, two, JobEnd.HOPELESS, reason="a\ud800b")).failed_reason == "a?b"


# ---- time ----


async def test_leases_go_by_the_servers_clock_whatever_the_nodes_say(place: PostgresPlace) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job(), a_job())
        one, two = await take(store.jobs, lease_ms=HOUR)
        place.clock.pass_ms(1000 * HOUR)
        assert await store.jobs.reap(at_ms=NOW + 1000 * HOUR, limit=10) == []
        ((now,),) = await place.run("SELECT job_clock()")
        assert one.ends_at_ms == two.ends_at_ms
        assert now < one.ends_at_ms <= now + HOUR
        await place.run("UPDATE jobs SET ends_at = job_clock() WHERE id = $1", one.id)
        assert [lost.job.id for lost in await store.jobs.reap(at_ms=NOW, limit=10)] == [one.id]


async def test_days_that_are_over_leave_with_the_jobs_and_yesterday_stays(place: PostgresPlace) -> None:
    day = 24 * HOUR
    async with place.open() as store:
        for at_ms in (NOW - 2 * day, NOW - day, NOW):
            await queue(store.jobs, a_job(), at_ms=at_ms)
        await end(store.jobs, await take_one(store.jobs))
        assert await store.jobs.clean(JobRetention(completed_ms=0, failed_ms=0), at_ms=NOW, limit=10) == 1
        used = [await store.jobs.used_today(KIND, "ann", at_ms=NOW - ago * day) for ago in (2, 1, 0)]
        assert used == [(0, 0), (1, 0), (1, 0)]


# ---- what the others hear ----


async def test_other_nodes_hear_of_jobs_that_came_or_made_room_and_of_no_others(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await one.nodes.release([BOT])  # letters of what it holds would concern nobody else
        await queue(one.jobs, a_job(key="k"))
        assert await _hears_of_jobs(two, one)
        job = await take_one(one.jobs)
        await one.jobs.beat([RunNews(job_id=job.id, run=job.run)], lease_ms=HOUR)
        await one.jobs.note(job.id, "{}")
        await queue(one.jobs, a_job(key="k"))
        assert not await _hears_of_jobs(two, one)
        await end(one.jobs, job, JobEnd.HOPELESS)
        assert await _hears_of_jobs(two, one)
        await one.jobs.retry(job.id, at_ms=NOW)
        assert await _hears_of_jobs(two, one)
        await one.jobs.cancel(job.id, reason="enough", at_ms=NOW)
        assert await _hears_of_jobs(two, one)


async def test_a_node_does_not_hear_of_what_it_did_itself(place: PostgresPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        await one.nodes.release([BOT])  # letters of what it holds would concern nobody else
        await queue(one.jobs, a_job())
        assert await _hears_of_jobs(two, one)  # so it has been told
        await one.nodes.beat()  # it holds the bot again, and so hears of letters for it
        assert not await _hears_of_jobs(one, two)


async def _hears_of_jobs(listener: PostgresStore, teller: PostgresStore) -> bool:
    """Whether the listener hears of jobs until it hears of a letter that the teller accepts now."""
    (letter_id,) = await accept(teller, draft(1))
    news = [await listener.nodes.news()]
    while not any(first <= letter_id <= last for _, first, last in news[-1].accepted):
        news.append(await listener.nodes.news())
    return any(each.is_jobs for each in news)


# ---- turns ----


def test_lines_that_were_cut_off_are_not_overtaken_by_those_that_have_had_their_turn() -> None:
    lines = [WaitingLine(0, "ann", 5), WaitingLine(2, "ann", 5), WaitingLine(2, "bob", 5)]
    whole = take_turns(lines, {}, per_user=3, room=9, is_cut=False)
    assert whole == [(0, "ann"), (0, "ann"), (0, "ann"), (2, "bob"), (2, "bob"), (2, "bob")]
    assert take_turns(lines, {}, per_user=9, room=9, is_cut=True)[-3:] == [(0, "ann"), (2, "ann"), (2, "bob")]
    assert take_turns(lines, {"ann": 2}, per_user=3, room=2, is_cut=False) == [(0, "ann"), (2, "bob")]
