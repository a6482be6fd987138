"""Nodes of one store as real processes: they are killed, frozen, drained and started again, and asked who serves what."""

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.processes.programs import Server

ASK_S = 5.0  # a frozen node never answers
START_S = 180.0
LOOK_S = 0.1


class Node(Server):
    """`peik serve` on one port. Each of its lives has a name of its own."""

    name = ""
    is_frozen = False
    is_up = False

    async def up(self) -> None:
        """Start it; as a service would, again and again while the store is away."""
        async with asyncio.timeout(START_S):
            while True:
                try:
                    await self.start()
                    self.name = next(one["name"] for one in await self.nodes() if one["is_this"])
                except (RuntimeError, StopIteration, AssertionError, aiohttp.ClientError, TimeoutError):
                    await self.kill()
                    await asyncio.sleep(LOOK_S)
                else:
                    self.is_up = True
                    return

    async def kill(self) -> None:
        self.is_up = self.is_frozen = False
        await self.program.kill()

    async def end(self) -> int:
        """In good order, as a deploy does."""
        self.is_up = False
        return await self.program.terminate()

    def freeze(self) -> None:
        self.is_frozen = True
        self.program.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.is_frozen = False
        self.program.process.send_signal(signal.SIGCONT)

    async def nodes(self) -> list[dict[str, Any]]:
        status, answer = await self.call("GET", "/v1/nodes", timeout=aiohttp.ClientTimeout(total=ASK_S))
        assert status == 200, answer
        return list(answer["nodes"])

    def told(self, event: str, field: str) -> int:
        """The sum of a figure over all log lines of one kind, of all its lives."""
        lines = [json.loads(line) for line in self.output if f'"event": "{event}"' in line]
        return sum(line[field] for line in lines)


class Cluster:
    """All nodes of one store."""

    def __init__(self, nodes: Sequence[Node], bots: Sequence[int], chance: random.Random) -> None:
        self.nodes = nodes
        self.bots = bots
        self._chance = chance

    def one_up(self, *, but: Node | None = None) -> Node | None:
        """Any node that is thought to answer; a frozen one is thought so, too."""
        up = [node for node in self.nodes if node.is_up and node is not but]
        return self._chance.choice(up) if up else None

    def healthy(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up and not node.is_frozen]

    async def holders(self) -> dict[int, str]:
        """By bot, the name of the node that serves it, as any healthy node says."""
        while True:
            for node in self.healthy():
                with contextlib.suppress(aiohttp.ClientError, AssertionError, TimeoutError):
                    return {int(bot): one["name"] for one in await node.nodes() for bot in one["bots"]}
            await asyncio.sleep(LOOK_S)

    async def bots_of(self, node: Node) -> list[int]:
        return [bot for bot, name in (await self.holders()).items() if name == node.name]

    async def shared(self) -> None:
        """Wait until each bot is served, and each node that is up serves its share."""
        while True:
            holders = await self.holders()
            names = [node.name for node in self.healthy()]
            shares = [sum(holder == name for holder in holders.values()) for name in names]
            most = -(-(len(self.bots) + 1) // len(names))  # the chores are one more
            if sum(shares) == len(self.bots) and max(shares) <= most and min(shares) > 0:
                return
            await asyncio.sleep(LOOK_S)

    async def left(self, node: Node, bots: Sequence[int]) -> None:
        """Wait until others serve these bots, which a node had."""
        while True:
            holders = await self.holders()
            if all(holders.get(bot, node.name) != node.name for bot in bots):
                return
            await asyncio.sleep(LOOK_S)


@contextlib.asynccontextmanager
async def cluster(
    folder: Path,
    api_root: str,
    http: aiohttp.ClientSession,
    *,
    store: str,
    count: int,
    bots: Sequence[int],
    chance: random.Random,
    **settings: str,
) -> AsyncIterator[Cluster]:
    """So many nodes, each with its share of the bots."""
    tokens = ",".join(f"{bot}:AAproof" for bot in bots)
    nodes = []
    for number in range(count):
        home = folder / f"node-{number + 1}"
        home.mkdir()
        node = Node(home, api_root, http, store=store, bot_tokens=tokens, log_format="json", **settings)
        nodes.append(node)
    made = Cluster(nodes, bots, chance)
    try:
        for node in nodes:
            await node.up()
        await made.shared()
        yield made
    finally:
        for node in nodes:
            if hasattr(node, "program"):
                await node.kill()
