"""A few connections to the server with our settings, the one way in which queries are asked, and errors in our words."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped,unused-ignore]

from peik.archive.postgres.address import Address
from peik.archive.queries import load
from peik.errors import BadInput, Problem, StoreUnavailable

T = TypeVar("T")

PACKAGE = "peik.archive.postgres"
CONNECTIONS_MAX = 6
CONNECT_S = 5.0
ANSWER_S = 60.0  # a server that is silent for so long is gone
_TRIES = 3  # of what the server has undone by itself, as of two that waited for each other

_SQL = load(PACKAGE, "queries.sql")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")  # one colon: two are a cast


class Connection(asyncpg.Connection):  # type: ignore[misc,unused-ignore]
    """Nothing that we do has to be undone, so that giving it back to its pool asks the server nothing."""

    def get_reset_query(self) -> str:
        return ""


class Asking:
    """Asks queries on one connection, with values by name."""

    __slots__ = ("connection",)

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection

    async def rows(self, query: str, *placed: object, **named: object) -> list[Any]:
        text, values = (query, placed) if placed else bound(query, named)
        return await self.connection.fetch(text, *values)  # type: ignore[no-any-return,unused-ignore]

    async def value(self, query: str, **named: object) -> Any:
        text, values = bound(query, named)
        return await self.connection.fetchval(text, *values)

    async def run(self, query: str, **named: object) -> int:
        """How many rows it changed."""
        text, values = bound(query, named)
        count = (await self.connection.execute(text, *values)).rpartition(" ")[2]
        return int(count) if count.isdigit() else 0


class Server:
    """Runs pieces of work, each on a connection of its own."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.trouble: StoreUnavailable | None = None

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(
            self.address.url,
            min_size=0,
            max_size=CONNECTIONS_MAX,
            timeout=CONNECT_S,
            command_timeout=ANSWER_S,
            server_settings={
                "application_name": "peik archive",
                "search_path": self.address.schema,
                "lock_timeout": "5000",
                "idle_in_transaction_session_timeout": "10000",
                "jit": "off",  # our queries are short: compiling them takes longer than running them
            },
            connection_class=Connection,
            init=_settle_in,
        )

    def close(self) -> None:
        self._pool.terminate()  # nobody leaves anything behind

    async def read(self, work: Callable[[Asking], Awaitable[T]]) -> T:
        """A connection that was lost since it was used last is not the reader's concern: it is asked once more."""
        try:
            return await self._once(work)
        except StoreUnavailable as error:
            if error.code != "store_gone":
                raise
            return await self._once(work)

    async def write(self, work: Callable[[Asking], Awaitable[T]]) -> T:
        """In a transaction, which is on the disk when this returns."""

        async def committed(asking: Asking) -> T:
            async with asking.connection.transaction():
                return await work(asking)

        for _ in range(_TRIES - 1):
            try:
                return await self._once(committed)
            except StoreUnavailable as error:
                if error.code != "store_locked":
                    raise
        return await self._once(committed)

    async def _once(self, work: Callable[[Asking], Awaitable[T]]) -> T:
        try:
            async with self._pool.acquire(timeout=CONNECT_S) as connection:
                try:
                    answer = await work(Asking(connection))
                except Exception as error:
                    if _is_gone(error):
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


# The first that fits counts. 'store_gone' stands for everything that is over when the server is back.
_HINTS: tuple[tuple[type[BaseException], str, str], ...] = (
    (
        asyncpg.DiskFullError,
        "store_full",
        "The database server's disk is full. Free some room; Peik goes on by itself.",
    ),
    (
        asyncpg.TooManyConnectionsError,
        "store_busy",
        "The database server takes no more connections. Raise max_connections.",
    ),
    (
        asyncpg.ReadOnlySQLTransactionError,
        "store_read_only",
        "The database is read-only. Name the primary in PEIK_ARCHIVE.",
    ),
    (asyncpg.DeadlockDetectedError, "store_locked", "The rows are locked by somebody else."),
    (asyncpg.SerializationError, "store_locked", "The rows are locked by somebody else."),
    (asyncpg.LockNotAvailableError, "store_locked", "The rows are locked by another program. End it, or wait."),
    (asyncpg.QueryCanceledError, "store_slow", "The database took too long to answer, and the query was ended."),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "store_denied",
        "The user or password is wrong. Check PEIK_ARCHIVE.",
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        "store_denied",
        "The database user lacks a right: it needs a schema of its own.",
    ),
    (asyncpg.InvalidCatalogNameError, "store_gone", "There is no such database. Make it, or check PEIK_ARCHIVE."),
    (
        asyncpg.UndefinedTableError,
        "store_error",
        "A table of the archive is gone. Restore a backup, or start Peik anew.",
    ),
    (asyncpg.DataCorruptedError, "store_corrupt", "The database is damaged. Stop Peik and restore a backup."),
    (asyncpg.IndexCorruptedError, "store_corrupt", "The database is damaged. Stop Peik and restore a backup."),
    (asyncpg.PostgresConnectionError, "store_gone", "The database server cannot be reached."),
    (asyncpg.OperatorInterventionError, "store_gone", "The database server is stopping or starting."),
    (asyncpg.IdleInTransactionSessionTimeoutError, "store_gone", "The database server has given this process up."),
    (asyncpg.InterfaceError, "store_gone", "The connection to the database server is gone."),
    (asyncpg.InternalClientError, "store_gone", "The connection to the database server is gone."),
    (TimeoutError, "store_gone", "The database server does not answer."),
    (OSError, "store_gone", "The database server cannot be reached."),
)


def _is_gone(error: BaseException) -> bool:
    told = translate(error)
    return isinstance(told, StoreUnavailable) and told.code == "store_gone"


def translate(error: BaseException) -> BaseException:
    """The server's errors in our words; anything else as it is."""
    if isinstance(error, Problem):
        return error
    line = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    if isinstance(error, asyncpg.DataError) or "invalid input for query argument" in line:
        return BadInput(code="bad_value", detail=f"A value cannot be stored: {line}.")
    for kind, code, hint in _HINTS:
        if isinstance(error, kind):
            return StoreUnavailable(
                code=code, detail=f"{hint} What was being stored then may be there or not. ({line})"
            )
    if isinstance(error, asyncpg.PostgresError) and not isinstance(error, asyncpg.UniqueViolationError):
        return StoreUnavailable(code="store_error", detail=f"PostgreSQL refused: {line}. Nothing was stored.")
    return error
