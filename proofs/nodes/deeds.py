"""What is done to the nodes and to their database while letters come in, and when."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from proofs.nodes.cluster import Cluster, Node
from proofs.nodes.databases import Database


class Deed(msgspec.Struct, kw_only=True):
    """By the clock of the simulated Telegram's ledger."""

    kind: str
    at: float
    ended_at: float = 0.0
    bots: list[int] = []  # that it was about
    unserved: list[int] = []  # how many bots no living node had, every second


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    lease_s: float
    calm_s: float  # after a kill: until everything has long been served again
    loop_s: float
    storm_kills: int
    storm_s: tuple[float, float]  # between two of them
    is_database_killed: bool


class Deeds:
    def __init__(
        self, cluster: Cluster, database: Database, plan: Plan, chance: random.Random, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._database = database
        self._plan = plan
        self._chance = chance
        self._say = say
        self.done: list[Deed] = []

    async def run(self) -> None:
        """First each kind of deed by itself, so that it can be measured; then a storm of them."""
        for node in self._cluster.nodes:
            await self.kill(node, "kill")
            await asyncio.sleep(self._plan.calm_s)
            await self._cluster.shared()
        await self.freeze(self._cluster.nodes[0])
        await self._cluster.shared()
        await self.drain(self._cluster.nodes[1])
        await self._cluster.shared()
        await self.stop(self._cluster.nodes[2])
        await self._cluster.shared()
        await self.end_database()
        await asyncio.sleep(self._plan.calm_s)
        await self.crash_loop(self._cluster.nodes[0])
        await self._cluster.shared()
        await self.storm()

    def _begin(self, kind: str, bots: Sequence[int] = ()) -> Deed:
        deed = Deed(kind=kind, at=time.time(), bots=list(bots))
        self.done.append(deed)
        self._say(f"{kind}{f' ({len(deed.bots)} bots)' if bots else ''}")
        return deed

    async def kill(self, node: Node, kind: str) -> None:
        bots = await self._cluster.bots_of(node)
        deed = self._begin(kind, bots)
        await node.kill()
        await node.up()
        deed.ended_at = time.time()

    async def freeze(self, node: Node) -> None:
        """Until its leases are over and others have long had its bots; then it wakes in the middle of what it did."""
        bots = await self._cluster.bots_of(node)
        deed = self._begin("freeze", bots)
        node.freeze()
        await asyncio.sleep(self._plan.lease_s)
        await self._cluster.left(node, bots)
        await asyncio.sleep(self._plan.lease_s / 5)
        node.wake()
        deed.ended_at = time.time()

    async def drain(self, node: Node) -> None:
        """By the API; then it is taken in again."""
        bots = await self._cluster.bots_of(node)
        deed = self._begin("drain", bots)
        status, answer = await node.call("POST", f"/v1/nodes/{node.name}/drain")
        assert status == 202, answer
        await self._cluster.left(node, bots)
        deed.ended_at = time.time()
        await asyncio.sleep(self._plan.lease_s / 5)
        status, answer = await node.call("POST", f"/v1/nodes/{node.name}/resume")
        assert status == 202, answer

    async def stop(self, node: Node) -> None:
        """As a deploy does: SIGTERM, and the next version."""
        bots = await self._cluster.bots_of(node)
        deed = self._begin("stop", bots)
        code = await node.end()
        assert code == 0, node.output[-20:]
        deed.ended_at = time.time()
        await node.up()

    async def end_database(self) -> None:
        deed = self._begin("database killed" if self._plan.is_database_killed else "database restarted")
        await asyncio.to_thread(self._database.kill if self._plan.is_database_killed else self._database.stop)
        await asyncio.to_thread(self._database.start)
        deed.ended_at = time.time()

    async def crash_loop(self, node: Node) -> None:
        """It dies soon after each start, and is started again: the others must serve its bots, and keep their own."""
        deed = self._begin("crash loop")
        looking = asyncio.create_task(self._look(deed))
        while time.time() < deed.at + self._plan.loop_s:
            await self.kill(node, "kill in the crash loop")
            await asyncio.sleep(self._plan.lease_s / 5)
        looking.cancel()
        deed.ended_at = time.time()

    async def _look(self, deed: Deed) -> None:
        while True:
            await asyncio.sleep(1.0)
            living = {node.name for node in self._cluster.healthy()}
            holders = await self._cluster.holders()
            deed.unserved.append(sum(holders.get(bot) not in living for bot in self._cluster.bots))

    async def storm(self) -> None:
        """Kills closer together than the time of a lease, and the database in the midst of them."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.storm_kills):
                up = self._cluster.healthy()
                if up:
                    group.create_task(self.kill(self._chance.choice(up), "kill in the storm"))
                if number == self._plan.storm_kills // 2:
                    group.create_task(self.end_database())
                await asyncio.sleep(self._chance.uniform(*self._plan.storm_s))
