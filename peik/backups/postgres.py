"""A schema of PostgreSQL as a part of a backup, by the server's own programs: pg_dump, pg_restore and psql."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.backups.manifest import Part
from peik.backups.parts import SNAPSHOTS_MAX, Hold
from peik.backups.postgres_programs import read_through, restore, run
from peik.backups.privileges import given, renewing
from peik.backups.watching import Watch, on_thread
from peik.errors import Conflict, StoreUnavailable

FILE = "schema.pgdump"
CONNECT_S = 10.0
_BLOBS = 'SELECT enclosed FROM "{schema}".letters WHERE enclosed IS NOT NULL AND phase IN (0, 1, 3)'
_TABLES = """SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind = 'r' ORDER BY 1"""
_ALIVE = 'SELECT name FROM "{schema}".nodes WHERE ends_at > clock_timestamp() LIMIT 1'


class _Enclosed(msgspec.Struct):
    blob: str


_enclosed = msgspec.json.Decoder(tuple[_Enclosed, ...]).decode


class PostgresSource:
    """See `Source`. A store has letters and nodes, an archive neither."""

    kind = "postgresql"

    def __init__(self, url: str, *, schema: str, shown: str, is_store: bool, version_table: str) -> None:
        self._url = url
        self._schema = schema
        self.shown = shown
        self._is_store = is_store
        self._version_table = version_table

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: Watch) -> Part:
        """One snapshot serves the counts, the names of files and pg_dump."""
        watch.begin(f"Copying the {name}", 0)
        await asyncio.to_thread(into.mkdir, mode=0o700, parents=True, exist_ok=True)
        before: set[str] | None = None
        async with _connected(self._url) as connection:
            for left in range(SNAPSHOTS_MAX, -1, -1):
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    snapshot = await connection.fetchval("SELECT pg_export_snapshot()")
                    missing = await self._held(connection, hold, watch)
                    if missing and missing != before and left:
                        before = missing  # their letters ended just now, and are not in the next snapshot
                        continue
                    counts = await _counts(connection, self._schema)
                    version = await self._version(connection, counts)
                    await self._dump(into / FILE, snapshot)
                    return Part(
                        name=name, kind=self.kind, shown=self.shown, counts=counts, version=version, label=self._schema
                    )
        raise AssertionError("the last snapshot counts")

    async def _held(self, connection: "asyncpg.Connection[Any]", hold: Hold, watch: Watch) -> set[str]:
        return await on_thread(watch, hold, await self._blobs(connection)) if self._is_store else set()

    async def _blobs(self, connection: "asyncpg.Connection[Any]") -> set[str]:
        rows = await connection.fetch(_BLOBS.format(schema=self._schema))
        return {file.blob for (text,) in rows for file in _enclosed(text)}

    async def _version(self, connection: "asyncpg.Connection[Any]", counts: Mapping[str, int]) -> int:
        if self._version_table not in counts:
            return 0
        found = await connection.fetchval(f'SELECT max(version) FROM "{self._schema}".{self._version_table}')  # noqa: S608
        return int(found or 0)

    async def _dump(self, path: Path, snapshot: str) -> None:
        # Not compressed: the backup is, as a whole.
        options = ("--format=custom", "--compress=0", "--no-owner", "--no-privileges", f"--schema={self._schema}")
        await run(self._url, "pg_dump", *options, f"--snapshot={snapshot}", f"--file={path}")

    def reserved(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def used_by(self) -> str | None:
        if not self._is_store or await self.is_empty():
            return None
        async with _connected(self._url) as connection:
            try:
                node = await connection.fetchval(_ALIVE.format(schema=self._schema))
            except asyncpg.UndefinedTableError:
                return None
        return None if node is None else f"The node {node} runs on {self.shown}, or died a moment ago."

    async def is_empty(self) -> bool:
        async with _connected(self._url) as connection:
            return not await connection.fetch(_TABLES, self._schema)

    async def check(self, folder: Path, part: Part, watch: Watch) -> dict[str, int]:
        """In a database of its own, if this user may make one; else the whole dump is read, and its rows are counted."""
        watch.begin(f"Trying out the {part.name}", 0)
        name = f"peik_verify_{self._schema[:32]}_{secrets.token_hex(6)}"
        async with _connected(self._url) as connection:
            try:
                await connection.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'")
            except (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError):
                watch.warn(
                    "This user of PostgreSQL may not make a database to try it out in, so that it was only read."
                )
                return await read_through(folder / FILE)
            try:
                there = _elsewhere(self._url, name)
                await restore(there, folder / FILE, self._drop(part), renewing(part.label, ()))
                async with _connected(there) as restored:
                    return await _counts(restored, part.label)
            finally:
                await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _drop(self, part: Part) -> str:
        return f'DROP SCHEMA IF EXISTS "{part.label}" CASCADE'

    async def put_back(self, folder: Path, part: Part, watch: Watch) -> None:
        """In one transaction. A dump knows no privileges, since its roles may be unknown here: those that are given now stay."""
        if part.label != self._schema:
            raise Conflict(
                code="other_schema",
                detail=f"This backup is of the schema {part.label!r}, and the settings name {self._schema!r}. "
                f"Write ?schema={part.label} in the address.",
            )
        watch.begin(f"Putting the {part.name} back", 0)
        async with _connected(self._url) as connection:
            grants = await given(connection, self._schema)
        await restore(self._url, folder / FILE, self._drop(part), renewing(self._schema, grants))


async def _counts(connection: "asyncpg.Connection[Any]", schema: str) -> dict[str, int]:
    names = [str(row[0]) for row in await connection.fetch(_TABLES, schema)]
    return {name: await connection.fetchval(f'SELECT count(*) FROM "{schema}"."{name}"') for name in names}  # noqa: S608


@contextlib.asynccontextmanager
async def _connected(url: str) -> "AsyncIterator[asyncpg.Connection[Any]]":
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
        raise StoreUnavailable(code="store_gone", detail=f"PostgreSQL cannot be reached: {error}.") from error
    try:
        yield connection
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(code="store_error", detail=f"PostgreSQL refused: {error}.") from error
    finally:
        await connection.close(timeout=CONNECT_S)


def _elsewhere(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
