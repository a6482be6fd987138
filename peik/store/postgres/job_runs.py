"""What becomes of jobs in the PostgreSQL store: runs go on, end or are lost, people cancel and retry, ended ones leave.

Functions on a batch, under the locks of the kinds. Whatever refuses does so before it writes.
"""

from collections.abc import Sequence

import msgspec

from peik.core.job import Job, Ran
from peik.core.letter import State
from peik.job_ports import Beaten, JobRetention, RunNews, Settled
from peik.store import job_rules
from peik.store.postgres import chats, job_reading
from peik.store.postgres.commit import Batch
from peik.store.postgres.job_lines import Ledger, line_of
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session

_SQL = load("jobs.sql")
STILL_LOST = job_reading.filled_with_job(_SQL["still_lost"])

# ---- runs ----


async def beat(batch: Batch, news: Sequence[RunNews], lease_ms: int) -> list[Beaten]:
    """Several of one run count as one: what comes later is newer."""
    merged: dict[tuple[int, int], RunNews] = {}
    for one in news:
        known = merged.setdefault((one.job_id, one.run), one)
        told = {name: value for name, value in msgspec.structs.asdict(one).items() if value is not None}
        merged[one.job_id, one.run] = msgspec.structs.replace(known, **told)
    rows = [
        (one.job_id, one.run, one.progress, chats.clean(one.progress_text), one.notice_state) for one in merged.values()
    ]
    jobs, runs, progress, texts, notices = zip(*rows, strict=True)
    found = await batch.session.returned(
        _SQL["beat"], lease_ms=lease_ms, jobs=jobs, runs=runs, progress=progress, texts=texts, notices=notices
    )
    ours = {(row[0], row[1]): Beaten(is_ours=True, is_cancelling=row[2]) for row in found}
    return [ours.get((one.job_id, one.run), Beaten(is_ours=False)) for one in news]


async def note(batch: Batch, job_id: int, notice_state: str) -> bool:
    return bool(await batch.session.run(_SQL["note"], job=job_id, notice_state=notice_state))


async def settle(batch: Batch, runs: Sequence[Ran], at_ms: int) -> list[Settled | None]:
    jobs = await job_reading.those(batch.session, [ran.job_id for ran in runs])
    judged: list[tuple[Ran, Settled] | None] = []
    over: set[int] = set()
    for ran in runs:
        job = jobs.get(ran.job_id)
        if job is None or job.state is not State.ACTIVE or job.run != ran.run or job.id in over:
            judged.append(None)
        else:
            over.add(job.id)
            cleaned = msgspec.structs.replace(ran, reason=_clean(ran.reason))
            judged.append((ran, job_rules.settled(job, cleaned, at_ms=at_ms)))
    stored = await _end(batch, jobs, [one for one in judged if one is not None], at_ms)
    return [one[1] if one is not None and one[1].job.id in stored else None for one in judged]


async def reap(batch: Batch, job_ids: Sequence[int], at_ms: int) -> list[Settled]:
    """Those of these jobs whose lease is over even now."""
    jobs = {row[0]: job_reading.job_of(row) for row in await batch.session.rows(STILL_LOST, jobs=list(job_ids))}
    runs = [(job, job_rules.lost(job)) for job in jobs.values()]
    judged = [(ran, job_rules.settled(job, ran, at_ms=at_ms)) for job, ran in runs]
    stored = await _end(batch, jobs, judged, at_ms)
    return [settled for _, settled in judged if settled.job.id in stored]


async def _end(batch: Batch, before: dict[int, Job], judged: Sequence[tuple[Ran, Settled]], at_ms: int) -> set[int]:
    """Runs end as they were judged. Which of the jobs were stored so."""
    if not judged:
        return set()
    ledger = Ledger(batch.session)
    stored = await _put(ledger, batch.session, [(before[one.job.id], one.job) for _, one in judged])
    for ran, one in judged:
        if one.job.id in stored and ran.bytes_used:
            ledger.use(one.job.kind, one.job.user, at_ms=at_ms, size_bytes=ran.bytes_used)
    done = [one.job for _, one in judged if one.job.state is State.COMPLETED and one.job.id in stored]
    await ledger.done(done, at_ms=at_ms)
    await ledger.write()
    if stored:
        batch.telling.jobs()
    return stored


def _clean(reason: str | None) -> str | None:
    """An error's words may hold what no text can: NUL, and halves of characters."""
    return None if reason is None else chats.clean(reason.encode(errors="replace").decode())


# ---- people ----


async def cancel(batch: Batch, job_id: int, reason: str, at_ms: int) -> Job:
    before = await job_reading.job(batch.session, job_id)
    after = job_rules.cancelled(before, job_id, reason=_clean(reason) or "", at_ms=at_ms)
    return await _change(batch, job_rules.known(before, job_id), after)


async def retry(batch: Batch, job_id: int) -> Job:
    before = await job_reading.job(batch.session, job_id)
    after = job_rules.retried(before, job_id)
    return await _change(batch, job_rules.known(before, job_id), after)


async def _change(batch: Batch, before: Job, after: Job) -> Job:
    ledger = Ledger(batch.session)
    await _put(ledger, batch.session, [(before, after)])
    await ledger.write()
    batch.telling.jobs()
    return after


async def _put(ledger: Ledger, session: Session, changes: Sequence[tuple[Job, Job]]) -> set[int]:
    """Write jobs as they are now, with what that means for their lines. Which of them still were as they had been."""
    numbers = iter(await ledger.numbers(sum(after.state is State.WAITING for _, after in changes)))
    places = {after.id: next(numbers) for _, after in changes if after.state is State.WAITING}
    rows = [
        (
            after.id,
            after.run,
            before.state,
            after.state,
            places.get(after.id),
            after.attempts_made,
            after.due_at_ms,
            after.node,
            after.ends_at_ms,
            after.is_cancelling,
            after.progress,
            after.progress_text,
            after.result,
            after.failed_reason,
            after.history,
            after.bytes_used,
            after.started_at_ms,
            after.ended_at_ms,
        )
        for before, after in changes
    ]
    stored = {row[0] for row in await session.returned(_SQL["put"], *zip(*rows, strict=True))}
    for before, after in changes:
        if after.id in stored:
            ledger.move(after.kind, before.state, after.state)
            if before.state is State.WAITING:
                ledger.leave(line_of(before))
            if after.state is State.WAITING:
                ledger.join(line_of(after), places[after.id])
    return stored


# ---- leaving ----


async def drop(batch: Batch, job_ids: Sequence[int], retention: JobRetention, *, at_ms: int, limit: int) -> int:
    ledger = Ledger(batch.session)
    gone = await batch.session.returned(
        _SQL["drop"], jobs=list(job_ids), done_at=at_ms - retention.completed_ms, failed_at=at_ms - retention.failed_ms
    )
    for kind, state in gone:
        ledger.move(kind, State(state), None)
    await ledger.write()
    # Yesterday stays: clocks of nodes differ, and one may still ask for it.
    await batch.session.run(_SQL["drop_days"], day=job_rules.day_of(at_ms) - 1, limit=limit)
    return len(gone)
