"""A store that goes away, people who cancel, nodes that stop, and threads."""

import asyncio
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.clock import SystemClock
from peik.core.letter import State
from peik.errors import Conflict
from peik.jobs.events import JobRan
from peik.jobs.job import BlockingJob
from peik.jobs.store import Where
from tests.jobs.story import Crowd, Stage, history, play
from tests.patience import PATIENCE_S

# ---- the store goes away ----


@pytest.mark.parametrize("away_s", [5, 14, 60, 3600])
def test_work_done_while_the_store_is_away_is_not_done_again(away_s: int) -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 10.0)
        stage.kind("work", crowd)
        stage.node("one")
        job_id = await stage.queue()
        await asyncio.sleep(9)
        stage.place.is_away = True
        await asyncio.sleep(away_s)
        stage.place.is_away = False
        job = await stage.ended(job_id)
        assert (job.state, history(job), crowd.runs[job_id]) == (State.COMPLETED, ["done"], 1)

    play(story)


@pytest.mark.parametrize(("away_s", "ends"), [(12, ["done"]), (60, ["put_off", "done"])])
def test_a_long_run_while_the_store_is_away(away_s: int, ends: list[str]) -> None:
    """It goes on as long as its lease may last, and then ends, since somebody else may have it: that costs it nothing."""

    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 100.0)
        stage.kind("work", crowd)
        stage.node("one")
        job_id = await stage.queue(attempts=1)
        await asyncio.sleep(11)
        stage.place.is_away = True
        await asyncio.sleep(away_s)
        stage.place.is_away = False
        job = await stage.ended(job_id)
        assert (job.state, history(job)) == (State.COMPLETED, ends)

    play(story)


def test_a_node_that_is_cut_off_ends_its_work_before_another_begins_it() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 200.0)
        stage.kind("work", crowd, concurrency=4)
        stage.node("one")
        ids = [await stage.queue(user=str(user)) for user in range(4)]
        await asyncio.sleep(20)
        stage.node("two")
        stage.memory_of("one").is_cut_off = True
        await asyncio.sleep(120)
        assert {(await stage.get(job_id)).node for job_id in ids} == {"two"}
        stage.memory_of("one").is_cut_off = False
        await stage.quiet()
        assert (crowd.most, crowd.most_of_a_job) == (4, 1)
        assert [history(await stage.get(job_id)) for job_id in ids] == [["lost", "done"]] * 4

    play(story)


def test_answers_that_are_lost() -> None:
    """What was taken without our hearing of it is given back; an end that was stored is told all the same."""

    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 5.0)
        stage.kind("work", crowd)
        node = stage.node("one")
        ended = await stage.queue()
        await asyncio.sleep(1)
        stage.place.loses_answers = True
        await asyncio.sleep(10)
        stage.place.loses_answers = False
        assert (await stage.ended(ended)).state is State.COMPLETED
        await asyncio.sleep(2)
        assert stage.ends(ended) == ["done"]

        stage.folders.is_full = True  # the next one is due in 30 s, and then taken without an answer
        taken = await stage.queue(attempts=1)
        await stage.until(taken, State.DELAYED)
        stage.folders.is_full = False
        stage.place.loses_answers = True
        await stage.until(taken, State.ACTIVE)
        assert node.workers.running() == []
        stage.place.loses_answers = False
        job = await stage.ended(taken)
        assert (job.state, set(history(job))) == (State.COMPLETED, {"put_off", "done"})

    play(story)


def test_a_node_that_slept_loses_nothing_if_nobody_took_its_jobs() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 100.0)
        stage.kind("work", crowd)
        stage.node("one")
        job_id = await stage.queue(attempts=1)
        await asyncio.sleep(14.9)
        stage.clock.wall_offset_s += 600  # the machine was asleep, and leases are over by the wall
        assert history(await stage.ended(job_id)) == ["done"]

    play(story)


# ---- people cancel ----


