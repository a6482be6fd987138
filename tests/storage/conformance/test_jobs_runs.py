"""A run lives by its beats and ends once. What is given up is run again, and who was given up cannot write any more."""

from typing import Any

import msgspec
import pytest

from peik.core.letter import Backoff, State
from peik.errors import Conflict, NotFound
from peik.jobs.model import HISTORY_MAX, REASON_CHARS_MAX, JobEnd, JobRecord, Ran
from peik.jobs.store import Beaten, JobStore, RunNews
from tests.storage.acts import HOUR, NOW
from tests.storage.job_acts import (
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
    terms,
    the_job,
)
from tests.storage.places import Place

OURS, NOT_OURS = Beaten(is_ours=True), Beaten(is_ours=False)


def news(job: JobRecord, **more: Any) -> RunNews:
    return RunNews(job_id=job.id, run=job.run, **more)


async def begun(jobs: JobStore, *, lease_ms: int = HOUR, **terms_of_job: Any) -> JobRecord:
    """A job that runs."""
    (job_id,) = await queue(jobs, a_job(**terms_of_job))
    job = await take_one(jobs, lease_ms=lease_ms)
    assert job.id == job_id
    return job


# ---- beats ----


async def test_a_beat_lets_a_lease_go_on_and_tells_how_far_the_run_is(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, lease_ms=SHORT_MS)
        assert await store.jobs.beat([news(job, progress=0.25, progress_text="2 of 8 MB")], lease_ms=HOUR) == [OURS]
        assert await lose(place, store.jobs) == []
        after = await the_job(store.jobs, job.id)
        assert (after.progress, after.progress_text, after.state) == (0.25, "2 of 8 MB", State.ACTIVE)
        assert after.ends_at_ms > job.ends_at_ms


async def test_what_a_beat_does_not_tell_stays_as_it_was(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs)
        told = news(job, progress=0.5, progress_text="half", notice_state='{"m":1}')
        assert await store.jobs.beat([told], lease_ms=HOUR) == [OURS]
        assert await store.jobs.beat([news(job), news(job, progress=0.0)], lease_ms=HOUR) == [OURS, OURS]
        after = await the_job(store.jobs, job.id)
        assert (after.progress, after.progress_text, after.notice_state) == (0.0, "half", '{"m":1}')


async def test_each_of_many_beats_has_its_own_answer(place: Place) -> None:
    async with place.open() as store:
        one, two, three = [await begun(store.jobs) for _ in range(3)]
        await end(store.jobs, two)
        await store.jobs.cancel(three.id, reason="enough", at_ms=NOW)
        unknown = RunNews(job_id=three.id + 1, run=1)
        answers = await store.jobs.beat([news(one), news(two), news(three), unknown], lease_ms=HOUR)
        assert answers == [OURS, NOT_OURS, Beaten(is_ours=True, is_cancelling=True), NOT_OURS]
        assert await store.jobs.beat([], lease_ms=HOUR) == []


async def test_a_lease_that_was_over_goes_on_if_nobody_has_given_it_up(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, lease_ms=SHORT_MS)
        await pass_leases(place)
        assert await store.jobs.beat([news(job)], lease_ms=HOUR) == [OURS]
        assert await store.jobs.reap(at_ms=NOW, limit=10) == []


async def test_what_was_told_is_kept_in_every_state(place: Place) -> None:
    async with place.open() as store:
        (job_id,) = await queue(store.jobs, a_job())
        assert await store.jobs.note(job_id, '{"n":1}')
        assert (await the_job(store.jobs, job_id)).notice_state == '{"n":1}'
        job = await take_one(store.jobs)
        assert job.notice_state == '{"n":1}'
        ended = await end(store.jobs, job)
        assert await store.jobs.note(job_id, '{"n":2}')
        assert await the_job(store.jobs, job_id) == msgspec.structs.replace(ended, notice_state='{"n":2}')
        assert not await store.jobs.note(job_id + 1, "{}")


# ---- ends ----


async def test_a_job_that_is_done_keeps_its_result(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs)
        after = await end(store.jobs, job, JobEnd.DONE, result='{"file":"ö"}', bytes_used=1 << 40, at_ms=NOW + 9)
        assert (after.state, after.result, after.attempts_made) == (State.COMPLETED, '{"file":"ö"}', 1)
        assert (after.ended_at_ms, after.bytes_used, after.failed_reason) == (NOW + 9, 1 << 40, None)
        assert (after.node, after.ends_at_ms, after.run) == (None, None, 1)
        assert await taken(store.jobs) == []


