"""A connection to the server with our settings, and the one way in which queries are asked on it."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.core.methods import TARGETS, VERBS, MethodClass, known_methods
from peik.errors import StartError
from peik.storage.postgres.errors import is_gone
from peik.storage.postgres.queries import NamedQuery, load
from peik.storage.sql import Row

# Where a PostgreSQL store is: a server, a database, and a schema of our own in it.


SCHEMA = "peik"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # it needs no quotes, and leaves room for a prefix in names of 63 bytes


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # as the driver wants it; may hold a password
    schema: str
    hosts: tuple[str, ...]  # the same for each server that it names, in order
    shown: str  # for people: no user, no password

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def read_address(url: str) -> PostgresAddress:
    """Raises StartError if it cannot be one."""
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise StartError("A PostgreSQL store is named postgresql://user:password@host/database in PEIK_STORE.")
    return address_of(url, usual=SCHEMA, named=_SCHEMA, setting="PEIK_STORE")


def address_of(url: str, *, usual: str, named: re.Pattern[str], setting: str) -> PostgresAddress:
    """Raises StartError for a schema that cannot be used."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in query if name == "schema"), usual)
    if not named.fullmatch(schema):
        raise StartError(
            f"The schema {schema!r} in {setting} cannot be used. Name it with small letters, digits and underscores."
        )
    rest = [(name, value) for name, value in query if name != "schema"]
    account, at, servers = parts.netloc.rpartition("@")
    hosts = servers.split(",")
    if len(hosts) > 1 and not any(name == "target_session_attrs" for name, _ in rest):
        rest.append(("target_session_attrs", "read-write"))  # a standby answers, too
    parts = parts._replace(query=urlencode(rest))
    shown = f"postgresql://{servers}{parts.path}?schema={schema}"
    each = tuple(urlunsplit(parts._replace(netloc=f"{account}{at}{host}")) for host in hosts)
    return PostgresAddress(url=urlunsplit(parts), schema=schema, hosts=each, shown=shown)


_SQL = load("session.sql")

READERS_MAX = 4
FILERS_MAX = 2  # parts are large, and reading letters does not wait for them
CONNECT_S = 5.0
HOST_S = 1.0  # for each of several servers: a dead machine says nothing, and the next is asked in time for a beat
ANSWER_S = 60.0  # a server that is silent for so long is gone
LOCK_MS = 5000
# A node that is frozen inside a transaction loses its locks before those who wait for them lose patience.
IDLE_IN_TRANSACTION_MS = 4000


class PostgresConnection(asyncpg.Connection):  # type: ignore[misc,unused-ignore]
    """Nothing that a reader does has to be undone, so that giving it back to its pool asks the server nothing."""

    def get_reset_query(self) -> str:
        return ""


class PostgresSession:
    """Asks queries on one connection, and counts what they changed."""

    __slots__ = ("changes", "connection")

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.changes = 0

    async def rows(self, query: NamedQuery, *placed: object, **named: object) -> list[Row]:
        return await self.connection.fetch(query.text, *(placed or query.bind(named)))  # type: ignore[no-any-return,unused-ignore]

    async def row(self, query: NamedQuery, *placed: object, **named: object) -> Row | None:
        return await self.connection.fetchrow(query.text, *(placed or query.bind(named)))  # type: ignore[no-any-return,unused-ignore]

    async def number(self, query: NamedQuery, **named: object) -> int:
        """One number, 0 if there is none."""
        return int(await self.connection.fetchval(query.text, *query.bind(named)) or 0)

    async def text(self, query: NamedQuery, **named: object) -> str | None:
        found = await self.connection.fetchval(query.text, *query.bind(named))
        return None if found is None else str(found)

    async def run(self, query: NamedQuery, *placed: object, **named: object) -> int:
        """How many rows it changed."""
        tag = await self.connection.execute(query.text, *(placed or query.bind(named)))
        count = tag.rpartition(" ")[2]
        changed = int(count) if count.isdigit() else 0
        self.changes += changed
        return changed

    async def returned(self, query: NamedQuery, *placed: object, **named: object) -> list[Row]:
        """What a query returns that writes."""
        found = await self.rows(query, *placed, **named)
        self.changes += len(found)
        return found

    async def read_many(self, query: NamedQuery, rows: Sequence[tuple[object, ...]]) -> list[Row]:
        return await self.rows(query, *zip(*rows, strict=True)) if rows else []

    async def write_many(self, query: NamedQuery, rows: Sequence[tuple[object, ...]]) -> int:
        return await self.run(query, *zip(*rows, strict=True)) if rows else 0


