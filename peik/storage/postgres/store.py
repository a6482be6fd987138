"""The store on a PostgreSQL server: many nodes accept, one writer with group commit in each, and each bot is one node's."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from peik.clock import Clock
from peik.core.letter import Chat, Draft, LaneKey, Letter
from peik.core.lifecycle import Settlement
from peik.errors import StartError, StoreUnavailable
from peik.outbox.store import (
    AcceptedLetter,
    BotRecord,
    Cause,
    ChatRecord,
    Counted,
    Express,
    FoundInFlight,
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
from peik.storage import rules
from peik.storage.executor import Finished
from peik.storage.keys import SqlKeys
from peik.storage.moving import ends
from peik.storage.news import LANE_COUNTED_MAX, answer, fail, node_name
from peik.storage.postgres import actions, reads, session
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.documents import DocumentWriter, PostgresContacts, PostgresDocuments
from peik.storage.postgres.erasure import PostgresForgetting, PostgresSealed
from peik.storage.postgres.errors import at_start, is_refusal, translate
from peik.storage.postgres.inbox import PostgresInbox
from peik.storage.postgres.jobs import JobWriter, PostgresJobs
from peik.storage.postgres.nodes import LEASE_S, Neighbourhood, PostgresFiles, PostgresNodes
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession, read_address
from peik.storage.postgres.writer import SURELY_THERE_S, PostgresOperation, PostgresWays, PostgresWriter
from peik.storage.sql import SqlSession
from peik.storage.sqlite.commit import Slot

# A PostgreSQL store from open to close: its connections and writers, and the ways in to them. Nothing here knows
# letters.


T = TypeVar("T")
PATIENCE_S_MIN = 1.0  # else a third of a lease: there is time for a new connection, and for a beat on it


class OpenPostgres(PostgresWays):
    """What `PostgresStore` stands on. Any number of nodes may open one schema."""

    inbox: PostgresInbox  # from `open` on
    jobs: PostgresJobs
    documents: PostgresDocuments
    contacts: PostgresContacts
    nodes: PostgresNodes
    files: PostgresFiles
    forgetting: PostgresForgetting

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        lease_s: float = LEASE_S,
        address: str | None = None,
        on_blobs_freed: Callable[[Sequence[str]], None] = lambda blobs: None,
        seals: Seals = PLAIN,
        surely_there_s: float = SURELY_THERE_S,
    ) -> None:
        """`address`: where this node's doors are, for the other nodes and for people. `surely_there_s`: so long after its last
        answer is the connection that writes letters taken for alive without being asked."""
        super().__init__(on_blobs_freed)
        self.seals = seals  # what it seals with
        self._address = read_address(url)
        self._clock = clock
        self._lease_s = lease_s
        self._surely_there_s = surely_there_s
        self._doors = address
        self._node = node_name()
        self._pools = []

    # ---- opening and closing ----

    async def open(self) -> None:
        """Raises StartError with what to do if the database cannot be used."""
        self._neighbourhood = Neighbourhood(
            self._connect,
            channel=f"peik_{self._address.schema}",
            node=self._node,
            patience_s=max(self._lease_s / 3, PATIENCE_S_MIN),
        )
        self._writer = PostgresWriter(
            self._connect,
            tell=self._neighbourhood.tell,
            on_doubt=self._neighbourhood.ring,
            surely_there_s=self._surely_there_s,
        )
        self._job_writer = JobWriter(self._connect, tell=self._neighbourhood.tell, on_doubt=self._neighbourhood.ring)
        self._document_writer = DocumentWriter(
            self._connect, tell=self._neighbourhood.tell, on_doubt=self._neighbourhood.ring
        )
        try:
            await self._open()
        except StartError:
            await self.abandon()
            raise
        except BaseException as error:
            await self.abandon()
            if not is_refusal(error):
                raise
            raise StartError(f"Cannot open {self._address.shown}: {at_start(error)}") from error
        self.inbox = PostgresInbox(self, clock=self._clock, seals=self.seals)
        self.nodes = PostgresNodes(
            self._neighbourhood, self, node=self._node, lease_s=self._lease_s, address=self._doors
        )
        self.files = PostgresFiles(self.file)
        self.jobs = PostgresJobs(self, self._job_writer, node=self._node)
        self.documents = PostgresDocuments(self, self._document_writer)
        self.contacts = PostgresContacts(self, self._document_writer)
        self.forgetting = PostgresForgetting(
            self, documents=self._document_writer, jobs=self.jobs, connect=self._connect
        )

    async def _open(self) -> None:
        first = await self._connect()
        try:
            await session.migrate(first, self._address)
            await ends.check_postgres(first.connection)
            await session.keep_rules(first)
        finally:
            await session.end(first)
        for size in (session.READERS_MAX, session.FILERS_MAX):
            self._pools.append(await session.connect_pool(self._address, size))
        await self._neighbourhood.open()

    async def _connect(self) -> PostgresSession:
        return await session.connect(self._address)

    async def abandon(self) -> None:
        """End at once, as a process does that is killed: what was not committed is lost, and the leases run out."""
        self._writer.abandon()
        self._job_writer.abandon()
        self._document_writer.abandon()
        await self._neighbourhood.abandon()
        for pool in self._pools:
            pool.end()

    async def close(self) -> None:
        """Waits for what is being written, and gives the leases back. Safe to kill instead: nothing acknowledged is lost."""
        try:
            await self._writer.close()
            await self._job_writer.close()
            await self._document_writer.close()
            await self.nodes.leave()
            await self._neighbourhood.close()
        finally:
            for pool in self._pools:
                pool.end()

    def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now, as far as the last commit tells."""
        error = self._writer.trouble
        return error if isinstance(error, StoreUnavailable) else None

    @property
    def sealed(self) -> PostgresSealed:
        """What is secret here, as it is stored."""
        return PostgresSealed(self, connect=self._connect)

    @property
    def commits(self) -> int:
        """How many transactions this node has committed."""
        return self._writer.commits + self._job_writer.commits + self._document_writer.commits


