"""A connection to the server with our settings, and the one way in which queries are asked on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import asyncpg  # type: ignore[import-untyped,unused-ignore]

from peik.postgres_failures import is_gone
from peik.store.postgres.address import Address
from peik.store.postgres.queries import Query, load

_SQL = load("session.sql")


class Row(Protocol):
    """What a query answers: values by place or by name. What they are, the query says; it is narrowed where it is read."""

    def __getitem__(self, place: int | str) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


READERS_MAX = 4
FILERS_MAX = 2  # parts are large, and reading letters does not wait for them
CONNECT_S = 5.0
ANSWER_S = 60.0  # a server that is silent for so long is gone
LOCK_MS = 5000
# A node that is frozen inside a transaction loses its locks before those who wait for them lose patience.
IDLE_IN_TRANSACTION_MS = 4000


class Connection(asyncpg.Connection):  # type: ignore[misc,unused-ignore]
    """Nothing that a reader does has to be undone, so that giving it back to its pool asks the server nothing."""

    def get_reset_query(self) -> str:
        return ""


class Session:
    """Asks queries on one connection, and counts what they changed."""

    __slots__ = ("changes", "connection")

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.changes = 0

    async def rows(self, query: Query, *placed: object, **named: object) -> list[Row]:
        return await self.connection.fetch(query.text, *(placed or query.bind(named)))  # type: ignore[no-any-return,unused-ignore]

    async def row(self, query: Query, *placed: object, **named: object) -> Row | None:
        return await self.connection.fetchrow(query.text, *(placed or query.bind(named)))  # type: ignore[no-any-return,unused-ignore]

    async def number(self, query: Query, **named: object) -> int:
        """One number, 0 if there is none."""
        return int(await self.connection.fetchval(query.text, *query.bind(named)) or 0)

    async def text(self, query: Query, **named: object) -> str | None:
        found = await self.connection.fetchval(query.text, *query.bind(named))
        return None if found is None else str(found)

    async def run(self, query: Query, *placed: object, **named: object) -> int:
        """How many rows it changed."""
        tag = await self.connection.execute(query.text, *(placed or query.bind(named)))
        count = tag.rpartition(" ")[2]
        changed = int(count) if count.isdigit() else 0
        self.changes += changed
        return changed

    async def returned(self, query: Query, *placed: object, **named: object) -> list[Row]:
        """What a query returns that writes."""
        found = await self.rows(query, *placed, **named)
        self.changes += len(found)
        return found


def settings_of(address: Address) -> dict[str, str]:
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
    await Session(connection).rows(_SQL["settle_in"])


async def connect(address: Address) -> Session:
    connection = await asyncpg.connect(
        address.url,
        timeout=CONNECT_S,
        command_timeout=ANSWER_S,
        server_settings=settings_of(address),
        connection_class=Connection,
        statement_cache_size=300,
        max_cached_statement_lifetime=0,
    )
    try:
        await settle_in(connection)
    except BaseException:
        connection.terminate()
        raise
    return Session(connection)


class Pool:
    """A few connections for whoever asks one thing at a time. One that is lost is replaced when it is needed."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Session]:
        async with self._pool.acquire(timeout=CONNECT_S) as connection:
            try:
                yield Session(connection)
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


async def connect_pool(address: Address, size: int) -> Pool:
    return Pool(
        await asyncpg.create_pool(
            address.url,
            min_size=0,  # made when needed: the pool's own care for a least number writes to the log
            max_size=size,
            timeout=CONNECT_S,
            command_timeout=ANSWER_S,
            server_settings=settings_of(address),
            connection_class=Connection,
            statement_cache_size=300,
            max_cached_statement_lifetime=0,
            init=settle_in,
        )
    )


async def end(session: Session) -> None:
    """Say goodbye if the server still listens."""
    try:
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            await session.connection.close(timeout=CONNECT_S)
    except asyncio.CancelledError:
        session.connection.terminate()
        raise


async def warnings(session: Session) -> list[str]:
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
