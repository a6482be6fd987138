"""A JobStore in memory: the port with the shortest code that keeps to it. For stories in virtual time, where a file would only
be slower. Several nodes share one `Place`."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from peik.clock import Clock
from peik.core.documents import Filing, StoredDocument, changes_of, check_expected
from peik.core.letter import State
from peik.errors import InDoubt, StoreUnavailable
from peik.jobs import store as rules
from peik.jobs.model import JobDraft, JobEnd, JobFilter, JobRecord, Ran
from peik.jobs.store import (
    STANDING_COUNTED_MAX,
    Beaten,
    JobRetention,
    JobsStanding,
    JobTally,
    KindTerms,
    Queued,
    Quota,
    RunNews,
    SettledRun,
)

Line = tuple[str, int, str]  # kind, rank, user


class Place:
    """What is stored."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs: dict[int, JobRecord] = {}
        self.ids: dict[State, dict[int, None]] = {state: {} for state in State}
        self.lines: defaultdict[Line, list[int]] = defaultdict(list)
        self.tickets: dict[Line, int] = {}
        self.keys: dict[tuple[str, str], tuple[int, str]] = {}
        self.days: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.means: dict[str, int] = {}
        self.drawn = 0
        self.last_id = 0
        self.documents = MemoryDocuments(self)
        self.is_away = False  # nothing can be asked
        self.loses_answers = False  # what is asked is done, and nobody hears of it

    def node(self, name: str) -> "MemoryJobs":
        return MemoryJobs(self, name)

    def of(self, state: State) -> list[JobRecord]:
        return [self.jobs[job_id] for job_id in self.ids[state]]

    def active(self, kind: str) -> list[JobRecord]:
        return [job for job in self.of(State.ACTIVE) if job.kind == kind]

    def keep(self, job: JobRecord) -> None:
        self.drop(job.id)
        self.jobs[job.id] = job
        self.ids[job.state][job.id] = None

    def drop(self, job_id: int) -> None:
        old = self.jobs.pop(job_id, None)
        if old is not None:
            del self.ids[old.state][job_id]


