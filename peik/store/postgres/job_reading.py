"""What the PostgreSQL store reads of jobs. Functions on a session, no state."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from peik.core.job import Job
from peik.job_ports import STANDING_COUNTED_MAX, JobFilter, JobRetention, JobTally, Standing
from peik.store import job_rules
from peik.store.job_rows import COLUMNS, job_from_row
from peik.store.postgres.queries import Query, filled, load
from peik.store.postgres.session import Row, Session

T = TypeVar("T")

_SQL = load("jobs.sql")
_JOB = ", ".join(f"j.{column}" for column in COLUMNS)


def filled_with_job(query: Query, **parts: str) -> Query:
    return filled(query, job=_JOB, **parts)


def job_of(row: Row) -> Job:
    return job_from_row(tuple(row))


JOB = filled_with_job(_SQL["job"])
THOSE = filled_with_job(_SQL["those"])
ACTIVE = filled_with_job(_SQL["active"])


async def seek(session: Session, work: Callable[[Session], Awaitable[T]]) -> T:
    """Ask on a connection that others use as well, by plans that do not read everything."""
    async with session.connection.transaction(readonly=True):
        await session.rows(_SQL["seek"], is_local=True)
        return await work(session)


async def those(session: Session, job_ids: Sequence[int]) -> dict[int, Job]:
    return {row[0]: job_of(row) for row in await session.rows(THOSE, jobs=list(job_ids))}


async def job(session: Session, job_id: int) -> Job | None:
    row = await session.row(JOB, job=job_id)
    return None if row is None else job_of(row)


async def find(session: Session, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
    conditions: tuple[tuple[str, object, str], ...] = (
        ("kind", wanted.kind, "j.kind = :kind"),
        ("user", wanted.user, "j.user_id = :user"),
        ("state", wanted.state, "j.state = :state"),
        ("since", wanted.since_ms, "j.created_at >= :since"),
        ("before", before, "j.id < :before"),
    )
    given = [(name, value, sql) for name, value, sql in conditions if value is not None]
    query = filled_with_job(_SQL["find"], where=" AND ".join(["true", *(sql for _, _, sql in given)]))
    bound = {name: value for name, value, _ in given}
    return [job_of(row) for row in await session.rows(query, **bound, limit=limit)]


async def next_due(session: Session, kinds: Sequence[str]) -> int | None:
    return await session.number(_SQL["next_due"], kinds=list(kinds)) or None


async def standing(session: Session, job_id: int) -> Standing | None:
    row = await session.row(_SQL["standing"], job=job_id, most=STANDING_COUNTED_MAX)
    if row is None:
        return None
    return Standing(ahead=row["ahead"], running=row["running"], mean_run_ms=row["mean_run_ms"])


async def tallies(session: Session) -> dict[str, JobTally]:
    return {
        kind: JobTally(
            waiting=waiting, delayed=delayed, active=active, completed=completed, failed=failed, cancelled=cancelled
        )
        for kind, waiting, delayed, active, completed, failed, cancelled in await session.rows(_SQL["tallies"])
    }


async def used(session: Session, kind: str, user: str, at_ms: int) -> tuple[int, int]:
    row = await session.row(_SQL["used"], kinds=[kind], users=[user], day=job_rules.day_of(at_ms))
    return (0, 0) if row is None else (row["jobs"], row["bytes"])


async def active(session: Session, node: str | None) -> list[Job]:
    return [job_of(row) for row in await session.rows(ACTIVE, node=node)]


async def lost(session: Session, limit: int) -> list[int]:
    return [row[0] for row in await session.rows(_SQL["lost"], limit=limit)]


async def over(session: Session, retention: JobRetention, *, at_ms: int, limit: int) -> list[int]:
    bound = {"done_at": at_ms - retention.completed_ms, "failed_at": at_ms - retention.failed_ms, "limit": limit}
    return [row[0] for row in await session.rows(_SQL["over"], **bound)]
