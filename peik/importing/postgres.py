"""Tables in PostgreSQL as a source: one read-only transaction that sees one moment, read through a cursor."""

import asyncio
import urllib.parse
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import asyncpg  # type: ignore[import-untyped,unused-ignore]

from peik.errors import Unavailable
from peik.importing.rows import LETTER_COLUMNS, snake
from peik.importing.sources import PAGE, SourceRow, refuse_own

CONNECT_S = 15.0

_COLUMNS = """
SELECT table_name, column_name
FROM information_schema.columns JOIN information_schema.tables USING (table_catalog, table_schema, table_name)
WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY table_name, ordinal_position
"""
_KEY = """
SELECT a.attname, format_type(a.atttypid, NULL) IN ('integer', 'bigint', 'smallint')
FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indisprimary AND i.indrelid = $1::text::regclass
"""


class PostgresSource:
    def __init__(self, url: str) -> None:
        """Raises Unavailable if it cannot be reached."""
        self.name = urllib.parse.urlsplit(url).path.strip("/") or "postgres"
        self._runner = asyncio.Runner()
        try:
            self._connection = self._run(self._open(url))
        except BaseException:
            self._runner.close()
            raise
        try:
            refuse_own(self)
        except BaseException:
            self.close()
            raise

    async def _open(self, url: str) -> Any:
        connection = await asyncpg.connect(url, timeout=CONNECT_S)
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return connection

    def tables(self) -> dict[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for table, column in self._run(self._connection.fetch(_COLUMNS)):
            found.setdefault(table, []).append(column)
        return dict(found)

    def rows(self, table: str) -> Iterator[SourceRow]:
        columns = self.tables()[table]
        key = self._run(self._connection.fetch(_KEY, _quoted_name(table)))
        is_place = len(key) == 1 and bool(key[0][1])
        # Without a key of whole numbers, the time when they were written; else as they lie there.
        written = LETTER_COLUMNS["created_at"]
        orders = [_quoted_name(column) for name in written for column in columns if snake(column) == name]
        counted = f"row_number() OVER (ORDER BY {', '.join([*orders[:1], 'ctid'])})"
        place = f"{_quoted_name(key[0][0])}::bigint" if is_place else counted
        wanted = ", ".join(f"{_quoted_name(column)}::text" for column in columns)
        query = f"SELECT {place}, {wanted} FROM {_quoted_name(table)} ORDER BY 1"  # noqa: S608  names are quoted
        pages = self._pages(query)
        while page := self._run(anext(pages, [])):
            for number, *values in page:
                yield SourceRow(number, dict(zip(columns, values, strict=True)))

    async def _pages(self, query: str) -> AsyncIterator[list[Any]]:
        cursor = await self._connection.cursor(query)
        while page := await cursor.fetch(PAGE):
            yield page

    def _run(self, work: Any) -> Any:
        async def awaited() -> Any:
            return await work

        try:
            return self._runner.run(awaited())
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            words = str(error) or type(error).__name__
            raise Unavailable(code="bad_source", detail=f"The database cannot be read: {words}.") from None

    def close(self) -> None:
        try:
            self._run(self._connection.close())
        finally:
            self._runner.close()


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