class MemoryDocuments:
    """As many of a DocumentStore's ways as kinds of jobs need."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._kept: dict[tuple[str, str], StoredDocument] = {}

    def _reach(self) -> None:
        if self._place.is_away:
            raise StoreUnavailable(code="store_gone", detail="The store cannot be reached.")

    async def file(self, filings: Sequence[Filing]) -> None:
        self._reach()
        changes = changes_of(filings)
        check_expected(changes, {name: one.version for name, one in self._kept.items()})
        for change in changes:
            old = self._kept.pop(change.name, None)
            if change.body is not None:
                collection, key = change.name
                version = 1 if old is None else old.version + 1
                self._kept[change.name] = StoredDocument(
                    collection=collection, key=key, body=change.body, version=version
                )

    async def document(self, collection: str, key: str) -> StoredDocument | None:
        self._reach()
        return self._kept.get((collection, key))

    async def documents(self, collection: str, *, limit: int) -> list[StoredDocument]:
        self._reach()
        return [one for name, one in sorted(self._kept.items()) if name[0] == collection][:limit]


class MemoryJobs:
    """One node's view of it."""

    def __init__(self, place: Place, node: str) -> None:
        self._place = place
        self.node = node
        self.is_cut_off = False  # this node alone cannot reach it
        self.asked = 0

    async def _reach(self) -> None:
        self.asked += 1
        await asyncio.sleep(0.001)
        if self._place.is_away or self.is_cut_off:
            raise StoreUnavailable(code="store_gone", detail="The store cannot be reached.")

    def _answer(self) -> None:
        if self._place.loses_answers:
            raise InDoubt(code="store_lost", detail="The answer was lost.")

    # ---- lines ----

    def _join(self, job: JobRecord) -> None:
        place, line = self._place, (job.kind, job.rank, job.user)
        if line not in place.tickets:
            place.drawn += 1
            place.tickets[line] = place.drawn
        place.lines[line].append(job.id)

    def _leave(self, job: JobRecord) -> None:
        line = (job.kind, job.rank, job.user)
        self._place.lines[line].remove(job.id)
        if not self._place.lines[line]:
            del self._place.lines[line], self._place.tickets[line]

    def _keep(self, job: JobRecord) -> None:
        self._place.keep(job)

    def _join_due(self, kind: str, at_ms: int) -> None:
        due = [
            (job.due_at_ms or 0, job.id)
            for job in self._place.of(State.DELAYED)
            if job.kind == kind and (job.due_at_ms or 0) <= at_ms
        ]
        for _, job_id in sorted(due):
            job = msgspec.structs.replace(self._place.jobs[job_id], state=State.WAITING, due_at_ms=None)
            self._keep(job)
            self._join(job)

    # ---- queueing ----

    async def queue(self, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
        await self._reach()
        place, day = self._place, rules.day_of(at_ms)
        answers: list[Queued | None] = []
        new: dict[tuple[str, str], int] = defaultdict(int)
        for draft in drafts:
            known = None if draft.key is None else place.keys.get((draft.kind, draft.key))
            if known is None:
                new[draft.kind, draft.user] += 1
                answers.append(None)
                continue
            rules.check_same_job(draft, known[1])
            answers.append(Queued(job_id=known[0], state=place.jobs[known[0]].state, is_repeat=True))
        used = {one: place.days.get((*one, day), (0, 0)) for one in new}
        rules.check_quotas(quotas, used, new)
        for (kind, user), count in new.items():
            jobs, size = used[kind, user]
            place.days[kind, user, day] = (jobs + count, size)
        queued = [
            self._queued(draft, at_ms) if one is None else one for draft, one in zip(drafts, answers, strict=True)
        ]
        self._answer()
        return queued

    def _queued(self, draft: JobDraft, at_ms: int) -> Queued:
        state, due_at_ms = rules.drafted(draft, at_ms=at_ms)
        self._place.last_id += 1
        job_id = self._place.last_id
        told = msgspec.structs.asdict(draft)
        for name in ("run_at_ms", "digest"):
            del told[name]
        job = JobRecord(id=job_id, state=state, due_at_ms=due_at_ms, created_at_ms=at_ms, **told)
        self._keep(job)
        if state is State.WAITING:
            self._join(job)
        if draft.key is not None:
            self._place.keys[draft.kind, draft.key] = (job_id, draft.digest)
        return Queued(job_id=job_id, state=state)

    # ---- runs ----

    async def take(self, kind: str, terms: KindTerms, *, limit: int, lease_ms: int, at_ms: int) -> list[JobRecord]:
        await self._reach()
        self._join_due(kind, at_ms)
        running: dict[str, int] = defaultdict(int)
        for job in self._place.active(kind):
            running[job.user] += 1
        taken: list[JobRecord] = []
        while len(taken) < limit and sum(running.values()) < terms.concurrency:
            lines = [one for one in self._place.tickets if one[0] == kind and running[one[2]] < terms.per_user]
            if not lines:
                break
            line = min(lines, key=lambda one: (one[1], self._place.tickets[one]))
            job = self._place.jobs[self._place.lines[line][0]]
            self._leave(job)
            if line in self._place.tickets:
                self._place.drawn += 1
                self._place.tickets[line] = self._place.drawn
            begun = rules.begun(job, node=self.node, ends_at_ms=self._place.clock.wall_ms() + lease_ms, at_ms=at_ms)
            self._keep(begun)
            running[job.user] += 1
            taken.append(begun)
        self._answer()
        return taken

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        await self._reach()
        due = [job.due_at_ms for job in self._place.of(State.DELAYED) if job.kind in kinds]
        ends = [job.ends_at_ms for job in self._place.of(State.ACTIVE) if job.kind in kinds]
        return min((at for at in (*due, *ends) if at is not None), default=None)

    async def beat(self, news: Sequence[RunNews], *, lease_ms: int) -> list[Beaten]:
        await self._reach()
        answers = []
        for one in news:
            job = self._place.jobs.get(one.job_id)
            if job is None or job.state is not State.ACTIVE or job.run != one.run:
                answers.append(Beaten(is_ours=False))
                continue
            told = {
                name: value
                for name in ("progress", "progress_text", "notice_state")
                if (value := getattr(one, name)) is not None
            }
            ends_at_ms = self._place.clock.wall_ms() + lease_ms
            self._keep(msgspec.structs.replace(job, ends_at_ms=ends_at_ms, **told))
            answers.append(Beaten(is_ours=True, is_cancelling=job.is_cancelling))
        self._answer()
        return answers

    async def note(self, job_id: int, notice_state: str) -> bool:
        await self._reach()
        job = self._place.jobs.get(job_id)
        if job is not None:
            self._keep(msgspec.structs.replace(job, notice_state=notice_state))
        return job is not None

    async def settle(self, runs: Sequence[Ran], *, at_ms: int) -> list[SettledRun | None]:
        await self._reach()
        answers = [self._settled(ran, at_ms) for ran in runs]
        self._answer()
        return answers

    def _settled(self, ran: Ran, at_ms: int) -> SettledRun | None:
        job = self._place.jobs.get(ran.job_id)
        if job is None or job.state is not State.ACTIVE or job.run != ran.run:
            return None
        settled = rules.settled(job, ran, at_ms=at_ms)
        self._keep(settled.job)
        if settled.job.state is State.WAITING:
            self._join(settled.job)
        if ran.end is JobEnd.DONE:
            mean = self._place.means.get(job.kind)
            self._place.means[job.kind] = rules.new_mean_ms(mean, rules.run_ms(job, at_ms=at_ms))
        day = (job.kind, job.user, rules.day_of(at_ms))
        jobs, size = self._place.days.get(day, (0, 0))
        self._place.days[day] = (jobs, size + ran.bytes_used)
        return settled

    async def reap(self, *, at_ms: int, limit: int) -> list[SettledRun]:
        await self._reach()
        now = self._place.clock.wall_ms()
        dead = [job for job in self._place.of(State.ACTIVE) if (job.ends_at_ms or 0) <= now][:limit]
        settled = [self._settled(rules.lost(job), at_ms) for job in dead]
        return [one for one in settled if one is not None]

    # ---- people ----

    async def job(self, job_id: int) -> JobRecord | None:
        await self._reach()
        return self._place.jobs.get(job_id)

    async def jobs(self, wanted: JobFilter, *, before: int | None, limit: int) -> list[JobRecord]:
        await self._reach()
        found = [
            job
            for job_id, job in sorted(self._place.jobs.items(), reverse=True)
            if (before is None or job_id < before)
            and wanted.kind in (None, job.kind)
            and wanted.user in (None, job.user)
            and wanted.state in (None, job.state)
            and (wanted.since_ms is None or job.created_at_ms >= wanted.since_ms)
        ]
        return found[:limit]

    async def standing(self, job_id: int) -> JobsStanding | None:
        await self._reach()
        place, job = self._place, self._place.jobs.get(job_id)
        if job is None or job.state is not State.WAITING:
            return None
        mine = (job.kind, job.rank, job.user)
        others = {one: ids for one, ids in place.lines.items() if one[:2] == mine[:2] and one != mine}
        ahead = rules.turns_ahead(
            better=sum(len(ids) for one, ids in place.lines.items() if one[0] == job.kind and one[1] < job.rank),
            own=place.lines[mine].index(job_id),
            earlier=[len(ids) for one, ids in others.items() if place.tickets[one] < place.tickets[mine]],
            later=[len(ids) for one, ids in others.items() if place.tickets[one] > place.tickets[mine]],
        )
        return JobsStanding(
            ahead=min(ahead, STANDING_COUNTED_MAX),
            running=len(place.active(job.kind)),
            mean_run_ms=place.means.get(job.kind),
        )

    async def cancel(self, job_id: int, *, reason: str, at_ms: int) -> JobRecord:
        await self._reach()
        old = self._place.jobs.get(job_id)
        job = rules.cancelled(old, job_id, reason=reason, at_ms=at_ms)
        if old is not None and old.state is State.WAITING:
            self._leave(old)
        self._keep(job)
        return job

    async def retry(self, job_id: int, *, at_ms: int) -> JobRecord:
        await self._reach()
        job = rules.retried(self._place.jobs.get(job_id), job_id)
        self._keep(job)
        self._join(job)
        return job

    async def tallies(self) -> dict[str, JobTally]:
        await self._reach()
        counts = Counter((job.kind, state) for state in State for job in self._place.of(state))
        kinds = {kind for kind, _ in counts}
        return {kind: JobTally(**{state.value: counts[kind, state] for state in State}) for kind in kinds}

    async def used_today(self, kind: str, user: str, *, at_ms: int) -> tuple[int, int]:
        await self._reach()
        return self._place.days.get((kind, user, rules.day_of(at_ms)), (0, 0))

    async def active(self, node: str | None = None) -> list[JobRecord]:
        await self._reach()
        return [job for job in self._place.of(State.ACTIVE) if node in (None, job.node)]

    async def clean(self, retention: JobRetention, *, at_ms: int, limit: int) -> int:
        await self._reach()
        kept = {State.FAILED: retention.failed_ms}
        gone = [
            job
            for job in self._place.jobs.values()
            if job.ended_at_ms is not None and job.ended_at_ms <= at_ms - kept.get(job.state, retention.completed_ms)
        ][:limit]
        for job in gone:
            self._place.drop(job.id)
            if job.key is not None:
                self._place.keys.pop((job.kind, job.key), None)
        return len(gone)