@pytest.mark.parametrize("how", [JobEnd.FAILED, JobEnd.LATE])
async def test_a_fault_that_may_pass_is_tried_again_later_until_the_attempts_are_over(
    place: Place, how: JobEnd
) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, attempts=2, backoff_ms=1000, backoff=Backoff.FIXED)
        after = await end(store.jobs, job, how, reason="the host is gone")
        assert (after.state, after.due_at_ms, after.attempts_made) == (State.DELAYED, NOW + 1000, 1)
        assert (after.failed_reason, after.ended_at_ms, after.node) == ("the host is gone", None, None)
        assert await taken(store.jobs, at_ms=NOW + 999) == []
        again = await take_one(store.jobs, at_ms=NOW + 1000)
        assert (again.id, again.run, again.attempts_made) == (job.id, 2, 1)
        after = await end(store.jobs, again, how, reason="still gone", at_ms=NOW + 2000)
        assert (after.state, after.attempts_made, after.failed_reason) == (State.FAILED, 2, "still gone")
        assert (after.ended_at_ms, after.due_at_ms) == (NOW + 2000, None)


async def test_a_job_may_say_itself_when_it_wants_to_be_tried_again(place: Place) -> None:
    async with place.open() as store:
        after = await end(store.jobs, await begun(store.jobs), JobEnd.FAILED, due_at_ms=NOW + HOUR)
        assert (after.state, after.due_at_ms) == (State.DELAYED, NOW + HOUR)


async def test_what_is_hopeless_fails_at_once(place: Place) -> None:
    async with place.open() as store:
        after = await end(store.jobs, await begun(store.jobs, attempts=9), JobEnd.HOPELESS, reason="no such page")
        assert (after.state, after.attempts_made, after.failed_reason) == (State.FAILED, 1, "no such page")


async def test_a_run_that_was_put_off_costs_nothing(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, attempts=1)
        after = await end(store.jobs, job, JobEnd.PUT_OFF, due_at_ms=NOW + 50, reason="the disk is full")
        assert (after.state, after.due_at_ms, after.attempts_made) == (State.DELAYED, NOW + 50, 0)
        again = await take_one(store.jobs, at_ms=NOW + 50)
        after = await end(store.jobs, again, JobEnd.PUT_OFF, at_ms=NOW + 60)
        assert (after.state, after.due_at_ms) == (State.WAITING, None)  # until now: it waits at once
        assert await taken(store.jobs) == [job.id]


async def test_a_new_run_begins_with_no_progress_and_bytes_add_up(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs)
        await store.jobs.beat([news(job, progress=0.9, progress_text="soon")], lease_ms=HOUR)
        await end(store.jobs, job, JobEnd.PUT_OFF, bytes_used=5)
        again = await take_one(store.jobs)
        assert (again.progress, again.progress_text) == (None, None)
        assert (await end(store.jobs, again, bytes_used=7)).bytes_used == 12


async def test_every_run_leaves_a_line_and_the_middle_of_many_is_cut(place: Place) -> None:
    async with place.open() as store:
        await queue(store.jobs, a_job())
        for count in range(1, HISTORY_MAX + 11):
            job = await take_one(store.jobs)
            after = await end(store.jobs, job, JobEnd.PUT_OFF, at_ms=NOW + count, reason="x" * 2 * REASON_CHARS_MAX)
        lines = msgspec.json.decode(after.history)
        assert (len(lines), lines[0]["run"], lines[-1]["run"]) == (HISTORY_MAX, 1, HISTORY_MAX + 10)
        assert (lines[-1]["end"], lines[-1]["at"], lines[-1]["node"]) == ("put_off", NOW + count, store.nodes.node)
        assert len(lines[0]["reason"]) == len(after.failed_reason) == REASON_CHARS_MAX


async def test_many_runs_end_in_one_question_each_in_its_way(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job(f"u{n}") for n in range(5)))
        jobs = await take(store.jobs)
        ways = (JobEnd.DONE, JobEnd.FAILED, JobEnd.HOPELESS, JobEnd.PUT_OFF, JobEnd.CANCELLED)
        answers = await settle(store.jobs, *(ran(job, way) for job, way in zip(jobs, ways, strict=True)))
        assert [one.job.id for one in answers if one] == ids
        states = [State.COMPLETED, State.DELAYED, State.FAILED, State.WAITING, State.CANCELLED]
        assert [one.job.state for one in answers if one] == states
        assert [(await the_job(store.jobs, job_id)).state for job_id in ids] == states
        assert [one.verdict.state for one in answers if one][3] is State.DELAYED  # as it was judged
        assert await settle(store.jobs) == []


# ---- who was given up ----


