"""A few connections to the server with our settings, the one way in which queries are asked, and errors in our words."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped,unused-ignore]

from peik import postgres_failures
from peik.archive.postgres.address import Address
from peik.archive.queries import load
from peik.errors import StoreUnavailable
from peik.postgres_failures import is_gone

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
    told = postgres_failures.translate(error, outcome=_DOUBT, setting="PEIK_ARCHIVE")
    # Two who store the same at once: the caller looks what the other has stored.
    is_taken = isinstance(error, asyncpg.UniqueViolationError)
    return error if is_taken else told
