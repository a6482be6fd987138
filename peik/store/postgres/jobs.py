"""The jobs of the PostgreSQL store. What is asked goes into commits of their own; the work itself is in the modules beside
this one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from peik.core.job import Job, JobDraft, Ran
from peik.errors import Problem
from peik.job_ports import (
    Beaten,
    JobFilter,
    JobRetention,
    JobTally,
    KindTerms,
    Queued,
    Quota,
    RunNews,
    Settled,
    Standing,
)
from peik.postgres_failures import translate
from peik.store.executor import Ended
from peik.store.listened import answer, fail
from peik.store.postgres import job_queueing, job_reading, job_runs, job_taking
from peik.store.postgres.commit import Batch
from peik.store.postgres.inbox import Read
from peik.store.postgres.job_writer import JobOperation, JobWriter
from peik.store.postgres.session import Session

T = TypeVar("T")


class PostgresJobs:
    """See `peik.job_ports.JobStore`. Made by the store when it is opened.

    If a commit's answer is lost, InDoubt is raised. Whoever asks again is safe: a second end of a run is none, a key makes one
    job, and what was taken and nobody knows of is lost when its lease is over.
    """

    def __init__(self, writer: JobWriter, *, read: Read, node: str) -> None:
        self._writer = writer
        self._read = read
        self._node = node

    # ---- queueing and taking ----

    async def queue(self, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
        if not drafts:
            return []
        return await self.write(
            lambda batch: job_queueing.queue(batch, drafts, quotas, at_ms),
            kinds={draft.kind for draft in drafts},
            weight=len(drafts),
        )

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[Job]:
        if not await self._seek(lambda one: job_taking.is_worth_it(one, kind, terms, at_ms)):
            return []
        bound = {"limit": limit, "lease_ms": lease_ms, "at_ms": at_ms}
        return await self.write(
            lambda batch: job_taking.take(batch, kind, terms, node=self._node, **bound), kinds=[kind]
        )

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        return await self._seek(lambda one: job_reading.next_due(one, kinds))

    # ---- runs ----

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        if not news:
            return []
        return await self.write(
            lambda batch: job_runs.beat(batch, news, lease_ms), jobs=[one.job_id for one in news], weight=len(news)
        )

    async def note(self, job_id: int, notice_state: str) -> bool:
        return await self.write(lambda batch: job_runs.note(batch, job_id, notice_state), jobs=[job_id])

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[Settled | None]:
        if not runs:
            return []
        return await self.write(
            lambda batch: job_runs.settle(batch, runs, at_ms), jobs=[ran.job_id for ran in runs], weight=len(runs)
        )

    async def reap(self, *, at_ms: int, limit: int) -> list[Settled]:
        lost = await self._seek(lambda one: job_reading.lost(one, limit))
        if not lost:
            return []
        return await self.write(lambda batch: job_runs.reap(batch, lost, at_ms), jobs=lost, weight=len(lost))

    # ---- people's ----

    async def job(self, job_id: int) -> Job | None:
        return await self._read(lambda one: job_reading.job(one, job_id))

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
        return await self._seek(lambda one: job_reading.find(one, wanted, before=before, limit=limit))

    async def standing(self, job_id: int) -> Standing | None:
        return await self._seek(lambda one: job_reading.standing(one, job_id))

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> Job:
        return await self.write(lambda batch: job_runs.cancel(batch, job_id, reason, at_ms), jobs=[job_id])

    async def retry(self, job_id: int, *, at_ms: int) -> Job:
        return await self.write(lambda batch: job_runs.retry(batch, job_id), jobs=[job_id])

    async def tallies(self) -> dict[str, JobTally]:
        return await self._read(job_reading.tallies)

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        return await self._seek(lambda one: job_reading.used(one, kind, user, at_ms))

    async def active(self, node: str | None = None) -> list[Job]:
        return await self._seek(lambda one: job_reading.active(one, node))

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        over = await self._seek(lambda one: job_reading.over(one, retention, at_ms=at_ms, limit=limit))
        if not over:
            return 0
        return await self.write(
            lambda batch: job_runs.drop(batch, over, retention, at_ms=at_ms, limit=limit), jobs=over, weight=len(over)
        )

    # ---- the ways in ----

    async def _seek(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await self._read(lambda one: job_reading.seek(one, work))

    async def write(
        self,
        work: Callable[[Batch], Awaitable[T]],
        *,
        kinds: Iterable[str] = (),
        jobs: Iterable[int] = (),
        weight: int = 1,
    ) -> T:
        """Run something in the next commit, with these kinds and those of these jobs locked; its answer, once that is durable.
        What it refuses it refuses before it writes, so that the others of its commit need not be done again."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def prepare(batch: Batch) -> Callable[[], Ended[T]]:
            try:
                ended: Ended[T] = Ended(await work(batch), None)
            except Problem as problem:
                ended = Ended(None, problem)
            return lambda: ended

        def done(committed: Ended[Ended[T]]) -> None:
            error = committed.error if committed.error is not None else committed.value().error
            if error is not None:
                fail(future, translate(error))
            else:
                answer(future, committed.value().value())

        self._writer.submit(JobOperation(prepare, done, kinds=kinds, jobs=jobs, weight=weight))
        return await future
