"""Kinds of jobs that rest, or may only begin so fast: on every node, through crashes, and with nothing lost."""

import asyncio

import pytest

from peik.core.letter import State
from peik.core.units import Rate
from peik.errors import BadInput, NotFound
from peik.jobs.events import JobKindChanged
from peik.jobs.job import Job
from peik.jobs.model import kind_rate
from tests.jobs.story import Crowd, Play, Stage, play, play_on_a_file

on_both = pytest.mark.parametrize("tell", [play, play_on_a_file], ids=["memory", "file"])


@on_both
def test_a_kind_that_rests_begins_nothing_on_any_node_and_what_runs_goes_on_to_its_end(tell: Play) -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 20.0)
        stage.kind("work", crowd, concurrency=4, per_user=4)
        one, _ = stage.node("one"), stage.node("two")
        running = await stage.queue()
        await stage.until(running, State.ACTIVE)
        standing = await one.service.pause_kind("work", by="sara", why="The site asked us to wait.")
        assert (standing.control.is_paused, standing.tally.active) == (True, 1)
        await asyncio.sleep(1.1)  # so long others may take to hear of it
        waiting = [await stage.queue() for _ in range(5)]
        assert (await stage.ended(running)).state is State.COMPLETED
        await asyncio.sleep(600)
        assert [(await stage.get(job_id)).state for job_id in waiting] == [State.WAITING] * 5
        place = await one.service.place(waiting[2])
        assert place is not None
        assert (place.position, place.eta_s) == (3, None)  # nobody knows how long it rests

        assert not (await one.service.resume_kind("work", by="sara")).control.is_paused
        await stage.quiet()
        assert [(await stage.get(job_id)).state for job_id in waiting] == [State.COMPLETED] * 5
        told = [event for event in stage.told if isinstance(event, JobKindChanged)]
        assert [(event.kind, event.is_paused, event.by) for event in told] == [
            ("work", True, "sara"),
            ("work", False, "sara"),
        ]

    tell(story)


def test_a_rest_outlives_the_program_and_concerns_no_other_kind() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            pass

        stage.kind("work", work)
        stage.kind("other", work)
        await stage.node("one").service.pause_kind("work", by="sara")
        await stage.kill("one")
        node = stage.node("two")
        resting, going = await stage.queue("work"), await stage.queue("other")
        assert (await stage.ended(going)).state is State.COMPLETED
        await asyncio.sleep(3600)
        assert (await stage.get(resting)).state is State.WAITING
        assert [(one.kind, one.control.is_paused) for one in await node.service.kinds()] == [
            ("other", False),
            ("work", True),
        ]

    play(story)


@on_both
def test_a_rate_holds_over_all_nodes_and_what_failed_counts_as_well(tell: Play) -> None:
    began: list[float] = []

    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            began.append(stage.clock.mono())
            if job.attempt == 1 and job.id % 4 == 0:
                raise ValueError("not yet")

        stage.kind("work", work, concurrency=16, per_user=16, backoff_ms=10)
        one, _ = stage.node("one"), stage.node("two")
        await one.service.set_kind_rate("work", Rate(per_s=0.5, burst=3), by="sara")
        await asyncio.sleep(6)  # both have heard of it
        jobs = [await stage.queue() for _ in range(40)]
        await stage.quiet()
        assert {(await stage.get(job_id)).state for job_id in jobs} == {State.COMPLETED}
        assert len(began) == 50
        for first, at in enumerate(began):
            within = [other for other in began[first:] if other - at < 60.0]
            assert len(within) <= 3 + 60.0 * 0.5, "more began within a minute than may"
        assert began[-1] - began[0] < (50 - 3) / 0.5 + 20, "it took much longer than the rate asks for"

    began.clear()
    tell(story)


def test_a_new_rate_counts_from_now_and_off_takes_it_away() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            pass

        stage.kind("work", work, concurrency=16, per_user=16)
        node = stage.node()
        await node.service.set_kind_rate("work", kind_rate("1/h"), by="sara")
        jobs = [await stage.queue() for _ in range(5)]
        await asyncio.sleep(60)
        assert sum([(await stage.get(job_id)).state is State.COMPLETED for job_id in jobs]) == 1
        place = await node.service.place(jobs[-1])
        assert place is not None
        assert place.eta_s == pytest.approx(3 * 3600, rel=0.01)  # at least; the last of four
        await node.service.set_kind_rate("work", kind_rate("off"), by="sara")
        await asyncio.sleep(1)
        assert {(await stage.get(job_id)).state for job_id in jobs} == {State.COMPLETED}

    play(story)


def test_a_kind_that_nobody_has_heard_of_is_no_kind() -> None:
    async def story(stage: Stage) -> None:
        node = stage.node()
        with pytest.raises(NotFound):
            await node.service.pause_kind("downlaod", by="sara")
        await stage.queue("elsewhere")  # no program here does it, and its jobs wait
        assert (await node.service.pause_kind("elsewhere", by="sara")).own is None

    play(story)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("30/m", Rate(per_s=0.5, burst=1)),
        ("20/s", Rate(per_s=20.0, burst=20)),
        ("30/m burst 5", Rate(per_s=0.5, burst=5)),
        ("off", None),
    ],
)
def test_rates_as_people_write_them(text: str, rate: Rate | None) -> None:
    assert kind_rate(text) == rate


@pytest.mark.parametrize("text", ["fast", "5000/s", "1/d", ""])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        kind_rate(text)
