"""Where a bot kept its things before: a SQLite file, CSV, lines of JSON, PostgreSQL. Only ever read, a page at a time."""

import asyncio
import csv
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import apsw
import msgspec

from peik.errors import BadInput, Unavailable, to_install
from peik.importing.rows import LETTER_NAMES, snake

PAGE = 1000
CONNECT_S = 15.0
BUSY_MS = 10_000  # a bot that still writes to its file lets us in between two commits
_SQLITE = b"SQLite format 3\x00"
_Stored = None | int | float | str | bytes  # what SQLite has in a cell
_OURS = frozenset({"letters", "marks", "inboxes", "papers"})  # tables that only Peik has side by side


class SourceRow(msgspec.Struct, frozen=True):
    """`place` rises within a table, and is the row's own for ever. `trouble`: why its values cannot be read."""

    place: int
    values: Mapping[str, object]
    trouble: str | None = None


class ImportSource(Protocol):
    name: str  # of the file without its ending, or of the database

    def tables(self) -> dict[str, Sequence[str]]:
        """Each with its columns."""

    def rows(self, table: str) -> Iterator[SourceRow]:
        """In the order in which they were written."""

    def close(self) -> None: ...


def source_of(named: str) -> ImportSource:
    """Raises BadInput if it is nothing that can be read, Unavailable if it cannot be read now."""
    if named.startswith(("postgresql://", "postgres://")):
        return PostgresSource(named)
    path = Path(named)
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise BadInput(code="no_file", detail=f"{path} cannot be read: {error.strerror or error}.") from None
    if head == _SQLITE:
        return SqliteSource(path)
    if path.suffix.lower() in {".jsonl", ".ndjson"} or head.lstrip()[:1] == b"{":
        return LinesSource(path)
    if path.suffix.lower() in {".csv", ".tsv", ".txt"}:
        return CsvSource(path)
    raise BadInput(
        code="bad_source", detail=f"{path} is neither a SQLite file nor CSV (.csv, .tsv) nor lines of JSON (.jsonl)."
    )


def refuse_own(source: ImportSource) -> None:
    """Raises BadInput for a store of Peik: what waits there is not to be sent a second time by another one."""
    if set(source.tables()) >= _OURS:
        detail = f"{source.name} is a store of Peik itself. `peik migrate` moves one to another store."
        raise BadInput(code="bad_source", detail=detail)


class SqliteSource:
    """Opened for reading only, and never held for longer than a page, so that the bot that owns it is not kept waiting."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        try:
            self._connection = apsw.Connection(_uri(path), flags=flags)
        except apsw.Error as error:
            raise Unavailable(code="bad_source", detail=f"{path} cannot be opened: {error}.") from None
        self._connection.set_busy_timeout(BUSY_MS)
        try:
            refuse_own(self)
        except BaseException:
            self.close()
            raise

    def tables(self) -> dict[str, Sequence[str]]:
        names = self._ask(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        return {
            str(name): [str(row[1]) for row in self._ask(f"PRAGMA table_info({_quoted(str(name))})")]
            for (name,) in names
        }

    def rows(self, table: str) -> Iterator[SourceRow]:
        columns = self.tables()[table]
        # As bytes: text that is not UTF-8 spoils one row, not the page.
        wanted = ", ".join(f"CAST({_quoted(column)} AS BLOB)" for column in columns)
        place = _place_of(columns)
        if not self._has_places(table):
            yield from self._all_at_once(table, columns, wanted)
            return
        query = f"SELECT {place}, {wanted} FROM {_quoted(table)} WHERE {place} > ? ORDER BY {place} LIMIT {PAGE}"  # noqa: S608  names are quoted
        last = -(2**63)
        while page := self._ask(query, last):
            for number, *values in page:
                assert isinstance(number, int)
                last = number
                yield _row(number, columns, values)

    def _has_places(self, table: str) -> bool:
        found = self._ask("SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", table)
        return not (found and found[0][0])

    def _all_at_once(self, table: str, columns: Sequence[str], wanted: str) -> Iterator[SourceRow]:
        """A table WITHOUT ROWID lies in the order of its key, and has no other."""
        cursor = self._connection.execute(f"SELECT {wanted} FROM {_quoted(table)}")  # noqa: S608  names are quoted
        for number, values in enumerate(cursor, start=1):
            yield _row(number, columns, values)

    def _ask(self, query: str, *values: _Stored) -> list[tuple[_Stored, ...]]:
        try:
            return list(self._connection.execute(query, values))
        except apsw.Error as error:
            raise Unavailable(code="bad_source", detail=f"{self._path} cannot be read: {error}.") from None

    def close(self) -> None:
        self._connection.close()


class CsvSource:
    """One table, named as the file is. Its first line names the columns."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path
        csv.field_size_limit(1 << 20)

    def tables(self) -> dict[str, Sequence[str]]:
        with self._path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            return {self.name: next(self._reader(file), [])}

    def rows(self, table: str) -> Iterator[SourceRow]:
        with self._path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = self._reader(file)
            columns: list[str] = next(reader, [])
            while True:
                try:
                    values = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield SourceRow(reader.line_num, {}, f"it is no CSV: {error}")
                    continue
                if values:
                    yield _line(reader.line_num, columns, values)

    def _reader(self, file: Iterator[str]) -> "csv._reader":  # type: ignore[name-defined]  # it has no public name
        return csv.reader(file, delimiter="\t" if self._path.suffix.lower() == ".tsv" else ",")

    def close(self) -> None:
        pass  # a file is open as long as its rows are read