async def test_a_run_ends_once(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs)
        done = ran(job, result="1", bytes_used=3)
        first, second = await settle(store.jobs, done, msgspec.structs.replace(done, result="2"))
        assert first is not None
        assert second is None
        assert await settle(store.jobs, ran(job, JobEnd.FAILED)) == [None]
        after = await the_job(store.jobs, job.id)
        assert (after.result, after.attempts_made, after.bytes_used) == ("1", 1, 3)
        assert await settle(store.jobs, Ran(job_id=job.id + 1, run=1, end=JobEnd.DONE)) == [None]


async def test_a_lost_run_is_one_attempt_and_begins_again_elsewhere(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await begun(one.jobs, lease_ms=SHORT_MS)
        (lost,) = await lose(place, two.jobs, at_ms=NOW + 5)
        assert (lost.state, lost.attempts_made, lost.due_at_ms, lost.node) == (State.WAITING, 1, None, None)
        assert lost == await the_job(one.jobs, job.id)
        (line,) = msgspec.json.decode(lost.history)
        assert (line["end"], line["run"], line["node"], line["at"]) == ("lost", 1, one.nodes.node, NOW + 5)
        assert lost.failed_reason
        again = await take_one(two.jobs)
        assert (again.id, again.run) == (job.id, 2)


async def test_a_zombie_hears_that_its_run_is_not_its_own_and_writes_nothing(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        zombie = await begun(one.jobs, lease_ms=SHORT_MS)
        await lose(place, two.jobs)
        late = [news(zombie, progress=0.9, notice_state="{}")]
        assert await one.jobs.beat(late, lease_ms=HOUR) == [NOT_OURS]  # while it waits
        assert await settle(one.jobs, ran(zombie, bytes_used=9)) == [None]
        again = await take_one(two.jobs)
        assert await one.jobs.beat(late, lease_ms=HOUR) == [NOT_OURS]  # while it runs elsewhere
        assert await settle(one.jobs, ran(zombie, JobEnd.FAILED, bytes_used=9)) == [None]
        assert await the_job(two.jobs, zombie.id) == again
        after = await end(two.jobs, again, result='"theirs"')
        assert (after.result, after.bytes_used) == ('"theirs"', 0)
        assert await two.jobs.used_today(after.kind, after.user, at_ms=NOW) == (1, 0)


async def test_a_run_may_end_after_its_lease_if_nobody_has_given_it_up(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, lease_ms=SHORT_MS)
        await pass_leases(place)
        assert (await end(store.jobs, job)).state is State.COMPLETED
        assert await store.jobs.reap(at_ms=NOW, limit=10) == []


async def test_a_job_whose_last_attempt_is_lost_has_failed(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, lease_ms=SHORT_MS, attempts=1)
        (lost,) = await lose(place, store.jobs, at_ms=NOW + 5)
        assert (lost.id, lost.state, lost.ended_at_ms) == (job.id, State.FAILED, NOW + 5)


async def test_what_is_lost_is_given_up_in_parts_and_frees_its_places(place: Place) -> None:
    async with place.open() as store:
        ids = await queue(store.jobs, *(a_job() for _ in range(5)))
        assert len(await taken(store.jobs, lease_ms=SHORT_MS, within=terms(5, 5))) == 5
        first = await lose(place, store.jobs, limit=3)
        others = await lose(place, store.jobs, limit=3)
        assert (len(first), len(others)) == (3, 2)
        assert sorted(job.id for job in first + others) == ids
        assert await lose(place, store.jobs) == []
        assert len(await taken(store.jobs, within=terms(5, 5))) == 5


async def test_of_two_who_look_for_the_lost_each_finds_others(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        job = await begun(one.jobs, lease_ms=SHORT_MS)
        assert len(await lose(place, two.jobs)) == 1
        assert await lose(place, one.jobs) == []
        assert (await the_job(one.jobs, job.id)).attempts_made == 1


# ---- cancelling ----


async def test_a_job_that_waits_is_cancelled_at_once(place: Place) -> None:
    async with place.open() as store:
        first, second = await queue(store.jobs, a_job(), a_job(run_at_ms=NOW + 5))
        (third,) = await queue(store.jobs, a_job())
        for job_id in (first, second):
            job = await store.jobs.cancel(job_id, reason="not needed", at_ms=NOW + 1)
            assert (job.state, job.failed_reason, job.ended_at_ms) == (State.CANCELLED, "not needed", NOW + 1)
            assert (job.due_at_ms, job.is_cancelling, job.attempts_made) == (None, False, 0)
            assert job == await the_job(store.jobs, job_id)
        assert await taken(store.jobs, at_ms=NOW + 9) == [third]
        assert await store.jobs.next_due(["report"]) is None


async def test_a_line_whose_only_job_is_cancelled_is_gone_with_its_ticket(place: Place) -> None:
    async with place.open() as store:
        (ann,) = await queue(store.jobs, a_job("ann"))
        (bob,) = await queue(store.jobs, a_job("bob"))
        await store.jobs.cancel(ann, reason="", at_ms=NOW)
        (again,) = await queue(store.jobs, a_job("ann"))
        assert await taken(store.jobs) == [bob, again]


async def test_a_running_job_is_asked_to_end(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as two:
        running = await begun(one.jobs)
        for _ in range(2):  # asking twice is no fault
            job = await two.jobs.cancel(running.id, reason="by its user", at_ms=NOW)
            assert (job.state, job.is_cancelling, job.run) == (State.ACTIVE, True, running.run)
        assert await one.jobs.beat([news(running)], lease_ms=HOUR) == [Beaten(is_ours=True, is_cancelling=True)]
        after = await end(one.jobs, running, JobEnd.CANCELLED, at_ms=NOW + 3)
        assert (after.state, after.ended_at_ms, after.is_cancelling) == (State.CANCELLED, NOW + 3, False)
        assert after.failed_reason == "by its user"


@pytest.mark.parametrize(
    ("how", "state"),
    [
        (JobEnd.DONE, State.COMPLETED),  # it was quicker
        (JobEnd.FAILED, State.CANCELLED),
        (JobEnd.LATE, State.CANCELLED),
        (JobEnd.PUT_OFF, State.CANCELLED),
        (JobEnd.HOPELESS, State.FAILED),
    ],
)
async def test_a_job_that_was_to_end_does_not_run_again(place: Place, how: JobEnd, state: State) -> None:
    async with place.open() as store:
        job = await begun(store.jobs)
        await store.jobs.cancel(job.id, reason="enough", at_ms=NOW)
        after = await end(store.jobs, job, how)
        assert (after.state, after.is_cancelling) == (state, False)
        assert await taken(store.jobs, at_ms=NOW + HOUR) == []


async def test_a_lost_job_that_was_to_end_does_not_run_again(place: Place) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, lease_ms=SHORT_MS)
        await store.jobs.cancel(job.id, reason="enough", at_ms=NOW)
        assert [one.state for one in await lose(place, store.jobs)] == [State.CANCELLED]


async def test_what_has_ended_cannot_be_cancelled(place: Place) -> None:
    async with place.open() as store:
        job = await end(store.jobs, await begun(store.jobs))
        with pytest.raises(Conflict) as caught:
            await store.jobs.cancel(job.id, reason="late", at_ms=NOW)
        assert caught.value.code == "already_ended"
        with pytest.raises(NotFound):
            await store.jobs.cancel(job.id + 1, reason="late", at_ms=NOW)
        assert await the_job(store.jobs, job.id) == job


# ---- retrying ----


@pytest.mark.parametrize("how", [JobEnd.HOPELESS, JobEnd.CANCELLED])
async def test_a_dead_job_starts_anew_at_the_end_of_its_line(place: Place, how: JobEnd) -> None:
    async with place.open() as store:
        job = await begun(store.jobs, attempts=2)
        dead = await end(store.jobs, job, how, reason="why", bytes_used=4)
        (waiting,) = await queue(store.jobs, a_job())
        again = await store.jobs.retry(job.id, at_ms=NOW)
        assert (again.state, again.attempts_made, again.failed_reason) == (State.WAITING, 0, None)
        assert (again.started_at_ms, again.ended_at_ms, again.run) == (None, None, 1)
        assert (again.history, again.bytes_used) == (dead.history, 4)
        assert again == await the_job(store.jobs, job.id)
        assert [(one.id, one.run) for one in await take(store.jobs)] == [(waiting, 1), (job.id, 2)]
        assert await settle(store.jobs, ran(job)) == [None]  # its first run stays over


async def test_only_the_dead_start_anew(place: Place) -> None:
    async with place.open() as store:
        (job_id,) = await queue(store.jobs, a_job())
        with pytest.raises(Conflict):
            await store.jobs.retry(job_id, at_ms=NOW)
        job = await take_one(store.jobs)
        with pytest.raises(Conflict):
            await store.jobs.retry(job_id, at_ms=NOW)
        await end(store.jobs, job)
        with pytest.raises(Conflict) as caught:
            await store.jobs.retry(job_id, at_ms=NOW)
        assert caught.value.code == "not_dead"
        with pytest.raises(NotFound):
            await store.jobs.retry(job_id + 1, at_ms=NOW)
