"""What jobs ask of the store. Behind it stand SQLite, PostgreSQL and Redis alike.

Jobs of one kind, one rank and one user stand in a **line**, in the order in which they came. Each line has a **ticket**: a number
drawn when the line gets its first job, and drawn again each time one of its jobs begins. Lines go in the order of their tickets,
those of a better rank first; one whose user has as many running as allowed is passed over, and keeps its ticket. So while
somebody waits who could go, nobody else of the same rank goes twice.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.core.letter import Backoff, State
from peik.core.units import Rate
from peik.errors import BadInput, Conflict, NotFound
from peik.jobs.model import JobDraft, JobEnd, JobFilter, JobRecord, Ran, RunVerdict, check_kind, cut, judged, with_line


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


class SettledRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job after a run that was stored. None in place of one: the run was not this one's any more, and nothing was stored."""

    job: JobRecord
    verdict: RunVerdict


class JobsStanding(msgspec.Struct, frozen=True, kw_only=True):
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

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[JobRecord]:
        """Begin up to `limit` jobs of a kind on this node: fairly, and within the terms over all nodes. Each is active now,
        under a new run number and a lease. Delayed ones whose time has come join their lines first."""

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        """When the next delayed job of these kinds is due (ms), or a lease is over; None: never. A bell and no more."""

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        """The leases of these runs go on, and their progress is stored. An answer for each."""

    async def note(self, job_id: int, notice_state: str) -> bool:
        """What was told of a job, whatever state it is in. Whether there is such a job."""

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[SettledRun | None]:
        """Runs that are over, each judged by `peik.jobs.model.judged` and stored if the job still is at this run. A delayed one
        whose time has come joins the end of its line."""

    async def reap(self, *, at_ms: int, limit: int) -> list[SettledRun]:
        """Jobs whose lease is over: each is judged as LOST, by whichever node comes first."""

    async def job(self, job_id: int) -> JobRecord | None: ...

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
        """The newest first, below an id."""

    async def standing(self, job_id: int) -> JobsStanding | None:
        """None: it does not wait."""

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> JobRecord:
        """A waiting or delayed one is cancelled at once; an active one is marked, and its worker hears at its next beat. Raises
        NotFound, and Conflict if it has ended."""

    async def retry(self, job_id: int, *, at_ms: int) -> JobRecord:
        """A failed or cancelled job joins the end of its line, its counters at zero. Raises NotFound, Conflict."""

    async def tallies(self) -> dict[str, JobTally]:
        """By kind."""

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        """How many jobs were queued, and how many bytes used, since midnight UTC."""

    async def active(self, node: str | None = None) -> list[JobRecord]:
        """Those that run (on a node)."""

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        """Ended jobs leave. How many."""


# What becomes of a job, the same on every store: pure decisions on values, made between a read and a write.


DAY_MS = 86_400_000
LOST_REASON = "Its worker gave no sign of life any more."


# ---- queueing ----


def drafted(draft: JobDraft, *, at_ms: int) -> tuple[State, int | None]:
    """The first state of a job, and when it is due if it is delayed."""
    if draft.run_at_ms is not None and draft.run_at_ms > at_ms:
        return State.DELAYED, draft.run_at_ms
    return State.WAITING, None


def day_of(at_ms: int) -> int:
    """Days since 1970, in UTC: what quotas go by."""
    return at_ms // DAY_MS


def check_same_job(draft: JobDraft, digest: str) -> None:
    if digest != draft.digest:
        raise Conflict(
            code="idempotency_key_reused",
            detail=f"The key {draft.key!r} was used for another job of {draft.kind}. Use a new key for a new job.",
        )


def check_quotas(
    quotas: Mapping[str, Quota], used: Mapping[tuple[str, str], tuple[int, int]], new: Mapping[tuple[str, str], int]
) -> None:
    """`used`: by kind and user the jobs and bytes of the day; `new`: how many jobs come. Raises Conflict (code `quota`)."""
    for (kind, user), count in new.items():
        quota = quotas.get(kind)
        if quota is None or count == 0:
            continue
        jobs, size_bytes = used.get((kind, user), (0, 0))
        if quota.jobs is not None and jobs + count > quota.jobs:
            raise Conflict(
                code="quota",
                detail=f"{_whose(user)} may ask for {quota.jobs} jobs of {kind} a day (UTC), and has asked for {jobs}.",
            )
        if quota.bytes is not None and size_bytes >= quota.bytes:
            raise Conflict(
                code="quota",
                detail=f"{_whose(user)} may use {quota.bytes} bytes with {kind} a day (UTC), and has used {size_bytes}.",
            )