class LinesSource:
    """One JSON object to a line."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path

    def tables(self) -> dict[str, Sequence[str]]:
        # All of them: where only messages that were sent have a `sent_at`, it may stand far below, and is not to be missed.
        columns: dict[str, None] = {}
        for row in self.rows(self.name):
            columns |= dict.fromkeys(row.values)
        return {self.name: list(columns)}

    def rows(self, table: str) -> Iterator[SourceRow]:
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield SourceRow(number, msgspec.json.decode(line, type=dict[str, object]))
                except (msgspec.DecodeError, RecursionError):
                    yield SourceRow(number, {}, "it is no JSON object")

    def close(self) -> None:
        pass


def _row(place: int, columns: Sequence[str], values: Sequence[_Stored]) -> SourceRow:
    try:
        return SourceRow(place, {name: _decoded(value) for name, value in zip(columns, values, strict=True)})
    except UnicodeDecodeError:
        return SourceRow(place, {}, "it is not text in UTF-8")


def _decoded(value: _Stored) -> str | None:
    assert value is None or isinstance(value, bytes)
    return None if value is None else value.decode()


def _line(place: int, columns: Sequence[str], values: Sequence[str]) -> SourceRow:
    if len(values) > len(columns):
        return SourceRow(place, {}, f"it has {len(values)} fields, and the first line names {len(columns)}")
    if any("\ud800" <= letter <= "\udfff" for value in values for letter in value):
        return SourceRow(place, {}, "it is not text in UTF-8")
    return SourceRow(place, dict(zip(columns, values, strict=False)))


def _place_of(columns: Sequence[str]) -> str:
    """SQLite's own number of a row, under the one of its names that no column has taken."""
    taken = {column.lower() for column in columns}
    return next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), "rowid")


def _uri(path: Path) -> str:
    """For reading. A file in WAL mode that nobody has open is read as one that does not change: else SQLite would put two
    files beside it, or fail where it may not."""
    with path.open("rb") as file:
        is_wal = file.read(20)[18:] == b"\x02\x02"
    is_closed = is_wal and not path.with_name(path.name + "-wal").exists()
    return path.absolute().as_uri() + ("?immutable=1" if is_closed else "")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_COLUMNS_SQL = """
SELECT table_name, column_name
FROM information_schema.columns JOIN information_schema.tables USING (table_catalog, table_schema, table_name)
WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY table_name, ordinal_position
"""
_KEY_SQL = """
SELECT a.attname, format_type(a.atttypid, NULL) IN ('integer', 'bigint', 'smallint')
FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indisprimary AND i.indrelid = $1::text::regclass
"""


class PostgresSource:
    """One read-only transaction that sees one moment, read through a cursor."""

    def __init__(self, url: str) -> None:
        """Raises Unavailable if it cannot be reached, and BadInput without asyncpg, which is an extra."""
        try:
            import asyncpg  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise BadInput(
                code="no_extra", detail=f"PostgreSQL needs a package more: {to_install('postgres')}."
            ) from None
        self._faults = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
        self.name = urllib.parse.urlsplit(url).path.strip("/") or "postgres"
        self._runner = asyncio.Runner()
        try:
            self._connection: Any = self._run(_read_only(asyncpg.connect(url, timeout=CONNECT_S)))
        except BaseException:
            self._runner.close()
            raise
        try:
            refuse_own(self)
        except BaseException:
            self.close()
            raise

    def tables(self) -> dict[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for table, column in self._run(self._connection.fetch(_COLUMNS_SQL)):
            found.setdefault(table, []).append(column)
        return dict(found)

    def rows(self, table: str) -> Iterator[SourceRow]:
        columns = self.tables()[table]
        key = self._run(self._connection.fetch(_KEY_SQL, _quoted(table)))
        is_place = len(key) == 1 and bool(key[0][1])
        # Without a key of whole numbers, the time when they were written; else as they lie there.
        written = LETTER_NAMES["created_at"]
        orders = [_quoted(column) for name in written for column in columns if snake(column) == name]
        counted = f"row_number() OVER (ORDER BY {', '.join([*orders[:1], 'ctid'])})"
        place = f"{_quoted(key[0][0])}::bigint" if is_place else counted
        wanted = ", ".join(f"{_quoted(column)}::text" for column in columns)
        query = f"SELECT {place}, {wanted} FROM {_quoted(table)} ORDER BY 1"  # noqa: S608  names are quoted
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
        except self._faults as error:
            words = str(error) or type(error).__name__
            raise Unavailable(code="bad_source", detail=f"The database cannot be read: {words}.") from None

    def close(self) -> None:
        try:
            self._run(self._connection.close())
        finally:
            self._runner.close()


async def _read_only(connecting: Awaitable[Any]) -> Any:
    connection = await connecting
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    return connection
