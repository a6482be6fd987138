"""A program is killed in the middle of its jobs: another one does them, and nothing is left of the dead one."""

import asyncio
import os
import re
import uuid
from pathlib import Path

import pytest

from peik import Peik, QueuedJob
from peik.jobs.model import JobEnd
from tests.jobs.leased import DIES_S, LIVES_S
from tests.patience import PATIENCE_S
from tests.processes.programs import Program
from tests.storage.redis_server import shared

pytestmark = pytest.mark.gate  # kills of real programs


def a_store(kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/peik.db"
    return f"{shared().url}?prefix=jobs-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_another_does_the_jobs_of_a_program_that_is_killed(kind: str, tmp_path: Path) -> None:
    store = a_store(kind, tmp_path)
    work = tmp_path / "work"

    def worker(mode: str, lease_s: str) -> Program:
        environment = {"WORK": str(work), "PYTHONPATH": str(Path(__file__).parents[2])}
        command = ("-m", "tests.jobs.leased", lease_s, "tests.client.job_worker", store, mode)
        return Program(*command, folder=tmp_path, **environment)

    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), Peik.open(store, token=None) as peik:
            jobs = [await peik.queue_job("async", user=1), await peik.queue_job("process", user=2)]
            first, second = worker("hangs", DIES_S), worker("works", LIVES_S)
            await first.start(re.compile(r"began"))
            try:
                child = await child_of(peik, jobs[1])
                assert runs(work) == [f"{job.id}-1" for job in jobs]
                assert [(await peik.get_job(job)).state for job in jobs] == ["active", "active"]
            finally:
                await first.kill()
            await second.start(re.compile(r"open"))
            try:
                done = [await peik.wait_job(job, timeout=PATIENCE_S) for job in jobs]
                assert [job.result for job in done] == ["by the other"] * 2, "".join(second.output)
                assert [[run.end for run in job.history] for job in done] == [[JobEnd.LOST, JobEnd.DONE]] * 2
                assert [job.attempts_made for job in done] == [2, 2]
            finally:
                assert await second.terminate() == 0, "".join(second.output)
            assert list(work.rglob("*")) == []
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)

    asyncio.run(story())


async def child_of(peik: Peik, job: QueuedJob) -> int:
    """The process of a job, as its progress tells."""
    while True:
        found = await peik.get_job(job)
        if found.progress_text is not None:
            return int(found.progress_text)
        await asyncio.sleep(0.05)


def runs(work: Path) -> list[str]:
    """Whose folders are there."""
    return sorted(path.name for path in work.rglob("*-1") if path.is_dir())