def test_cancel_in_every_state() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 100.0)
        stage.kind("work", crowd, concurrency=1)
        service = stage.node("one").service
        active = await stage.queue()
        waiting = await stage.queue()
        delayed = await stage.queue(run_at_ms=stage.clock.wall_ms() + 60_000)
        await stage.until(active, State.ACTIVE)
        for job_id in (waiting, delayed):
            assert (await service.cancel(job_id, reason="Enough.")).state is State.CANCELLED
        cancelling = await service.cancel(active, reason="Enough.")
        assert (cancelling.state, cancelling.is_cancelling) == (State.ACTIVE, True)
        before = stage.clock.mono()
        jobs = [await stage.ended(job_id) for job_id in (active, waiting, delayed)]
        assert stage.clock.mono() - before < 1, "one that runs here ends at once"
        assert [(job.state, job.failed_reason) for job in jobs] == [(State.CANCELLED, "Enough.")] * 3
        assert [stage.heard.of(job_id)[-1] for job_id in (active, waiting, delayed)] == [
            ("changed", State.CANCELLED)
        ] * 3
        with pytest.raises(Conflict):
            await service.cancel(active)
        again = await service.retry(active)
        assert again.state is State.WAITING
        assert (await stage.ended(active)).state is State.COMPLETED

    play(story)


@pytest.mark.parametrize("has_news", [True, False])
def test_a_job_that_runs_elsewhere_is_cancelled(has_news: bool) -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 1000.0)
        stage.kind("work", crowd)
        stage.node("one")
        job_id = await stage.queue()
        await stage.until(job_id, State.ACTIVE)
        other = stage.node("two")
        await other.service.cancel(job_id)
        if has_news:
            stage.nodes["one"].workers.hear()
        before = stage.clock.mono()
        assert (await other.service.wait(job_id, 100)).state is State.CANCELLED
        assert stage.clock.mono() - before < (2 if has_news else 16)

    play(story)


# ---- nodes stop ----


def test_a_node_that_stops_hands_on_what_it_cannot_end() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: float(job.params["s"]))
        stage.kind("work", crowd, concurrency=2)
        one = stage.node("one")
        quick = await stage.queue(params={"s": 10}, user="a", attempts=1)
        slow = await stage.queue(params={"s": 100}, user="b", attempts=1)
        waiting = await stage.queue(params={"s": 1}, user="c", attempts=1)
        await stage.until(slow, State.ACTIVE)
        await one.stop(20)
        assert 20 <= stage.clock.mono() < 22
        assert one.task.done()
        assert history(await stage.get(quick)) == ["done"]
        assert (await stage.get(slow)).state is State.WAITING
        assert (await stage.get(waiting)).state is State.WAITING, "it takes nothing more"
        assert crowd.now.total() == 0
        del stage.nodes["one"]
        stage.node("two")
        assert history(await stage.ended(slow)) == ["put_off", "done"]
        assert history(await stage.ended(waiting)) == ["done"]

    play(story)


def test_a_node_that_stops_does_not_wait_for_a_store_that_is_away() -> None:
    async def story(stage: Stage) -> None:
        crowd = Crowd(stage.clock, lambda job: 100.0)
        stage.kind("work", crowd)
        one = stage.node("one")
        job_id = await stage.queue()
        await stage.until(job_id, State.ACTIVE)
        stage.place.is_away = True
        await one.stop(5)
        assert stage.clock.mono() < 30
        assert one.task.done()
        stage.place.is_away = False
        del stage.nodes["one"]
        stage.node("two")
        assert history(await stage.ended(job_id)) == ["lost", "done"]

    play(story)


# ---- threads and processes: in real time ----


def play_for_real(
    work: Callable[[BlockingJob], object],
    story: Callable[[Stage, int], Coroutine[Any, Any, None]],
    *,
    where: Where = Where.THREAD,
    timeout_s: float | None = None,
) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="peik-jobs-") as folder:
            stage = Stage(SystemClock(), Path(folder))  # type: ignore[arg-type]
            stage.kind("work", work, where=where, timeout_s=timeout_s)
            node = stage.node()
            job_id = await stage.queue(params={"n": 20}, attempts=1)
            try:
                await story(stage, job_id)
            finally:
                await node.kill()

    asyncio.run(main())


