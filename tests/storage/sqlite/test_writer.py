"""What goes into one commit: all that waits when the writer begins, and no more than that."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from peik.clock import SystemClock
from peik.core.token import Token
from peik.outbox.store import BotRecord
from peik.storage.executor import Finished, InlineExecutor
from peik.storage.sqlite.commit import SqliteBatch
from peik.storage.sqlite.store import SqliteStore
from peik.storage.sqlite.writer import SqliteOperation, SqliteWriter
from tests.storage.acts import NOW, draft
from tests.storage.places import BOT

T = TypeVar("T")


class BusyExecutor(InlineExecutor):
    """A thread that is still at something else while it is busy, and then does all that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy = False
        self._given: list[Callable[[], None]] = []

    def run(self, work: Callable[[], T], done: Callable[[Finished[T]], None]) -> None:
        if self.is_busy:
            self._given.append(lambda: InlineExecutor.run(self, work, done))
        else:
            super().run(work, done)

    def free(self) -> None:
        self.is_busy = False
        given, self._given = self._given, []
        for begin in given:
            begin()


class Commits:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, connection: apsw.Connection) -> SqliteBatch:
        self.count += 1
        return SqliteBatch(connection)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_comes_while_the_writer_is_busy_goes_into_one_commit(tmp_path: Path) -> None:
    busy = BusyExecutor()
    store = SqliteStore(
        tmp_path / "peik.db", clock=SystemClock(), executor=lambda name: busy if "writer" in name else InlineExecutor()
    )
    await store.open()
    await store.save_bot(BotRecord(bot_id=BOT, token=Token(f"{BOT}:{'A' * 35}"), created_at_ms=NOW))
    commits = Commits()
    store._writer._make_batch = commits
    busy.is_busy = True
    accepting = []
    for chat in range(3):
        accepting.append(asyncio.create_task(store.accept([draft(chat + 1)], at_ms=NOW)))
        await turns()  # each was submitted in a turn of the loop of its own
    busy.free()
    answers = [await one for one in accepting]
    assert [one.letter_id for (one,) in answers] == [1, 2, 3]
    assert commits.count == 1
    await store.close()


@pytest.mark.parametrize(("ahead", "expected"), [(2, ["first", "second"]), (1, ["first"])])
async def test_what_was_sent_to_another_machine_takes_nothing_along(
    tmp_path: Path, ahead: int, expected: list[str]
) -> None:
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("CREATE TABLE one (one)")
    busy = BusyExecutor()
    busy.is_busy = True
    writer = SqliteWriter(connection, busy, ahead=ahead)
    over: list[str] = []
    prepared: list[str] = []
    prepared_for_first: list[str] = []
    is_over = asyncio.Event()

    def operation(name: str) -> SqliteOperation[None]:
        def prepare(batch: SqliteBatch) -> Callable[[], None]:
            prepared.append(name)
            return lambda: None

        def done(ended: Finished[None]) -> None:
            over.append(name)
            if name == "first":
                prepared_for_first.extend(prepared)
            else:
                is_over.set()

        return SqliteOperation(prepare, done)

    writer.submit(operation("first"))
    await turns()
    writer.submit(operation("second"))
    await turns()
    busy.free()
    await is_over.wait()
    assert (over, prepared_for_first) == (["first", "second"], expected)
    connection.close()
