"""One job at a time: every way in which a run can end, and what it costs."""

import asyncio
import itertools
import sys
from typing import Any

import pytest

from peik.core.letter import State
from peik.errors import Unavailable
from peik.jobs.events import JobBegan, JobRan
from peik.jobs.job import Job
from peik.jobs.outcome import JobHopeless, JobLater
from tests.jobs.story import MB, Stage, history, play


def test_a_job_is_done_and_its_result_kept() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> dict[str, Any]:
            assert list(job.folder.iterdir()) == []
            (job.folder / "page").write_bytes(b"x" * 1000)
            return {"url": job.params["url"], "user": job.user, "attempt": job.attempt, "of": job.metadata["of"]}

        stage.kind("work", work)
        stage.node()
        job = await stage.ended(await stage.queue(params={"url": "a"}, user="7", metadata={"of": "me"}))
        assert (job.state, job.attempts_made, job.bytes_used) == (State.COMPLETED, 1, 1000)
        assert job.result == '{"url":"a","user":"7","attempt":1,"of":"me"}'
        assert [state for _, state in stage.heard.of(job.id)] == [State.ACTIVE, State.COMPLETED]
        assert [type(event) for event in stage.told if isinstance(event, (JobBegan, JobRan))] == [JobBegan, JobRan]

    play(story)


FAULTS = [
    (ValueError("no"), 3, ["failed"] * 3, State.FAILED, "ValueError: no"),
    (JobHopeless("It is gone."), 1, ["hopeless"], State.FAILED, "It is gone."),
    (SystemExit(2), 3, ["failed"] * 3, State.FAILED, "It called sys.exit()."),
    (asyncio.CancelledError(), 3, ["failed"] * 3, State.FAILED, "It was cancelled from within."),
    (
        ExceptionGroup("", [JobLater(5), ValueError("no")]),
        3,
        ["failed"] * 3,
        State.FAILED,
        "JobLater: It asked to be run later.; ValueError: no",
    ),
    (ExceptionGroup("", [ValueError("no"), JobHopeless("It is gone.")]), 1, ["hopeless"], State.FAILED, "It is gone."),
    (OSError(5, "Input/output error"), 3, ["failed"] * 3, State.FAILED, "OSError: [Errno 5] Input/output error"),
]


@pytest.mark.parametrize(("error", "runs", "ends", "state", "reason"), FAULTS, ids=lambda one: type(one).__name__)
def test_what_work_raises(error: BaseException, runs: int, ends: list[str], state: State, reason: str) -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            raise error

        stage.kind("work", work)
        stage.node()
        job = await stage.ended(await stage.queue())
        assert (job.state, job.attempts_made, job.failed_reason) == (state, runs, reason)
        assert history(job) == ends == stage.ends(job.id)
        assert stage.surprises() == []

    play(story)


PASSING = [
    (JobLater(90, "The office is closed."), 90.0, "The office is closed."),
    (OSError(28, "No space left on device"), 30.0, "There is no room on the disk (No space left on device)."),
    (Unavailable(code="store_gone", detail="Not now."), 5.0, "Not now."),
    (ExceptionGroup("", [JobLater(5), JobLater(50, "The last.")]), 50.0, "The last."),
    (JobLater(float("nan")), 0.0, "It asked to be run later."),
]


@pytest.mark.parametrize(("error", "wait_s", "reason"), PASSING, ids=lambda one: type(one).__name__)
def test_what_is_not_its_fault_costs_nothing(error: Exception, wait_s: float, reason: str) -> None:
    async def story(stage: Stage) -> None:
        ran_at: list[float] = []

        async def work(job: Job) -> None:
            ran_at.append(stage.clock.mono())
            if len(ran_at) < 6:
                raise error

        stage.kind("work", work)
        stage.node()
        job = await stage.ended(await stage.queue(attempts=1))
        assert (job.state, job.attempts_made) == (State.COMPLETED, 1)
        assert history(job) == ["put_off"] * 5 + ["done"]
        gaps = [round(after - before) for before, after in itertools.pairwise(ran_at)]
        assert gaps == [round(wait_s)] * 5
        reasons = [event.reason for event in stage.told if isinstance(event, JobRan)]
        assert reasons == [reason] * 5 + [None]

    play(story)


