"""The writer of jobs: in commits of its own, so that no letter ever waits for the lock of a kind."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from peik.store.executor import Ended
from peik.store.postgres.commit import Batch
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session
from peik.store.postgres.writer import Operation, Writer
from peik.store.telling import Telling

T = TypeVar("T")

_SQL = load("jobs.sql")


class JobOperation(Operation[T]):
    """`kinds`: whose jobs it writes; `jobs`: which ones, if their kinds are not known. All of these kinds are locked before."""

    __slots__ = ("jobs", "kinds")

    def __init__(
        self,
        prepare: Callable[[Batch], Awaitable[Callable[[], T]]],
        done: Callable[[Ended[T]], None],
        *,
        kinds: Iterable[str] = (),
        jobs: Iterable[int] = (),
        weight: int = 1,
    ) -> None:
        super().__init__(prepare, done, weight=weight)
        self.kinds = frozenset(kinds)
        self.jobs = frozenset(jobs)


class JobWriter(Writer):
    """Takes `JobOperation` only. It has no connection before the first."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Session]],
        *,
        tell: Callable[[Telling], None],
        on_doubt: Callable[[], None],
    ) -> None:
        super().__init__(lambda: _seeking(connect), tell=tell, on_doubt=on_doubt)

    async def _transaction(self, operations: list[Operation[object]]) -> list[object]:
        """The kinds of all operations are locked together: two nodes with the same kinds never wait in a circle."""
        asked = [one for one in operations if isinstance(one, JobOperation)]
        kinds = frozenset[str]().union(*(one.kinds for one in asked))
        jobs = frozenset[int]().union(*(one.jobs for one in asked))

        async def lock(batch: Batch) -> Callable[[], object]:
            await _lock(batch.session, kinds=kinds, jobs=jobs)
            return lambda: None

        first: Operation[object] = Operation(lock, lambda ended: None)
        return (await super()._transaction([first, *operations]))[1:]


async def _seeking(connect: Callable[[], Awaitable[Session]]) -> Session:
    session = await connect()
    try:
        await session.rows(_SQL["seek"], is_local=False)
    except BaseException:
        session.connection.terminate()
        raise
    return session


async def _lock(session: Session, *, kinds: frozenset[str], jobs: frozenset[int]) -> None:
    wanted = set(kinds)
    if jobs:
        wanted.update(row[0] for row in await session.rows(_SQL["kinds_of"], jobs=list(jobs)))
    if kinds:
        await session.run(_SQL["keep_kinds"], kinds=list(kinds))
    if wanted:
        await session.rows(_SQL["lock_kinds"], kinds=list(wanted))
