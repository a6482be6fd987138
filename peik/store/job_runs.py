"""Jobs that come and run in the SQLite store: queueing, beats, ends. Functions on a connection, no state.

All of this happens under the one lock of SQLite's writers, so that what was read before a write is still so when it is written.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import apsw
import msgspec

from peik.core.job import Job, JobDraft, Ran
from peik.core.letter import State
from peik.job_ports import Beaten, Queued, Quota, RunNews, Settled
from peik.store import job_rules
from peik.store.job_lines import SQL, join, line_of
from peik.store.job_rows import job_from_row
from peik.store.statements import Row, insert_many, run_many

# ---- queueing ----


def queue(
    connection: apsw.Connection, drafts: Sequence[JobDraft], *, quotas: Mapping[str, Quota], at_ms: int
) -> list[Queued]:
    """See `JobStore.queue`. What raises here undoes the whole of it."""
    known = _known_keys(connection, drafts)
    fresh: list[JobDraft] = []
    first: dict[tuple[str, str], int] = {}  # the keys of this question: where in `fresh` each is
    answers: list[Queued | tuple[int, bool]] = []  # or the place in `fresh`, and whether it is a repeat
    for draft in drafts:
        key = None if draft.key is None else (draft.kind, draft.key)
        if key in known:
            digest, queued = known[key]
            job_rules.check_same_job(draft, digest)
            answers.append(queued)
        elif key in first:
            job_rules.check_same_job(draft, fresh[first[key]].digest)
            answers.append((first[key], True))
        else:
            if key is not None:
                first[key] = len(fresh)
            answers.append((len(fresh), False))
            fresh.append(draft)
    _use_day(connection, fresh, quotas, at_ms)
    added = _add(connection, fresh, at_ms)
    return [
        one if isinstance(one, Queued) else Queued(job_id=added[one[0]][0], state=added[one[0]][1], is_repeat=one[1])
        for one in answers
    ]


def _known_keys(
    connection: apsw.Connection, drafts: Sequence[JobDraft]
) -> dict[tuple[str, str] | None, tuple[str, Queued]]:
    wanted: list[Row] = list({(draft.kind, draft.key): None for draft in drafts if draft.key is not None})
    found: dict[tuple[str, str] | None, tuple[str, Queued]] = {}
    for kind, key, digest, job_id, state in run_many(connection, SQL["find_keys"], wanted):
        assert isinstance(job_id, int)
        found[str(kind), str(key)] = (str(digest), Queued(job_id=job_id, state=State(str(state)), is_repeat=True))
    return found


def _use_day(connection: apsw.Connection, fresh: Sequence[JobDraft], quotas: Mapping[str, Quota], at_ms: int) -> None:
    day = job_rules.day_of(at_ms)
    new = Counter((draft.kind, draft.user) for draft in fresh)
    bounded: list[Row] = [(day, kind, user) for kind, user in new if kind in quotas]
    used: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, user, jobs, size_bytes in run_many(connection, SQL["used"], bounded):
        assert isinstance(jobs, int)
        assert isinstance(size_bytes, int)
        used[str(kind), str(user)] = (jobs, size_bytes)
    job_rules.check_quotas(quotas, used, new)
    run_many(connection, SQL["use"], [(day, kind, user, count, 0) for (kind, user), count in new.items()])


def _add(connection: apsw.Connection, fresh: Sequence[JobDraft], at_ms: int) -> list[tuple[int, State]]:
    starts = [job_rules.drafted(draft, at_ms=at_ms) for draft in fresh]
    waiting = [
        (draft.kind, draft.rank, draft.user)
        for draft, (state, _) in zip(fresh, starts, strict=True)
        if state is State.WAITING
    ]
    places = iter(join(connection, waiting))
    rows: list[Row] = [
        (
            draft.kind,
            draft.user,
            draft.params,
            draft.rank,
            state,
            next(places) if state is State.WAITING else None,
            draft.attempts,
            draft.backoff_ms,
            draft.backoff,
            draft.timeout_ms,
            due_at_ms,
            draft.key,
            draft.digest,
            draft.notice,
            draft.metadata,
            draft.bytes_max,
            at_ms,
        )
        for draft, (state, due_at_ms) in zip(fresh, starts, strict=True)
    ]
    ids = insert_many(connection, SQL["add"], rows)
    return [(job_id, state) for job_id, (state, _) in zip(ids, starts, strict=True)]


# ---- runs ----


def beat(connection: apsw.Connection, news: Sequence[RunNews], *, lease_ms: int, now_ms: int) -> list[Beaten]:
    ids: list[Row] = list({(one.job_id,): None for one in news})
    running = {job_id: (run, bool(flag)) for job_id, run, flag in run_many(connection, SQL["runs"], ids)}
    answers: list[Beaten] = []
    told: dict[int, RunNews] = {}  # a job of which two speak gets what the later one says
    for one in news:
        run, is_cancelling = running.get(one.job_id, (None, False))
        is_ours = run == one.run
        answers.append(Beaten(is_ours=is_ours, is_cancelling=is_ours and is_cancelling))
        if is_ours:
            told[one.job_id] = _later(told.get(one.job_id, one), one)
    rows: list[Row] = [
        (one.job_id, now_ms + lease_ms, lease_ms, one.progress, one.progress_text, one.notice_state)
        for one in told.values()
    ]
    run_many(connection, SQL["beat"], rows)
    return answers


def _later(before: RunNews, after: RunNews) -> RunNews:
    names = ("progress", "progress_text", "notice_state")
    said = {name: getattr(after, name) for name in names if getattr(after, name) is not None}
    return msgspec.structs.replace(before, **said)


def note(connection: apsw.Connection, job_id: int, notice_state: str) -> bool:
    return bool(list(connection.execute(SQL["note"], (notice_state, job_id))))


def settle(connection: apsw.Connection, runs: Sequence[Ran], *, at_ms: int) -> list[Settled | None]:
    ids: list[Row] = list({(one.job_id,): None for one in runs})
    jobs = {job.id: job for job in map(job_from_row, run_many(connection, SQL["by_ids"], ids))}
    answers: list[Settled | None] = []
    over: list[tuple[Job, Ran]] = []
    for ran in runs:
        job = jobs.get(ran.job_id)
        if job is None or job.state is not State.ACTIVE or job.run != ran.run:
            answers.append(None)
            continue
        settled = job_rules.settled(job, ran, at_ms=at_ms)
        jobs[job.id] = settled.job  # a second end of the same run finds it over
        over.append((settled.job, ran))
        answers.append(settled)
    _end(connection, over, at_ms)
    return answers


def reap(connection: apsw.Connection, *, now_ms: int, at_ms: int, limit: int) -> list[Settled]:
    connection.execute(SQL["cap_leases"], {"now": now_ms})
    jobs = [job_from_row(row) for row in connection.execute(SQL["lost"], {"now": now_ms, "limit": limit})]
    runs = [job_rules.lost(job) for job in jobs]
    lost = [job_rules.settled(job, ran, at_ms=at_ms) for job, ran in zip(jobs, runs, strict=True)]
    _end(connection, [(one.job, ran) for one, ran in zip(lost, runs, strict=True)], at_ms)
    return lost


def _end(connection: apsw.Connection, over: Sequence[tuple[Job, Ran]], at_ms: int) -> None:
    """Store jobs whose runs are over, what they used, and how long they took."""
    save(connection, [job for job, _ in over])
    used: Counter[tuple[str, str]] = Counter()
    took: dict[str, list[int]] = {}
    for job, ran in over:
        used[job.kind, job.user] += ran.bytes_used
        if job.state is State.COMPLETED:
            took.setdefault(job.kind, []).append(job_rules.run_ms(job, at_ms=at_ms))
    day = job_rules.day_of(at_ms)
    rows: list[Row] = [(day, kind, user, 0, size_bytes) for (kind, user), size_bytes in used.items() if size_bytes]
    run_many(connection, SQL["use"], rows)
    for kind, times_ms in took.items():
        mean_ms = mean_run_ms(connection, kind)
        for one in times_ms:
            mean_ms = job_rules.new_mean_ms(mean_ms, one)
        connection.execute(SQL["save_mean_run"], (kind, mean_ms))


def mean_run_ms(connection: apsw.Connection, kind: str) -> int | None:
    row = connection.execute(SQL["mean_run"], (kind,)).fetchone()
    return None if row is None else int(row[0])


def save(connection: apsw.Connection, jobs: Sequence[Job]) -> None:
    """Jobs as they stand now. None of them stood in a line before; those that wait now join theirs, in this order."""
    places = iter(join(connection, [line_of(job) for job in jobs if job.state is State.WAITING]))
    rows: list[Row] = [
        (
            job.id,
            job.state,
            job.attempts_made,
            job.due_at_ms,
            job.node,
            job.ends_at_ms,
            job.is_cancelling,
            job.progress,
            job.progress_text,
            job.result,
            job.failed_reason,
            job.history,
            job.bytes_used,
            job.started_at_ms,
            job.ended_at_ms,
            next(places) if job.state is State.WAITING else None,
        )
        for job in jobs
    ]
    run_many(connection, SQL["save"], rows)