def test_a_failure_backs_off_and_is_tried_again() -> None:
    async def story(stage: Stage) -> None:
        ran_at: list[int] = []

        async def work(job: Job) -> int:
            ran_at.append(round(stage.clock.mono()))
            if job.attempt < 4:
                raise ConnectionError("reset")
            return job.attempt

        stage.kind("work", work, attempts=5, backoff_ms=2000)
        stage.node()
        job = await stage.ended(await stage.queue())
        assert (job.state, job.result, ran_at) == (State.COMPLETED, "4", [0, 2, 6, 14])

    play(story)


def test_a_result_that_cannot_be_kept_is_a_mistake_that_stays() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> object:
            return object() if job.params["odd"] else "x" * 70_000

        stage.kind("work", work)
        stage.node()
        odd = await stage.ended(await stage.queue(params={"odd": True}))
        big = await stage.ended(await stage.queue(params={"odd": False}))
        assert (odd.state, odd.attempts_made, big.state, big.attempts_made) == (State.FAILED, 1, State.FAILED, 1)
        assert "not JSON" in (odd.failed_reason or "")
        assert "65536 bytes" in (big.failed_reason or "")

    play(story)


def test_a_run_over_its_time_is_ended() -> None:
    async def story(stage: Stage) -> None:
        ended: list[float] = []

        async def work(job: Job) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                assert job.is_cancelling
                ended.append(stage.clock.mono())

        stage.kind("work", work, timeout_s=60, backoff_ms=0)
        stage.node()
        job = await stage.ended(await stage.queue(attempts=2))
        assert (job.state, history(job), len(ended)) == (State.FAILED, ["late", "late"], 2)
        assert job.failed_reason == "It was not done after 60 s, and was ended."
        own = await stage.queue(timeout_s=5, attempts=1)
        began = stage.clock.mono()
        await stage.ended(own)
        assert round(stage.clock.mono() - began) == 5

    play(story)


def test_what_is_done_is_done_though_somebody_cancels_it_at_that_moment() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> str:
            return "done"

        stage.kind("work", work)
        node = stage.node()
        stage.folders.on_size = node.workers.cancel
        job = await stage.ended(await stage.queue())
        assert (job.state, job.result) == (State.COMPLETED, '"done"')

    play(story)


def test_work_that_does_not_end_is_given_up_and_keeps_its_place() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            until = stage.clock.mono() + 300
            while (left_s := until - stage.clock.mono()) > 0:
                try:
                    await asyncio.sleep(left_s)
                except asyncio.CancelledError:
                    continue

        stage.kind("work", work, timeout_s=10, concurrency=1)
        stage.node()
        first = await stage.queue(attempts=1)
        second = await stage.queue(attempts=1)
        assert history(await stage.ended(first)) == ["late"]
        assert len(stage.surprises()) == 1
        await asyncio.sleep(200)
        assert (await stage.get(second)).state is State.WAITING
        assert stage.folders.left() == [f"{first}-1"]
        await stage.until(second, State.ACTIVE)
        assert stage.clock.mono() >= 300
        await asyncio.sleep(400)

    play(story)


@pytest.mark.parametrize("folder_bytes", [5 * MB, 0])
def test_a_folder_that_grows_too_big_ends_its_job(folder_bytes: int) -> None:
    """What a kind asks for is set aside. One that asks for nothing may hold what the settings allow (here 10 MB)."""

    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            for part in range(1000):
                (job.folder / str(part)).write_bytes(b"x" * MB)
                await asyncio.sleep(1)

        stage.kind("work", work, folder_bytes=folder_bytes)
        stage.node()
        job = await stage.ended(await stage.queue())
        assert (job.state, history(job)) == (State.FAILED, ["hopeless"])
        assert job.failed_reason == "Its folder holds more than it may."
        bytes_max = folder_bytes or 10 * MB
        assert bytes_max < job.bytes_used <= bytes_max + 11 * MB
        assert stage.folders.asides == [folder_bytes]

    play(story)


