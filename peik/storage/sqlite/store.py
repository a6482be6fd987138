"""The store on one SQLite file: one writer with group commit, one reader beside it, one owner who may send."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from peik.clock import Clock
from peik.core.letter import Chat, Draft, LaneKey, Letter
from peik.core.lifecycle import Settlement
from peik.errors import Problem, StartError, StoreUnavailable
from peik.outbox.store import (
    AcceptedLetter,
    BotRecord,
    Cause,
    ChatRecord,
    Counted,
    Express,
    FoundInFlight,
    Hook,
    HooksDue,
    LaneView,
    LetterFilter,
    LetterPage,
    LetterView,
    LoggedMessage,
    Marked,
    Retention,
    SentMessage,
    Stub,
    Sweep,
    Tally,
)
from peik.secrets.seals import PLAIN, Seals
from peik.storage import rules, sql
from peik.storage.documents import SqlContacts, SqlDocuments, forget_bot
from peik.storage.executor import Executor, Finished, ThreadExecutor, at_once, run_in
from peik.storage.inbox import forget_inbox
from peik.storage.keys import SqlKeys
from peik.storage.moving import ends
from peik.storage.news import LANE_COUNTED_MAX, answer, fail
from peik.storage.spool import make_folder
from peik.storage.sql import SqlSession
from peik.storage.sql import load as load_named
from peik.storage.sqlite import actions, reads
from peik.storage.sqlite.commit import Slot, SqliteBatch
from peik.storage.sqlite.database import (
    BUSY_MS,
    OwnerLock,
    SchemaUpgrade,
    SqliteNodes,
    check,
    connect,
    data_version,
    migrate,
    translate,
)
from peik.storage.sqlite.erasure import SqliteForgetting, SqliteSealed
from peik.storage.sqlite.inbox import SqliteInbox
from peik.storage.sqlite.jobs import SqliteJobs
from peik.storage.sqlite.reads import RecentTries
from peik.storage.sqlite.rows import row_of_bot
from peik.storage.sqlite.statements import SqliteSession, load
from peik.storage.sqlite.writer import SqliteOperation, SqliteWays, SqliteWriter

# Letters on their way into a SQLite file: one caller's drafts in the next commit, and who hears of them after it.


Stored = tuple[list[Slot | AcceptedLetter], SqliteBatch]


class Accepting:
    """An operation of the writer. `answered` is given what became of the drafts, once they are durable."""

    __slots__ = ("_at_ms", "_drafts", "_express", "_stored", "_tell", "answered", "weight")

    def __init__(
        self,
        drafts: Sequence[Draft],
        at_ms: int,
        express: Express | None,
        tell: Callable[[SqliteBatch, Sequence[Slot]], None],
    ) -> None:
        """`tell` hears of each commit, and of the letters in it that go to their lanes."""
        self._drafts = drafts
        self._at_ms = at_ms
        self._express = express
        self._tell = tell
        self.weight = len(drafts)
        self.answered: asyncio.Future[list[AcceptedLetter]] = asyncio.get_running_loop().create_future()

    def prepare(self, batch: SqliteBatch) -> Callable[[], Stored]:
        epoch = 0 if self._express is None else self._express.epoch
        self._stored = (batch.add_drafts(self._drafts, self._at_ms, epoch=epoch), batch)
        return self._read

    def _read(self) -> Stored:
        return self._stored

    def done(self, ended: Finished[Stored]) -> None:
        if ended.error is not None:
            fail(self.answered, translate(ended.error))
            if self._express is not None:
                self._express.failed()
            return
        answers, batch = ended.value()
        answer(self.answered, [one.accepted if isinstance(one, Slot) else one for one in answers])
        told: Sequence[Slot] = ()
        if self._express is None:
            told = _untold(answers)
        else:
            (slot,) = [one for one in answers if isinstance(one, Slot)]
            self._express.stored(slot.letter, is_marked=batch.has_marked(slot))
        self._tell(batch, told)


def _untold(answers: list[Slot | AcceptedLetter]) -> Sequence[Slot]:
    """The letters of the commit that nobody was told of, up to the next express: these, and those of callers after this one."""
    for one in answers:
        if isinstance(one, Slot) and one.run:
            run = one.run[:]
            one.run.clear()
            return run
    return ()


T = TypeVar("T")
_SQL = load("sqlite.sql")
_FOLDER = "peik.storage.sqlite"


# Documents and known chats: see `peik.storage.documents`.


CONTACTS = load_named("peik.storage.sqlite", "sqlite_contacts.sql")


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
    sql = load_named("peik.storage.sqlite", "sqlite_papers.sql")


class SqliteContacts(_Ways, SqlContacts):
    sql = CONTACTS
    known_bot = load_named("peik.storage.sqlite", "sqlite_inbox.sql")["known_bot"]


class SqliteStore(SqliteWays, SqlKeys):
    """See `peik.outbox.store.Store`. Several processes may open one file; only one of them as owner."""

    inbox: SqliteInbox  # from `open` on
    nodes: SqliteNodes
    jobs: SqliteJobs
    documents: SqliteDocuments
    contacts: SqliteContacts
    forgetting: SqliteForgetting
    marks_at_once = True
    key_sql, hook_sql = sql.load(_FOLDER, "sqlite_keys.sql"), sql.load(_FOLDER, "sqlite_hooks.sql")
    files = None  # they lie beside the database, where all processes on it can read them

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        is_owner: bool = True,
        executor: Callable[[str], Executor] = ThreadExecutor,
        busy_ms: int = BUSY_MS,
        on_blobs_freed: Callable[[Sequence[str]], None] = lambda blobs: None,
        seals: Seals = PLAIN,
        upgrade: SchemaUpgrade | None = None,
    ) -> None:
        super().__init__(on_blobs_freed)
        self._upgrade = upgrade
        self.seals = seals  # what it seals with
        self._path = path
        self._clock = clock
        self._is_owner = is_owner
        self._make_executor = executor
        self._busy_ms = busy_ms
        self._lock = OwnerLock(path)
        self._opened: list[apsw.Connection] = []
        self._recent = RecentTries()

    # ---- opening and closing ----

    async def open(self) -> None:
        """Raises StartError with what to do if the file cannot be used."""
        self._writing = self._make_executor("peik-writer")
        self._reading = self._make_executor("peik-reader")
        try:
            connection, epoch = await run_in(self._writing, self._open_for_writing)
            self._data_version = await run_in(self._writing, lambda: data_version(connection))
            self._reader = await run_in(self._reading, self._open_for_reading)
            self._writer = self._make_writer(connection)
        except (apsw.Error, OSError) as error:
            await self._abandon()
            raise StartError(f"Cannot open {self._path}: {translate(error)}") from error
        except BaseException:  # cancelled, too: the file is for others then
            await self._abandon()
            raise
        self._connection = connection
        self.epoch = epoch
        self.inbox = SqliteInbox(self, clock=self._clock, seals=self.seals)
        self.nodes = SqliteNodes(self._path, clock=self._clock, claim=self.claim, has_news=self.has_foreign_writes)
        self.jobs = SqliteJobs(self, now_ms=self._clock.wall_ms, node=lambda: self.nodes.node)
        self.documents = SqliteDocuments(self)
        self.contacts = SqliteContacts(self)
        self.forgetting = SqliteForgetting(self, busy_ms=self._busy_ms)

    def _make_writer(self, connection: apsw.Connection) -> SqliteWriter:
        return SqliteWriter(connection, self._writing)

    def _open_for_writing(self) -> tuple[apsw.Connection, int]:
        make_folder(self._path.parent)
        if not self._path.exists():
            self._path.touch(mode=0o600)  # it will hold tokens; the files that SQLite puts beside it follow suit
        if self._is_owner:
            self._lock.acquire()
        check(self._path, busy_ms=self._busy_ms)
        connection = connect(self._path, busy_ms=self._busy_ms)
        self._opened.append(connection)
        migrate(connection, self._path, self._upgrade, is_beside=not self._is_owner and self._lock.is_taken())
        ends.check_sqlite(connection)
        return connection, self._new_epoch(connection) if self._is_owner else 0

    def _new_epoch(self, connection: apsw.Connection) -> int:
        (row,) = connection.execute(_SQL["new_epoch"], (self._clock.wall_ms(),))
        return int(row[0])

    def _open_for_reading(self) -> apsw.Connection:
        connection = connect(self._path, for_reading=True, busy_ms=self._busy_ms)
        self._opened.append(connection)
        return connection

    async def _abandon(self) -> None:
        self._writing.close()
        self._reading.close()
        while self._opened:  # whichever step it was that failed
            self._opened.pop().close()
        self._lock.release()  # last: the writer may just be taking it

    async def close(self) -> None:
        """Waits for what is being written. Safe to kill instead: nothing acknowledged is lost."""
        try:
            await self._writer.drained()
        finally:
            await run_in(self._reading, self._reader.close)
            await run_in(self._writing, self._connection.close)
            await self._abandon()

    # ---- several processes on one file ----

    @property
    def is_owner(self) -> bool:
        """Whether this process may send for the bots of the file."""
        return self.epoch > 0

    async def claim(self) -> int:
        """Become the owner unless another process is. The epoch of the right, which ends with the process; 0: not ours."""
        if self.is_owner:
            return self.epoch
        try:
            epoch = await run_in(self._writing, self._claim)
        except apsw.Error as error:
            raise translate(error) from error
        except OSError as error:
            raise StoreUnavailable(
                code="owner_unknown", detail=f"Nobody can tell who owns {self._path.name}: {error.strerror}."
            ) from error
        self.epoch = epoch
        return epoch

    def _claim(self) -> int:
        if not self._lock.try_acquire():
            return 0
        try:
            return self._new_epoch(self._connection)
        except BaseException:
            self._lock.release()
            raise

    async def has_foreign_writes(self) -> bool:
        """Whether another process has written since this was last asked."""
        try:
            # Of the writer's connection: there our own commits are not foreign.
            version = await run_in(self._writing, lambda: data_version(self._connection))
        except apsw.Error as error:
            raise translate(error) from error
        is_foreign, self._data_version = version != self._data_version, version
        return is_foreign

    def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now, as far as the last commit tells."""
        error = self._writer.trouble
        return error if isinstance(error, StoreUnavailable) else None

    @property
    def sealed(self) -> SqliteSealed:
        """What is secret here, as it is stored."""
        return SqliteSealed(
            self,
            self._path,
            alone=lambda work: run_in(self._writing, lambda: work(self._connection)),
            claim=self.claim,
        )

    # ---- letters in ----

    async def accept(
        self, drafts: Sequence[Draft], *, at_ms: int, express: Express | None = None
    ) -> list[AcceptedLetter]:
        accepting = Accepting(drafts, at_ms, express, self._tell_accepted)
        self._writer.submit(accepting)
        return await accepting.answered

    def _tell_accepted(self, batch: SqliteBatch, slots: Sequence[Slot]) -> None:
        if slots:
            self._offer(slots)
        self._tell(batch)

    # ---- the sender's ----

    def advance(
        self,
        settlements: Sequence[Settlement],
        marks: Sequence[Letter],
        *,
        epoch: int,
        at_ms: int,
        done: Callable[[Marked], None],
    ) -> None:
        assert self._may_advance(epoch), "a process owns the file once, until its end"

        def prepare(batch: SqliteBatch) -> Callable[[], SqliteBatch]:
            batch.add_step(settlements, marks, epoch=epoch, at_ms=at_ms)
            return lambda: batch

        def finish(ended: Finished[SqliteBatch]) -> None:
            if ended.error is not None:
                done(Marked(error=translate(ended.error)))
                return
            batch = ended.value()
            self._tell(batch)
            done(Marked(taken=batch.marks_taken))

        self._writer.submit(SqliteOperation(prepare, finish, weight=len(settlements) + len(marks)))

    def _may_advance(self, epoch: int) -> bool:
        return epoch == self.epoch

    async def left_in_flight(self, bot_id: int, *, epoch: int) -> list[Letter]:
        return await self.write(lambda batch: reads.adopt_marks(batch.connection, bot_id, epoch))

    async def sweep(self, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int) -> Sweep:
        return await self.read(
            lambda connection: reads.sweep(connection, bot_id, rank, after, lanes=lanes, letters=letters)
        )

    async def fronts(self, bot_id: int, keys: Sequence[LaneKey], *, letters: int) -> dict[LaneKey, FoundInFlight]:
        return await self.read(lambda connection: reads.fronts(connection, bot_id, keys, letters=letters))

    async def recent_tries(self, bot_id: int, *, since_ms: int) -> list[SentMessage]:
        question = self._recent.ask(bot_id, since_ms)
        return await self.read(lambda connection: self._recent.answer(connection, question))

    async def park(self, letter: Letter) -> None:
        await self.write(lambda batch: actions.park(batch, letter))

    async def readdress(self, bot_id: int, old: Chat, new: int) -> None:
        def work(batch: SqliteBatch) -> None:
            for name in ("keep_alias", "flatten_aliases", "readdress"):
                batch.connection.execute(_SQL[name], {"bot": bot_id, "old": old, "new": new})

        await self.write(work)

    async def file_id(self, bot_id: int, digest: str, kind: str) -> str | None:
        return await self.read(lambda connection: reads.text(connection, _SQL["file_id"], (bot_id, digest, kind)))

    async def keep_file_id(self, bot_id: int, digest: str, kind: str, file_id: str | None, *, at_ms: int) -> None:
        def work(batch: SqliteBatch) -> None:
            if file_id is None:
                batch.connection.execute(_SQL["forget_file_id"], (bot_id, digest, kind))
            else:
                batch.connection.execute(_SQL["keep_file_id"], (bot_id, digest, kind, file_id, at_ms))

        await self.write(work)

    # ---- time's ----

    async def join_due(self, *, at_ms: int, limit: int) -> tuple[int, int | None]:
        def tell(answer: tuple[list[Letter], int | None]) -> None:
            if answer[0] and self._listener is not None:
                self._listener.on_accepted(answer[0])

        joined, next_at = await self.write(lambda batch: actions.join_due(batch, at_ms, limit), tell)
        return len(joined), next_at

    async def expire(self, *, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
        def tell(answer: tuple[list[LetterView], int | None]) -> None:
            stubs = [Stub(letter_id=one.id, bot_id=one.bot_id, lane=(one.chat, one.thread)) for one in answer[0]]
            if stubs and self._listener is not None:
                self._listener.on_removed(stubs)

        return await self.write(lambda batch: actions.expire(batch, at_ms, limit), tell)

    async def clean(self, retention: Retention, *, at_ms: int, limit: int) -> tuple[int, list[str]]:
        return await self.write(lambda batch: actions.clean(batch, retention, at_ms, limit))

    # ---- people's ----

    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> list[LetterView]:
        return await rules.find(self.page, wanted, before=before, limit=limit)

    async def page(self, wanted: LetterFilter, *, before: int | None, limit: int) -> LetterPage:
        at_ms = self._clock.wall_ms()
        return await self.read(lambda one: reads.page(one, wanted, before=before, limit=limit, at_ms=at_ms))

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        at_ms = self._clock.wall_ms()
        return await self.read(lambda one: reads.views(one, letter_ids, at_ms))

    async def logged(self, *, below: tuple[int, int] | None, limit: int) -> list[LoggedMessage]:
        return await self.read(lambda one: reads.logged(one, below or rules.ABOVE_ALL, limit))

    async def count(self, wanted: LetterFilter, *, most: int) -> Counted:
        at_ms = self._clock.wall_ms()
        return await self.read(lambda one: reads.count(one, wanted, most=most, at_ms=at_ms))

    async def causes(self, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int) -> list[Cause]:
        return await self.read(lambda one: reads.causes(one, bot_ids=bot_ids, since_ms=since_ms, limit=limit))

    async def oldest_waiting(self) -> dict[int, int]:
        return await self.read(reads.oldest_waiting)

    async def cancel_all(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> list[LetterView]:
        ids = [one.id for one in await rules.find_open(self.page, wanted, limit=limit)]
        return await self.write(lambda batch: actions.cancel_many(batch, ids, at_ms), self._withdraw)

    async def change(self, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int) -> None:
        await self.write(
            lambda batch: actions.change(batch, letter_id, rank=rank, due_at_ms=due_at_ms, at_ms=at_ms),
            self._tell_changed,
        )

    async def revise(self, letter_id: int, *, params: str, seen: int, at_ms: int) -> None:
        await self.write(
            lambda batch: actions.revise(batch, letter_id, params=params, seen=seen, at_ms=at_ms), self._tell_changed
        )

    async def cancel(self, letter_id: int, *, at_ms: int, is_untried: bool = False) -> None:
        stub = await self.write(lambda batch: actions.cancel(batch, letter_id, at_ms, is_untried=is_untried))
        if self._listener is not None:
            self._listener.on_removed([stub])

    async def retry(self, letter_id: int, *, at_ms: int) -> None:
        self._rejoin(await self.write(lambda batch: actions.retry(batch, letter_id, at_ms)))

    async def resolve(self, letter_id: int, *, arrived: bool, at_ms: int) -> None:
        self._rejoin(await self.write(lambda batch: actions.resolve(batch, letter_id, at_ms, arrived=arrived)))

    async def retry_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        letters = await self.write(lambda batch: actions.retry_dead(batch, wanted, at_ms, limit))
        self._rejoin(letters)
        return len(letters)

    async def clear_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        return await self.write(lambda batch: actions.clear_dead(batch, wanted, at_ms, limit))

    async def lanes(self, bot_id: int, chat: Chat | None, *, limit: int) -> list[LaneView]:
        return await self.read(lambda one: actions.lanes(one, bot_id, chat, limit=limit, most=LANE_COUNTED_MAX))

    async def head_of(self, bot_id: int, lane: LaneKey) -> int | None:
        return await self.read(lambda one: actions.head_of(one, bot_id, lane))

    async def known_chats(self, bot_id: int, *, after: Chat | None, limit: int) -> list[ChatRecord]:
        return await self.read(lambda one: actions.known_chats(one, bot_id, after, limit))

    async def letter(self, letter_id: int) -> LetterView | None:
        at_ms = self._clock.wall_ms()
        return await self.read(lambda connection: reads.view(connection, letter_id, at_ms))

    async def tallies(self, *, at_ms: int) -> dict[int, Tally]:
        return await self.read(lambda connection: reads.tallies(connection, at_ms))

    async def ended_by_minute(self, *, since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
        return await self.read(lambda connection: reads.ended_by_minute(connection, since_ms, until_ms))

    # ---- bots and chats ----

    async def bots(self) -> list[BotRecord]:
        # On the writer's thread, so that the answer is never older than a bot that was saved before it.
        return await self.read_alone(lambda connection: reads.bots(connection, self.seals))

    async def save_bot(self, record: BotRecord) -> None:
        row = row_of_bot(record, self.seals)

        def work(batch: SqliteBatch) -> None:
            batch.connection.execute(_SQL["save_bot"], row)
            batch.connection.execute(_SQL["save_tally"], (record.bot_id,))

        await self.write(work)

    async def remove_bot(self, bot_id: int) -> None:
        """Its inbox goes with it: arrivals, read or not, consumers, outages, known chats. Letters that still wait keep the bot
        here."""

        def work(batch: SqliteBatch) -> None:
            waiting = reads.number(batch.connection, _SQL["waiting_of_bot"], (bot_id,))
            rules.must_be_empty(bot_id, waiting)
            batch.connection.execute(_SQL["remove_bot"], (bot_id,))
            at_once(forget_inbox(SqliteSession(batch.connection), SqliteInbox.sql, bot_id))
            at_once(forget_bot(SqliteSession(batch.connection), CONTACTS, bot_id))

        await self.write(work)

    async def chats(self, bot_id: int) -> list[ChatRecord]:
        return await self.read(lambda connection: reads.chats(connection, bot_id))

    async def shut_chat(self, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
        row = (bot_id, chat, reason, None if reason is None else at_ms)

        def work(batch: SqliteBatch) -> None:
            batch.connection.execute(_SQL["shut_chat"], row)

        await self.write(work)

    async def hold(self, bot_id: int, chat: Chat | None, until_ms: int) -> None:
        def work(batch: SqliteBatch) -> None:
            if chat is None:
                batch.connection.execute(_SQL["hold_bot"], (bot_id, until_ms))
            else:
                batch.connection.execute(_SQL["hold_chat"], (bot_id, chat, until_ms))

        await self.write(work)

    async def bot_held_until(self, bot_id: int) -> int:
        return await self.read(lambda connection: reads.number(connection, _SQL["bot_held_until"], (bot_id,)))

    async def blobs(self) -> set[str]:
        return await self.read(reads.blobs)

    # ---- keys and webhooks: see `SqlKeys` ----

    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        way = self.look if is_whole else self.read
        return await way(lambda connection: at_once(work(SqliteSession(connection))))

    async def _in_commit(self, work: Callable[[SqlSession], Awaitable[T]], *, is_record: bool = False) -> T:
        return await self.write(lambda batch: at_once(work(SqliteSession(batch.connection))))

    async def _view(self, one: SqlSession, letter_id: int, at_ms: int) -> LetterView | None:
        assert isinstance(one, SqliteSession)
        return reads.view(one.connection, letter_id, at_ms)

    async def _due_hooks(self, one: SqlSession, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        found: list[Hook] = []
        last: str | None = after
        for _ in range(endpoints):
            last = await one.text(self.hook_sql["next_endpoint"], after=last)
            if last is None:
                break
            rows = await one.rows(self.hook_sql["due"], endpoint=last, at=at_ms, each=each)
            found.extend(self._hook(row) for row in rows)
        next_at = await one.number(self.hook_sql["next_due"], at=at_ms) or None
        return HooksDue(hooks=found, last=last, next_at_ms=next_at)
