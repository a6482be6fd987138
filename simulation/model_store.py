"""The store of one node on the model of a server: production's SQLite store, with a network between it and its file.

Commits are fenced by the leases that the server gives, and what a node was told to have failed is treated as PostgreSQL's
client treats it: marks in doubt are not believed, and go before the next commit.
"""

import random
from collections.abc import Callable, Sequence

import apsw

from peik.admin.model import Key
from peik.clock import Clock
from peik.core.letter import Chat, Letter
from peik.core.lifecycle import Settlement
from peik.core.nodes import FileStore
from peik.errors import Problem, StartError
from peik.outbox.store import BotRecord, Followed, Marked, StoreListener, Stub
from peik.storage.executor import run_in
from peik.storage.news import NodeNews
from peik.storage.sqlite.commit import Slot, SqliteBatch
from peik.storage.sqlite.erasure import SqliteForgetting
from peik.storage.sqlite.jobs import SqliteJobs
from peik.storage.sqlite.reads import adopt_marks
from peik.storage.sqlite.store import SqliteContacts, SqliteDocuments, SqliteStore
from peik.storage.sqlite.writer import SqliteWriter
from simulation.model_inbox import ModelInbox
from simulation.model_nodes import ModelFiles, ModelNodes
from simulation.processes import Process
from simulation.server import Server, load
from simulation.wire import Link, Ticket, Wire


