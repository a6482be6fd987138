"""Documents and known chats in the SQLite store: see `peik.storage.documents`."""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from peik.errors import Problem
from peik.storage.documents import SqlContacts, SqlDocuments
from peik.storage.executor import Finished, at_once
from peik.storage.sql import SqlSession, load
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.statements import SqliteSession
from peik.storage.sqlite.writer import SqliteWays

T = TypeVar("T")

CONTACTS = load("peik.storage.sqlite", "sqlite_contacts.sql")


class _Ways:
    def __init__(self, ways: SqliteWays) -> None:
        self._ways = ways

    async def _read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_walk: bool = False) -> T:
        return await self._ways.read(lambda connection: at_once(work(SqliteSession(connection))))

    async def _change(
        self,
        work: Callable[[SqlSession], Awaitable[T]],
        *,
        collections: Collection[str] = (),
        bots: Collection[int] = (),
        weight: int,
    ) -> T:
        def add(batch: SqliteBatch) -> Callable[[], Finished[T]]:
            try:
                ended = Finished(at_once(work(SqliteSession(batch.connection))), None)
            except Problem as problem:  # an answer like any other: anyone who shares the commit need not be done again
                ended = Finished(None, problem)
            return lambda: ended

        return (await self._ways.collect(add, weight=weight)).value()


class SqliteDocuments(_Ways, SqlDocuments):
    sql = load("peik.storage.sqlite", "sqlite_papers.sql")


class SqliteContacts(_Ways, SqlContacts):
    sql = CONTACTS
    known_bot = load("peik.storage.sqlite", "sqlite_inbox.sql")["known_bot"]
