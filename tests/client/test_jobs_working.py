"""Programs that do jobs: what may be a kind, when kinds may come, where the work is done, and how it ends."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from peik import BadInput, BlockingJob, HostDown, Job, JobHopeless, JobLater, Peik, StartError
from peik.jobs.model import JobEnd
from tests.client.counters import telegram
from tests.client.job_ways import doing, spell
from tests.patience import PATIENCE_S

T = TypeVar("T")


def left(folder: Path) -> list[Path]:
    """What lies where jobs keep their files."""
    return list((folder / "peik.db.work").rglob("*"))


async def idle(job: Job) -> None:
    """Does nothing."""


def plain(job: BlockingJob) -> None:
    """Does nothing."""


class Idle:
    async def __call__(self, job: Job) -> str:
        return "idle"


@pytest.mark.parametrize(
    ("name", "work", "given", "code"),
    [
        ("two words", idle, {}, "bad_kind"),
        ("k", plain, {}, "where"),
        ("k", plain, {"where": "loop"}, "where"),
        ("k", plain, {"where": "moon"}, "where"),
        ("k", idle, {"where": "process"}, "where"),
        ("k", "idle", {}, "bad_work"),
        ("k", lambda job: None, {"where": "process"}, "unnamed_work"),
        ("k", idle, {"concurrency": 0}, "bad_concurrency"),
        ("k", idle, {"per_user": 0}, "bad_per_user"),
        ("k", idle, {"attempts": 0}, "bad_attempts"),
        ("k", idle, {"backoff": "never"}, "bad_backoff"),
        ("k", idle, {"backoff_ms": -1}, "bad_backoff_ms"),
        ("k", idle, {"timeout": "soon"}, "bad_timeout"),
        ("k", idle, {"timeout": 0}, "bad_timeout"),
        ("k", idle, {"folder": "big"}, "bad_folder"),
        ("k", idle, {"jobs_a_day": 0}, "bad_jobs_a_day"),
        ("k", idle, {"bytes_a_day": "0"}, "bad_bytes_a_day"),
    ],
)
def test_what_cannot_be_a_kind_is_refused_where_it_is_written(
    name: str, work: Any, given: dict[str, Any], code: str
) -> None:
    with pytest.raises(BadInput) as error:
        Peik.open().job(name, **given)(work)
    assert error.value.code == code


def test_a_kind_has_one_function_and_none_over_rest() -> None:
    peik = Peik.open()
    assert peik.job("download")(idle) is idle
    with pytest.raises(BadInput, match="already"):
        peik.job("download")(idle)
    with pytest.raises(BadInput, match=r"Peik\.open"):
        Peik.connect("http://127.0.0.1:9", key="k").job("download")(idle)


def test_kinds_may_come_after_the_opening_and_stay_for_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            peik = doing(tmp_path, sim)
            async with peik:
                waiting = [await peik.queue_job(name) for name in ("first", "second")]
                peik.job("first")(Idle())
                assert (await peik.wait_job(waiting[0])).result == "idle"
                peik.job("second")(Idle())
                assert (await peik.wait_job(waiting[1])).result == "idle"
            async with peik:
                assert (await peik.wait_job(await peik.queue_job("first"))).result == "idle"

    asyncio.run(story())


def test_a_peik_that_is_closed_while_its_first_kind_comes_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            for turns in range(6):
                async with doing(tmp_path, sim) as peik:
                    peik.job("late")(idle)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                assert left(tmp_path) == []

    asyncio.run(story())


def test_the_settings_say_how_many_run_at_once_unless_the_kind_does(tmp_path: Path) -> None:
    async def story() -> None:
        let_go = asyncio.Event()

        async def hold(job: Job) -> None:
            await let_go.wait()

        async with (
            asyncio.timeout(PATIENCE_S),
            telegram() as sim,
            doing(tmp_path, sim, jobs=3, jobs_per_user=1) as peik,
        ):
            # They wait before anybody works: what may begin is taken in one go.
            queued = [await peik.queue_job("own", user=number // 3) for number in range(9)]
            queued += [await peik.queue_job(kind, user="sara") for kind in ("usual", "wide") for _ in range(5)]
            peik.job("own", concurrency=4, per_user=2)(hold)
            peik.job("usual")(hold)
            peik.job("wide", per_user=5)(hold)
            active: dict[str, int] = {}
            while len(active) < 3:
                counts = await peik.job_counts()
                active = {kind: one.active for kind, one in counts.items() if one.active}
                await asyncio.sleep(0.01)
            assert active == {"own": 4, "usual": 1, "wide": 3}
            let_go.set()
            assert all([(await peik.wait_job(job)).is_done for job in queued])

    asyncio.run(story())


@pytest.mark.parametrize("where", ["process", "thread"])
def test_a_plain_function_runs_elsewhere(where: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            peik = doing(tmp_path, sim)
            peik.job("spell", where=where, folder="1M")(spell)
            async with peik:
                done = await peik.wait_job(await peik.queue_job("spell", word="peik"))
                assert done.is_done, done.failed_reason
                assert done.result["word"] == "p-e-i-k"
                assert (done.result["pid"] == os.getpid()) == (where == "thread")
                assert done.result["is_main"] == (where == "process")
                assert done.bytes_used == len("peik")
                assert Path(done.result["folder"]) not in left(tmp_path)
            assert left(tmp_path) == []

    asyncio.run(story())


async def until(look: Callable[[], Awaitable[T]], is_so: Callable[[T], bool]) -> T:
    while not is_so(found := await look()):  # noqa: ASYNC110  over REST there is no bell
        await asyncio.sleep(0.01)
    return found


def test_a_function_says_what_becomes_of_its_job(tmp_path: Path) -> None:
    async def work(job: Job) -> str:
        match job.params["end"]:
            case "hopeless":
                raise JobHopeless("There is no such video.")
            case "later" if job.folder.name.endswith("-1"):
                raise JobLater(0.05, "The site asks to wait.")
            case "slow":
                await asyncio.sleep(3600)
            case "down":
                async with job.host("down.example"):
                    raise HostDown("nobody there", is_connect=True)
        return "well"

    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            peik = doing(tmp_path, sim)
            peik.job("work", attempts=2, backoff_ms=10, timeout="30s")(work)
            async with peik:
                hopeless = await peik.wait_job(await peik.queue_job("work", end="hopeless"))
                assert (hopeless.state, hopeless.failed_reason) == ("failed", "There is no such video.")
                later = await peik.wait_job(await peik.queue_job("work", end="later"))
                assert (later.result, later.attempts_made) == ("well", 1)
                assert [run.end for run in later.history] == [JobEnd.PUT_OFF, JobEnd.DONE]
                slow = await peik.wait_job(await peik.queue_job("work", end="slow", timeout=0.05))
                assert [run.end for run in slow.history] == [JobEnd.LATE, JobEnd.LATE]
                await peik.wait_job(await peik.queue_job("work", end="down", user=0))
                queued = await peik.queue_job("work", end="down", user=1)  # the host has failed often enough by then
                await until(lambda: peik.hosts(), lambda hosts: [one.state for one in hosts] == ["open"])
                down = await until(lambda: peik.get_job(queued), lambda job: job.state == "delayed")
                assert down.attempts_made == 0
                (host,) = await peik.hosts()
                assert (host.host, host.state, host.why) == ("down.example", "open", "nobody there")
                assert host.since is not None

    asyncio.run(story())


def test_what_runs_when_a_program_ends_is_done_by_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        began = asyncio.Event()

        async def work(job: Job) -> str:
            began.set()
            if not job.metadata.get("may_end"):
                await asyncio.sleep(0 if is_second else 3600)
            return "done"

        is_second = False
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            peik = doing(tmp_path, sim, grace="50ms")
            peik.job("work")(work)
            async with peik:
                queued = await peik.queue_job("work")
                await began.wait()
            is_second = True
            async with peik:
                done = await peik.wait_job(queued)
                assert (done.result, done.attempts_made) == ("done", 1)
                assert [run.end for run in done.history] == [JobEnd.PUT_OFF, JobEnd.DONE]
        assert left(tmp_path) == []

    asyncio.run(story())


def test_a_folder_for_work_that_cannot_be_is_told_at_the_opening(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            peik = doing(tmp_path, sim, work=tmp_path / "file")
            peik.job("work")(idle)
            with pytest.raises(StartError, match="PEIK_WORK"):
                async with peik:
                    pass

    asyncio.run(story())
