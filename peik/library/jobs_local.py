"""Jobs of the Peik in this process: the kinds that its program does, and what the desk of jobs knows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from peik.config import Config
from peik.core.job import Job
from peik.errors import BadInput, StartError
from peik.events import Surprise
from peik.job_ports import JobFilter
from peik.jobs.desk import JobRequest
from peik.jobs.kinds import Kinds
from peik.library.jobs_kinds import GivenKind
from peik.library.jobs_values import (
    HostInfo,
    JobCounts,
    JobInfo,
    JobPage,
    JobsUsed,
    QueuedJob,
    decode_counted,
    decode_hosts,
    decode_job,
    decode_jobs,
    decode_used,
)
from peik.shown_jobs import host_view, page_view, stats_view, used_view, whole_view

if TYPE_CHECKING:
    from peik.app import Office

_encode = msgspec.json.Encoder().encode


class LocalJobs:
    """What is asked of jobs here."""

    def __init__(self, office: "Callable[[], Office]") -> None:
        """`office` raises Unavailable once it is closed."""
        self._office = office
        self._given: list[GivenKind] = []
        self._late: LateWork | None = None

    def work(self, kind: GivenKind) -> None:
        name = kind.kind.name
        if any(one.kind.name == name for one in self._given):
            raise BadInput(code="known_kind", detail=f"There is a kind {name} already.")
        self._given.append(kind)
        if self._late is not None:
            self._late.add(kind)

    def settle(self, config: Config) -> Kinds:
        """What this process does from its opening on."""
        kinds = Kinds()
        for one in self._given:
            kinds.add(one.settled(config))
        return kinds

    @asynccontextmanager
    async def joined_by(self, late: "LateWork") -> AsyncIterator[None]:
        self._late = late
        try:
            yield
        finally:
            self._late = None
            await late.close()

    async def queue(self, request: JobRequest) -> QueuedJob:
        office = self._office()
        if request.notice is not None:
            office.desk.bot(request.notice["bot_id"])  # raises if nobody would ever hear of the job
        (queued,) = await office.jobs.queue([request])
        state = (await office.jobs.get(queued.job_id)).state if queued.is_repeat else queued.state
        return QueuedJob(id=str(queued.job_id), state=state)

    async def get(self, job_id: int) -> JobInfo:
        return await self._shown(await self._office().jobs.get(job_id))

    async def wait(self, job_id: int, timeout_s: float) -> JobInfo:
        return await self._shown(await self._office().jobs.wait(job_id, timeout_s))

    async def find(self, wanted: JobFilter, *, before: int | None, limit: int) -> JobPage:
        found = await self._office().jobs.find(wanted, before=before, limit=limit)
        return decode_jobs(_encode(page_view(found, limit)))

    async def cancel(self, job_id: int) -> JobInfo:
        return await self._shown(await self._office().jobs.cancel(job_id))

    async def retry(self, job_id: int) -> JobInfo:
        return await self._shown(await self._office().jobs.retry(job_id))

    async def counts(self) -> dict[str, JobCounts]:
        return decode_counted(_encode(stats_view(await self._office().jobs.tallies()))).kinds

    async def used(self, kind: str, user: str) -> JobsUsed:
        return decode_used(_encode(used_view(kind, user, await self._office().jobs.used_today(kind, user))))

    async def hosts(self) -> list[HostInfo]:
        office = self._office()
        now_ms = office.clock.wall_ms()
        return decode_hosts(_encode({"hosts": [host_view(one, now_ms) for one in office.hosts.all()]})).hosts

    async def _shown(self, job: Job) -> JobInfo:
        return decode_job(_encode(await whole_view(self._office().jobs, job)))


@asynccontextmanager
async def lone_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks that shows the one thing that went wrong as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


class LateWork:
    """Kinds that come after the opening. A Peik that was opened without any does not work yet: it begins with the first."""

    def __init__(self, office: "Office", group: asyncio.TaskGroup) -> None:
        """The group outlives the office, which ends what is begun here."""
        self._office = office
        self._group = group
        self._is_working = bool(office.job_hands.kinds.all())
        self._beginning: asyncio.Task[None] | None = None

    def add(self, kind: GivenKind) -> None:
        hands = self._office.job_hands
        hands.kinds.add(kind.settled(self._office.config))
        if self._is_working:
            hands.workers.ring(kind.kind.name)
            return
        self._is_working = True
        self._beginning = self._group.create_task(self._begin())

    async def _begin(self) -> None:
        hands = self._office.job_hands
        try:
            await hands.folders.open()
        except StartError as error:
            self._office.events.tell(Surprise(where="the beginning of jobs", error=str(error)))
            return
        hands.folders.start(self._group)
        hands.workers.start(self._group)

    async def close(self) -> None:
        """Nothing is begun any more. What is half begun comes to rest first, so that the office can end it."""
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
