"""The two threads that a SQLite archive works on: one reads, one writes, and everything that waits to be written at a moment
goes into one transaction and one fsync."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from peik.archive.sqlite.database import place, translate
from peik.errors import StoreUnavailable

T = TypeVar("T")

_PER_COMMIT_MAX = 200  # pieces of work; a bound on how long one commit keeps the others waiting

Piece = tuple[Callable[[apsw.Connection], Any], "asyncio.Future[Any]"]


class Reader:
    """One thread, one connection; what it is asked comes one after the other."""

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def ask(self, work: Callable[[apsw.Connection], T]) -> T:
        """Raises what it raises, in our words."""
        if self._is_closed:
            raise StoreUnavailable(code="archive_closed", detail="The archive is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((work, future))
        return await future

    def close(self) -> None:
        """After what was asked before."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (piece := self._queue.get()) is not None:
            self._do([piece])
        self._connection.close()

    def _do(self, pieces: list[Piece]) -> None:
        for work, future in pieces:
            try:
                self._tell([(future, work(self._connection), None)])
            except Exception as error:  # noqa: BLE001  it is raised again where the work was asked for
                self._tell([(future, None, error)])

    def _tell(self, ended: "list[tuple[asyncio.Future[Any], Any, BaseException | None]]") -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, ended)


class Writer(Reader):
    """The same in transactions. A piece of work that fails is undone by itself; its neighbours are committed."""

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._place = place(connection)
        self.trouble: BaseException | None = None  # why the last commit was not made
        super().__init__(connection, name)

    def _serve(self) -> None:
        is_open = True
        while is_open:
            pieces: list[Piece] = []
            following = self._queue.get()
            while following is not None:
                pieces.append(following)
                if len(pieces) >= _PER_COMMIT_MAX or self._queue.empty():
                    break
                following = self._queue.get()
            is_open = following is not None
            self._do(pieces)
        self._connection.close()

    def _do(self, pieces: list[Piece]) -> None:
        try:
            ended = self._transaction(pieces)
            self.trouble = None
        except Exception as error:  # noqa: BLE001  every kind of failure is told to whoever asked
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self.trouble = translate(error)
            ended = [(future, None, error) for _, future in pieces]
        self._tell(ended)

    def _transaction(self, pieces: list[Piece]) -> "list[tuple[asyncio.Future[Any], Any, BaseException | None]]":
        ended: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        for work, future in pieces:
            connection.execute("SAVEPOINT piece")
            try:
                ended.append((future, work(connection), None))
            except Exception as error:
                if not connection.in_transaction:  # SQLite has undone everything: the disk failed
                    raise
                connection.execute("ROLLBACK TO piece")
                ended.append((future, None, error))
            connection.execute("RELEASE piece")
        if place(connection) != self._place:
            raise apsw.CantOpenError("the file was replaced while it was open: put it back, or start Peik anew")
        connection.execute("COMMIT")
        return ended


def _settle(ended: "list[tuple[asyncio.Future[Any], Any, BaseException | None]]") -> None:
    for future, value, error in ended:
        if future.done():  # whoever asked has gone
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(translate(error))
