"""The disk of the work folders is really full: jobs wait and say why, letters go on, and nothing is left when all is done."""

import asyncio
import logging
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from peik import BlockingJob, Job, JobInfo, Peik, QueuedJob
from peik.jobs import folders, outcome
from peik.jobs.model import JobEnd
from peik.testing import SimServer
from tests.client.counters import telegram
from tests.client.job_ways import doing
from tests.faults.disks import SmallDisk, can_mount, mounted
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(not can_mount(), reason="a full disk needs a small one, and we may not mount any here")

MB = 1024 * 1024
SHORT = "no room for work; jobs wait"
BACK = "there is room for work again"
ROOT = Path(__file__).parents[2]
FILLS = """
import os, signal, sys
from pathlib import Path
from peik.jobs.folders import Owner

owner = Owner(Path(sys.argv[1]))
with owner.locked():
    owner.settle_in()
(owner.folder / "1-1").mkdir()
with (owner.folder / "1-1" / "film").open("wb", buffering=0) as film:
    try:
        while film.write(bytes(4096)):
            pass
    except OSError:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """4 MiB for work alone: the database, and the files of letters, lie elsewhere."""
    with mounted(tmp_path / "work") as place:
        yield SmallDisk(place)


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What Peik told. A job comes back as soon as a fifth of a second later: by itself it takes half a minute."""
    monkeypatch.setattr(outcome, "NO_ROOM_S", 0.2)
    monkeypatch.setattr(folders, "LOOK_S", 0.2)
    caplog.set_level(logging.INFO, logger="peik")
    return caplog


@asynccontextmanager
async def opened(folder: Path, disk: SmallDisk) -> AsyncIterator[tuple[Peik, SimServer]]:
    async with asyncio.timeout(PATIENCE_S), telegram() as sim:
        peik = doing(folder, sim, work=str(disk.folder))
        peik.job("load", folder="2M", attempts=2)(load)
        peik.job("thread", where="thread", folder="2M", attempts=2)(load_slowly)
        peik.job("process", where="process", folder="2M", attempts=2)(load_slowly)
        async with peik:
            yield peik, sim


async def load(job: Job) -> int:
    file = job.folder / "film"
    file.write_bytes(b"x" * MB)
    await job.send_document(file, caption="here it is")
    return job.attempt


def load_slowly(job: BlockingJob) -> int:
    """Half of it, then a pause until we are told to go on, then the rest."""
    half, go_on = Path(job.params["half"]), Path(job.params["go_on"])
    with (job.folder / "film").open("wb", buffering=0) as film:
        film.write(b"x" * MB)
        half.touch()
        while not go_on.exists():
            time.sleep(0.02)
        for _ in range(MB // 4096 // 2):
            film.write(b"y" * 4096)
        return film.tell()


async def until_put_off(peik: Peik, job: QueuedJob, *, times: int) -> JobInfo:
    while True:
        found = await peik.get_job(job)
        assert not found.state.is_final, found
        if [run.end for run in found.history].count(JobEnd.PUT_OFF) >= times:
            return found
        await asyncio.sleep(0.05)


async def until_there(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240  another process is waited for
        await asyncio.sleep(0.02)


def test_jobs_wait_for_room_and_say_so_while_letters_go_on(
    tmp_path: Path, disk: SmallDisk, log: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with opened(tmp_path, disk) as (peik, sim):
            await disk.fill()
            jobs = [await peik.queue_job("load", user=user, chat_id=5, has_progress=False) for user in range(3)]
            for job in jobs:
                waiting = await until_put_off(peik, job, times=2)
                assert waiting.attempts_made == 0
                assert waiting.failed_reason is not None
                assert "have to stay free" in waiting.failed_reason
            assert log.text.count(SHORT) == 1, "once, and not for every job that waits"
            assert BACK not in log.text
            await peik.send_text(6, "meanwhile")
            await sim.until(lambda: sim.telegram.sent.texts(6) == ["meanwhile"], timeout=PATIENCE_S)

            await disk.make_room()
            done = [await peik.wait_job(job, timeout=PATIENCE_S) for job in jobs]
            assert [(job.state, job.attempts_made, job.result) for job in done] == [("completed", 1, 1)] * 3
            assert {run.end for job in done for run in job.history[:-1]} == {JobEnd.PUT_OFF}
            await sim.until(lambda: _films(sim) == 3, timeout=PATIENCE_S)
            while BACK not in log.text:  # noqa: ASYNC110  a log is waited for
                await asyncio.sleep(0.05)
        assert list(disk.folder.rglob("*")) == []

    asyncio.run(story())


@pytest.mark.parametrize("where", ["thread", "process"])
def test_a_job_that_meets_a_full_disk_half_way_is_put_off_and_done_when_there_is_room(
    tmp_path: Path, disk: SmallDisk, log: pytest.LogCaptureFixture, where: str
) -> None:
    half, go_on = tmp_path / "half", tmp_path / "go_on"

    async def story() -> None:
        async with opened(tmp_path, disk) as (peik, sim):
            job = await peik.queue_job(where, user=1, half=str(half), go_on=str(go_on))
            await until_there(half)
            await disk.fill()
            go_on.touch()
            waiting = await until_put_off(peik, job, times=2)
            assert waiting.attempts_made == 0
            assert waiting.history[0].reason == "There is no room on the disk (No space left on device)."
            assert "have to stay free" in (waiting.history[1].reason or ""), "what it gave back is not enough to begin"
            await peik.send_text(6, "meanwhile")
            await sim.until(lambda: sim.telegram.sent.texts(6) == ["meanwhile"], timeout=PATIENCE_S)

            await disk.make_room()
            done = await peik.wait_job(job, timeout=PATIENCE_S)
            assert (done.state, done.attempts_made, done.result) == ("completed", 1, MB + MB // 2)
            assert done.history[-1].end is JobEnd.DONE
        assert list(disk.folder.rglob("*")) == []
        assert log.text.count(SHORT) == 1

    asyncio.run(story())


def test_a_program_that_starts_on_a_full_disk_sends_and_does_its_jobs_once_there_is_room(
    tmp_path: Path, disk: SmallDisk
) -> None:
    async def story() -> None:
        await disk.fill()
        async with opened(tmp_path, disk) as (peik, sim):
            job = await peik.queue_job("load", user=1, chat_id=5, has_progress=False)
            await until_put_off(peik, job, times=1)
            await peik.send_text(6, "meanwhile")
            await sim.until(lambda: sim.telegram.sent.texts(6) == ["meanwhile"], timeout=PATIENCE_S)
            await disk.make_room()
            assert (await peik.wait_job(job, timeout=PATIENCE_S)).is_done
        assert list(disk.folder.rglob("*")) == []

    asyncio.run(story())


def test_what_a_killed_program_filled_the_disk_with_is_swept_by_the_next_one(tmp_path: Path, disk: SmallDisk) -> None:
    killed = subprocess.run([sys.executable, "-c", FILLS, str(disk.folder)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(disk.folder.rglob("film"))

    async def story() -> None:
        async with opened(tmp_path, disk) as (peik, _):
            job = await peik.queue_job("load", user=1, chat_id=5, has_progress=False)
            assert (await peik.wait_job(job, timeout=PATIENCE_S)).is_done
        assert list(disk.folder.rglob("*")) == []

    asyncio.run(story())


def _films(sim: SimServer) -> int:
    return sum(one.method == "sendDocument" for one in sim.telegram.sent)
