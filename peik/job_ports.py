"""What jobs ask of the store. Behind it stand SQLite, PostgreSQL and Redis alike.

Jobs of one kind, one rank and one user stand in a **line**, in the order in which they came. Each line has a **ticket**: a number
drawn when the line gets its first job, and drawn anew each time one of its jobs begins. Lines go in the order of their tickets,
those of a better rank first; one whose user has as many running as allowed is passed over, and keeps its ticket. So while
somebody waits who could go, nobody else of the same rank goes twice.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from peik.core.job import Job, JobDraft, Ran, Verdict
from peik.core.letter import State


class KindTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a kind may run at once, over all nodes."""

    concurrency: int
    per_user: int


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What one user may ask for of a kind in a day (UTC). None: no bound."""

    jobs: int | None = None
    bytes: int | None = None


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    job_id: int
    state: State
    is_repeat: bool = False  # the same key was queued before


class Beaten(msgspec.Struct, frozen=True, kw_only=True):
    """What a beat of a run was answered."""

    is_ours: bool  # False: it was given up here, and perhaps runs elsewhere; end it
    is_cancelling: bool = False


class RunNews(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life of one run, with how far it is. What is None stays as it was."""

    job_id: int
    run: int
    progress: float | None = None
    progress_text: str | None = None
    notice_state: str | None = None


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A job after a run that was stored. None in place of one: the run was not this one's any more, and nothing was stored."""

    job: Job
    verdict: Verdict


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a waiting job stands."""

    ahead: int  # that go before it, if nobody else comes (counted up to a bound)
    running: int  # of its kind
    mean_run_ms: int | None  # of the last runs of its kind that were done; None: none yet


class JobTally(msgspec.Struct, frozen=True, kw_only=True):
    waiting: int = 0
    delayed: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    kind: str | None = None
    user: str | None = None
    state: State | None = None
    since_ms: int | None = None


class JobRetention(msgspec.Struct, frozen=True, kw_only=True):
    completed_ms: int  # cancelled ones, too
    failed_ms: int


STANDING_COUNTED_MAX = 10_000


class JobStore(Protocol):
    """Every method that writes answers only after a durable commit, or raises StoreUnavailable. Times that decide over leases
    are the store's own (on SQLite those of this process)."""

    async def queue(self, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
        """All of them or none. Raises Conflict if a key was used for another job, or (code `quota`) if a user has asked for
        more than its day allows (by kind; repeats cost nothing). The day's bytes are those of runs that are over."""

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[Job]:
        """Begin up to `limit` jobs of a kind on this node: fairly, and within the terms over all nodes. Each is active now,
        under a new run number and a lease. Delayed ones whose time has come join their lines first."""

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        """When the next delayed job of these kinds is due (ms), or a lease is over; None: never. A bell and no more."""

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        """The leases of these runs go on, and their progress is stored. An answer for each."""

    async def note(self, job_id: int, notice_state: str) -> bool:
        """What was told of a job, whatever state it is in. Whether there is such a job."""

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[Settled | None]:
        """Runs that are over, each judged by `peik.core.job.judged` and stored if the job still is at this run. A delayed one
        whose time has come joins the end of its line."""

    async def reap(self, *, at_ms: int, limit: int) -> list[Settled]:
        """Jobs whose lease is over: each is judged as LOST, by whichever node comes first."""

    async def job(self, job_id: int) -> Job | None: ...

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
        """The newest first, below an id."""

    async def standing(self, job_id: int) -> Standing | None:
        """None: it does not wait."""

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> Job:
        """A waiting or delayed one is cancelled at once; an active one is marked, and its worker hears at its next beat. Raises
        NotFound, and Conflict if it has ended."""

    async def retry(self, job_id: int, *, at_ms: int) -> Job:
        """A failed or cancelled job joins the end of its line, its counters at zero. Raises NotFound, Conflict."""

    async def tallies(self) -> dict[str, JobTally]:
        """By kind."""

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        """How many jobs were queued, and how many bytes used, since midnight UTC."""

    async def active(self, node: str | None = None) -> list[Job]:
        """Those that run (on a node)."""

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        """Ended jobs leave. How many."""