_SQL = load("letters.sql")


class PostgresStore(OpenPostgres, SqlKeys):
    """See `peik.outbox.store.Store`."""

    marks_at_once = False
    key_sql, hook_sql = load("keys.sql"), load("hooks.sql")

    # ---- letters in ----

    async def accept(
        self, drafts: Sequence[Draft], *, at_ms: int, express: Express | None = None
    ) -> list[AcceptedLetter]:
        assert express is None, "a commit whose answer is lost may be made"
        future: asyncio.Future[list[AcceptedLetter]] = asyncio.get_running_loop().create_future()

        async def prepare(
            batch: PostgresBatch,
        ) -> Callable[[], tuple[list[Slot | AcceptedLetter], list[Slot], PostgresBatch]]:
            answers = await batch.add_drafts(drafts, at_ms)
            together = batch.slots
            return lambda: (answers, together, batch)

        def done(ended: Finished[tuple[list[Slot | AcceptedLetter], list[Slot], PostgresBatch]]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
                return
            answers, together, batch = ended.value()
            answer(future, [one.accepted if isinstance(one, Slot) else one for one in answers])
            # Most letters come one by one, and each telling has its price: who is first tells of all that were written with it.
            fresh = together.copy()
            together.clear()
            self._offer(fresh)
            self._tell(batch)

        keyed = [(one.bot_id, one.idempotency_key) for one in drafts if one.idempotency_key is not None]
        bots = {one.bot_id for one in drafts}
        self._writer.submit(
            PostgresOperation(prepare, done, weight=len(drafts), tallies=bots, keys=keyed, only_adds=not keyed)
        )
        return await future

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
        async def prepare(batch: PostgresBatch) -> Callable[[], PostgresBatch]:
            batch.add_step(settlements, marks, epoch=epoch, at_ms=at_ms)
            return lambda: batch

        def finish(ended: Finished[PostgresBatch]) -> None:
            if ended.error is not None:
                done(Marked(error=translate(ended.error)))
                return
            batch = ended.value()
            self._tell(batch)
            done(Marked(taken=batch.marks_taken))

        bots = {one.bot_id for one in settlements} | {one.bot_id for one in marks}
        self._writer.submit(PostgresOperation(prepare, finish, weight=len(settlements) + len(marks), tallies=bots))

    async def left_in_flight(self, bot_id: int, *, epoch: int) -> list[Letter]:
        return await self.write(lambda batch: reads.adopt_marks(batch.session, bot_id, epoch), tallies=[bot_id])

    async def sweep(self, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int) -> Sweep:
        return await self.read(lambda one: reads.sweep(one, bot_id, rank, after, lanes=lanes, letters=letters))

    async def fronts(self, bot_id: int, keys: Sequence[LaneKey], *, letters: int) -> dict[LaneKey, FoundInFlight]:
        return await self.read(lambda one: reads.fronts(one, bot_id, keys, letters=letters))

    async def recent_tries(self, bot_id: int, *, since_ms: int) -> list[SentMessage]:
        return await self.read(lambda one: reads.recent_tries(one, bot_id, since_ms))

    async def park(self, letter: Letter) -> None:
        await self.write(lambda batch: actions.park(batch, letter), tallies=[letter.bot_id])

    async def readdress(self, bot_id: int, old: Chat, new: int) -> None:
        await self.write(lambda batch: actions.readdress(batch, bot_id, old, new), tallies=[bot_id])

    async def file_id(self, bot_id: int, digest: str, kind: str) -> str | None:
        return await self.read(lambda one: one.text(_SQL["file_id"], bot=bot_id, digest=digest, kind=kind))

    async def keep_file_id(self, bot_id: int, digest: str, kind: str, file_id: str | None, *, at_ms: int) -> None:
        name = "forget_file_id" if file_id is None else "keep_file_id"
        bound = {"bot": bot_id, "digest": digest, "kind": kind, "file_id": file_id, "at": at_ms}
        await self.write(lambda batch: batch.session.run(_SQL[name], **bound))

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
        return await self.look(lambda one: reads.page(one, wanted, before=before, limit=limit, at_ms=at_ms))

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        at_ms = self._clock.wall_ms()
        return await self.read(lambda one: reads.sorted_views(one, letter_ids, at_ms))

    async def logged(self, *, below: tuple[int, int] | None, limit: int) -> list[LoggedMessage]:
        return await self.read(lambda one: reads.logged(one, below or rules.ABOVE_ALL, limit))

    async def count(self, wanted: LetterFilter, *, most: int) -> Counted:
        at_ms = self._clock.wall_ms()
        return await self.look(lambda one: reads.count(one, wanted, most=most, at_ms=at_ms))

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
        return await self.read(lambda one: reads.view(one, letter_id, at_ms))

    async def tallies(self, *, at_ms: int) -> dict[int, Tally]:
        return await self.read(lambda one: reads.tallies(one, at_ms))

    async def ended_by_minute(self, *, since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
        return await self.read(lambda one: reads.ended_by_minute(one, since_ms, until_ms))

    # ---- bots and chats ----

    async def bots(self) -> list[BotRecord]:
        return await self.read(lambda one: reads.bots(one, self.seals))

    async def save_bot(self, record: BotRecord) -> None:
        await self.write(lambda batch: actions.save(batch, record, self.seals))

    async def remove_bot(self, bot_id: int) -> None:
        """Its inbox goes with it: arrivals, read or not, consumers, outages, known chats. Letters that still wait keep the bot
        here."""
        await self.write(lambda batch: actions.remove(batch, bot_id), tallies=[bot_id], inboxes=[bot_id])

    async def chats(self, bot_id: int) -> list[ChatRecord]:
        return await self.read(lambda one: reads.known(one, bot_id))

    async def shut_chat(self, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
        await self.write(lambda batch: actions.shut_chat(batch, bot_id, chat, reason, at_ms=at_ms))

    async def hold(self, bot_id: int, chat: Chat | None, until_ms: int) -> None:
        await self.write(lambda batch: actions.hold(batch, bot_id, chat, until_ms))

    async def bot_held_until(self, bot_id: int) -> int:
        return await self.read(lambda one: one.number(_SQL["bot_held_until"], bot=bot_id))

    async def blobs(self) -> set[str]:
        return await self.read(reads.blobs)

    # ---- keys and webhooks: see `SqlKeys` ----

    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        return await (self.look if is_whole else self.read)(work)

    async def _in_commit(self, work: Callable[[SqlSession], Awaitable[T]], *, is_record: bool = False) -> T:
        async def told(batch: PostgresBatch) -> T:
            if is_record:
                batch.telling.records()
            return await work(batch.session)

        return await self.write(told)

    async def _view(self, one: SqlSession, letter_id: int, at_ms: int) -> LetterView | None:
        assert isinstance(one, PostgresSession)
        return await reads.view(one, letter_id, at_ms)

    async def _due_hooks(self, one: SqlSession, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        bound = {"at": at_ms, "after": after, "endpoints": endpoints, "each": each}
        rows = [tuple(row) for row in await one.rows(self.hook_sql["due"], **bound)]
        is_full = bool(rows) and rows[-1][0] >= endpoints
        return HooksDue(
            hooks=[self._hook(row[1:]) for row in rows if row[1] is not None],
            last=rows[-1][2] if is_full else None,
            next_at_ms=await one.number(self.hook_sql["next_due"], at=at_ms) or None,
        )
