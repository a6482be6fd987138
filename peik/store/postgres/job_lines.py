"""What changes besides the jobs themselves when jobs change: lines, counts, days, means. Collected, then written at once."""

from collections import Counter, defaultdict

import msgspec

from peik.core.job import Job
from peik.core.letter import State
from peik.store import job_rules
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session

_SQL = load("jobs.sql")
_STATES = tuple(State)  # in the order of the columns of `count`

Line = tuple[str, int, str]  # kind, rank, user


class _Left(msgspec.Struct):
    count: int = 0
    ticket: int | None = None  # a new one, if it was one that began


class Ledger:
    """Belongs to one operation, under the locks of its kinds."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._joined: dict[Line, list[int]] = defaultdict(list)
        self._left: dict[Line, _Left] = defaultdict(_Left)
        self._counts: dict[str, Counter[State]] = defaultdict(Counter)
        self._means: dict[str, int | None] = {}
        self._days: dict[tuple[str, str, int], tuple[int, int]] = {}

    async def numbers(self, count: int) -> list[int]:
        """New numbers, rising: for places and tickets."""
        if not count:
            return []
        return sorted(row[0] for row in await self._session.rows(_SQL["draw_numbers"], count=count))

    # ---- what happened ----

    def move(self, kind: str, before: State | None, after: State | None, jobs: int = 1) -> None:
        """Jobs went from one state to another; None: they came, or are gone."""
        if before is not None:
            self._counts[kind][before] -= jobs
        if after is not None:
            self._counts[kind][after] += jobs

    def join(self, line: Line, place: int) -> None:
        """A line that was empty gets the number of its first job as its ticket: nobody else was given it."""
        self._joined[line].append(place)

    def leave(self, line: Line, *, ticket: int | None = None) -> None:
        left = self._left[line]
        left.count += 1
        left.ticket = ticket

    def use(self, kind: str, user: str, *, at_ms: int, jobs: int = 0, size_bytes: int = 0) -> None:
        day = (kind, user, job_rules.day_of(at_ms))
        known_jobs, known_bytes = self._days.get(day, (0, 0))
        self._days[day] = (known_jobs + jobs, known_bytes + size_bytes)

    async def done(self, jobs: list[Job], *, at_ms: int) -> None:
        """These runs were done: they count for the means of their kinds."""
        kinds = sorted({job.kind for job in jobs} - self._means.keys())
        if kinds:
            self._means |= {row[0]: row[1] for row in await self._session.rows(_SQL["means"], kinds=kinds)}
        for job in jobs:
            self._means[job.kind] = job_rules.new_mean_ms(self._means[job.kind], job_rules.run_ms(job, at_ms=at_ms))

    # ---- writing ----

    async def write(self) -> None:
        """Write what was told until now."""
        if self._joined:
            rows = [(*line, min(places), len(places)) for line, places in self._joined.items()]
            await self._session.run(_SQL["join_lines"], *zip(*rows, strict=True))
            self._joined.clear()
        if self._left:
            gone = [(*line, left.ticket, left.count) for line, left in self._left.items()]
            await self._session.run(_SQL["leave_lines"], *zip(*gone, strict=True))
            self._left.clear()
        if self._days:
            used = [(*day, jobs, size_bytes) for day, (jobs, size_bytes) in self._days.items()]
            await self._session.run(_SQL["use_days"], *zip(*used, strict=True))
            self._days.clear()
        if self._counts:
            counts = [
                (kind, *(count[state] for state in _STATES), self._means.get(kind))
                for kind, count in self._counts.items()
            ]
            await self._session.run(_SQL["count"], *zip(*counts, strict=True))
            self._counts.clear()


def line_of(job: Job) -> Line:
    return (job.kind, job.rank, job.user)