def test_a_blocking_function_works_in_a_thread() -> None:
    def work(job: BlockingJob) -> int:
        assert threading.current_thread() is not threading.main_thread()
        job.progress(0.5, "half")
        with job.host("example.com"):
            (job.folder / "a.pdf").write_bytes(b"pdf")
        first = job.send_document(job.folder / "a.pdf", caption="Yours")
        with pytest.raises(Conflict):
            job.send_text("x", key="1")
        return first + int(job.params["n"])

    async def story(stage: Stage, job_id: int) -> None:
        job = await stage.ended(job_id, PATIENCE_S)
        assert (job.state, job.result, job.bytes_used) == (State.COMPLETED, "21", 3)
        assert ("progressed", 0.5) in stage.heard.of(job_id)
        assert stage.chats.letters == {f"job:{job_id}:1": ("sendDocument", {"caption": "Yours", "document": "a.pdf"})}

    play_for_real(work, story)


def test_a_thread_is_asked_to_end() -> None:
    ended = threading.Event()

    def work(job: BlockingJob) -> None:
        while not job.is_cancelling:
            threading.Event().wait(0.01)
        ended.set()

    async def story(stage: Stage, job_id: int) -> None:
        job = await stage.ended(job_id, PATIENCE_S)
        assert (history(job), ended.is_set()) == (["late"], True)

    play_for_real(work, story, timeout_s=0.1)


def test_a_thread_that_raises_what_no_future_may_raise() -> None:
    def work(job: BlockingJob) -> None:
        raise StopIteration

    async def story(stage: Stage, job_id: int) -> None:
        job = await stage.ended(job_id, PATIENCE_S)
        assert (job.state, job.failed_reason) == (State.FAILED, "It raised StopIteration.")
        assert [event.end for event in stage.told if isinstance(event, JobRan)] == ["failed"]

    play_for_real(work, story)


def in_a_process(job: BlockingJob) -> dict[str, object]:
    job.progress(0.25, "a quarter")
    (job.folder / "a.pdf").write_bytes(b"pdf")
    with job.host("example.com"):
        letter = job.send_document(job.folder / "a.pdf")
    try:
        with job.host("down.example"):
            raise ConnectionRefusedError(111, "Connection refused")
    except ConnectionRefusedError:
        pass
    return {"letter": letter, "pid": os.getpid(), "n": job.params["n"]}


def test_a_blocking_function_works_in_a_process() -> None:
    async def story(stage: Stage, job_id: int) -> None:
        job = await stage.ended(job_id, PATIENCE_S)
        assert job.result is not None, job.failed_reason
        result = msgspec.json.decode(job.result)
        assert (result["letter"], result["n"]) == (1, 20)
        assert result["pid"] != os.getpid()
        assert ("progressed", 0.25) in stage.heard.of(job_id)
        assert {(host.name, host.failures) for host in stage.nodes["one"].hosts.all()} == {
            ("example.com", 0),
            ("down.example", 1),
        }

    play_for_real(in_a_process, story, where=Where.PROCESS)


def deaf(job: BlockingJob) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job.send_text(str(os.getpid()))
    while True:
        time.sleep(1)


def test_a_process_is_killed_for_real() -> None:
    async def story(stage: Stage, job_id: int) -> None:
        await stage.chats.came.wait()
        pid = int(stage.chats.letters[f"job:{job_id}:1"][1]["text"])
        os.kill(pid, 0)
        await stage.nodes["one"].service.cancel(job_id)
        assert (await stage.ended(job_id, PATIENCE_S)).state is State.CANCELLED
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    play_for_real(deaf, story, where=Where.PROCESS)