def _whose(user: str) -> str:
    return f"User {user}" if user else "Nobody in particular"


# ---- runs ----


def begun(job: JobRecord, *, node: str, ends_at_ms: int, at_ms: int) -> JobRecord:
    """A waiting job with its next run."""
    return msgspec.structs.replace(
        job,
        state=State.ACTIVE,
        run=job.run + 1,
        node=node,
        ends_at_ms=ends_at_ms,
        started_at_ms=max(at_ms, job.created_at_ms),  # the node that queued it may have a clock that is ahead
        progress=None,
        progress_text=None,
    )


def lost(job: JobRecord) -> Ran:
    """The run of a job whose lease is over, as its worker would have told it."""
    return Ran(job_id=job.id, run=job.run, end=JobEnd.LOST, reason=LOST_REASON)


def settled(job: JobRecord, ran: Ran, *, at_ms: int) -> SettledRun:
    """An active job after its run. One that is delayed until now or earlier waits: it joins the end of its line."""
    verdict = judged(job, ran, at_ms=at_ms)
    state, due_at_ms = verdict.state, verdict.due_at_ms
    if state is State.DELAYED and (due_at_ms is None or due_at_ms <= at_ms):
        state = State.WAITING
    reason = cut(verdict.reason)
    if reason is None and job.is_cancelling:
        reason = job.failed_reason  # of who cancelled it
    after = msgspec.structs.replace(
        job,
        state=state,
        attempts_made=verdict.attempts_made,
        due_at_ms=due_at_ms if state is State.DELAYED else None,
        node=None,
        ends_at_ms=None,
        is_cancelling=False,
        result=ran.result if state is State.COMPLETED else None,
        failed_reason=None if state is State.COMPLETED else reason,
        history=with_line(job.history, ran, node=job.node, at_ms=at_ms),
        bytes_used=job.bytes_used + ran.bytes_used,
        ended_at_ms=at_ms if state.is_final else None,
    )
    return SettledRun(job=after, verdict=verdict)


def run_ms(job: JobRecord, *, at_ms: int) -> int:
    """How long the last run of a job took. A clock that was put back makes no run shorter than nothing."""
    return max(at_ms - (job.started_at_ms or at_ms), 0)


def new_mean_ms(mean_ms: int | None, last_ms: int) -> int:
    """The mean of the last runs that were done: each counts an eighth, and those before it less and less."""
    return last_ms if mean_ms is None else round(mean_ms + (last_ms - mean_ms) / 8)


# ---- people ----


def cancelled(job: JobRecord | None, job_id: int, *, reason: str, at_ms: int) -> JobRecord:
    """A job after somebody wanted it to end. Raises NotFound, and Conflict if it has ended."""
    job = known(job, job_id)
    if job.state.is_final:
        raise Conflict(code="already_ended", detail=f"Job {job_id} has ended already: it is {job.state}.")
    if job.state is State.ACTIVE:
        return msgspec.structs.replace(job, is_cancelling=True, failed_reason=cut(reason))
    return msgspec.structs.replace(
        job, state=State.CANCELLED, due_at_ms=None, failed_reason=cut(reason), ended_at_ms=at_ms
    )


def retried(job: JobRecord | None, job_id: int) -> JobRecord:
    """A failed or cancelled job as it waits again. Its runs go on being numbered: an old worker stays locked out."""
    job = known(job, job_id)
    if job.state not in (State.FAILED, State.CANCELLED):
        raise Conflict(
            code="not_dead", detail=f"Job {job_id} is {job.state}; only failed and cancelled ones are run again."
        )
    return msgspec.structs.replace(
        job,
        state=State.WAITING,
        attempts_made=0,
        progress=None,
        progress_text=None,
        failed_reason=None,
        started_at_ms=None,
        ended_at_ms=None,
    )


def known(job: JobRecord | None, job_id: int) -> JobRecord:
    if job is None:
        raise NotFound(code="unknown_job", detail=f"There is no job {job_id} here (any more).")
    return job


def turns_ahead(*, better: int, own: int, earlier: Sequence[int], later: Sequence[int]) -> int:
    """How many go before a job with `own` before it in its line, if each line gives one in turn: `better` of better ranks;
    `earlier` and `later` are the lengths of the other lines of its rank, by whether their tickets come before its own."""
    return better + own + sum(min(one, own + 1) for one in earlier) + sum(min(one, own) for one in later)


# What kinds of jobs there are in this process, and how each is to be run.


