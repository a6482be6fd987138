"""The test job of `peik doctor`: queued, done by a worker of this process, and stored, as every job is. Its kind is known nowhere
else; if the process dies in between, the next examination does what it left."""

import asyncio
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peik.clock import SystemClock
from peik.config import Config
from peik.core.job import Job as Record
from peik.core.letter import State
from peik.errors import BadInput, Problem, StartError
from peik.events import Events
from peik.job_ports import KindTerms
from peik.jobs.children import run_in_process
from peik.jobs.desk import JobRequest, JobsDesk
from peik.jobs.folders import Folders
from peik.jobs.hosts import Hosts
from peik.jobs.job import Job
from peik.jobs.kinds import Kind, Kinds
from peik.jobs.running import Tools
from peik.jobs.workers import Workers
from peik.store.choosing import AnyStore

KIND = "peik.doctor"
USER = "doctor"
DONE_S = 15.0
WORDS = "This is what a test job writes."


async def run_test_job(config: Config, store: AnyStore) -> tuple[float | None, str | None]:
    """How long it took, or why it was not done."""
    clock, events = SystemClock(), Events()
    kinds = Kinds()
    kinds.add(Kind(name=KIND, work=_work, terms=KindTerms(concurrency=16, per_user=16), attempts=1, timeout_s=DONE_S))
    folders = Folders(
        config.work or config.beside(".work"),
        bytes_max=config.work_max,
        free_min=config.work_free,
        clock=clock,
        events=events,
    )
    nobody = _Nobody()
    tools = Tools(
        folders=folders,
        chat=nobody,
        hosts=Hosts(clock=clock, events=events, chance=random.Random()),
        teller=nobody,
        processes=run_in_process,
        clock=clock,
        events=events,
        folder_bytes=config.work_max,
    )
    workers = Workers(store=store.jobs, node=store.nodes.node, kinds=kinds, tools=tools)
    desk = JobsDesk(store=store.jobs, kinds=kinds, teller=nobody, clock=clock, events=events, on_queued=workers.ring)
    try:
        await folders.open()
    except StartError as error:
        return None, str(error)
    try:
        async with asyncio.TaskGroup() as group:
            folders.start(group)
            workers.start(group)
            try:
                return await _done(desk)
            finally:
                await workers.stop(1.0)
                await folders.close()
    except* Problem as problems:
        why = str(problems.exceptions[0])
    return None, why


async def _done(desk: JobsDesk) -> tuple[float | None, str | None]:
    began = time.monotonic()
    (queued,) = await desk.queue([JobRequest(kind=KIND, user=USER)])
    job = await desk.wait(queued.job_id, DONE_S)
    if job.state is State.COMPLETED:
        return time.monotonic() - began, None
    if job.failed_reason is not None:
        return None, job.failed_reason
    return None, f"it is still {job.state} after {DONE_S:.0f} s."


async def _work(job: Job) -> str:
    """Writes into its folder and reads it again: most jobs need a folder."""
    path = job.folder / "test"
    path.write_text(WORDS, encoding="utf-8")
    return path.read_text(encoding="utf-8")


class _Nobody:
    """The chat of a job that tells nobody."""

    def queued(self, job: Record) -> None: ...

    def began(self, job: Record) -> None: ...

    def progressed(self, job: Record, progress: float | None, text: str | None) -> None: ...

    def ended(self, job: Record) -> None: ...

    async def send(
        self, job: Record, method: str, params: Mapping[str, Any], *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        raise BadInput(code="no_chat", detail="A test job has no chat.")
