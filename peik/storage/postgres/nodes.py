"""The nodes of one PostgreSQL schema: who lives, who holds the lease of which bot, and what they know of each other.

What a node holds ends when its beats end, by the server's clock; only then, or when it lets go, may another take it. Marks
are written under a lease and never without (`mark` in letters.sql), so that a node that was frozen, or cut off, marks nothing
any more once another has its bots.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from peik import __version__
from peik.core.letter import Letter
from peik.core.nodes import Beat, News, NodeRecord
from peik.storage.news import HeldBots, NewsPause, NodeNews
from peik.storage.postgres import reads, session
from peik.storage.postgres.errors import is_gone, is_refusal, translate
from peik.storage.postgres.queries import NamedQuery, load
from peik.storage.postgres.session import PostgresSession, end
from peik.storage.postgres.writer import PostgresWays

# The way to the other nodes: what they tell is heard here, and what this node wrote is told. On a connection of its
# own, so that neither this nor a beat waits for a long commit or a long read.


T = TypeVar("T")

_SQL = load("nodes.sql")
_LINES_MAX = 1000  # heard and not asked for: who has so much to read reads everything
_PAUSE_S = 0.5  # between tries to reach a server that is away


class Neighbourhood:
    """`patience_s`: a server that is silent for so long is asked on a new connection."""

    def __init__(
        self, connect: Callable[[], Awaitable[PostgresSession]], *, channel: str, node: str, patience_s: float
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._node = node
        self._patience_s = patience_s
        self._session: PostgresSession | None = None
        self._one_at_a_time = asyncio.Lock()
        self.held = HeldBots()
        self._heard = NodeNews()
        self._lines = 0
        self._stir = asyncio.Event()  # something was heard, or the connection is lost
        self._untold = NodeNews()
        self._telling: asyncio.Task[None] | None = None
        self._pause = NewsPause()
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        await self._connected()
        self._heard = NodeNews()

    async def close(self) -> None:
        """What is still to be told is told, if the server listens."""
        if self._telling is not None:
            await asyncio.wait([self._telling])
        session, self._session = self._session, None
        if session is not None:
            await end(session)

    async def abandon(self) -> None:
        """End at once, as a process does that is killed."""
        if self._telling is not None:
            self._telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._telling
        self._drop()

    async def ask(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        """Something short that may be done twice: it is, if the connection turns out to be gone."""
        async with self._one_at_a_time:
            for is_last in (False, True):
                try:
                    async with asyncio.timeout(self._patience_s):
                        return await work(await self._connected())
                except Exception as error:
                    if not is_gone(error):
                        raise
                    self._drop()
                    if is_last or isinstance(error, TimeoutError):
                        raise
        raise AssertionError("unreachable")

    # ---- telling ----

    def tell(self, telling: NodeNews) -> None:
        """The others hear of it soon. Nobody waits for that, and what comes meanwhile is told together."""
        telling.leave_out(self.held.surely)
        self._untold.add(telling)
        self._tell_on()

    def _tell_on(self) -> None:
        if self._untold and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._untold:
                wait_s = self._pause.wait_s(self._loop.time())
                if wait_s:
                    await asyncio.sleep(wait_s)
                self._pause.said(self._loop.time())
                telling, self._untold = self._untold, NodeNews()
                try:
                    await self._ring(telling.line(self._node))
                except Exception as error:
                    if not is_refusal(error):
                        raise
                    telling.add(self._untold)
                    self._untold = telling  # told when there is a connection again
                    return
        finally:
            self._telling = None

    async def _ring(self, line: str) -> None:
        await self.ask(lambda session: session.rows(_SQL["ring"], channel=self._channel, line=line))

    # ---- hearing ----

    def ring(self) -> None:
        """Something may have been stored that this node does not know of."""
        self._heard.everything()
        self._stir.set()

    async def news(self) -> News:
        """Waits until there are some. A connection that is lost is made again, and what was missed meanwhile is news."""
        while not self._heard:
            self._stir.clear()
            is_silent = False
            if self._is_open:
                try:
                    async with asyncio.timeout(self._patience_s):
                        await self._stir.wait()
                except TimeoutError:
                    is_silent = True
            if (is_silent or not self._is_open) and not await self._is_there():
                await asyncio.sleep(_PAUSE_S)
        heard, self._heard, self._lines = self._heard, NodeNews(), 0
        return heard.news()

    async def _is_there(self) -> bool:
        try:
            await self.ask(lambda session: session.rows(_SQL["ping"]))
        except Exception as error:
            if not is_refusal(error):
                raise
            return False
        return True

    def _on_line(self, connection: object, process: int, channel: str, line: str) -> None:
        self._lines += 1
        if self._lines > _LINES_MAX:
            self._heard = NodeNews()
            self._heard.everything()
        else:
            self._heard.hear(line, besides=self._node, may_be=self.held.may_be)
        if self._heard:
            self._stir.set()

    # ---- the connection ----

    @property
    def _is_open(self) -> bool:
        return self._session is not None and not self._session.connection.is_closed()

    async def _connected(self) -> PostgresSession:
        if self._session is None or self._session.connection.is_closed():
            self._session = session = await self._connect()
            session.connection.add_termination_listener(lambda connection: self._stir.set())
            await session.connection.add_listener(self._channel, self._on_line)
            self.ring()  # whatever was told while nobody listened
            self._tell_on()
        return self._session

    def _drop(self) -> None:
        if self._session is not None:
            self._session.connection.terminate()
            self._session = None


LEASE_S = 10.0


class PostgresNodes:
    """See `peik.core.nodes.NodeStore`. Made by the store when it is opened. A node that never beats is none: it accepts and
    reads, and nobody counts on it."""

    def __init__(
        self, neighbourhood: Neighbourhood, ways: PostgresWays, *, node: str, lease_s: float, address: str | None
    ) -> None:
        self._neighbourhood = neighbourhood
        self._read = ways.read
        self._node = node
        self._lease_s = lease_s
        self._address = address

    @property
    def lease_s(self) -> float:
        return self._lease_s

    @property
    def node(self) -> str:
        return self._node

    # ---- leases ----

    async def beat(self, *, is_draining: bool = False) -> Beat:
        asked_at = asyncio.get_running_loop().time()
        row = await self._ask(
            lambda one: one.row(
                _SQL["beat"],
                node=self._node,
                version=__version__,
                address=self._address,
                lease_s=self._lease_s,
                is_draining=is_draining,
            )
        )
        assert row is not None
        if row["is_news"]:
            self._tell_of_leases()
        self._neighbourhood.held.beaten(row["bots"], until=asked_at + self._lease_s)
        return Beat(leases=dict(zip(row["bots"], row["epochs"], strict=True)), surplus=row["surplus"])

    async def release(self, bot_ids: Sequence[int]) -> None:
        self._neighbourhood.held.gone(bot_ids)
        if await self._run(_SQL["release"], node=self._node, bots=list(bot_ids)):
            self._tell_of_leases()

    async def leave(self) -> None:
        """Give everything back. If the server is away it ends by itself."""
        self._neighbourhood.held.beaten((), until=0.0)
        try:
            given = await self._neighbourhood.ask(lambda one: one.number(_SQL["leave"], node=self._node))
        except Exception as error:
            if not is_refusal(error):
                raise
            return
        if given:
            self._tell_of_leases()

    # ---- locks ----

    async def take_lock(self, name: str) -> bool:
        bound = {"name": name, "node": self._node, "lease_s": self._lease_s}
        return bool(await self._ask(lambda one: one.number(_SQL["take_lock"], **bound)))

    async def drop_lock(self, name: str) -> None:
        await self._run(_SQL["drop_lock"], name=name, node=self._node)

    async def is_locked(self, name: str) -> bool:
        return bool(await self._ask(lambda one: one.number(_SQL["is_locked"], name=name)))

    # ---- nodes ----

    async def nodes(self) -> list[NodeRecord]:
        return [
            NodeRecord(
                name=row["name"],
                version=row["version"],
                address=row["address"],
                started_at_ms=row["started_at"],
                seen_at_ms=row["seen_at"],
                is_draining=row["is_draining"],
                bots=tuple(row["bots"]),
            )
            for row in await self._read(lambda one: one.rows(_SQL["nodes"]))
        ]

    async def drain_node(self, name: str, *, is_draining: bool) -> bool:
        is_known = bool(await self._run(_SQL["drain_node"], name=name, is_draining=is_draining))
        if is_known:
            self._tell_of_leases()
        return is_known

    # ---- what the others did ----

    async def news(self) -> News:
        return await self._neighbourhood.news()

    async def new_letters(self, ranges: Sequence[tuple[int, int, int]]) -> list[Letter]:
        return await self._read(lambda one: reads.new_letters(one, ranges)) if ranges else []

    async def last_numbers(self) -> dict[int, int]:
        rows = await self._read(lambda one: one.rows(_SQL["last_numbers"], node=self._node))
        return {row[0]: row[1] for row in rows}

    async def durability(self) -> list[str]:
        return await self._read(session.warnings)

    async def failover_loses(self) -> bool:
        return bool(await self._read(lambda one: one.number(_SQL["is_followed_in_its_own_time"])))

    # ---- asking ----

    async def _ask(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        try:
            return await self._neighbourhood.ask(work)
        except Exception as error:
            raise translate(error, outcome="What this node holds ends when it would have ended.") from error

    async def _run(self, query: NamedQuery, **bound: object) -> int:
        return await self._ask(lambda one: one.run(query, **bound))

    def _tell_of_leases(self) -> None:
        telling = NodeNews()
        telling.leases()
        self._neighbourhood.tell(telling)


# Files of letters, in parts: every node can read them, and a backup of the database holds them. A part is durable before a letter
# that needs it is: its commit comes first, and the letter's waits for the disk.

_FILES_SQL = load("files.sql")


class AskFiles(Protocol):
    """A store's way in for files, or a move's."""

    async def __call__(self, work: Callable[[PostgresSession], Awaitable[T]], /) -> T: ...


class PostgresFiles:
    """See `peik.core.nodes.FileStore`. `ask` may ask twice: each of these may be done again."""

    def __init__(self, ask: AskFiles) -> None:
        self._ask = ask

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        await self._ask(lambda one: one.run(_FILES_SQL["keep_part"], blob=blob, place=place, part=part))

    async def part(self, blob: str, place: int) -> bytes | None:
        row = await self._ask(lambda one: one.row(_FILES_SQL["part"], blob=blob, place=place))
        return None if row is None else bytes(row[0])

    async def drop_files(self, blobs: Sequence[str]) -> None:
        if blobs:
            await self._ask(lambda one: one.run(_FILES_SQL["drop_files"], blobs=list(blobs)))

    async def kept_files(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._ask(lambda one: one.rows(_FILES_SQL["kept_files"]))}
