"""Papers in the PostgreSQL store: what is asked goes into the commits of a writer of their own."""

from collections.abc import Sequence

from peik.paper_ports import Filing, Paper
from peik.store import paper_rules
from peik.store.paper_rules import Change, Name
from peik.store.postgres.inbox import Read
from peik.store.postgres.job_reading import seek
from peik.store.postgres.paper_writer import PaperWriter
from peik.store.postgres.queries import Query, filled, load
from peik.store.postgres.session import Row, Session

_SQL = load("papers.sql")


class PostgresPapers:
    """See `peik.paper_ports.PaperStore`. Made by the store when it is opened."""

    def __init__(self, writer: PaperWriter, *, read: Read) -> None:
        self._writer = writer
        self._read = read

    async def file(self, filings: Sequence[Filing]) -> None:
        changes = paper_rules.changes_of(filings)
        if changes:
            shelves = {change.shelf for change in changes}
            await self._writer.run(lambda one: _file(one, changes), shelves=shelves, weight=len(changes))

    async def paper(self, shelf: str, key: str) -> Paper | None:
        return (await self.those(shelf, [key])).get(key)

    async def those(self, shelf: str, keys: Sequence[str]) -> dict[str, Paper]:
        rows = await self._read(lambda one: one.rows(_SQL["those"], shelf=shelf, keys=list(keys)))
        return {paper.key: paper for paper in map(_paper, rows)}

    async def papers(
        self, shelf: str, *, after: str | None = None, until: str | None = None, limit: int, is_backwards: bool = False
    ) -> list[Paper]:
        above, below = (until, after) if is_backwards else (after, until)
        query = _ranged(_SQL["page"], above=above, below=below, order="DESC" if is_backwards else "ASC")
        bound = {"shelf": shelf, "above": above, "below": below, "limit": limit}
        rows = await self._read(lambda one: seek(one, lambda seeker: seeker.rows(query, **bound)))
        return [_paper(row) for row in rows]

    async def count_papers(self, shelf: str) -> int:
        return await self._read(lambda one: one.number(_SQL["count"], shelf=shelf))

    async def shelves(self, prefix: str) -> list[str]:
        bound = {"first": prefix, "end": prefix + paper_rules.AFTER_ALL_ASCII}
        rows = await self._read(lambda one: one.rows(_SQL["shelves"], **bound))
        return [row[0] for row in rows]

    async def clear_shelf(self, shelf: str, *, until: str | None = None, limit: int) -> int:
        query = _ranged(_SQL["clear"], above=None, below=until, order="")
        bound = {"shelf": shelf, "below": until, "limit": limit}
        return await self._writer.run(lambda one: one.run(query, **bound), shelves=[shelf], weight=limit)


async def _file(session: Session, changes: Sequence[Change]) -> None:
    """Raises Conflict before it writes anything."""
    expecting = [change.name for change in changes if change.expected is not None]
    versions: dict[Name, int] = {}
    if expecting:
        shelves, keys = zip(*expecting, strict=True)
        rows = await session.rows(_SQL["versions"], shelves=shelves, keys=keys)
        versions = {(row[0], row[1]): row[2] for row in rows}
    paper_rules.check_expected(changes, versions)
    kept = [(*change.name, change.body) for change in changes if change.body is not None]
    if kept:
        shelves, keys, bodies = zip(*kept, strict=True)
        await session.run(_SQL["keep"], shelves=shelves, keys=keys, bodies=bodies)
    gone = [change.name for change in changes if change.body is None]
    if gone:
        shelves, keys = zip(*gone, strict=True)
        await session.run(_SQL["take_away"], shelves=shelves, keys=keys)


def _ranged(query: Query, *, above: str | None, below: str | None, order: str) -> Query:
    """Between two keys, which are left out. One that is None is no bound, and is not in the query: a walk seeks by the rest."""
    conditions = [sql for key, sql in ((above, "p.key > :above"), (below, "p.key < :below")) if key is not None]
    return filled(query, where=" AND ".join(conditions) or "true", order=order)


def _paper(row: Row) -> Paper:
    shelf, key, body, version = row
    return Paper(shelf=shelf, key=key, body=body, version=version)
