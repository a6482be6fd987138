"""Papers in the SQLite store: what is asked goes into the store's own commits and reads."""

from collections.abc import Callable, Sequence

import apsw

from peik.errors import Conflict
from peik.paper_ports import Filing, Paper
from peik.store import paper_rules
from peik.store.commit import Batch
from peik.store.inbox import Collect, Read
from peik.store.paper_rules import Change, Name
from peik.store.statements import Row, Value, load, run_many

_SQL = load("sqlite_papers.sql")


class SqlitePapers:
    """See `peik.paper_ports.PaperStore`. Made by the store when it is opened."""

    def __init__(self, *, collect: Collect, read: Read) -> None:
        self._collect = collect
        self._read = read

    async def file(self, filings: Sequence[Filing]) -> None:
        changes = paper_rules.changes_of(filings)
        if not changes:
            return

        def add(batch: Batch) -> Callable[[], Conflict | None]:
            refused = _file(batch.connection, changes)
            return lambda: refused

        # A refusal is an answer like any other: whoever shares the commit need not be done again.
        refused = await self._collect(add, weight=len(changes))
        if refused is not None:
            raise refused

    async def paper(self, shelf: str, key: str) -> Paper | None:
        rows = await self._read(lambda one: list(one.execute(_SQL["paper"], (shelf, key))))
        return next(map(_paper, rows), None)

    async def those(self, shelf: str, keys: Sequence[str]) -> dict[str, Paper]:
        names: list[Row] = [(shelf, key) for key in dict.fromkeys(keys)]
        rows = await self._read(lambda one: run_many(one, _SQL["those"], names))
        return {paper.key: paper for paper in map(_paper, rows)}

    async def papers(
        self, shelf: str, *, after: str | None = None, until: str | None = None, limit: int, is_backwards: bool = False
    ) -> list[Paper]:
        above, below = (until, after) if is_backwards else (after, until)
        where, bound = _range(shelf, above=above, below=below)
        order = "DESC" if is_backwards else "ASC"
        sql = _SQL["page"].replace("{where}", where).replace("{order}", order)
        rows = await self._read(lambda one: list(one.execute(sql, bound | {"limit": limit})))
        return [_paper(row) for row in rows]

    async def count_papers(self, shelf: str) -> int:
        rows = await self._read(lambda one: list(one.execute(_SQL["count"], (shelf,))))
        return int(rows[0][0]) if rows else 0

    async def shelves(self, prefix: str) -> list[str]:
        bound = {"first": prefix, "end": prefix + paper_rules.AFTER_ALL_ASCII}
        return await self._read(lambda one: [str(row[0]) for row in one.execute(_SQL["shelves"], bound)])

    async def clear_shelf(self, shelf: str, *, until: str | None = None, limit: int) -> int:
        where, bound = _range(shelf, above=None, below=until)
        sql = _SQL["clear"].replace("{where}", where)

        def add(batch: Batch) -> Callable[[], int]:
            batch.connection.execute(sql, bound | {"limit": limit})
            gone = batch.connection.changes()
            return lambda: gone

        return await self._collect(add, weight=limit)


def _file(connection: apsw.Connection, changes: Sequence[Change]) -> Conflict | None:
    """Nothing is written if one is refused."""
    expecting: list[Row] = [change.name for change in changes if change.expected is not None]
    versions: dict[Name, int] = {}
    for shelf, key, version in run_many(connection, _SQL["versions"], expecting):
        assert isinstance(version, int)
        versions[str(shelf), str(key)] = version
    try:
        paper_rules.check_expected(changes, versions)
    except Conflict as conflict:
        return conflict
    kept: list[Row] = [(*change.name, change.body) for change in changes if change.body is not None]
    run_many(connection, _SQL["keep"], kept)
    gone: list[Row] = [change.name for change in changes if change.body is None]
    run_many(connection, _SQL["take_away"], gone)
    return None


def _range(shelf: str, *, above: str | None, below: str | None) -> tuple[str, dict[str, Value]]:
    """Between two keys, which are left out. One that is None is no bound, and is not in the query: a walk seeks by the rest."""
    conditions = [sql for key, sql in ((above, "p.key > :above"), (below, "p.key < :below")) if key is not None]
    return " AND ".join(conditions) or "true", {"shelf": shelf, "above": above, "below": below}


def _paper(row: tuple[Value, ...]) -> Paper:
    shelf, key, body, version = row
    assert isinstance(version, int)
    return Paper(shelf=str(shelf), key=str(key), body=str(body), version=version)