class Where(enum.StrEnum):
    """In what the work is done."""

    LOOP = "loop"  # an async function, beside everything else
    THREAD = "thread"  # a blocking function; it cannot be killed, only asked and given up
    PROCESS = "process"  # a blocking function in a process of its own, killed for real with all that it started


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    work: Callable[..., Any]  # takes a Job; see peik.jobs.job
    where: Where = Where.LOOP
    terms: KindTerms
    attempts: int = 3
    backoff_ms: int = 5000
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_s: float | None = None  # of one run
    folder_bytes: int = 0  # what a job of this kind may keep in its folder; 0: as much as the settings allow
    quota: Quota = Quota()


class JobKinds:
    """Those that this process can do. Others may be queued here, and are done elsewhere."""

    def __init__(self) -> None:
        self.by_name: dict[str, JobKind] = {}

    def add(self, kind: JobKind) -> None:
        check_kind(kind.name)
        if kind.name in self.by_name:
            raise BadInput(code="known_kind", detail=f"There is a kind {kind.name} already.")
        self.by_name[kind.name] = kind


# What people say of a kind while its programs run: that it rests, and how fast it may go. It stands over all nodes, restarts and
# versions of the program, until somebody says otherwise.


CONTROLS = "job_controls"
STARTS = "job_starts"
CONTROLS_PAGE = 1000


class KindControl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    is_paused: bool = False  # nothing of it begins; what runs goes on
    why: str | None = None
    by: str | None = None
    since_ms: int | None = None
    rate: Rate | None = None  # how many runs may begin, over all nodes; None: as many as there is room for


FREE = KindControl()


class KindControls:
    """As documents. How many runs began lately is one number per kind: when its bucket would be full again."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def all(self) -> dict[str, KindControl]:
        """Those that somebody has said something of."""
        found = await self._documents.documents(CONTROLS, limit=CONTROLS_PAGE)
        return {one.key: _control(one) for one in found}

    async def of(self, kind: str) -> KindControl:
        return _control(await self._documents.document(CONTROLS, kind))

    async def change(self, kind: str, change: Callable[[KindControl], KindControl]) -> KindControl:
        """What `change` makes of it, which is asked again if somebody else was faster."""
        while True:
            document = await self._documents.document(CONTROLS, kind)
            old = _control(document)
            new = change(old)
            if new == old:
                return old
            body = None if new == FREE else msgspec.json.encode(new).decode()
            filings = [Filing(collection=CONTROLS, key=kind, body=body, version=_version(document))]
            if old.rate != new.rate:  # what was saved up under another rate counts no more
                filings.append(Filing(collection=STARTS, key=kind, body=None))
            try:
                await self._documents.file(filings)
            except Conflict:
                continue
            return new

    async def begin(self, kind: str, rate: Rate, *, most: int, at_ms: int) -> tuple[int, float]:
        """Set aside up to `most` runs that may begin now: how many, and if none, how long until the next (s)."""
        while True:
            document = await self._documents.document(STARTS, kind)
            full_at_ms = _full_at_ms(document, rate, at_ms=at_ms)
            room = rate.burst - (full_at_ms - at_ms) / 1000 * rate.per_s
            count = min(most, int(room + _ROUNDING))
            if count <= 0:
                return 0, (1 - room) / rate.per_s
            if await self._filed(kind, document, full_at_ms + count / rate.per_s * 1000):
                return count, 0.0

    async def give_back(self, kind: str, rate: Rate, *, count: int, at_ms: int) -> None:
        """Runs that were set aside and did not begin."""
        while True:
            document = await self._documents.document(STARTS, kind)
            full_at_ms = _full_at_ms(document, rate, at_ms=at_ms)
            if document is None or await self._filed(kind, document, full_at_ms - count / rate.per_s * 1000):
                return

    async def _filed(self, kind: str, old: StoredDocument | None, full_at_ms: float) -> bool:
        """Whether nobody else was faster."""
        body = msgspec.json.encode(full_at_ms).decode()
        try:
            await self._documents.file([Filing(collection=STARTS, key=kind, body=body, version=_version(old))])
        except Conflict:
            return False
        return True


_ROUNDING = 1e-6  # of a run: instants are fractions


def _control(document: StoredDocument | None) -> KindControl:
    return FREE if document is None else msgspec.json.decode(document.body, type=KindControl)


def _version(document: StoredDocument | None) -> int:
    return 0 if document is None else document.version


def _full_at_ms(document: StoredDocument | None, rate: Rate, *, at_ms: int) -> float:
    """Never more than empty: a clock that was ahead for a while stops nothing for long."""
    kept = at_ms if document is None else msgspec.json.decode(document.body, type=float)
    return min(max(kept, at_ms), at_ms + rate.burst / rate.per_s * 1000)
