"""What callers ask of jobs: to queue them, to see how they stand, to cancel them and to run them again."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from peik.clock import Clock
from peik.core.events import Event, Events, StoreFailed
from peik.core.letter import Priority, State
from peik.core.trace import current_trace
from peik.core.units import Rate
from peik.errors import BadInput, NotFound, StoreUnavailable
from peik.jobs.events import JobCancelled, JobKindChanged, JobRan, JobsQueued
from peik.jobs.model import (
    AHEAD_MS_MAX,
    ATTEMPTS_MAX,
    BACKOFF_MS_MAX,
    KEY_CHARS_MAX,
    METADATA_BYTES_MAX,
    PARAMS_BYTES_MAX,
    TIMEOUT_S_MAX,
    UNSEEN,
    JobDraft,
    JobFilter,
    JobRecord,
    JobRequest,
    check_kind,
    check_user,
    noted,
    traced,
)
from peik.jobs.outcome import Teller
from peik.jobs.store import (
    FREE,
    JobKind,
    JobKinds,
    JobRetention,
    JobStore,
    JobTally,
    KindControl,
    KindControls,
    Queued,
    Quota,
)
from peik.jobs.workers import bot_of

REASON_CHARS_MAX = 200
QUEUED_MAX = 1000  # in one commit
PAGE_MAX = 1000
ASK_S = 5.0  # who waits for a job asks again at the latest after so long: news of other nodes can be lost

_RANK = {int(priority): priority.rank for priority in Priority}


class JobTurn(msgspec.Struct, frozen=True, kw_only=True):
    """When a waiting job will begin, as far as one can tell."""

    position: int  # 1: it is the next
    eta_s: float | None  # None: nobody knows how long jobs of its kind take


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has had of a kind today (UTC), and what the day allows. None: no bound, or it is not known here."""

    jobs: int
    bytes: int
    jobs_max: int | None = None
    bytes_max: int | None = None


class KindStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of jobs: how many stand where, and what was said of it. `own` None: this process does none of it."""

    kind: str
    tally: JobTally
    control: KindControl
    own: JobKind | None


class JobService:
    def __init__(
        self,
        *,
        store: JobStore,
        controls: KindControls,
        kinds: JobKinds,
        teller: Teller,
        clock: Clock,
        events: Events,
        on_queued: Callable[[str], None] = lambda kind: None,
        on_cancel: Callable[[int], None] = lambda job_id: None,
        on_control: Callable[[str, KindControl], None] = lambda kind, control: None,
    ) -> None:
        """`on_queued` hears of kinds of which jobs came to wait, `on_cancel` of jobs that are wanted to end, `on_control` of
        kinds that are to rest or to go."""
        self._store = store
        self._controls = controls
        self._kinds = kinds
        self._teller = teller
        self._clock = clock
        self._events = events
        self._on_queued = on_queued
        self._on_cancel = on_cancel
        self._on_control = on_control
        self._waiters: defaultdict[int, list[asyncio.Future[None]]] = defaultdict(list)
        self._is_hurried = False
        events.listen(self._listen, JobRan)

    # ---- queueing ----

    async def queue(self, requests: Sequence[JobRequest]) -> list[Queued]:
        """All of them or none, durably. Raises BadInput, Conflict (a key used otherwise, a quota) and StoreUnavailable.
        A kind that this process does not know may be queued: another does it."""
        if not 0 < len(requests) <= QUEUED_MAX:
            raise BadInput(code="bad_batch", detail=f"From 1 to {QUEUED_MAX} jobs are queued at once.")
        at_ms = self._clock.wall_ms()
        trace = current_trace()
        drafts = [traced(drafted(one, self._kinds.by_name.get(one.kind), at_ms=at_ms), trace) for one in requests]
        queued = await self._store.queue(drafts, quotas=self._quotas(drafts), at_ms=at_ms)
        self._tell_queued(drafts, queued)
        for draft, one in zip(drafts, queued, strict=True):
            if draft.notice is not None and not one.is_repeat:
                await self._tell_of(one.job_id)
        return queued

    async def queue_one(self, request: JobRequest) -> Queued:
        """The same of one; a repeat is told as it stands now."""
        (queued,) = await self.queue([request])
        if not queued.is_repeat:
            return queued
        return msgspec.structs.replace(queued, state=(await self.get(queued.job_id)).state)

    def _quotas(self, drafts: Sequence[JobDraft]) -> dict[str, Quota]:
        known = {draft.kind: self._kinds.by_name.get(draft.kind) for draft in drafts}
        return {name: kind.quota for name, kind in known.items() if kind is not None}

    def _tell_queued(self, drafts: Sequence[JobDraft], queued: Sequence[Queued]) -> None:
        counts: dict[str, int] = defaultdict(int)
        for draft, one in zip(drafts, queued, strict=True):
            counts[draft.kind] += not one.is_repeat
        for kind, count in counts.items():
            if count:
                self._events.tell(JobsQueued(kind=kind, count=count))
                self._on_queued(kind)

    async def _tell_of(self, job_id: int) -> None:
        try:
            job = await self._store.job(job_id)
        except Exception:  # noqa: BLE001  the job is accepted; what its chat hears first comes with its first run
            return
        if job is not None:
            self._teller.changed(job)

    # ---- looking ----

    async def get(self, job_id: int) -> JobRecord:
        """Raises NotFound."""
        job = await self._store.job(job_id)
        if job is None:
            raise NotFound(code="unknown_job", detail=f"There is no job {job_id} here (any more).")
        return job

    async def find(self, wanted: JobFilter, *, before: int | None = None, limit: int = 100) -> list[JobRecord]:
        """The newest first, below an id."""
        if not 0 < limit <= PAGE_MAX:
            raise BadInput(code="bad_limit", detail=f"limit must be between 1 and {PAGE_MAX}.")
        return await self._store.jobs(wanted, before=before, limit=limit)

    async def place(self, job_id: int) -> JobTurn | None:
        """None: it does not wait (it runs, is put off, has ended, or is unknown)."""
        standing = await self._store.standing(job_id)
        job = None if standing is None else await self._store.job(job_id)
        if standing is None or job is None:  # or it ended and left just now
            return None
        kind = self._kinds.by_name.get(job.kind)
        control = await self._controls.of(job.kind)
        if kind is None or standing.mean_run_ms is None or control.is_paused:
            return JobTurn(position=standing.ahead + 1, eta_s=None)
        eta_s = _eta_s(standing.ahead, standing.running, standing.mean_run_ms, kind.terms.concurrency)
        if control.rate is not None:
            eta_s = max(eta_s, (standing.ahead + 1 - control.rate.burst) / control.rate.per_s)
        return JobTurn(position=standing.ahead + 1, eta_s=eta_s)

    async def tallies(self) -> dict[str, JobTally]:
        """By kind; those that this process knows are all there."""
        return {kind: JobTally() for kind in self._kinds.by_name} | await self._store.tallies()

    async def kinds(self) -> list[KindStanding]:
        """All that are known here, have jobs, or were said something of."""
        tallies, controls = await self.tallies(), await self._controls.all()
        return [
            KindStanding(
                kind=name,
                tally=tallies.get(name, JobTally()),
                control=controls.get(name, FREE),
                own=self._kinds.by_name.get(name),
            )
            for name in sorted(tallies.keys() | controls.keys())
        ]

    async def used_today(self, kind: str, user: str) -> Used:
        jobs, size_bytes = await self._store.used_today(kind, user, at_ms=self._clock.wall_ms())
        known = self._kinds.by_name.get(kind)
        quota = Quota() if known is None else known.quota
        return Used(jobs=jobs, bytes=size_bytes, jobs_max=quota.jobs, bytes_max=quota.bytes)

    async def wait(self, job_id: int, timeout_s: float) -> JobRecord:
        """The job once it has ended, or as it stands when the time is over. Raises NotFound."""
        deadline = self._clock.mono() + timeout_s
        while True:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[job_id].append(ended)
            try:
                job = await self.get(job_id)
                left_s = deadline - self._clock.mono()
                if job.state.is_final or self._is_hurried or left_s <= 0:
                    return job
                await asyncio.wait([ended], timeout=min(left_s, ASK_S))
            finally:
                self._forget(job_id, ended)

    def end_waits(self) -> None:
        """Whoever waits for a job is told how it stands, from now on: Peik is about to close."""
        self._is_hurried = True
        self.ask_again()

    def ask_again(self) -> None:
        """Another process wrote of jobs: some of those that somebody waits for may have ended."""
        for job_id in list(self._waiters):
            self._wake(job_id)

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, JobRan) and event.state.is_final:
                self._wake(event.job_id)

    def _wake(self, job_id: int) -> None:
        for waiter in self._waiters.get(job_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _forget(self, job_id: int, waiter: "asyncio.Future[None]") -> None:
        self._waiters[job_id].remove(waiter)
        if not self._waiters[job_id]:
            del self._waiters[job_id]

    # ---- changing ----

    async def cancel(self, job_id: int, *, reason: str = "Somebody cancelled it.") -> JobRecord:
        """One that waits is cancelled when this returns; one that runs is told to end, and ends soon after, wherever it is.
        Raises NotFound, and Conflict if it has ended."""
        job = await self._store.cancel(job_id, reason=reason[:REASON_CHARS_MAX], at_ms=self._clock.wall_ms())
        if job.state is State.CANCELLED:
            self._events.tell(JobCancelled(bot_id=bot_of(job), job_id=job.id, kind=job.kind, user=job.user))
            self._teller.changed(job)
            self._wake(job_id)
        else:
            self._on_cancel(job_id)
        return job

    async def retry(self, job_id: int) -> JobRecord:
        """A failed or cancelled one runs again, with all of its attempts. Raises NotFound, Conflict."""
        job = await self._store.retry(job_id, at_ms=self._clock.wall_ms())
        self._on_queued(job.kind)
        self._teller.changed(job)
        return job

    # ---- kinds ----

    async def pause_kind(self, kind: str, *, by: str, why: str | None = None) -> KindStanding:
        """Nothing of the kind begins on any node, from a second after this returns at the latest; what runs goes on to its end,
        and jobs are queued as ever. Raises NotFound for a kind that nobody has heard of."""
        reason = None if why is None else why.strip()[:REASON_CHARS_MAX] or None

        def paused(old: KindControl) -> KindControl:
            since_ms = old.since_ms if old.is_paused else self._clock.wall_ms()
            return msgspec.structs.replace(old, is_paused=True, why=reason, by=by, since_ms=since_ms)

        return await self._change_kind(kind, paused, by=by)

    async def resume_kind(self, kind: str, *, by: str) -> KindStanding:
        """It goes on. Raises NotFound."""

        def resumed(old: KindControl) -> KindControl:
            return KindControl(rate=old.rate)

        return await self._change_kind(kind, resumed, by=by)

    async def set_kind_rate(self, kind: str, rate: Rate | None, *, by: str) -> KindStanding:
        """How many of its runs may begin, over all nodes; None: as many as there is room for. Raises NotFound."""

        def paced(old: KindControl) -> KindControl:
            return msgspec.structs.replace(old, rate=rate)

        return await self._change_kind(kind, paced, by=by)

    async def _change_kind(self, kind: str, change: Callable[[KindControl], KindControl], *, by: str) -> KindStanding:
        check_kind(kind)
        if kind not in {one.kind for one in await self.kinds()}:
            raise NotFound(
                code="unknown_kind",
                detail=f"There is no kind {kind}: no program here does it, and no job of it is kept.",
            )
        control = await self._controls.change(kind, change)
        told = JobKindChanged(
            kind=kind,
            is_paused=control.is_paused,
            rate=None if control.rate is None else str(control.rate),
            by=by,
        )
        self._events.tell(told)
        self._on_control(kind, control)
        (standing,) = [one for one in await self.kinds() if one.kind == kind]
        return standing


def _eta_s(ahead: int, running: int, mean_run_ms: int, concurrency: int) -> float:
    if ahead < concurrency - running:
        return 0.0
    return ahead / concurrency * mean_run_ms / 1000


# ---- from a request to a draft ----


def drafted(request: JobRequest, kind: JobKind | None, *, at_ms: int) -> JobDraft:
    """Checked, and filled up with what its kind says. Raises BadInput."""
    _check(request, at_ms=at_ms)
    backoff = request.backoff if request.backoff is not None else None if kind is None else kind.backoff
    usual = JobDraft(kind=request.kind, user=request.user)
    timeout_s = request.timeout_s if request.timeout_s is not None or kind is None else kind.timeout_s
    return JobDraft(
        kind=request.kind,
        user=request.user,
        params=_json(request.params, "params", PARAMS_BYTES_MAX),
        rank=_RANK[request.priority],
        attempts=request.attempts or (usual.attempts if kind is None else kind.attempts),
        backoff_ms=_first(request.backoff_ms, usual.backoff_ms if kind is None else kind.backoff_ms),
        backoff=usual.backoff if backoff is None else backoff,
        timeout_ms=None if timeout_s is None else max(int(timeout_s * 1000), 1),
        run_at_ms=request.run_at_ms,
        key=request.key,
        digest="" if request.key is None else _digest(request),
        notice=None if request.notice is None else noted(request.notice),
        metadata=None if request.metadata is None else _json(request.metadata, "metadata", METADATA_BYTES_MAX),
        bytes_max=0 if kind is None else kind.folder_bytes,
    )


def _check(request: JobRequest, *, at_ms: int) -> None:
    check_kind(request.kind)
    check_user(request.user)
    if request.priority not in _RANK:
        raise BadInput(code="bad_priority", detail="priority is one of -1, 0, 1 and 2.")
    if request.key is not None and (not 0 < len(request.key) <= KEY_CHARS_MAX or UNSEEN.search(request.key)):
        raise BadInput(code="bad_idempotency_key", detail=f"An idempotency key has 1 to {KEY_CHARS_MAX} characters.")
    bounds: tuple[tuple[str, float | None, float, float], ...] = (
        ("attempts", request.attempts, 1, ATTEMPTS_MAX),
        ("backoff_ms", request.backoff_ms, 0, BACKOFF_MS_MAX),
        ("timeout_s", request.timeout_s, 0.001, TIMEOUT_S_MAX),
        ("run_at", request.run_at_ms, 0, at_ms + AHEAD_MS_MAX),
    )
    for name, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise BadInput(code=f"bad_{name}", detail=f"{name} must be between {least:g} and {most:g}.")


def _json(value: Mapping[str, Any], name: str, bytes_max: int) -> str:
    try:
        encoded = msgspec.json.encode(value)
        text = encoded.decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name} cannot be written as JSON: {error}.") from None
    if len(encoded) > bytes_max:
        raise BadInput(code=f"{name}_too_large", detail=f"{name} holds at most {bytes_max} bytes of JSON.")
    return text


def _digest(request: JobRequest) -> str:
    """Of all that the key stands for."""
    told = msgspec.json.encode(request, order="sorted")
    return hashlib.blake2b(told, digest_size=16).hexdigest()


def _first(given: int | None, usual: int) -> int:
    return usual if given is None else given


# Jobs that ended long ago go. On the node with the chores.


PAGE = 1000
PAUSE_S = 0.05  # between two pages: what runs comes first
CLEAN_S = 300.0


class JobsUpkeep:
    def __init__(
        self, *, store: JobStore, retention: JobRetention, is_ours: Callable[[], bool], clock: Clock, events: Events
    ) -> None:
        self._store = store
        self._retention = retention
        self._is_ours = is_ours
        self._clock = clock
        self._events = events

    async def run(self) -> None:
        is_failing = False
        while True:
            await asyncio.sleep(CLEAN_S)
            try:
                await self.clean()
                is_failing = False
            except StoreUnavailable as error:
                if not is_failing:
                    self._events.tell(StoreFailed(what="the upkeep of jobs", why=error.detail))
                is_failing = True

    async def clean(self) -> None:
        """In small commits."""
        gone = PAGE
        while gone >= PAGE and self._is_ours():
            gone = await self._store.clean(self._retention, at_ms=self._clock.wall_ms(), limit=PAGE)
            await asyncio.sleep(PAUSE_S)
