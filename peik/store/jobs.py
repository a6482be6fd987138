"""The jobs of the SQLite store. What is asked goes into the store's own commits and reads; the work itself is in the modules
beside this one."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import apsw

from peik.core.job import Job, JobDraft, Ran
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
from peik.store import job_lines, job_people, job_runs
from peik.store.commit import Batch
from peik.store.inbox import Collect, Read

T = TypeVar("T")


class SqliteJobs:
    """See `peik.job_ports.JobStore`. Made by the store when it is opened.

    Several processes on one file may take jobs, so leases are kept by the wall clock, which all of them share. One that is
    put back makes no lease longer than it was given for: see `reap`.
    """

    def __init__(self, *, collect: Collect, read: Read, now_ms: Callable[[], int], node: Callable[[], str]) -> None:
        self._collect = collect
        self._read = read
        self._now_ms = now_ms  # the time that leases go by
        self._node = node

    async def _do(self, work: Callable[[apsw.Connection], T], *, weight: int = 1) -> T:
        """Run something in the next commit; its answer, once that is durable."""

        def add(batch: Batch) -> Callable[[], T]:
            value = work(batch.connection)
            return lambda: value

        return await self._collect(add, weight=weight)

    # ---- runs ----

    async def queue(self, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
        return await self._do(lambda one: job_runs.queue(one, drafts, quotas=quotas, at_ms=at_ms), weight=len(drafts))

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[Job]:
        now_ms = self._now_ms()
        return await self._do(
            lambda one: job_lines.take(
                one, kind, terms, limit=limit, node=self._node(), lease_ms=lease_ms, now_ms=now_ms, at_ms=at_ms
            )
        )

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        now_ms = self._now_ms()
        return await self._read(lambda one: job_lines.next_due(one, kinds, now_ms))

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        now_ms = self._now_ms()
        return await self._do(lambda one: job_runs.beat(one, news, lease_ms=lease_ms, now_ms=now_ms), weight=len(news))

    async def note(self, job_id: int, notice_state: str) -> bool:
        return await self._do(lambda one: job_runs.note(one, job_id, notice_state))

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[Settled | None]:
        return await self._do(lambda one: job_runs.settle(one, runs, at_ms=at_ms), weight=len(runs))

    async def reap(self, *, at_ms: int, limit: int) -> list[Settled]:
        now_ms = self._now_ms()
        return await self._do(lambda one: job_runs.reap(one, now_ms=now_ms, at_ms=at_ms, limit=limit))

    # ---- people ----

    async def job(self, job_id: int) -> Job | None:
        return await self._read(lambda one: job_people.one(one, job_id))

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
        return await self._read(lambda one: job_people.find(one, wanted, before=before, limit=limit))

    async def standing(self, job_id: int) -> Standing | None:
        return await self._read(lambda one: job_people.standing(one, job_id))

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> Job:
        return await self._do(lambda one: job_people.cancel(one, job_id, reason=reason, at_ms=at_ms))

    async def retry(self, job_id: int, *, at_ms: int) -> Job:
        return await self._do(lambda one: job_people.retry(one, job_id))

    async def tallies(self) -> dict[str, JobTally]:
        return await self._read(job_people.tallies)

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        return await self._read(lambda one: job_people.used_today(one, kind, user, at_ms))

    async def active(self, node: str | None = None) -> list[Job]:
        return await self._read(lambda one: job_people.active(one, node))

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        return await self._do(lambda one: job_people.clean(one, retention, at_ms=at_ms, limit=limit))
