"""A schema of PostgreSQL as a part of a backup, by the server's own programs: pg_dump, pg_restore and psql."""

import asyncio
import contextlib
import os
import secrets
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.backups.model import SNAPSHOTS_MAX, BackupPart, BackupWatch, Hold, broken, on_thread
from peik.errors import Conflict, StartError, StoreUnavailable

# PostgreSQL's own programs: pg_dump, pg_restore and psql. No password is on their command lines.


CHUNK_BYTES = 256 * 1024
ERROR_CHARS = 500
# What libpq and Peik's driver both know; the driver takes other names for settings of the server, libpq refuses them.
_SHARED = frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "host", "port", "user", "password"})


def named(url: str) -> tuple[str, dict[str, str]]:
    """The address without its password, which no list of processes may show, and the environment that holds it."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name in _SHARED]
    password = next((value for name, value in query if name == "password"), None)
    place = parts.netloc
    if parts.password is not None:
        user, _, host = parts.netloc.rpartition("@")
        password, place = unquote(parts.password), f"{user.partition(':')[0]}@{host}"
    shared = urlencode([(name, value) for name, value in query if name != "password"])
    address = urlunsplit(parts._replace(scheme="postgresql", netloc=place, query=shared))
    return address, {} if password is None else {"PGPASSWORD": password}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise StartError(
            f"Backups of PostgreSQL need {name}, which is not on the PATH. Install PostgreSQL's client programs "
            "(on Debian: apt install postgresql-client), in the server's version or a newer one."
        )
    return found


async def run(url: str, name: str, *options: str) -> None:
    address, secret = named(url)
    process = await asyncio.create_subprocess_exec(
        _program(name),
        f"--dbname={address}",
        *options,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=os.environ | secret,
    )
    await _ended(process, name)


async def restore(url: str, dump: Path, first: str, last: str) -> None:
    """All in one transaction: `first`, then what pg_restore makes of the dump, then `last`. It is only committed if pg_restore
    came to its end: psql takes the end of what it is given for the end of all, even in the middle of a table."""
    address, secret = named(url)
    async with AsyncExitStack() as stack:
        reader = await _started(
            stack, "pg_restore", "--no-owner", "--no-privileges", "--file=-", str(dump), stdout=PIPE
        )
        writer = await _started(
            stack, "psql", f"--dbname={address}", "--no-psqlrc", "--quiet", "--single-transaction",
            "--set=ON_ERROR_STOP=1", f"--command={first}", "--file=-",
            stdin=PIPE, stdout=DEVNULL, env=os.environ | secret | {"PGOPTIONS": "-c client_min_messages=warning"},
        )  # fmt: skip
        assert reader.stderr is not None
        assert writer.stderr is not None
        is_whole, why, why_not = await asyncio.gather(
            _hand_over(reader, writer, last), reader.stderr.read(), writer.stderr.read()
        )
        if not is_whole:
            raise broken(f"pg_restore says {_last_words(why)}")
        if await writer.wait():
            raise StoreUnavailable(code="store_error", detail=f"psql failed: {_last_words(why_not)}")


async def _hand_over(reader: Process, writer: Process, last: str) -> bool:
    """False: the reader failed, and the writer was ended before it could commit."""
    assert reader.stdout is not None
    assert writer.stdin is not None
    try:
        while chunk := await reader.stdout.read(CHUNK_BYTES):
            writer.stdin.write(chunk)
            await writer.stdin.drain()
        if await reader.wait():
            _kill(writer)
            return False
        writer.stdin.write(last.encode())
        await writer.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):  # the writer has ended, and says why
        _kill(reader)
    writer.stdin.close()
    return True


async def _started(stack: AsyncExitStack, name: str, *options: str, **given: Any) -> Process:
    """Ended with the block, if it does not end before."""
    process = await asyncio.create_subprocess_exec(_program(name), *options, stderr=PIPE, **given)

    async def end() -> None:
        _kill(process)
        await process.wait()

    stack.push_async_callback(end)
    return process


def _kill(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _ended(process: Process, name: str) -> None:
    """Raises StoreUnavailable with the program's own words. Cancelling it ends the program."""
    try:
        _, said = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise StoreUnavailable(code="store_error", detail=f"{name} failed: {_last_words(said)}")