def settings_of(address: PostgresAddress) -> dict[str, str]:
    """What a session asks for from its first moment on."""
    return {
        "application_name": "peik",
        "search_path": address.schema,
        "timezone": "UTC",
        "lock_timeout": str(LOCK_MS),
        "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
        "jit": "off",  # our queries are short: compiling them takes longer than running them
    }


async def settle_in(connection: asyncpg.Connection) -> None:
    await PostgresSession(connection).rows(_SQL["settle_in"])


async def reach(address: PostgresAddress, url: str | None = None, **settings: Any) -> asyncpg.Connection:
    """The first of its servers that answers and may be written. The driver has one bound on time for all of them together.
    A pool says `url`, which is the address once more."""
    *others, last = address.hosts
    for host in others:
        try:
            return await asyncpg.connect(host, timeout=HOST_S, **settings)
        except (OSError, asyncpg.InternalClientError, asyncpg.CannotConnectNowError):
            continue  # what is told is the last one's error
    return await asyncpg.connect(last, timeout=HOST_S if others else CONNECT_S, **settings)


async def connect(address: PostgresAddress) -> PostgresSession:
    connection = await reach(
        address,
        command_timeout=ANSWER_S,
        server_settings=settings_of(address),
        connection_class=PostgresConnection,
        statement_cache_size=300,
        max_cached_statement_lifetime=0,
    )
    try:
        await settle_in(connection)
    except BaseException:
        connection.terminate()
        raise
    return PostgresSession(connection)


