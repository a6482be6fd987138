"""Two nodes on one server's store, with leases of a second: one is killed, one is frozen, and nothing is lost."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proofs.nodes.callers import Callers, Load, Waiters
from proofs.nodes.cluster import Cluster, Node, cluster
from proofs.nodes.judge import judge
from tests.patience import PATIENCE_S
from tests.processes.programs import Sim, simulated
from tests.storage.redis_server import shared
from tests.storage.servers import postgres

pytestmark = pytest.mark.gate  # kills of real nodes

BOTS = [7_000_001 + number for number in range(6)]
LOAD = Load(bots=len(BOTS), chats=12, texts=8, callers=3, per_s=150.0)


STORES = pytest.mark.parametrize("kind", ["postgres", "redis"])


def a_store(kind: str) -> str:
    own = f"nodes_{uuid.uuid4().hex[:12]}"
    return f"{postgres().url}?schema={own}" if kind == "postgres" else f"{shared().url}?prefix={own}"


@asynccontextmanager
async def two_nodes(kind: str, folder: Path, *, lease: str) -> AsyncIterator[tuple[Sim, Cluster]]:
    chance = random.Random(3)
    async with (
        simulated(folder) as (sim, http),
        cluster(folder, sim.url, http, store=a_store(kind), count=2, bots=BOTS, chance=chance, lease=lease) as nodes,
    ):
        yield sim, nodes


async def hurt(nodes: Cluster) -> None:
    """Each waits for a fact: that others serve what the hurt node had."""
    first, second = nodes.nodes
    bots = await nodes.bots_of(first)
    await first.kill()
    await nodes.left(first, bots)
    await first.up()
    await nodes.shared()
    bots = await nodes.bots_of(second)
    second.freeze()
    await nodes.left(second, bots)
    second.wake()
    await nodes.shared()


@STORES
def test_a_killed_and_a_frozen_node_lose_nothing_and_repeat_only_what_was_uncertain(kind: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with two_nodes(kind, tmp_path, lease="1s") as (sim, nodes):
            chance = random.Random(5)
            callers, waiters = Callers(nodes, LOAD, chance), Waiters(nodes, chance)
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                group.create_task(callers.run())
                group.create_task(hurt(nodes))
            await nodes.nodes[0].quiet()
            verdict = await judge(sim, nodes, callers, waiters, [])
            assert not verdict.broken
            assert verdict.figures["accepted"] == LOAD.letters
            assert verdict.figures["leases lost"] > 0, "the frozen node has not noticed"

    asyncio.run(story())


@STORES
def test_who_waits_at_one_node_is_answered_by_another_which_can_end_and_leave_its_bots(
    kind: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with two_nodes(kind, tmp_path, lease="10s") as (_, nodes):
            holders = await nodes.holders()
            for node in nodes.nodes:
                bot = next(bot for bot in BOTS if holders[bot] != node.name)
                assert (await waited(node, bot))["state"] == "completed"

            leaver, stayer = nodes.nodes
            bots = await nodes.bots_of(leaver)
            assert await leaver.end() == 0
            assert leaver.told("# left bots to other nodes", "let_go") >= len(bots), "they would have to run out"
            await nodes.left(leaver, bots)
            assert (await waited(stayer, bots[0]))["state"] == "completed"

    asyncio.run(story())


async def waited(node: Node, bot: int) -> dict[str, Any]:
    """A letter of a bot as a node tells of it when it has ended."""
    body = {"bot_id": str(bot), "method": "sendMessage", "params": {"chat_id": 5, "text": "on its way"}}
    _, answer = await node.call("POST", "/v1/letters?wait=200s", json=body)
    return dict(answer)
