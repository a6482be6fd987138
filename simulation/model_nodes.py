"""Nodes on the model of a server: beats, locks and news as a client of PostgreSQL or Redis has them, over the simulated wire."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import apsw

from peik.core.letter import Letter
from peik.core.nodes import Beat, News, NodeRecord
from peik.errors import StoreUnavailable
from peik.storage.executor import run_in
from peik.storage.news import HeldBots, NodeNews
from peik.storage.sqlite import reads
from peik.storage.sqlite.database import translate
from peik.storage.sqlite.rows import letter_from_row
from peik.storage.sqlite.statements import run_many
from simulation.processes import OUTSIDE, Process
from simulation.server import Server
from simulation.wire import LATENCY_S, Link, Wire

T = TypeVar("T")

PAUSE_S = 0.5  # between tries to reach a server that is away
NEWS_LATE_S = 2.0
NEWS_LATE = 0.1  # how often news take that long, so that others overtake them


class ModelNodes:
    """See `peik.core.nodes.NodeStore`."""

    def __init__(
        self,
        server: Server,
        wire: Wire,
        *,
        process: Process,
        link: Link,
        chance: random.Random,
        node: str,
        lease_s: float,
        address: str | None,
    ) -> None:
        self._server = server
        self._wire = wire
        self._process = process
        self._link = link
        self._chance = chance
        self._lease_s = lease_s
        self._address = address
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._held = HeldBots()
        self._heard = NodeNews()
        self._stir = asyncio.Event()
        self._untold = NodeNews()
        self._telling: asyncio.Task[None] | None = None

    @property
    def lease_s(self) -> float:
        return self._lease_s

    @property
    def node(self) -> str:
        return self._node

    # ---- leases ----

    async def beat(self, *, is_draining: bool = False) -> Beat:
        lease_ms, asked_at = int(self._lease_s * 1000), self._loop.time()
        beat, is_news = await self.ask(
            lambda: self._server.beat(self._node, address=self._address, lease_ms=lease_ms, is_draining=is_draining)
        )
        if is_news:
            self._tell_of_leases()
        self._held.beaten(beat.leases, until=asked_at + self._lease_s)
        return beat

    async def release(self, bot_ids: Sequence[int]) -> None:
        self._held.gone(bot_ids)
        if await self.ask(lambda: self._server.release(self._node, list(bot_ids))):
            self._tell_of_leases()

    async def leave(self) -> None:
        """Give everything back, and tell what is still to be told. If the server is away it ends by itself."""
        self._held.beaten((), until=0.0)
        with contextlib.suppress(StoreUnavailable):
            if await self.ask(lambda: self._server.leave(self._node)):
                self._tell_of_leases()
        if self._telling is not None:
            await asyncio.wait([self._telling])

    def _tell_of_leases(self) -> None:
        telling = NodeNews()
        telling.leases()
        self.tell(telling)

    # ---- locks and nodes ----

    async def take_lock(self, name: str) -> bool:
        bound = {"name": name, "node": self._node, "lease_ms": int(self._lease_s * 1000)}
        return bool(await self.ask(lambda: self._server.write_named("take_lock", bound)))

    async def drop_lock(self, name: str) -> None:
        await self.ask(lambda: self._server.write("drop_lock", name, self._node))

    async def is_locked(self, name: str) -> bool:
        return bool(await self.ask(lambda: self._server.rows("is_locked", name)))

    async def nodes(self) -> list[NodeRecord]:
        return await self.ask(self._server.nodes)

    async def drain_node(self, name: str, *, is_draining: bool) -> bool:
        is_known = await self.ask(lambda: self._server.drain(name, is_draining=is_draining))
        if is_known:
            self._tell_of_leases()
        return is_known

    # ---- what was written elsewhere ----

    async def new_letters(self, ranges: Sequence[tuple[int, int, int]]) -> list[Letter]:
        def work() -> list[Letter]:
            found = [
                row
                for bot_id, first_id, last_id in sorted(ranges)
                for row in self._server.rows("new_letters", first_id, last_id, bot_id)
            ]
            return [letter_from_row(row) for row in run_many(self._server.session, reads.LETTERS, found)]

        return await self.ask(work)

    async def last_numbers(self) -> dict[int, int]:
        return dict(await self.ask(lambda: self._server.rows("last_numbers", self._node)))

    async def durability(self) -> list[str]:
        return []

    async def failover_loses(self) -> bool:
        return False

    async def ask(self, work: Callable[[], T]) -> T:
        try:
            return await run_in(self._wire, work)
        except apsw.Error as error:
            raise translate(error) from error

    # ---- telling ----

    def tell(self, telling: NodeNews) -> None:
        """The others hear of it soon. Nobody waits for that, and what comes meanwhile is told together."""
        telling.leave_out(self._held.surely)
        self._untold.add(telling)
        if self._untold and self._telling is None:
            self._telling = self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._untold:
                telling, self._untold = self._untold, NodeNews()
                try:
                    await self.ask(partial(self._server.ring, telling.line(self._node), teller=self._node))
                except StoreUnavailable:
                    telling.add(self._untold)
                    self._untold = telling  # told when the server is there again
                    return
        finally:
            self._telling = None

    # ---- hearing ----

    async def open(self) -> None:
        """Listen from now on. Raises StoreUnavailable."""
        await self.ask(lambda: self._server.subscribe(self))

    def ring(self) -> None:
        """Something may have been stored that this node does not know of."""
        self._heard.everything()
        self._stir.set()

    async def news(self) -> News:
        while not self._heard:
            self._stir.clear()
            if await self._listens():
                with contextlib.suppress(TimeoutError):  # then it is asked whether it is still there
                    async with asyncio.timeout(self._lease_s / 2):
                        await self._stir.wait()
            else:
                await asyncio.sleep(PAUSE_S)
        heard, self._heard = self._heard, NodeNews()
        return heard.news()

    async def _listens(self) -> bool:
        try:
            if not await self.ask(lambda: self._server.subscribe(self)):
                self.ring()  # whatever was told while nobody listened
                self.tell(NodeNews())
        except StoreUnavailable:
            return False
        return True

    def deliver(self, line: str) -> bool:
        """In the server's process: see `simulation.server.Subscriber`."""
        link, chance = self._link, self._chance
        if self._process.is_dead or link.is_cut:
            return False
        if chance.random() >= link.lost_news:
            late_s = chance.uniform(0.0, NEWS_LATE_S if chance.random() < NEWS_LATE else LATENCY_S) + link.delay_s
            self._loop.call_later(late_s, self._process.tell, self._hear, line, context=OUTSIDE)
        return True

    def _hear(self, line: str) -> None:
        self._heard.hear(line, besides=self._node, may_be=self._held.may_be)
        if self._heard:
            self._stir.set()


class ModelFiles:
    """See `peik.core.nodes.FileStore`."""

    def __init__(self, server: Server, nodes: ModelNodes) -> None:
        self._server = server
        self._ask = nodes.ask

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        await self._ask(lambda: self._server.write("keep_part", blob, place, part))

    async def part(self, blob: str, place: int) -> bytes | None:
        rows = await self._ask(lambda: self._server.rows("part", blob, place))
        return rows[0][0] if rows else None

    async def drop_files(self, blobs: Sequence[str]) -> None:
        def work() -> None:
            for blob in blobs:
                self._server.write("drop_file", blob)

        await self._ask(work)

    async def kept_files(self) -> dict[str, int]:
        return dict(await self._ask(lambda: self._server.rows("kept_files")))
