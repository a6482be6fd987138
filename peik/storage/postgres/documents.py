"""Documents in the PostgreSQL store: what is asked goes into the commits of a writer of their own."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeVar

from peik.errors import Problem
from peik.storage.documents import SqlContacts, SqlDocuments
from peik.storage.executor import Finished
from peik.storage.news import answer, fail
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.errors import translate
from peik.storage.postgres.jobs import seek
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession
from peik.storage.postgres.writer import PostgresOperation, PostgresWays, PostgresWriter
from peik.storage.sql import SqlSession

# The writer of documents and known chats: in commits of its own, so that no letter ever waits for the lock of a collection.


T = TypeVar("T")

DOCUMENTS = load("papers.sql")
CONTACTS = load("contacts.sql")


class DocumentOperation(PostgresOperation[T]):
    """`shelves`: whose documents it writes; `bots`: whose chats. All of them are locked before."""

    __slots__ = ("bots", "collections")

    def __init__(
        self,
        prepare: Callable[[PostgresBatch], Awaitable[Callable[[], T]]],
        done: Callable[[Finished[T]], None],
        *,
        collections: Iterable[str],
        bots: Iterable[int],
        weight: int,
    ) -> None:
        super().__init__(prepare, done, weight=weight)
        self.collections = frozenset(collections)
        self.bots = frozenset(bots)


class DocumentWriter(PostgresWriter):
    """Takes `DocumentOperation` only. It has no connection before the first."""

    async def run(
        self,
        work: Callable[[PostgresSession], Awaitable[T]],
        *,
        collections: Iterable[str] = (),
        bots: Iterable[int] = (),
        weight: int = 1,
    ) -> T:
        """Run something in the next commit, with these collections and the chats of these bots locked; its answer, once that is
        durable. What it refuses it refuses before it writes, so that the others of its commit need not be done again."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def prepare(batch: PostgresBatch) -> Callable[[], Finished[T]]:
            try:
                ended: Finished[T] = Finished(await work(batch.session), None)
            except Problem as problem:
                ended = Finished(None, problem)
            return lambda: ended

        def done(committed: Finished[Finished[T]]) -> None:
            error = committed.error if committed.error is not None else committed.value().error
            if error is not None:
                fail(future, translate(error))
            else:
                answer(future, committed.value().value())

        self.submit(DocumentOperation(prepare, done, collections=collections, bots=bots, weight=weight))
        return await future

    async def _transaction(self, operations: list[PostgresOperation[object]]) -> list[object]:
        """All are locked together, in one order: two nodes with the same collections never wait in a circle."""
        asked = [one for one in operations if isinstance(one, DocumentOperation)]
        collections = frozenset[str]().union(*(one.collections for one in asked))
        bots = frozenset[int]().union(*(one.bots for one in asked))

        async def lock(batch: PostgresBatch) -> Callable[[], object]:
            await _lock(batch.session, collections=sorted(collections), bots=sorted(bots))
            return lambda: None

        first: PostgresOperation[object] = PostgresOperation(lock, lambda ended: None)
        return (await super()._transaction([first, *operations]))[1:]


async def _lock(session: PostgresSession, *, collections: list[str], bots: list[int]) -> None:
    if collections:
        await session.run(DOCUMENTS["keep_shelves"], collections=collections)
        await session.rows(DOCUMENTS["lock_shelves"], collections=collections)
    known = [row[0] for row in await session.rows(CONTACTS["known_bots"], bots=bots)] if bots else []
    if known:
        await session.run(CONTACTS["keep_places"], bots=known)
        await session.rows(CONTACTS["lock_places"], bots=known)


class _Ways:
    def __init__(self, ways: PostgresWays, writer: DocumentWriter) -> None:
        self._ways = ways
        self._writer = writer

    async def _read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_walk: bool = False) -> T:
        return await self._ways.read(lambda one: seek(one, work) if is_walk else work(one))

    async def _change(
        self,
        work: Callable[[SqlSession], Awaitable[T]],
        *,
        collections: Collection[str] = (),
        bots: Collection[int] = (),
        weight: int,
    ) -> T:
        return await self._writer.run(work, collections=collections, bots=bots, weight=weight)


class PostgresDocuments(_Ways, SqlDocuments):
    sql = DOCUMENTS


class PostgresContacts(_Ways, SqlContacts):
    sql = CONTACTS
    known_bot = load("inbox.sql")["known_bot"]
