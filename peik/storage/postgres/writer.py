"""The one writer of a node: everything that waits at a moment goes into one transaction.

An operation can be run again. If a batch fails, each half of it is tried again, so that one bad row never fails its
neighbours. If the store itself has failed, all of them hear it at once. What the server has undone because another node
stood in the way is done again.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.errors import InDoubt, Problem
from peik.storage.executor import Finished
from peik.storage.news import Listened, NodeNews, answer, fail
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.errors import CommitFailed, is_gone, is_unavailable, may_be_late, may_repeat, translate
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresPool, PostgresSession, end

T = TypeVar("T")

_SQL = load("letters.sql")
_LETTERS_PER_COMMIT_MAX = 10_000  # a bound on how long one commit keeps the others waiting
_TRIES = 5  # of a batch that other nodes stand in the way of
_TROUBLE_S = 10.0  # longer than any engine waits before it tries again
SURELY_THERE_S = 0.25  # since its last answer: so long is a connection taken for alive without being asked

UNKNOWN = "Whether it was stored is not known: the connection was lost at the commit."


class PostgresOperation(Generic[T]):
    """Something to write. `prepare` adds it to a batch and returns how to read its answer after the commit.

    `tallies` and `inboxes` are the bots whose letters and whose updates it writes, as far as that is known before: they are
    locked together, in order. `keys` are the idempotency keys (bot, key) that it will ask for. `only_adds`: its `prepare` asks
    the server nothing, and cannot fail.
    """

    __slots__ = ("done", "inboxes", "keys", "only_adds", "prepare", "tallies", "weight")

    def __init__(
        self,
        prepare: Callable[[PostgresBatch], Awaitable[Callable[[], T]]],
        done: Callable[[Finished[T]], None],
        *,
        weight: int = 1,
        tallies: Iterable[int] = (),
        inboxes: Iterable[int] = (),
        keys: Sequence[tuple[int, str]] = (),
        only_adds: bool = False,
    ) -> None:
        self.prepare = prepare
        self.done = done
        self.only_adds = only_adds
        self.weight = weight
        self.tallies = frozenset(tallies)
        self.inboxes = frozenset(inboxes)
        self.keys = keys


class _Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of a commit whose answer was lost. Nobody believes them; if they are there, they must go."""

    step: int
    letters: list[int]
    epochs: list[int]  # of each
    bots: frozenset[int]