def _last_words(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return (" ".join(lines) or "nothing")[-ERROR_CHARS:]


async def read_through(dump: Path) -> dict[str, int]:
    """Rows per table, as they stand in the dump."""
    process = await asyncio.create_subprocess_exec(
        _program("pg_restore"), "--data-only", "--file=-", str(dump),
        stdout=PIPE, stderr=PIPE, limit=1024 * 1024 * 1024,
    )  # fmt: skip
    assert process.stdout is not None
    counts: dict[str, int] = {}
    table: str | None = None
    try:
        async for line in process.stdout:
            if table is not None:
                if line == b"\\.\n":
                    table = None
                else:
                    counts[table] += 1
            elif line.startswith(b"COPY "):
                table = line.split()[1].decode().rpartition(".")[2].strip('"')
                counts[table] = 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None and not process.stdout.at_eof():
                process.kill()
        said = await process.communicate()
    if process.returncode:
        raise broken(f"pg_restore says {_last_words(said[1])}")
    return counts


# Who may do what in a schema of PostgreSQL: read before the schema is dropped, and given again in the transaction
# that brings it back. What goes beyond its owner's rights is never given to everybody.


# The statements that make privileges what they are now. Owners need none: anyone who restores is the owner then.
_GIVEN = """
WITH
things AS (
    SELECT 'SCHEMA' AS kind, format('%I', nspname) AS name, '' AS part, nspowner AS owner, false AS is_definer, nspacl AS acl
    FROM pg_namespace WHERE nspname = $1::text
    UNION ALL
    SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, format('%I.%I', $1::text, relname), '', relowner, false, relacl
    FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident($1::text)) AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'TABLE', format('%I.%I', $1::text, relname), format(' (%I)', attname), relowner, false, attacl
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = to_regnamespace(quote_ident($1::text)) AND attacl IS NOT NULL AND NOT attisdropped
    UNION ALL
    SELECT 'ROUTINE', format('%I.%I', $1::text, proname), '', proowner, prosecdef, proacl
    FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident($1::text))
),
closed AS (
    SELECT format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', name) AS statement
    FROM things
    WHERE kind = 'ROUTINE' AND acl IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(acl) WHERE grantee = 0)
),
granted AS (
    SELECT format(
        'GRANT %s ON %s %s TO %s%s',
        string_agg(privilege_type || part, ', ' ORDER BY privilege_type), kind, name,
        coalesce(quote_ident(rolname), 'PUBLIC'), CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
    ) AS statement
    FROM things CROSS JOIN LATERAL aclexplode(acl) LEFT JOIN pg_roles ON pg_roles.oid = grantee
    WHERE grantee <> owner AND NOT (grantee = 0 AND is_definer) AND (grantee = 0 OR rolname IS NOT NULL)
    GROUP BY kind, name, part, rolname, is_grantable
)
SELECT statement FROM closed UNION ALL SELECT statement FROM granted
"""

# Functions that act as their owner were taken from everybody when they were made, which no dump says. And a backup may be of a
# schema that has not everything yet that something is given for.
_RENEW = """
DO ${tag}$
DECLARE
    one text;
BEGIN
    FOR one IN
        SELECT format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', oid::regprocedure)
        FROM pg_catalog.pg_proc WHERE prosecdef AND pronamespace = pg_catalog.to_regnamespace({schema})
    LOOP
        EXECUTE one;
    END LOOP;
    FOREACH one IN ARRAY ARRAY[{statements}]::text[] LOOP
        BEGIN
            EXECUTE one;
        EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function OR ambiguous_function OR undefined_object THEN
            RAISE DEBUG 'peik: % has nothing to act on', one;
        END;
    END LOOP;
END
${tag}$;
"""


async def given(connection: "asyncpg.Connection[Any]", schema: str) -> list[str]:
    return [str(row[0]) for row in await connection.fetch(_GIVEN, schema)]


def renewing(schema: str, statements: Sequence[str]) -> str:
    """As one statement, for the end of the transaction that restores."""
    tag = f"peik_{secrets.token_hex(8)}"
    texts = ", ".join(_quoted(one) for one in statements)
    return _RENEW.format(tag=tag, schema=_quoted(f'"{schema}"'), statements=texts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


FILE = "schema.pgdump"
CONNECT_S = 10.0
_BLOBS = 'SELECT enclosed FROM "{schema}".letters WHERE enclosed IS NOT NULL AND phase IN (0, 1, 3)'
_TABLES = """SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind = 'r' ORDER BY 1"""
_ALIVE = 'SELECT name FROM "{schema}".nodes WHERE ends_at > clock_timestamp() LIMIT 1'


class _Enclosed(msgspec.Struct):
    blob: str


_enclosed = msgspec.json.Decoder(tuple[_Enclosed, ...]).decode


class PostgresBackupSource:
    """See `Source`. A store has letters and nodes, an archive neither."""

    kind = "postgresql"

    def __init__(self, url: str, *, schema: str, shown: str, is_store: bool, version_table: str) -> None:
        self._url = url
        self._schema = schema
        self.shown = shown
        self._is_store = is_store
        self._version_table = version_table

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: BackupWatch) -> BackupPart:
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
                    return BackupPart(
                        name=name, kind=self.kind, shown=self.shown, counts=counts, version=version, label=self._schema
                    )
        raise AssertionError("the last snapshot counts")

    async def _held(self, connection: "asyncpg.Connection[Any]", hold: Hold, watch: BackupWatch) -> set[str]:
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

    async def check(self, folder: Path, part: BackupPart, watch: BackupWatch) -> dict[str, int]:
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

    def _drop(self, part: BackupPart) -> str:
        return f'DROP SCHEMA IF EXISTS "{part.label}" CASCADE'

    async def put_back(self, folder: Path, part: BackupPart, watch: BackupWatch) -> None:
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
