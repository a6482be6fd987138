"""A Redis store from open to close: its connections, its writer and its bell. Nothing here knows letters."""

import contextlib
from collections.abc import Callable, Sequence

from peik.clock import Clock
from peik.errors import StoreUnavailable
from peik.ports import StoreListener
from peik.seals import PLAIN, Seals
from peik.store.listened import node_name
from peik.store.moving import marker
from peik.store.redis.bell import Bell
from peik.store.redis.client import Client
from peik.store.redis.commits import Commits
from peik.store.redis.contacts import RedisContacts
from peik.store.redis.files import RedisFiles
from peik.store.redis.forgetting import RedisForgetting
from peik.store.redis.inbox import RedisInbox
from peik.store.redis.jobs import RedisJobs
from peik.store.redis.nodes import RedisNodes
from peik.store.redis.paper_client import PaperWay
from peik.store.redis.papers import RedisPapers
from peik.store.redis.sealed import RedisSealed
from peik.store.redis.writer import Writer

LEASE_S = 10.0  # a dead node's bots wait so long; a living one may be out of reach for so long


class OpenedStore:
    """What `RedisStore` stands on. Any number of processes may open one prefix of one server; each is a node once it beats."""

    inbox: RedisInbox  # these from `open` on
    nodes: RedisNodes
    files: RedisFiles
    jobs: RedisJobs
    papers: RedisPapers
    contacts: RedisContacts
    forgetting: RedisForgetting

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
        self.seals = seals  # what it seals with
        self._clock = clock
        self._lease_s = lease_s
        self._address = address
        self._on_blobs_freed = on_blobs_freed
        self._listener: StoreListener | None = None
        self._url = url
        self._client = Client(url)

    def listen(self, listener: StoreListener) -> None:
        self._listener = listener

    # ---- opening and closing ----

    async def open(self) -> None:
        """Raises StartError with what to do if the server cannot be used."""
        await self._client.open()
        try:
            await self._client.ask(marker.check_redis(self._client.redis, self._client.prefix))
        except BaseException:
            await self._client.close()
            raise
        node = node_name()
        self._writer = Writer(self._client, node=node)
        self._bell = Bell(self._client, node=node)
        self._commits = Commits(
            self._writer, self._bell, listener=lambda: self._listener, on_blobs_freed=self._on_blobs_freed
        )
        self._write = self._commits.write
        self.inbox = RedisInbox(self._client, self._commits, clock=self._clock, seals=self.seals)
        self.files = RedisFiles(self._client)
        self.nodes = RedisNodes(
            self._client,
            self._commits,
            self._bell,
            node=node,
            lease_s=self._lease_s,
            address=self._address,
        )
        self.jobs = RedisJobs(self._url, self._bell, node=node)
        self._paper_way = PaperWay(self._url, self._bell, node=node)
        self.papers = RedisPapers(self._paper_way)
        self.contacts = RedisContacts(self._paper_way)
        self.forgetting = RedisForgetting(self._client, self._commits, contacts=self.contacts, jobs=self.jobs)
        try:
            await self.jobs.open()
            await self._paper_way.open()
            await self._bell.open()
        except BaseException:
            await self.abandon()
            raise

    async def close(self) -> None:
        """Waits for what is being written, and gives leases and locks back. Safe to kill instead: nothing acknowledged is
        lost, and the leases run out."""
        try:
            await self._writer.drained()
            await self.jobs.drained()
            await self._paper_way.drained()
            with contextlib.suppress(StoreUnavailable):
                await self.nodes.leave()
            await self._bell.close(is_told=True)
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Everything of this process ends, as if it had been killed."""
        await self._bell.close(is_told=False)
        await self.jobs.abandon()
        await self._paper_way.abandon()
        await self._writer.abandon()
        await self._client.close()

    def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now, as far as the last commit tells."""
        return self._writer.trouble

    @property
    def sealed(self) -> RedisSealed:
        """What is secret here, as it is stored."""
        return RedisSealed(self._client, self._commits)