class PostgresWriter:
    """Collects operations and commits them in groups, one after the other, on a connection of its own.

    `tell`: what a commit has to say to other nodes, after it. `on_doubt`: it may be there, and this node does not know.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[PostgresSession]],
        *,
        tell: Callable[[NodeNews], None],
        on_doubt: Callable[[], None],
        surely_there_s: float = SURELY_THERE_S,
    ) -> None:
        self._connect = connect
        self._surely_there_s = surely_there_s
        self._session: PostgresSession | None = None
        self._tell = tell
        self._on_doubt = on_doubt
        self.commits = 0
        self._step = 0
        self._doubts: list[_Doubt] = []
        self._answered_at = float("-inf")
        self._waiting: list[PostgresOperation[object]] = []
        self._serving: asyncio.Task[None] | None = None
        self._trouble: tuple[BaseException, float] | None = None  # the store's own last refusal, and when
        self._loop = asyncio.get_running_loop()

    @property
    def trouble(self) -> BaseException | None:
        """Why nothing can be stored, if the last commit was not made; but one who stays away because of it would never
        learn that it is over, so that it is forgotten after a while."""
        if self._trouble is None or self._loop.time() - self._trouble[1] > _TROUBLE_S:
            return None
        return self._trouble[0]

    def submit(self, operation: PostgresOperation[T]) -> None:
        self._waiting.append(operation)  # type: ignore[arg-type]
        if self._serving is None:
            self._serving = self._loop.create_task(self._serve())

    async def drained(self) -> None:
        """Returns when everything that was submitted has been answered, well or not."""
        while self._serving is not None:
            await asyncio.wait([self._serving])

    async def close(self) -> None:
        await self.drained()
        if self._session is not None:
            session, self._session = self._session, None
            await end(session)

    def abandon(self) -> None:
        """End at once, as a process does that is killed."""
        if self._serving is not None:
            self._serving.cancel()
        self._drop()

    async def _serve(self) -> None:
        try:
            while self._waiting:
                # What else is written in this turn of the event loop shall come along.
                await asyncio.sleep(0)
                operations = self._cut()
                self._answer(operations, await self._commit(operations))
        finally:
            self._serving = None

    def _cut(self) -> list[PostgresOperation[object]]:
        weight = 0
        for index, operation in enumerate(self._waiting):
            weight += operation.weight
            if weight >= _LETTERS_PER_COMMIT_MAX:
                operations, self._waiting = self._waiting[: index + 1], self._waiting[index + 1 :]
                return operations
        operations, self._waiting = self._waiting, []
        return operations

    def _answer(self, operations: list[PostgresOperation[object]], answers: list[Finished[object]]) -> None:
        for operation, one in zip(operations, answers, strict=True):
            try:
                operation.done(one)
            except Exception as error:  # noqa: BLE001  one listener's surprise must not keep the others waiting
                self._loop.call_exception_handler({"message": "a listener of the store failed", "exception": error})

    # ---- one batch ----

    async def _commit(self, operations: list[PostgresOperation[object]]) -> list[Finished[object]]:
        try:
            answers = await self._insist(operations)
        except Exception as error:  # noqa: BLE001  every kind of failure is reported to the caller
            if is_unavailable(error) or isinstance(error, _LostAtCommit):
                self._trouble = (_told(error), self._loop.time())
                return [Finished(None, _told(error)) for _ in operations]
            if len(operations) == 1:
                return [Finished(None, error)]
            middle = len(operations) // 2
            return [*await self._commit(operations[:middle]), *await self._commit(operations[middle:])]
        return [Finished(answer, None) for answer in answers]

    async def _insist(self, operations: list[PostgresOperation[object]]) -> list[object]:
        """Again if another node stood in the way, and once on a new connection: before its commit nothing is stored."""
        had_connection = self._session is not None
        for turn in range(1, _TRIES + 1):
            try:
                return await self._transaction(operations)
            except Exception as error:
                if is_gone(error) and had_connection:
                    had_connection = False
                elif not may_repeat(error) or turn == _TRIES:
                    raise
                else:
                    await asyncio.sleep(random.uniform(0, 0.01 * turn))
        raise AssertionError("unreachable")

    async def _transaction(self, operations: list[PostgresOperation[object]]) -> list[object]:
        session = await self._connected()
        self._step += 1
        tallies = frozenset[int]().union(*(one.tallies for one in operations), *(one.bots for one in self._doubts))
        inboxes = frozenset[int]().union(*(one.inboxes for one in operations))
        batch = PostgresBatch(session, step=self._step, locked=tallies)
        session.changes = 0
        # A connection that was quiet for long may be gone without a sign: asked in one call, nobody knew whether it was stored.
        is_fresh = self._loop.time() - self._answered_at < self._surely_there_s
        readers: list[Callable[[], object]] | None = None
        if is_fresh and not self._doubts and all(one.only_adds for one in operations):
            readers = [await operation.prepare(batch) for operation in operations]
        is_one_call = is_ending = readers is not None and batch.is_one_call
        try:
            if is_one_call:
                await batch.accept_at_once()
            else:
                await session.connection.execute(_begin(tallies, inboxes))
                readers = readers or await self._prepared(batch, operations)
                await batch.flush()
                is_ending = True
                tag = await session.connection.execute("COMMIT")
                if tag != "COMMIT":
                    raise CommitFailed(f"the commit ended as {tag}")
        except BaseException as error:
            await self._undo(session, error)
            is_refused = isinstance(error, asyncpg.ReadOnlySQLTransactionError)
            if is_ending and not is_refused and (is_gone(error) or (is_one_call and may_be_late(error))):
                self._remember_doubt(batch)
                raise _LostAtCommit(error) from error
            raise
        assert readers is not None
        self._answered_at = self._loop.time()
        self._doubts.clear()
        if session.changes:  # a commit of nothing proves nothing
            self.commits += 1
            self._trouble = None
            self._tell(batch.telling)
        return [read() for read in readers]

    async def _prepared(
        self, batch: PostgresBatch, operations: list[PostgresOperation[object]]
    ) -> list[Callable[[], object]]:
        for doubt in self._doubts:
            await batch.session.run(_SQL["forget_marks"], letters=doubt.letters, epochs=doubt.epochs, step=doubt.step)
        keys = [key for operation in operations for key in operation.keys]
        if keys:
            await batch.look_up(keys)
        return [await operation.prepare(batch) for operation in operations]

    async def _connected(self) -> PostgresSession:
        if self._session is None or self._session.connection.is_closed():
            self._session = await self._connect()
        return self._session

    async def _undo(self, session: PostgresSession, error: BaseException) -> None:
        if is_gone(error) or session.connection.is_closed() or not isinstance(error, Exception):
            self._drop()
            return
        try:
            await session.connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001  the first error is the one that tells
            self._drop()

    def _drop(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.connection.terminate()
            self._session = None

    def _remember_doubt(self, batch: PostgresBatch) -> None:
        """The commit may be there. Its marks are not believed and go before the next one; what else it holds is the truth, and
        anyone who keeps a part of it in memory must read it again."""
        if batch.marked:
            bots = frozenset(one.bot_id for one, _ in batch.marked)
            letters = [one.id for one, _ in batch.marked]
            epochs = [epoch for _, epoch in batch.marked]
            self._doubts.append(_Doubt(step=self._step, letters=letters, epochs=epochs, bots=bots))
        self._tell(batch.telling)
        self._on_doubt()


class _LostAtCommit(Exception):
    """The connection was lost after the commit had been sent."""


def _told(error: BaseException) -> BaseException:
    """In our words, without the batch that an error may hold on to."""
    if isinstance(error, _LostAtCommit):
        assert error.__cause__ is not None
        return InDoubt(code="store_in_doubt", detail=f"PostgreSQL went away in the middle of a commit. {UNKNOWN}")
    return translate(error)


def _begin(tallies: Iterable[int], inboxes: Iterable[int]) -> str:
    if not tallies and not inboxes:
        return "BEGIN"
    return (
        _SQL["begin"]
        .text.replace("{tallies}", ",".join(map(str, sorted(tallies))))
        .replace("{inboxes}", ",".join(map(str, sorted(inboxes))))
    )


class PostgresWays(Listened):
    """The ways in to a store that is open: its commits, and what it reads beside them. Its parts go by these too."""

    _writer: PostgresWriter
    _pools: list[PostgresPool]  # of readers, and of those who read and write files

    async def write(
        self,
        work: Callable[[PostgresBatch], Awaitable[T]],
        tell: Callable[[T], None] = lambda value: None,
        *,
        tallies: Iterable[int] = (),
        inboxes: Iterable[int] = (),
    ) -> T:
        """Run something in the next commit; its answer, once that is durable. `tell` hears it before the caller does."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def prepare(batch: PostgresBatch) -> Callable[[], tuple[T, PostgresBatch]]:
            await batch.flush()  # what was asked for before comes before, within one commit too
            value = await work(batch)
            return lambda: (value, batch)

        def done(ended: Finished[tuple[T, PostgresBatch]]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
                return
            value, batch = ended.value()
            answer(future, value)
            tell(value)
            self._tell(batch)

        self._writer.submit(PostgresOperation(prepare, done, tallies=tallies, inboxes=inboxes))
        return await future

    async def collect(
        self, add: Callable[[PostgresBatch], Awaitable[Callable[[], T]]], *, weight: int, inboxes: Iterable[int]
    ) -> T:
        """Add something that is written together with all of its kind in the next commit; its answer after that."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(ended: Finished[T]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
            else:
                answer(future, ended.value())

        self._writer.submit(PostgresOperation(add, done, weight=weight, inboxes=inboxes))
        return await future

    async def read(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        return await self._ask(self._pools[0], work, outcome="Nothing was read.")

    async def file(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        return await self._ask(self._pools[1], work, outcome="The file was not kept.")

    async def _ask(self, pool: PostgresPool, work: Callable[[PostgresSession], Awaitable[T]], *, outcome: str) -> T:
        """Asked once more if the connection turns out to be gone, or out of date: all of this may be done twice."""
        for is_last in (False, True):
            try:
                async with pool.one() as one:
                    return await work(one)
            except Problem:
                raise
            except Exception as error:
                is_worth_it = (is_gone(error) or may_repeat(error)) and not isinstance(error, TimeoutError)
                if is_last or not is_worth_it:
                    raise translate(error, outcome=outcome) from error
        raise AssertionError("unreachable")

    async def look(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        """Read something that takes several queries, all of one snapshot."""

        async def whole(reader: PostgresSession) -> T:
            async with reader.connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(reader)

        return await self.read(whole)
