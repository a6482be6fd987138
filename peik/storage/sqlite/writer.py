"""The one writer: everything that waits at a moment goes into one transaction and one fsync.

An operation is a function on a connection that can be run again. If a batch fails, each half of it is tried again, so that
one bad row never fails its neighbours. If the store itself has failed, all of them hear it at once.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import apsw

from peik.storage.executor import Executor, Finished, run_in
from peik.storage.news import Listened, answer, fail
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.database import WalGuard, is_unavailable, translate

T = TypeVar("T")

_LETTERS_PER_COMMIT_MAX = 10_000  # a bound on how long one commit keeps the others waiting
_BATCHES_AHEAD = 2  # one runs, one is ready: the writer never idles while there is work
_TROUBLE_S = 10.0  # longer than any engine waits before it tries again


class SqliteWork(Protocol):
    """Something to write. `prepare` adds it to a batch and returns how to read its answer after the commit. What that is
    only the operation itself knows: many kinds wait in one list."""

    @property
    def weight(self) -> int: ...

    @property
    def prepare(self) -> Callable[[SqliteBatch], Callable[[], Any]]: ...

    @property
    def done(self) -> Callable[[Finished[Any]], None]: ...


class SqliteOperation(Generic[T]):
    """The same, made of functions."""

    __slots__ = ("done", "prepare", "weight")

    def __init__(
        self, prepare: Callable[[SqliteBatch], Callable[[], T]], done: Callable[[Finished[T]], None], *, weight: int = 1
    ) -> None:
        self.prepare = prepare
        self.done = done
        self.weight = weight


class SqliteWriter:
    """Collects operations and commits them in groups, up to `ahead` of them under way at a time."""

    def __init__(
        self,
        connection: apsw.Connection,
        executor: Executor,
        *,
        make_batch: Callable[[apsw.Connection], SqliteBatch] = SqliteBatch,
        ahead: int = _BATCHES_AHEAD,
    ) -> None:
        self._executor = executor
        self._make_batch = make_batch
        self._ahead = ahead
        self.use(connection)
        # Both are touched by the writer's thread as well: it takes from the left what the loop puts on the right.
        self._waiting: deque[SqliteWork] = deque()
        self._is_called = False  # a piece of work is asked for that will take all that waits when it begins
        self._running = 0
        self._trouble: tuple[BaseException, float] | None = None  # the store's own last refusal, and when
        self._loop = asyncio.get_running_loop()

    def use(self, connection: apsw.Connection) -> None:
        """From the next commit on."""
        self._connection = connection
        self._footing = WalGuard(connection)

    @property
    def trouble(self) -> BaseException | None:
        """Why nothing can be stored, if the last commit was not made; but one who stays away because of it would never
        learn that it is over, so that it is forgotten after a while."""
        if self._trouble is None or self._loop.time() - self._trouble[1] > _TROUBLE_S:
            return None
        return self._trouble[0]

    def submit(self, operation: SqliteWork) -> None:
        self._waiting.append(operation)  # and only then looks whether it will be fetched: see `_take`
        if not self._is_called and self._running < self._ahead:
            self._is_called = True
            # Not at once: what else is written in this turn of the event loop shall come along.
            self._loop.call_soon(self._start)

    async def drained(self) -> None:
        """Returns when everything that was submitted has been answered, well or not."""
        answered: asyncio.Future[None] = self._loop.create_future()
        self.submit(SqliteOperation(lambda batch: lambda: None, lambda ended: answered.set_result(None)))
        await answered

    def _start(self) -> None:
        taken: list[SqliteWork] = []
        self._running += 1
        if self._ahead == 1:
            self._take(taken)  # the thread is another machine: what comes later cannot come along
        self._executor.run(lambda: self._commit(self._take(taken)), lambda ended: self._finish(taken, ended))

    def _take(self, taken: list[SqliteWork]) -> list[SqliteWork]:
        """All that waits by now, if nothing is taken yet. As late as this, because whatever comes while the commit before is
        under way costs no commit of its own then."""
        if not taken:
            self._is_called = False  # first: what comes from here on may be too late, and calls again
            weight = 0
            with contextlib.suppress(IndexError):  # it is empty
                while weight < _LETTERS_PER_COMMIT_MAX:
                    taken.append(self._waiting.popleft())
                    weight += taken[-1].weight
        return taken

    def _finish(self, operations: list[SqliteWork], ended: Finished[list[Finished[object]]]) -> None:
        self._running -= 1
        if self._waiting and not self._is_called:
            # The next batch first: the disk works while the answers are given out.
            self._is_called = True
            self._start()
        if ended.error is not None:  # where the work is done cannot be reached: see the seeded world's server
            self._trouble = (ended.error, self._loop.time())
            answers: list[Finished[object]] = [Finished(None, ended.error) for _ in operations]
        else:
            answers = ended.value()
        for operation, one in zip(operations, answers, strict=True):
            try:
                operation.done(one)
            except Exception as error:  # noqa: BLE001  one listener's surprise must not keep the others waiting
                self._loop.call_exception_handler({"message": "a listener of the store failed", "exception": error})

    # ---- on the writer's thread ----

    def _commit(self, operations: list[SqliteWork]) -> list[Finished[object]]:
        if not operations:
            return []  # somebody before has taken all of it along
        try:
            answers = self._transaction(operations)
        except Exception as error:  # noqa: BLE001  every kind of failure is reported to the caller
            if is_unavailable(error):
                self._trouble = (translate(error), self._loop.time())  # its words alone: it holds the whole batch
            # Locked, full, read-only: trying the halves would only wait again, once for each.
            if len(operations) == 1 or is_unavailable(error):
                return [Finished(None, error) for _ in operations]
            middle = len(operations) // 2
            return self._commit(operations[:middle]) + self._commit(operations[middle:])
        return [Finished(answer, None) for answer in answers]

    def _transaction(self, operations: list[SqliteWork]) -> list[object]:
        connection = self._connection
        batch = self._make_batch(connection)
        changes = connection.total_changes()
        connection.execute("BEGIN IMMEDIATE")
        try:
            readers = [operation.prepare(batch) for operation in operations]
            batch.flush()
            self._footing.check()
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, apsw.IOError):
                _write_over(connection)
            raise
        if connection.total_changes() != changes:  # a commit of nothing touches no disk
            self._trouble = None
        return [read() for read in readers]


def _write_over(connection: apsw.Connection) -> None:
    """Make sure that a commit whose sync failed stays undone: all of it stands in the log, and anyone who opens the file after
    a crash would take it for made. A commit without meaning takes its place, synced or not. (A power cut may still bring
    back either: nobody knows what such a disk has kept.)"""
    with contextlib.suppress(apsw.Error):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"PRAGMA user_version = {connection.pragma('user_version')}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


class SqliteWays(Listened):
    """The ways in to a store that is open: its commits, and what it reads beside them. Its parts go by these too."""

    _writer: SqliteWriter
    _writing: Executor
    _reading: Executor
    _connection: apsw.Connection  # the writer's
    _reader: apsw.Connection

    async def write(self, work: Callable[[SqliteBatch], T], tell: Callable[[T], None] = lambda value: None) -> T:
        """Run something in the next commit; its answer, once that is durable. `tell` hears it before the caller does."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def prepare(batch: SqliteBatch) -> Callable[[], tuple[T, SqliteBatch]]:
            batch.flush()  # what was asked for before comes before, within one commit too
            value = work(batch)
            return lambda: (value, batch)

        def done(ended: Finished[tuple[T, SqliteBatch]]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
                return
            value, batch = ended.value()
            answer(future, value)
            tell(value)
            self._tell(batch)

        self._writer.submit(SqliteOperation(prepare, done))
        return await future

    async def collect(self, add: Callable[[SqliteBatch], Callable[[], T]], *, weight: int) -> T:
        """Add something that is written together with all of its kind in the next commit; its answer after that."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(ended: Finished[T]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
            else:
                answer(future, ended.value())

        self._writer.submit(SqliteOperation(add, done, weight=weight))
        return await future

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            return await run_in(self._reading, lambda: work(self._reader))
        except apsw.Error as error:
            raise translate(error) from error

    async def read_alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """On the writer's connection, between two commits."""
        try:
            return await run_in(self._writing, lambda: work(self._connection))
        except apsw.Error as error:
            raise translate(error) from error

    async def look(self, work: Callable[[apsw.Connection], T]) -> T:
        """Read something that takes several queries, all of one snapshot."""

        def whole(connection: apsw.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")

        return await self.read(whole)
