"""`make failover-proof`: PostgreSQL is killed under two nodes, and its standby is promoted; then Redis, and a sentinel promotes.

Twice: with a standby that every commit waits for, and with one that follows as it can. Both times the standby hears nothing for a
while, the primary is killed with SIGKILL meanwhile, and the standby takes over; one address names both. Callers repeat with the
same key what was not accepted. Then every letter that was accepted is looked for. Prints what it found, and ends with 1 if a
letter is lost behind the synchronous standby, or if the nodes do not go on by themselves.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from proofs.nodes.callers import Callers, Load
from proofs.nodes.cluster import Cluster, cluster
from proofs.nodes.databases import Database, Postgres, Redis, RedisSentinel
from proofs.nodes.judge import ledger, letters
from tests.processes.programs import Sim, simulated
from tests.storage.postgres.proxy import Proxy
from tests.storage.servers import USER, PostgresServer

FIRST_BOT = 7_000_001
CALM_S = 5.0  # before and after
DEAF_S = 1.0  # the standby hears nothing for so long before the primary dies
PROMOTED_S = 2.0  # somebody has to notice first
PATIENCE_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.failover", description=__doc__)
    parser.add_argument("--letters", type=int, default=4000)
    parser.add_argument("--store", nargs="+", choices=("postgres", "redis"), default=("postgres", "redis"))
    parser.add_argument("--seed", type=int, default=20261119)
    asked = parser.parse_args()
    load = Load(bots=10, chats=20, texts=asked.letters // 200, callers=6, per_s=250.0)
    broken = []
    for store, way in itertools.product(asked.store, ("synchronous", "asynchronous")):
        prove = _prove if store == "postgres" else _prove_redis
        figures = asyncio.run(prove(load, random.Random(asked.seed), is_synchronous=way == "synchronous"))
        way = f"{store}, {way}"
        print(f"{way} standby:", *(f"  {name}: {figure}" for name, figure in figures.items()), sep="\n", flush=True)
        wrong = ["not accepted", "surprises in logs", "waits for ever"]
        wrong += ["lost", "lanes out of order"] if way.endswith(" synchronous") else []
        broken += [f"{way}: {name}" for name in wrong if figures[name]]
    print("every promise kept" if not broken else f"A PROMISE WAS BROKEN: {'; '.join(broken)}")
    return 1 if broken else 0


async def _prove(load: Load, chance: random.Random, *, is_synchronous: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="peik-proof-") as name, contextlib.ExitStack() as servers:
        primary = Postgres(synchronous_standby_names="*" if is_synchronous else "")
        servers.callback(primary.remove)
        primary.start()
        async with Proxy(primary.port).running() as line:
            way = f"postgresql://{USER}@127.0.0.1:{line.port}/postgres"
            standby = await asyncio.to_thread(Postgres, standby_of=way)
            servers.callback(standby.remove)
            await asyncio.to_thread(standby.start)
            store = f"postgresql://{USER}@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
            async with simulated(Path(name)) as (sim, http):
                bots = [FIRST_BOT + number for number in range(load.bots)]
                async with cluster(Path(name), sim.url, http, store=store, count=2, bots=bots, chance=chance) as nodes:

                    async def promoted() -> None:
                        await asyncio.sleep(PROMOTED_S)
                        await _run(standby, "SELECT pg_promote()")

                    return await _play(
                        sim, nodes, Callers(nodes, load, chance), primary, line.answers.clear, promoted()
                    )


async def _prove_redis(load: Load, chance: random.Random, *, is_synchronous: bool) -> dict[str, Any]:
    """Two replicas and a sentinel. Synchronous: `replicas=1` in the address."""
    with tempfile.TemporaryDirectory(prefix="peik-proof-") as name, contextlib.ExitStack() as servers:
        folder = Path(name)
        primary, *replicas = (Redis(folder / f"redis-{number}") for number in range(3))
        for one in (primary, *replicas):
            servers.callback(one.remove)
            await asyncio.to_thread(one.start)
        for one in replicas:
            with one.client() as client:
                await asyncio.to_thread(client.slaveof, "127.0.0.1", primary.port)
        sentinel = RedisSentinel(folder, primary.port)
        servers.callback(sentinel.remove)
        await asyncio.to_thread(sentinel.start)
        await _until(lambda: sentinel.replicas() == len(replicas))
        store = sentinel.store + ("&replicas=1" if is_synchronous else "")

        def deafen() -> None:
            """Who is connected stays so; the replicas are put out, and are not let in again."""
            with primary.client() as client:
                client.config_set("requirepass", "another")
                client.execute_command("CLIENT", "KILL", "TYPE", "replica")

        async with simulated(folder) as (sim, http):
            bots = [FIRST_BOT + number for number in range(load.bots)]
            async with cluster(folder, sim.url, http, store=store, count=2, bots=bots, chance=chance) as nodes:
                promoted = _until(lambda: sentinel.primary() != primary.port)
                return await _play(sim, nodes, Callers(nodes, load, chance), primary, deafen, promoted)


async def _until(is_so: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(is_so):  # noqa: ASYNC110  another process is waited for
        await asyncio.sleep(0.05)


async def _play(
    sim: Sim,
    nodes: Cluster,
    callers: Callers,
    primary: Database,
    deafen: Callable[[], None],
    promoted: Awaitable[None],
) -> dict[str, Any]:
    accepting = asyncio.create_task(callers.run())
    await asyncio.sleep(CALM_S)
    deafen()
    await asyncio.sleep(DEAF_S)
    acknowledged = len(callers.accepted)
    await asyncio.to_thread(primary.kill)
    async with asyncio.timeout(PATIENCE_S):
        await promoted
    promoted_at = time.time()
    is_stuck = False
    try:
        async with asyncio.timeout(PATIENCE_S):
            await accepting
            await nodes.healthy()[0].quiet()
    except TimeoutError:
        is_stuck = True
    return await _judge(sim, nodes, callers, promoted_at, acknowledged) | {"waits for ever": is_stuck}


async def _judge(sim: Sim, nodes: Cluster, callers: Callers, promoted_at: float, acknowledged: int) -> dict[str, Any]:
    sent = await ledger(sim)
    stored = await letters(nodes)
    arrived = Counter(one.text for one in sent)
    known = {letter.text for letter in stored.values()}
    tries: Counter[str] = Counter()
    for letter in stored.values():
        tries[letter.text] += letter.uncertain_tries
    first: dict[tuple[int, int], dict[str, None]] = {}
    for one in sent:
        first.setdefault((one.bot_id, one.chat_id), {}).setdefault(one.text)
    return {
        "accepted": len(callers.accepted),
        "accepted before the primary died": acknowledged,
        "lost": sum(not arrived[text] for text in callers.accepted),
        "no longer in the store, delivered or not": sum(text not in known for text in callers.accepted),
        "arrived twice": sum(count - 1 for count in arrived.values()),
        "of these without an uncertain try": sum(max(0, count - 1 - tries[text]) for text, count in arrived.items()),
        "lanes out of order": sum(
            [text for text in texts if arrived[text]] != list(first.get(lane, ()))
            for lane, texts in callers.lanes.items()
        ),
        "asked again with the same key": callers.repeated,
        "not accepted": len(callers.refused),
        "seconds from the promotion to the next delivery": _next(sent, promoted_at),
        "surprises in logs": sum(
            "surprise" in text or "Traceback" in text for node in nodes.nodes for text in node.output
        ),
    }


def _next(sent: Any, at: float) -> float | None:
    return next((round(one.at - at, 2) for one in sent if one.at > at), None)


async def _run(server: PostgresServer, sql: str) -> None:
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


if __name__ == "__main__":
    sys.exit(main())