def test_jobs_wait_while_there_is_no_room() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            pass

        stage.kind("work", work)
        stage.node()
        stage.folders.is_full = True
        job_id = await stage.queue(attempts=1)
        waiting = await stage.until(job_id, State.DELAYED)
        assert waiting.failed_reason == "There is no room for work."
        await asyncio.sleep(100)
        stage.folders.is_full = False
        job = await stage.ended(job_id)
        assert (job.state, job.attempts_made, len(history(job))) == (State.COMPLETED, 1, 5)

    play(story)


def test_progress_is_kept_within_seconds_however_often_it_is_told() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            for percent in range(100):
                for part in range(10):
                    await job.progress((percent + part / 10) / 100, "downloading")
                    await asyncio.sleep(0.1)
            await job.progress(7, None)

        stage.kind("work", work)
        node = stage.node()
        job_id = await stage.queue()
        await asyncio.sleep(50.5)
        seen = await stage.get(job_id)
        assert seen.progress is not None
        assert 0.48 <= seen.progress <= 0.51
        assert seen.progress_text == "downloading"
        asked = stage.memory_of(node.name).asked
        await asyncio.sleep(10)
        assert stage.memory_of(node.name).asked - asked < 20, "not a question for each word of it"
        await stage.ended(job_id)
        assert [detail for what, detail in stage.heard.of(job_id) if what == "progressed"][-1] == 1.0

    play(story)


def test_a_second_run_sends_nothing_twice() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> int:
            await job.send_text("It begins.")
            await job.send("sendDice", key="dice")
            (job.folder / "film.mp4").write_bytes(b"film")
            await job.send_video(job.folder / "film.mp4", caption=None)
            if job.attempt < 3:
                raise ConnectionError("reset")
            return await job.send_text("Tell me more." if job.attempt == 3 else "")

        stage.kind("work", work, backoff_ms=0)
        stage.node()
        job = await stage.ended(await stage.queue())
        assert job.state is State.COMPLETED
        assert stage.chats.letters == {
            f"job:{job.id}:1": ("sendMessage", {"text": "It begins."}),
            f"job:{job.id}:dice": ("sendDice", {}),
            f"job:{job.id}:3": ("sendVideo", {"video": "film.mp4"}),
            f"job:{job.id}:4": ("sendMessage", {"text": "Tell me more."}),
        }

    play(story)


def test_a_second_run_that_says_something_else_is_heard() -> None:
    async def story(stage: Stage) -> None:
        async def work(job: Job) -> None:
            await job.send_text(f"Attempt {min(job.attempt, 2)}.")
            if job.attempt < 3:
                raise ConnectionError("reset")

        stage.kind("work", work, backoff_ms=0)
        stage.node()
        await stage.ended(await stage.queue())
        texts = [params["text"] for _, params in stage.chats.letters.values()]
        assert texts == ["Attempt 1.", "Attempt 2."]

    play(story)


def test_a_job_is_run_when_it_is_due() -> None:
    async def story(stage: Stage) -> None:
        ran_at: list[float] = []

        async def work(job: Job) -> None:
            ran_at.append(stage.clock.mono())

        stage.kind("work", work)
        stage.node()
        await stage.ended(await stage.queue(run_at_ms=stage.clock.wall_ms() + 3_601_234), timeout_s=4000)
        assert [round(at, 1) for at in ran_at] == [3601.2]

    play(story)


def test_better_ranks_go_first() -> None:
    async def story(stage: Stage) -> None:
        order: list[int] = []

        async def work(job: Job) -> None:
            order.append(job.params["at"])
            await asyncio.sleep(1)

        stage.kind("work", work, concurrency=1)
        node = stage.node()
        for priority in (0, -1, 2, 1):
            await stage.queue(priority=priority, params={"at": priority})
        await stage.quiet()
        assert order == [0, 2, 1, -1]
        assert node.workers.running() == []

    play(story)


def test_an_idle_worker_asks_little() -> None:
    async def story(stage: Stage) -> None:
        stage.kind("work", sys.exit)
        node = stage.node()
        await asyncio.sleep(600)
        assert stage.memory_of(node.name).asked <= 600

    play(story)
