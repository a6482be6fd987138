"""The writer of papers and known chats: in commits of its own, so that no letter ever waits for the lock of a shelf."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from peik.errors import Problem
from peik.postgres_failures import translate
from peik.store.executor import Ended
from peik.store.listened import answer, fail
from peik.store.postgres.commit import Batch
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session
from peik.store.postgres.writer import Operation, Writer

T = TypeVar("T")

_PAPERS = load("papers.sql")
_CONTACTS = load("contacts.sql")


class PaperOperation(Operation[T]):
    """`shelves`: whose papers it writes; `bots`: whose chats. All of them are locked before."""

    __slots__ = ("bots", "shelves")

    def __init__(
        self,
        prepare: Callable[[Batch], Awaitable[Callable[[], T]]],
        done: Callable[[Ended[T]], None],
        *,
        shelves: Iterable[str],
        bots: Iterable[int],
        weight: int,
    ) -> None:
        super().__init__(prepare, done, weight=weight)
        self.shelves = frozenset(shelves)
        self.bots = frozenset(bots)


class PaperWriter(Writer):
    """Takes `PaperOperation` only. It has no connection before the first."""

    async def run(
        self,
        work: Callable[[Session], Awaitable[T]],
        *,
        shelves: Iterable[str] = (),
        bots: Iterable[int] = (),
        weight: int = 1,
    ) -> T:
        """Run something in the next commit, with these shelves and the chats of these bots locked; its answer, once that is
        durable. What it refuses it refuses before it writes, so that the others of its commit need not be done again."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def prepare(batch: Batch) -> Callable[[], Ended[T]]:
            try:
                ended: Ended[T] = Ended(await work(batch.session), None)
            except Problem as problem:
                ended = Ended(None, problem)
            return lambda: ended

        def done(committed: Ended[Ended[T]]) -> None:
            error = committed.error if committed.error is not None else committed.value().error
            if error is not None:
                fail(future, translate(error))
            else:
                answer(future, committed.value().value())

        self.submit(PaperOperation(prepare, done, shelves=shelves, bots=bots, weight=weight))
        return await future

    async def _transaction(self, operations: list[Operation[object]]) -> list[object]:
        """All are locked together, in one order: two nodes with the same shelves never wait in a circle."""
        asked = [one for one in operations if isinstance(one, PaperOperation)]
        shelves = frozenset[str]().union(*(one.shelves for one in asked))
        bots = frozenset[int]().union(*(one.bots for one in asked))

        async def lock(batch: Batch) -> Callable[[], object]:
            await _lock(batch.session, shelves=sorted(shelves), bots=sorted(bots))
            return lambda: None

        first: Operation[object] = Operation(lock, lambda ended: None)
        return (await super()._transaction([first, *operations]))[1:]


async def _lock(session: Session, *, shelves: list[str], bots: list[int]) -> None:
    if shelves:
        await session.run(_PAPERS["keep_shelves"], shelves=shelves)
        await session.rows(_PAPERS["lock_shelves"], shelves=shelves)
    known = [row[0] for row in await session.rows(_CONTACTS["known_bots"], bots=bots)] if bots else []
    if known:
        await session.run(_CONTACTS["keep_places"], bots=known)
        await session.rows(_CONTACTS["lock_places"], bots=known)
