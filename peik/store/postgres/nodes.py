"""The nodes of one PostgreSQL schema: who lives, who holds the lease of which bot, and what they know of each other.

What a node holds ends when its beats end, by the server's clock; only then, or when it lets go, may another take it. Marks
are written under a lease and never without (`mark` in letters.sql), so that a node that was frozen, or cut off, marks nothing
any more once another has its bots.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from peik import __version__
from peik.core.letter import Letter
from peik.node_ports import Beat, News, NodeRecord
from peik.postgres_failures import is_refusal, translate
from peik.store.postgres import reading, session
from peik.store.postgres.inbox import Read
from peik.store.postgres.neighbourhood import Neighbourhood
from peik.store.postgres.queries import Query, load
from peik.store.postgres.session import Session
from peik.store.telling import Telling

T = TypeVar("T")

LEASE_S = 10.0

_SQL = load("nodes.sql")


class PostgresNodes:
    """See `peik.node_ports.NodeStore`. Made by the store when it is opened. A node that never beats is none: it accepts and
    reads, and nobody counts on it."""

    def __init__(
        self, neighbourhood: Neighbourhood, *, read: Read, node: str, lease_s: float, address: str | None
    ) -> None:
        self._neighbourhood = neighbourhood
        self._read = read
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
        return Beat(leases=dict(zip(row["bots"], row["epochs"], strict=True)), surplus=row["surplus"])

    async def release(self, bot_ids: Sequence[int]) -> None:
        if await self._run(_SQL["release"], node=self._node, bots=list(bot_ids)):
            self._tell_of_leases()

    async def leave(self) -> None:
        """Give everything back. If the server is away it ends by itself."""
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
        return await self._read(lambda one: reading.new_letters(one, ranges)) if ranges else []

    async def last_numbers(self) -> dict[int, int]:
        rows = await self._read(lambda one: one.rows(_SQL["last_numbers"], node=self._node))
        return {row[0]: row[1] for row in rows}

    async def durability(self) -> list[str]:
        return await self._read(session.warnings)

    # ---- asking ----

    async def _ask(self, work: Callable[[Session], Awaitable[T]]) -> T:
        try:
            return await self._neighbourhood.ask(work)
        except Exception as error:
            raise translate(error, outcome="What this node holds ends when it would have ended.") from error

    async def _run(self, query: Query, **bound: object) -> int:
        return await self._ask(lambda one: one.run(query, **bound))

    def _tell_of_leases(self) -> None:
        telling = Telling()
        telling.leases()
        self._neighbourhood.tell(telling)
