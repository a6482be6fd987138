"""The lines of jobs in the SQLite store: who joins, who leaves, whose turn it is. Functions on a connection, no state.

A place in a line and a ticket come from one counter, so that the ticket of a line is the place of the job that opened it, until
one of the line's jobs begins and another is drawn.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

import apsw

from peik.core.job import Job
from peik.job_ports import KindTerms
from peik.store import job_rules
from peik.store.job_rows import COLUMNS, job_from_row
from peik.store.statements import Row, load, run_many

SQL = {
    name: body.replace("{job}", ", ".join(f"j.{column}" for column in COLUMNS))
    for name, body in load("sqlite_jobs.sql").items()
}

Line = tuple[str, int, str]  # kind, rank, user

_DUE_PER_TAKE_MAX = 1000  # a bound on how long one take keeps the other commits waiting; the next one goes on


def line_of(job: Job) -> Line:
    return (job.kind, job.rank, job.user)


def join(connection: apsw.Connection, lines: Sequence[Line]) -> list[int]:
    """Somebody joins the end of each of these lines, in this order; their places."""
    if not lines:
        return []
    places = _draw(connection, len(lines))
    opened: dict[Line, int] = {}
    for line, place in zip(lines, places, strict=True):
        opened.setdefault(line, place)
    counts = Counter(lines)
    run_many(connection, SQL["join_lines"], [(*line, ticket, counts[line]) for line, ticket in opened.items()])
    return list(places)


def leave(connection: apsw.Connection, line: Line) -> None:
    """One that waited goes without its turn."""
    run_many(connection, SQL["leave_lines"], [(*line, 1, None)])
    connection.execute(SQL["drop_empty_line"], line)


def _draw(connection: apsw.Connection, count: int) -> range:
    ((last,),) = connection.execute(SQL["draw_numbers"], (count,))
    return range(last - count + 1, last + 1)


def join_due(connection: apsw.Connection, kind: str, at_ms: int) -> None:
    """Delayed ones whose time has come stand in their lines now, the earliest first."""
    rows = list(connection.execute(SQL["due"], {"kind": kind, "at": at_ms, "limit": _DUE_PER_TAKE_MAX}))
    places = join(connection, [(kind, rank, user) for _, kind, rank, user in rows])
    run_many(connection, SQL["join_due"], [(row[0], place) for row, place in zip(rows, places, strict=True)])


def next_due(connection: apsw.Connection, kinds: Sequence[str], now_ms: int) -> int | None:
    """When a delayed one of these kinds is due next, or a lease is over."""
    times = [
        row[0]
        for kind in kinds
        for name in ("next_due", "next_end")
        for row in connection.execute(SQL[name], {"kind": kind, "now": now_ms})
        if row[0] is not None
    ]
    return min(times, default=None)


def take(
    connection: apsw.Connection,
    kind: str,
    terms: KindTerms,
    *,
    limit: int,
    node: str,
    lease_ms: int,
    now_ms: int,
    at_ms: int,
) -> list[Job]:
    """Begin jobs: see `JobStore.take`. `now_ms` is the time that leases go by."""
    join_due(connection, kind, at_ms)
    running = Counter(dict(connection.execute(SQL["running"], (kind,))))
    room = min(limit, terms.concurrency - running.total())
    if room <= 0 or terms.per_user <= 0:
        return []
    chosen = _chosen(connection, kind, running, room=room, per_user=terms.per_user)
    if not chosen:
        return []
    fronts = _fronts(connection, Counter(chosen))
    ends_at_ms = now_ms + lease_ms
    begun = [job_rules.begun(next(fronts[line]), node=node, ends_at_ms=ends_at_ms, at_ms=at_ms) for line in chosen]
    rows: list[Row] = [(job.id, job.run, node, ends_at_ms, lease_ms, at_ms) for job in begun]
    run_many(connection, SQL["begin"], rows)
    _redraw(connection, chosen)
    return begun


def _chosen(connection: apsw.Connection, kind: str, running: Counter[str], *, room: int, per_user: int) -> list[Line]:
    """The lines whose turn it is, in order; one may have several turns.

    A ticket that is drawn anew is behind all others of its rank, so each rank is read once and then goes round among those
    that went. Only lines of users who have as many running as allowed are passed over, and those are never more than run.
    """
    chosen: list[Line] = []
    again: deque[tuple[Line, int]] = deque()  # of the rank that is being read: what is left in each

    def go(line: Line, jobs: int) -> None:
        if running[line[2]] < per_user:
            running[line[2]] += 1
            chosen.append(line)
            if jobs > 1:
                again.append((line, jobs - 1))

    def go_round() -> None:
        while again and len(chosen) < room:
            go(*again.popleft())
        again.clear()

    last_rank: int | None = None
    cursor = connection.execute(SQL["turns"], (kind,))
    for rank, user, jobs in cursor:
        if rank != last_rank:
            go_round()
            last_rank = rank
        if len(chosen) >= room:
            break
        go((kind, rank, user), jobs)
    cursor.close()
    go_round()
    return chosen


def _fronts(connection: apsw.Connection, turns: Mapping[Line, int]) -> dict[Line, Iterator[Job]]:
    """The first jobs of each line, as many as it has turns."""
    return {
        line: iter([job_from_row(row) for row in connection.execute(SQL["front"], (*line, count))])
        for line, count in turns.items()
    }


def _redraw(connection: apsw.Connection, chosen: Sequence[Line]) -> None:
    tickets = dict(zip(chosen, _draw(connection, len(chosen)), strict=True))  # of several turns the last one counts
    gone = Counter(chosen)
    run_many(connection, SQL["leave_lines"], [(*line, gone[line], ticket) for line, ticket in tickets.items()])
    for line in tickets:
        connection.execute(SQL["drop_empty_line"], line)
