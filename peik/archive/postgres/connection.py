"""A few connections to the server with our settings, the one way in which queries are asked, and errors in our words."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped,unused-ignore]

from peik.archive.sql import load, migrations
from peik.errors import StartError, StoreUnavailable
from peik.storage.postgres import errors
from peik.storage.postgres.errors import is_gone
from peik.storage.postgres.session import PostgresAddress, PostgresConnection, address_of, reach

# Where a PostgreSQL archive is: a server, a database, and a schema of its own in it.


SCHEMA = "peik_archive"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")  # it needs no quotes


def read_address(url: str) -> PostgresAddress:
    """Raises StartError if it cannot be one."""
    return address_of(url, usual=SCHEMA, named=_SCHEMA, setting="PEIK_ARCHIVE")


def beside_store(url: str) -> str:
    """The archive that goes with a store: the same database, a schema named after the store's. Not the store's own: it would
    refuse one in which somebody else's tables stand."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in query if name == "schema"), "peik")
    asked = [(name, value) for name, value in query if name != "schema"]
    return urlunsplit(parts._replace(query=urlencode([*asked, ("schema", f"{schema}_archive")])))


T = TypeVar("T")

PACKAGE = "peik.archive.postgres"
CONNECTIONS_MAX = 6
CONNECT_S = 5.0
ANSWER_S = 60.0  # a server that is silent for so long is gone
_TRIES = 3  # of what the server has undone by itself, as of two that waited for each other

_SQL = load(PACKAGE, "queries.sql")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")  # one colon: two are a cast


class ServerSession:
    """See `peik.archive.sql_archive.ArchiveSession`."""

    __slots__ = ("connection",)

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection

    async def rows(self, query: str, **named: object) -> list[Any]:
        text, values = bound(query, named)
        return await self.connection.fetch(text, *values)  # type: ignore[no-any-return,unused-ignore]

    async def value(self, query: str, **named: object) -> Any:
        text, values = bound(query, named)
        return await self.connection.fetchval(text, *values)

    async def run(self, query: str, **named: object) -> int:
        """How many rows it changed."""
        text, values = bound(query, named)
        count = (await self.connection.execute(text, *values)).rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def many(self, query: str, rows: Sequence[Sequence[object]]) -> list[Any]:
        return await self.connection.fetch(query, *zip(*rows, strict=True)) if rows else []


class ArchiveServer:
    """Runs pieces of work, each on a connection of its own."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.trouble: StoreUnavailable | None = None

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(
            self.address.url,
            connect=partial(reach, self.address),
            min_size=0,
            max_size=CONNECTIONS_MAX,
            command_timeout=ANSWER_S,
            server_settings={
                "application_name": "peik archive",
                "search_path": self.address.schema,
                "lock_timeout": "5000",
                "idle_in_transaction_session_timeout": "10000",
                "jit": "off",  # our queries are short: compiling them takes longer than running them
            },
            connection_class=PostgresConnection,
            init=_settle_in,
        )

    def close(self) -> None:
        self._pool.terminate()  # nobody leaves anything behind

    async def read(self, work: Callable[[ServerSession], Awaitable[T]]) -> T:
        """A connection that was lost since it was used last is not the reader's concern: it is asked once more."""
        try:
            return await self._once(work)
        except StoreUnavailable as error:
            if error.code != "store_gone":
                raise
            return await self._once(work)

    async def write(self, work: Callable[[ServerSession], Awaitable[T]]) -> T:
        """In a transaction, which is on the disk when this returns."""

        async def committed(asking: ServerSession) -> T:
            async with asking.connection.transaction():
                return await work(asking)

        for _ in range(_TRIES - 1):
            try:
                return await self._once(committed)
            except StoreUnavailable as error:
                if error.code != "store_locked":
                    raise
        return await self._once(committed)

    async def _once(self, work: Callable[[ServerSession], Awaitable[T]]) -> T:
        try:
            async with self._pool.acquire(timeout=CONNECT_S) as connection:
                try:
                    answer = await work(ServerSession(connection))
                except BaseException as error:
                    if is_gone(error) or _is_in_the_middle(connection):
                        connection.terminate()
                    raise
        except Exception as error:
            told = translate(error)
            if isinstance(told, StoreUnavailable):
                self.trouble = told
            if told is error:
                raise
            raise told from error
        self.trouble = None
        return answer


async def _settle_in(connection: asyncpg.Connection) -> None:
    await connection.fetch(_SQL["settle_in"])


def bound(query: str, named: Mapping[str, object]) -> tuple[str, list[object]]:
    text, names = _numbered(query)
    return text, [named[name] for name in names]


@cache
def _numbered(query: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(_PARAMETER.findall(query)))
    places = {name: f"${place}" for place, name in enumerate(names, start=1)}
    return _PARAMETER.sub(lambda found: places[found[1]], query), names


_DOUBT = "What was being stored then may be there or not."


def _is_in_the_middle(connection: asyncpg.Connection) -> bool:
    """Whether it is given back within a transaction: who used it was cancelled while it was being undone."""
    return not connection.is_closed() and bool(connection.is_in_transaction())


def translate(error: BaseException) -> BaseException:
    """The server's errors in our words; anything else as it is."""
    told = errors.translate(error, outcome=_DOUBT, setting="PEIK_ARCHIVE")
    # Two who store the same at once: the caller looks what the other has stored.
    is_taken = isinstance(error, asyncpg.UniqueViolationError)
    return error if is_taken else told


# The schema in the database: made, checked, and brought up to date. Never anybody else's.


async def migrate(server: ArchiveServer) -> None:
    """All steps in one transaction. Refuses a schema that is newer, or not ours."""
    schema, shown = server.address.schema, server.address.shown

    async def work(asking: ServerSession) -> None:
        if await asking.value(_SQL["encoding"]) != "UTF8":
            raise StartError(f"{shown} does not keep its texts in UTF-8. Make a database with ENCODING 'UTF8'.")
        await asking.value(_SQL["lock_schema"], schema=schema)
        if not await asking.value(_SQL["has_schema"], schema=schema):
            await asking.connection.execute(f'CREATE SCHEMA "{schema}"')
        version = 0
        if await asking.value(_SQL["is_ours"], schema=schema):
            version = await asking.value(_SQL["schema_version"])
        elif not await asking.value(_SQL["is_empty"], schema=schema):
            raise StartError(
                f"The schema {schema!r} at {shown} holds tables that are not an archive's. "
                "Name another one with ?schema=… in PEIK_ARCHIVE."
            )
        steps = migrations(PACKAGE)
        if version > len(steps):
            raise StartError(
                f"{shown} was written by a newer Peik (its schema is {version}, this Peik knows {len(steps)}). "
                "Upgrade Peik, or name another schema in PEIK_ARCHIVE. Nothing was changed."
            )
        for number, script in enumerate(steps[version:], start=version + 1):
            await asking.connection.execute(script)
            await asking.run(_SQL["note_schema_version"], version=number)

    await server.write(work)


async def weaknesses(asking: ServerSession) -> list[str]:
    """What this server does not promise of a commit."""
    found = dict(tuple(row) for row in await asking.rows(_SQL["promises"]))
    told: list[str] = []
    if found.get("fsync") == "off":
        told.append("PostgreSQL runs with fsync = off: a power cut can lose or damage everything. Set: fsync = on.")
    if found.get("full_page_writes") == "off":
        told.append(
            "PostgreSQL runs with full_page_writes = off: a power cut can damage it. Set: full_page_writes = on."
        )
    return told