class ModelBatch(SqliteBatch):
    """A commit under leases. `doubts` are commits of the same node whose answers were lost; `step` is this one's number."""

    mark_sql = load()["mark"]

    def __init__(
        self, connection: apsw.Connection, *, node: str, step: int, ticket: Ticket, doubts: list[Ticket]
    ) -> None:
        super().__init__(connection)
        self._node = node
        self._step = step
        self._ticket = ticket
        self._doubts = doubts
        self._has_begun = False

    def flush(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._forget_doubts()
        super().flush()

    def _forget_doubts(self) -> None:
        """Work of one node is done in its order: a commit in doubt that is not there by now never will be."""
        if not self._doubts:
            return
        there = {row[0] for row in self.connection.execute(load()["steps"], (self._node,))}
        self._doubts[:] = [one for one in self._doubts if any(step in there for step, _, _ in one.marked)]
        for doubt in self._doubts:
            for step, letter_ids, epoch in doubt.marked:
                if step in there:
                    for letter_id in letter_ids:
                        self.connection.execute(load()["forget_mark"], (letter_id, epoch))
                    self.connection.execute(load()["forget_step"], (self._node, step))

    def _write_marks(self, marks: list[tuple[Letter, int]], epoch: int) -> None:
        super()._write_marks(marks, epoch)
        if not self._doubts:
            self.connection.execute(load()["forget_steps"], (self._node, self._ticket.first_step))
        self.connection.execute(load()["note_step"], (self._node, self._step))
        taken = [letter.id for letter, _ in marks if letter.id in self._taken]
        self._ticket.marked.append((self._step, taken, epoch))

    def _may_end(self, bot_id: int, epoch: int) -> bool:
        return bool(list(self.connection.execute(load()["is_last"], (bot_id, epoch))))


class ModelStore(SqliteStore):
    """See `peik.storage.open.AnyStore`. It is a client: everything that touches the file is done in the server's process."""

    marks_at_once = False  # an answer may be lost between the server and its client
    nodes: ModelNodes  # type: ignore[assignment]  # everybody asks for its port
    inbox: ModelInbox
    files: FileStore | None  # type: ignore[assignment]

    def __init__(
        self,
        server: Server,
        *,
        process: Process,
        link: Link,
        chance: random.Random,
        node: str,
        clock: Clock,
        lease_s: float,
        address: str | None,
        on_blobs_freed: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(server.path, clock=clock, is_owner=False, on_blobs_freed=on_blobs_freed)
        self._server = server
        self._process = process
        self._link = link
        self._chance = chance
        self._node = node
        self._lease_s = lease_s
        self._address = address
        self._step = 0
        self._ticket = Ticket()
        self._doubts: list[Ticket] = []
        self._lives: dict[str, Process] = {}  # of the server, in which each connection was made
        self._is_open = False
        self._is_accepting = False

    # ---- opening and closing ----

    async def open(self) -> None:
        writing = Wire(
            self._server, self._process, self._link, self._chance, begin=self._begin_writing, doubt=self._doubt
        )
        reading = Wire(self._server, self._process, self._link, self._chance, begin=self._begin_reading)
        telling = Wire(self._server, self._process, self._link, self._chance)
        self._writing, self._reading = writing, reading
        self.nodes = ModelNodes(
            self._server,
            telling,
            process=self._process,
            link=self._link,
            chance=self._chance,
            node=self._node,
            lease_s=self._lease_s,
            address=self._address,
        )
        try:
            for wire in (writing, reading):
                await run_in(wire, lambda: None)
            await self.nodes.open()
            self._writer = SqliteWriter(self._connection, writing, make_batch=self._make_batch, ahead=1)
        except (apsw.Error, Problem) as error:  # it may have died since
            raise StartError(f"Cannot open the server's store: {error}") from error
        self.epoch = 0
        self.inbox = ModelInbox(self, clock=self._clock, say=self.nodes.tell)
        self.files = ModelFiles(self._server, self.nodes)
        self.jobs = SqliteJobs(self, now_ms=self._server.now_ms, node=lambda: self.nodes.node)
        self.documents = SqliteDocuments(self)
        self.contacts = SqliteContacts(self)
        self.forgetting = SqliteForgetting(self, busy_ms=self._busy_ms)
        self._is_open = True

    async def close(self) -> None:
        await self._writer.drained()
        await self.nodes.leave()

    # ---- on the server ----

    def _begin_writing(self, process: Process, ticket: Ticket) -> None:
        if self._lives.get("writer") is not process:
            self._connection = self._server.connect()
            if self._is_open:
                self._writer.use(self._connection)
            self._lives["writer"] = process
        ticket.first_step = self._step + 1
        self._ticket = ticket

    def _begin_reading(self, process: Process, ticket: Ticket) -> None:
        if self._lives.get("reader") is not process:
            self._reader = self._server.connect(for_reading=True)
            self._lives["reader"] = process

    def _make_batch(self, connection: apsw.Connection) -> ModelBatch:
        self._step += 1
        return ModelBatch(connection, node=self._node, step=self._step, ticket=self._ticket, doubts=self._doubts)

    def _doubt(self, ticket: Ticket) -> None:
        """A commit may be there. Its marks are not believed; what else it holds is the truth, and must be read anew."""
        self._doubts.append(ticket)
        if self._is_open:
            self.nodes.ring()

    # ---- the sender's ----

    def _may_advance(self, epoch: int) -> bool:
        return True  # the commit finds out: see `ModelBatch`

    def advance(
        self,
        settlements: Sequence[Settlement],
        marks: Sequence[Letter],
        *,
        epoch: int,
        at_ms: int,
        done: Callable[[Marked], None],
    ) -> None:
        def stored(marked: Marked) -> None:
            if marked.error is None:
                telling = NodeNews()
                for one in settlements:
                    if one.state.is_final:
                        telling.ended(one.bot_id, [one.letter_id])
                self.nodes.tell(telling)
            done(marked)

        super().advance(settlements, marks, epoch=epoch, at_ms=at_ms, done=stored)

    async def left_in_flight(self, bot_id: int, *, epoch: int) -> list[Letter]:
        def adopt(batch: SqliteBatch) -> list[Letter]:
            if not list(batch.connection.execute(load()["is_last"], (bot_id, epoch))):
                return []  # one that held the lease once must not take them from the next
            return adopt_marks(batch.connection, bot_id, epoch)

        return await self.write(adopt)

    # ---- what others hear ----

    def listen(self, listener: StoreListener) -> None:
        super().listen(_Overheard(listener, self._overhear))

    def _overhear(self, bot_ids: set[int], ended: Sequence[Stub | Followed]) -> None:
        """Letters of these bots joined or left their lanes."""
        telling = NodeNews()
        if not self._is_accepting:
            for bot_id in sorted(bot_ids):
                telling.lanes.add(bot_id)
        for stub in ended:
            telling.ended(stub.bot_id, [stub.letter_id])
        self.nodes.tell(telling)

    def _offer(self, slots: Sequence[Slot]) -> None:
        telling = NodeNews()
        for slot in slots:
            if slot.repeat_of is None:
                telling.due(slot.draft.expires_at_ms)
                if slot.is_apart:
                    telling.due(slot.draft.send_at_ms)
                else:
                    telling.accepted(slot.draft.bot_id, slot.letter_id, slot.letter_id)
        self.nodes.tell(telling)
        self._is_accepting = True
        try:
            super()._offer(slots)
        finally:
            self._is_accepting = False

    async def resolve(self, letter_id: int, *, arrived: bool, at_ms: int) -> None:
        await super().resolve(letter_id, arrived=arrived, at_ms=at_ms)
        self._say(NodeNews.everything)

    async def readdress(self, bot_id: int, old: Chat, new: int) -> None:
        await super().readdress(bot_id, old, new)
        self._say(lambda news: news.chats.add(bot_id))
        self._say(lambda news: news.lanes.add(bot_id))

    async def shut_chat(self, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
        await super().shut_chat(bot_id, chat, reason, at_ms=at_ms)
        self._say(lambda news: news.chats.add(bot_id))

    async def hold(self, bot_id: int, chat: Chat | None, until_ms: int) -> None:
        await super().hold(bot_id, chat, until_ms)
        self._say(lambda news: news.chats.add(bot_id))

    async def save_bot(self, record: BotRecord) -> None:
        await super().save_bot(record)
        self._say(NodeNews.records)

    async def remove_bot(self, bot_id: int) -> None:
        await super().remove_bot(bot_id)
        self._say(NodeNews.records)
        self._say(NodeNews.consumers)

    async def add_key(self, key: Key, *, webhook_secret: str | None) -> Key:
        added = await super().add_key(key, webhook_secret=webhook_secret)
        self._say(NodeNews.records)
        return added

    async def revoke_key(self, key_id: int, *, at_ms: int) -> bool:
        is_known = await super().revoke_key(key_id, at_ms=at_ms)
        self._say(NodeNews.records)
        return is_known

    def _say(self, what: Callable[[NodeNews], None]) -> None:
        telling = NodeNews()
        what(telling)
        self.nodes.tell(telling)


class _Overheard:
    """A StoreListener that lets the other nodes know what its own hears."""

    def __init__(self, listener: StoreListener, tell: Callable[[set[int], Sequence[Stub | Followed]], None]) -> None:
        self._listener = listener
        self._tell = tell

    def on_accepted(self, letters: Sequence[Letter]) -> None:
        self._tell({one.bot_id for one in letters}, ())
        self._listener.on_accepted(letters)

    def on_removed(self, stubs: Sequence[Stub]) -> None:
        self._tell(
            {one.bot_id for one in stubs}, [one for one in stubs if one.into is None]
        )  # what gave way has not ended
        self._listener.on_removed(stubs)

    def on_joined(self, stubs: Sequence[Stub]) -> None:
        self._tell({one.bot_id for one in stubs}, ())
        self._listener.on_joined(stubs)

    def on_followed(self, ends: Sequence[Followed]) -> None:
        self._tell(set(), ends)  # it stood apart, in no lane
        self._listener.on_followed(ends)
