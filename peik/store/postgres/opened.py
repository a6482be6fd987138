"""A PostgreSQL store from open to close: its connections and writers, and the ways in to them. Nothing here knows letters."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from peik.clock import Clock
from peik.errors import Problem, StartError, StoreUnavailable
from peik.postgres_failures import at_start, is_gone, is_refusal, may_repeat, translate
from peik.seals import PLAIN, Seals
from peik.store.executor import Ended
from peik.store.listened import Listened, answer, fail, node_name
from peik.store.moving import marker
from peik.store.postgres import outbox, schema, session
from peik.store.postgres.address import read_address
from peik.store.postgres.commit import Batch
from peik.store.postgres.contacts import PostgresContacts
from peik.store.postgres.files import PostgresFiles
from peik.store.postgres.forgetting import PostgresForgetting
from peik.store.postgres.inbox import PostgresInbox
from peik.store.postgres.job_writer import JobWriter
from peik.store.postgres.jobs import PostgresJobs
from peik.store.postgres.neighbourhood import Neighbourhood
from peik.store.postgres.nodes import LEASE_S, PostgresNodes
from peik.store.postgres.paper_writer import PaperWriter
from peik.store.postgres.papers import PostgresPapers
from peik.store.postgres.sealed import PostgresSealed
from peik.store.postgres.session import Pool, Session
from peik.store.postgres.writer import Operation, Writer

T = TypeVar("T")
PATIENCE_S_MIN = 1.0  # else a third of a lease: there is time for a new connection, and for a beat on it


class OpenedStore(Listened):
    """What `PostgresStore` stands on. Any number of nodes may open one schema."""

    inbox: PostgresInbox  # from `open` on
    jobs: PostgresJobs
    papers: PostgresPapers
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
    ) -> None:
        """`address`: where this node's doors are, for the other nodes and for people."""
        super().__init__(on_blobs_freed)
        self.seals = seals  # what it seals with
        self._address = read_address(url)
        self._clock = clock
        self._lease_s = lease_s
        self._doors = address
        self._node = node_name()
        self._pools: list[Pool] = []

    # ---- opening and closing ----

    async def open(self) -> None:
        """Raises StartError with what to do if the database cannot be used."""
        self._neighbourhood = Neighbourhood(
            self._connect,
            channel=f"peik_{self._address.schema}",
            node=self._node,
            patience_s=max(self._lease_s / 3, PATIENCE_S_MIN),
        )
        self._writer = Writer(self._connect, tell=self._neighbourhood.tell, on_doubt=self._neighbourhood.ring)
        self._job_writer = JobWriter(self._connect, tell=self._neighbourhood.tell, on_doubt=self._neighbourhood.ring)
        self._paper_writer = PaperWriter(
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
        self.inbox = PostgresInbox(
            write=self._write,
            collect=self._collect,
            read=self._read,
            look=self._look,
            clock=self._clock,
            seals=self.seals,
        )
        self.nodes = PostgresNodes(
            self._neighbourhood, read=self._read, node=self._node, lease_s=self._lease_s, address=self._doors
        )
        self.files = PostgresFiles(self._file)
        self.jobs = PostgresJobs(self._job_writer, read=self._read, node=self._node)
        self.papers = PostgresPapers(self._paper_writer, read=self._read)
        self.contacts = PostgresContacts(self._paper_writer, read=self._read)
        self.forgetting = PostgresForgetting(
            write=self._write, read=self._read, papers=self._paper_writer, jobs=self.jobs, connect=self._connect
        )

    async def _open(self) -> None:
        first = await self._connect()
        try:
            await schema.migrate(first, self._address)
            await marker.check_postgres(first.connection)
            await outbox.keep_rules(first)
        finally:
            await session.end(first)
        for size in (session.READERS_MAX, session.FILERS_MAX):
            self._pools.append(await session.connect_pool(self._address, size))
        await self._neighbourhood.open()

    async def _connect(self) -> Session:
        return await session.connect(self._address)

    async def abandon(self) -> None:
        """End at once, as a process does that is killed: what was not committed is lost, and the leases run out."""
        self._writer.abandon()
        self._job_writer.abandon()
        self._paper_writer.abandon()
        await self._neighbourhood.abandon()
        for pool in self._pools:
            pool.end()

    async def close(self) -> None:
        """Waits for what is being written, and gives the leases back. Safe to kill instead: nothing acknowledged is lost."""
        try:
            await self._writer.close()
            await self._job_writer.close()
            await self._paper_writer.close()
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
        return PostgresSealed(write=self._write, connect=self._connect)

    @property
    def commits(self) -> int:
        """How many transactions this node has committed."""
        return self._writer.commits + self._job_writer.commits + self._paper_writer.commits

    # ---- the ways in ----

    async def _write(
        self,
        work: Callable[[Batch], Awaitable[T]],
        tell: Callable[[T], None] = lambda value: None,
        *,
        tallies: Iterable[int] = (),
        inboxes: Iterable[int] = (),
    ) -> T:
        """Run something in the next commit; its answer, once that is durable. `tell` hears it before the caller does."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def prepare(batch: Batch) -> Callable[[], tuple[T, Batch]]:
            await batch.flush()  # what was asked for before comes before, within one commit too
            value = await work(batch)
            return lambda: (value, batch)

        def done(ended: Ended[tuple[T, Batch]]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
                return
            value, batch = ended.value()
            answer(future, value)
            tell(value)
            self._tell(batch)

        self._writer.submit(Operation(prepare, done, tallies=tallies, inboxes=inboxes))
        return await future

    async def _collect(
        self, add: Callable[[Batch], Awaitable[Callable[[], T]]], *, weight: int, inboxes: Iterable[int]
    ) -> T:
        """Add something that is written together with all of its kind in the next commit; its answer after that."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(ended: Ended[T]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
            else:
                answer(future, ended.value())

        self._writer.submit(Operation(add, done, weight=weight, inboxes=inboxes))
        return await future

    async def _read(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await self._ask(self._pools[0], work, outcome="Nothing was read.")

    async def _file(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await self._ask(self._pools[1], work, outcome="The file was not kept.")

    async def _ask(self, pool: Pool, work: Callable[[Session], Awaitable[T]], *, outcome: str) -> T:
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

    async def _look(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Read something that takes several queries, all of one snapshot."""

        async def whole(reader: Session) -> T:
            async with reader.connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(reader)

        return await self._read(whole)
