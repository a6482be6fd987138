"""What people ask of jobs in the SQLite store, and how jobs leave it. Functions on a connection, no state."""

from collections import defaultdict

import apsw

from peik.core.job import Job
from peik.core.letter import State
from peik.job_ports import STANDING_COUNTED_MAX, JobFilter, JobRetention, JobTally, Standing
from peik.store import job_rules, job_runs, reading
from peik.store.job_lines import SQL, leave, line_of
from peik.store.job_rows import job_from_row
from peik.store.statements import Row, Value, run_many


def one(connection: apsw.Connection, job_id: int) -> Job | None:
    rows = run_many(connection, SQL["by_ids"], [(job_id,)])
    return job_from_row(rows[0]) if rows else None


def find(connection: apsw.Connection, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
    bound: dict[str, Value] = {}
    conditions = ["1"]
    # Of two indexes that fit, the plus keeps SQLite from taking the one of states: a user's jobs are the fewer.
    by_state = "j.state = :state" if wanted.user is None else "+j.state = :state"
    for name, condition, value in (
        ("kind", "j.kind = :kind", wanted.kind),
        ("user", "j.user_id = :user", wanted.user),
        ("state", by_state, wanted.state),
        ("since", "j.created_at >= :since", wanted.since_ms),
        ("before", "j.id < :before", before),
    ):
        if value is not None:
            conditions.append(condition)
            bound[name] = value
    sql = SQL["find"].replace("{where}", " AND ".join(conditions))
    return [job_from_row(row) for row in connection.execute(sql, bound | {"limit": limit})]


def active(connection: apsw.Connection, node: str | None) -> list[Job]:
    return [job_from_row(row) for row in connection.execute(SQL["active"], {"node": node})]


def tallies(connection: apsw.Connection) -> dict[str, JobTally]:
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for kind, state, jobs in connection.execute(SQL["tallies"]):
        counts[kind][state] = jobs
    return {kind: JobTally(**by_state) for kind, by_state in counts.items()}


def used_today(connection: apsw.Connection, kind: str, user: str, at_ms: int) -> tuple[int, int]:
    rows = run_many(connection, SQL["used"], [(job_rules.day_of(at_ms), kind, user)])
    if not rows:
        return 0, 0
    _, _, jobs, size_bytes = rows[0]
    assert isinstance(jobs, int)
    assert isinstance(size_bytes, int)
    return jobs, size_bytes


def standing(connection: apsw.Connection, job_id: int) -> Standing | None:
    connection.execute("BEGIN")  # one snapshot for all
    try:
        row = connection.execute(SQL["waiting"], {"id": job_id}).fetchone()
        return None if row is None else _standing(connection, *row)
    finally:
        connection.execute("ROLLBACK")


def _standing(connection: apsw.Connection, kind: str, rank: int, user: str, place: int, ticket: int) -> Standing:
    bound: dict[str, Value] = {"kind": kind, "rank": rank, "user": user, "most": STANDING_COUNTED_MAX}
    own = reading.number(connection, SQL["ahead_in_line"], bound | {"place": place})
    better = reading.number(connection, SQL["ahead_by_rank"], bound)
    others = reading.number(connection, SQL["ahead_by_turns"], bound | {"own": own, "ticket": ticket})
    return Standing(
        ahead=min(own + better + others, STANDING_COUNTED_MAX),
        running=reading.number(connection, SQL["tally"], (kind, State.ACTIVE)),
        mean_run_ms=job_runs.mean_run_ms(connection, kind),
    )


def cancel(connection: apsw.Connection, job_id: int, *, reason: str, at_ms: int) -> Job:
    before = one(connection, job_id)
    job = job_rules.cancelled(before, job_id, reason=reason, at_ms=at_ms)
    if before is not None and before.state is State.WAITING:
        leave(connection, line_of(before))
    job_runs.save(connection, [job])
    return job


def retry(connection: apsw.Connection, job_id: int) -> Job:
    job = job_rules.retried(one(connection, job_id), job_id)
    job_runs.save(connection, [job])
    return job


def clean(connection: apsw.Connection, retention: JobRetention, *, at_ms: int, limit: int) -> int:
    ids: list[Row] = []
    for state, kept_ms in (
        (State.COMPLETED, retention.completed_ms),
        (State.CANCELLED, retention.completed_ms),
        (State.FAILED, retention.failed_ms),
    ):
        ids += connection.execute(SQL["ended"], (state, at_ms - kept_ms, limit - len(ids)))
    run_many(connection, SQL["drop"], ids)
    if ids:
        connection.execute(SQL["drop_tallies"])  # of kinds that are not here any more
    connection.execute(SQL["drop_days"], (job_rules.day_of(at_ms) - 1,))
    return len(ids)