class PostgresPool:
    """A few connections for anyone who asks one thing at a time. One that is lost is replaced when it is needed."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def one(self) -> AsyncIterator[PostgresSession]:
        async with self._pool.acquire(timeout=CONNECT_S) as connection:
            try:
                yield PostgresSession(connection)
            except BaseException as error:
                if is_gone(error) or is_in_the_middle(connection):
                    connection.terminate()  # the server's last words come before the end: it may still look alive
                raise

    def end(self) -> None:
        """At once: nobody leaves anything behind."""
        self._pool.terminate()


def is_in_the_middle(connection: asyncpg.Connection) -> bool:
    """Whether it is given back within a transaction: who used it was cancelled while it was being undone."""
    return not connection.is_closed() and bool(connection.is_in_transaction())


async def connect_pool(address: PostgresAddress, size: int) -> PostgresPool:
    return PostgresPool(
        await asyncpg.create_pool(
            address.url,
            connect=partial(reach, address),
            min_size=0,  # made when needed: the pool's own care for a least number writes to the log
            max_size=size,
            command_timeout=ANSWER_S,
            server_settings=settings_of(address),
            connection_class=PostgresConnection,
            statement_cache_size=300,
            max_cached_statement_lifetime=0,
            init=settle_in,
        )
    )


async def end(session: PostgresSession) -> None:
    """Say goodbye if the server still listens."""
    try:
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            await session.connection.close(timeout=CONNECT_S)
    except asyncio.CancelledError:
        session.connection.terminate()
        raise


async def warnings(session: PostgresSession) -> list[str]:
    """What this server does not promise of a commit. Empty: a commit outlives a power cut."""
    found = dict(tuple(row) for row in await session.rows(_SQL["promises"]))
    told: list[str] = []
    if found.get("fsync") == "off":
        told.append("PostgreSQL runs with fsync = off: a power cut can lose or damage everything. Turn it on.")
    if found.get("full_page_writes") == "off":
        told.append("PostgreSQL runs with full_page_writes = off: a power cut can damage the database. Turn it on.")
    if found.get("synchronous_commit") == "off":
        told.append(
            "PostgreSQL runs with synchronous_commit = off. Peik turns it on for itself, but other programs that write "
            "Peik's tables can lose their last commits."
        )
    return told


# The schema in the database: made, checked, and brought up to date. Never anybody else's.


_MIGRATION = re.compile(r"(\d{3})\.sql")


async def migrate(session: PostgresSession, address: PostgresAddress) -> None:
    """Bring the schema up to date, all steps in one transaction. Refuses one that is newer, or not ours."""
    if await session.text(_SQL["encoding"]) != "UTF8":
        raise StartError(f"{address.shown} does not keep its texts in UTF-8. Make a database with ENCODING 'UTF8'.")
    schema = address.schema
    if await _is_current(session, schema):
        return
    async with session.connection.transaction():
        await session.rows(_SQL["lock_schema"], schema=schema)
        if not await session.number(_SQL["has_schema"], schema=schema):
            await session.connection.execute(f'CREATE SCHEMA "{schema}"')
        if await session.number(_SQL["is_new"], schema=schema):
            version = 0
        elif not await session.number(_SQL["is_ours"], schema=schema):
            raise StartError(
                f"The schema {schema!r} at {address.shown} holds tables that are not Peik's. "
                "Name another one with ?schema=… in PEIK_STORE."
            )
        else:
            version = await session.number(_SQL["version"])
        steps = _steps()
        if version > len(steps):
            raise StartError(
                f"{address.shown} was written by a newer Peik (its schema is {version}, this Peik knows {len(steps)}). "
                "Upgrade Peik, or name another schema in PEIK_STORE. Nothing was changed."
            )
        for number, script in enumerate(steps[version:], start=version + 1):
            await session.connection.execute(script)
            await session.run(_SQL["note_version"], version=number)


async def _is_current(session: PostgresSession, schema: str) -> bool:
    """The usual case, without a lock and without a write."""
    if not await session.number(_SQL["is_ours"], schema=schema):
        return False
    return await session.number(_SQL["version"]) == len(_steps())


def _steps() -> list[str]:
    scripts = sorted(
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in (files("peik.storage.postgres") / "sql").iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    )
    assert [number for number, _ in scripts] == list(range(1, len(scripts) + 1)), "migrations are numbered without gaps"
    return [script for _, script in scripts]


# The rules of methods as rows, for `enqueue` (003.sql): core's table in the database, so that no second one is kept
# by hand.


_OUTBOX_SQL = load("outbox.sql")


async def keep_rules(session: PostgresSession) -> None:
    """Write this Peik's rules if others stand there; in the usual case one look at each table.

    Where two versions share a schema for a while, the one that was opened last has its way: both send what either lets in.
    """
    if await _has_rules(session):
        return
    async with session.connection.transaction():
        await session.rows(_OUTBOX_SQL["lock_rules"])
        await session.run(_OUTBOX_SQL["clear_methods"])
        await session.run(_OUTBOX_SQL["keep_methods"], *zip(*_methods(), strict=True))
        await session.run(_OUTBOX_SQL["clear_verbs"])
        await session.run(_OUTBOX_SQL["keep_verbs"], *zip(*_verbs(), strict=True))


async def _has_rules(session: PostgresSession) -> bool:
    methods = {
        (*row[:5], None if row[5] is None else ",".join(row[5]))
        for row in map(tuple, await session.rows(_OUTBOX_SQL["methods"]))
    }
    verbs = [tuple(row) for row in await session.rows(_OUTBOX_SQL["verbs"])]
    return methods == set(_methods()) and verbs == _verbs()


def _methods() -> list[tuple[object, ...]]:
    return [
        (name.lower(), name, *_class(kind), ",".join(TARGETS[name]) if name in TARGETS else None)
        for name, kind in known_methods().items()
    ]


def _verbs() -> list[tuple[object, ...]]:
    return [(place, verb, *_class(kind)) for place, (verb, kind) in enumerate(VERBS)]


def _class(kind: MethodClass) -> tuple[str, bool, bool]:
    return kind.value, kind.is_queued, kind.is_at_most_once
