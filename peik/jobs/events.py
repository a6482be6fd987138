"""What can be observed of jobs, as events. `bot_id` is the bot that tells of the job, where there is one."""

from peik.core.events import Event
from peik.core.letter import State
from peik.jobs.model import JobEnd


class JobsQueued(Event, frozen=True, kw_only=True):
    kind: str
    count: int


class JobBegan(Event, frozen=True, kw_only=True):
    job_id: int
    kind: str
    user: str
    run: int
    waited_s: float  # since it was queued, or due again


class JobRan(Event, frozen=True, kw_only=True):
    """A run is over, and what became of the job is stored."""

    job_id: int
    kind: str
    user: str
    run: int
    end: JobEnd
    state: State
    reason: str | None
    run_s: float


class JobSaid(Event, frozen=True, kw_only=True):
    """A line that a job's process printed."""

    job_id: int
    line: str


class JobCancelled(Event, frozen=True, kw_only=True):
    """Somebody took back a job that waited. One that runs ends first: see JobRan."""

    job_id: int
    kind: str
    user: str


class JobKindChanged(Event, frozen=True, kw_only=True):
    """Somebody let a kind of jobs rest or go on, or said how fast it may go."""

    kind: str
    is_paused: bool
    rate: str | None
    by: str


class FolderLeft(Event, frozen=True, kw_only=True):
    """A work folder could not be removed; it is tried again."""

    job_id: int
    why: str
    tries: int


class DiskShort(Event, frozen=True, kw_only=True):
    """There is no room for work: jobs that need a folder wait. The courier goes on."""

    why: str


class DiskBack(Event, frozen=True, kw_only=True):
    """There is room again."""


class HostOpened(Event, frozen=True, kw_only=True):
    """An outside host fails: jobs that need it wait until a probe comes back."""

    host: str
    why: str


class HostClosed(Event, frozen=True, kw_only=True):
    host: str
    after_s: float
