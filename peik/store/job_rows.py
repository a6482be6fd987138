"""A job as a row of the SQL stores, and back."""

from collections.abc import Sequence
from typing import Any

from peik.core.job import Job
from peik.core.letter import Backoff, State

# In the order of `job_from_row` and `row_of`. `user_id`: `user` is a word of PostgreSQL's own.
COLUMNS = (
    "id",
    "kind",
    "user_id",
    "params",
    "rank",
    "state",
    "attempts",
    "attempts_made",
    "backoff_ms",
    "backoff",
    "timeout_ms",
    "due_at",
    "run",
    "node",
    "ends_at",
    "is_cancelling",
    "progress",
    "progress_text",
    "result",
    "failed_reason",
    "history",
    "key",
    "notice",
    "notice_state",
    "metadata",
    "bytes_max",
    "bytes_used",
    "created_at",
    "started_at",
    "ended_at",
)


def job_from_row(row: Sequence[Any]) -> Job:
    """From the values of COLUMNS; times are milliseconds, states and kinds of backoff their words."""
    return Job(
        id=row[0],
        kind=row[1],
        user=row[2],
        params=row[3],
        rank=row[4],
        state=State(row[5]),
        attempts=row[6],
        attempts_made=row[7],
        backoff_ms=row[8],
        backoff=Backoff(row[9]),
        timeout_ms=row[10],
        due_at_ms=row[11],
        run=row[12],
        node=row[13],
        ends_at_ms=row[14],
        is_cancelling=bool(row[15]),
        progress=row[16],
        progress_text=row[17],
        result=row[18],
        failed_reason=row[19],
        history=row[20],
        key=row[21],
        notice=row[22],
        notice_state=row[23],
        metadata=row[24],
        bytes_max=row[25],
        bytes_used=row[26],
        created_at_ms=row[27],
        started_at_ms=row[28],
        ended_at_ms=row[29],
    )
