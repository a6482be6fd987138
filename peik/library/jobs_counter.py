"""Where the library asks about jobs: at a Peik in this process, or at one far away. One protocol for both."""

from typing import Protocol

from peik.job_ports import JobFilter
from peik.jobs.desk import JobRequest
from peik.library.accounts_counter import FullCounter
from peik.library.broadcasts import BroadcastsCounter
from peik.library.jobs_kinds import GivenKind
from peik.library.jobs_values import HostInfo, JobCounts, JobInfo, JobPage, JobsUsed, QueuedJob
from peik.library.outreach import OutreachCounter


class JobsCounter(Protocol):
    """Raises what `peik.errors` draws, the same on both sides."""

    def work(self, kind: GivenKind) -> None:
        """Do jobs of this kind here: from the opening on, or from now on if it is open."""

    async def queue(self, request: JobRequest) -> QueuedJob: ...

    async def get(self, job_id: int) -> JobInfo: ...

    async def wait(self, job_id: int, timeout_s: float) -> JobInfo:
        """The job once it has ended, or as it stands when the time is over."""

    async def find(self, wanted: JobFilter, *, before: int | None, limit: int) -> JobPage: ...

    async def cancel(self, job_id: int) -> JobInfo: ...

    async def retry(self, job_id: int) -> JobInfo: ...

    async def counts(self) -> dict[str, JobCounts]: ...

    async def used(self, kind: str, user: str) -> JobsUsed: ...

    async def hosts(self) -> list[HostInfo]: ...


class WholeCounter(FullCounter, Protocol):
    @property
    def jobs(self) -> JobsCounter: ...

    @property
    def broadcasts(self) -> BroadcastsCounter: ...

    @property
    def outreach(self) -> OutreachCounter: ...
