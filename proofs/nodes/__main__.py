"""`make nodes-proof`: three nodes, one store, one strict Telegram; 60 bots and 60,000 letters through kills, freezes,
drains and a database that ends. Prints what it found, and ends with code 1 if a promise was broken."""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from proofs.nodes.callers import Callers, Load, Waiters
from proofs.nodes.cluster import Cluster, cluster
from proofs.nodes.databases import Database, database
from proofs.nodes.deeds import Deeds, Plan
from proofs.nodes.judge import Verdict, judge
from tests.processes.programs import Sim, simulated

FIRST_BOT = 7_000_001
NODES = 3
LEASE_S = 10.0  # the default of PEIK_LEASE
WATCH_S = 10.0
PATIENCE_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.nodes", description=__doc__)
    parser.add_argument("--store", choices=("postgres", "redis"), required=True)
    parser.add_argument("--kill-database", action="store_true", help="with SIGKILL, instead of a restart")
    parser.add_argument("--letters", type=int, default=60_000)
    parser.add_argument("--bots", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--write", type=Path, help="a JSON file in which to keep the figures of this run")
    asked = parser.parse_args()
    load = Load(bots=asked.bots, chats=50, texts=asked.letters // (asked.bots * 50), callers=6, per_s=400.0)
    plan = Plan(
        lease_s=LEASE_S,
        calm_s=LEASE_S * 1.4,
        loop_s=LEASE_S * 3,
        storm_kills=8,
        storm_s=(3.0, 6.0),
        is_database_killed=asked.kill_database,
    )
    began = time.monotonic()
    verdict = asyncio.run(_prove(asked.store, load, plan, random.Random(asked.seed)))
    figures = {"seconds": round(time.monotonic() - began), "nodes": NODES, "bots": load.bots} | verdict.figures
    _show(f"{asked.store}{', the database killed' if asked.kill_database else ''}", figures)
    print("every promise kept" if not verdict.broken else f"A PROMISE WAS BROKEN: {'; '.join(verdict.broken)}")
    if asked.write is not None:
        _keep(asked.write, f"{asked.store}{'_killed' if asked.kill_database else ''}", figures, verdict.broken)
    return 1 if verdict.broken else 0


async def _prove(kind: str, load: Load, plan: Plan, chance: random.Random) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="peik-proof-") as name:
        folder = Path(name)
        server = database(kind, folder)
        server.start()
        try:
            async with simulated(folder) as (sim, http):
                bots = [FIRST_BOT + number for number in range(load.bots)]
                async with cluster(
                    folder, sim.url, http, store=server.store, count=NODES, bots=bots, chance=chance
                ) as nodes:
                    return await _play(sim, nodes, server, load, plan, chance)
        finally:
            server.remove()


async def _play(sim: Sim, nodes: Cluster, server: Database, load: Load, plan: Plan, chance: random.Random) -> Verdict:
    callers = Callers(nodes, load, chance)
    waiters = Waiters(nodes, chance)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f}  {line}", flush=True)

    deeds = Deeds(nodes, server, plan, chance, say)
    waiting = asyncio.create_task(waiters.run())
    watching = asyncio.create_task(_watch(nodes, callers, say))
    try:
        async with asyncio.timeout(PATIENCE_S):
            async with asyncio.TaskGroup() as group:
                group.create_task(callers.run())
                group.create_task(deeds.run())
            say("all letters are accepted, and all deeds are done")
            waiting.cancel()
            await asyncio.wait([waiting])
            await _quiet(nodes)
    except TimeoutError:
        say("not all letters have ended in time")  # and the figures say which
    finally:
        watching.cancel()
        waiting.cancel()
    say("nothing waits any more")
    return await judge(sim, nodes, callers, waiters, deeds.done)


async def _quiet(nodes: Cluster) -> None:
    await nodes.healthy()[0].quiet()


async def _watch(nodes: Cluster, callers: Callers, say: Any) -> None:
    while True:
        await asyncio.sleep(WATCH_S)
        with contextlib.suppress(Exception):  # of a node that was just killed
            async with asyncio.timeout(3):
                stats = await nodes.healthy()[0].get("/v1/stats")
            left = stats["waiting"] + stats["active"] + stats["delayed"]
            say(f"  accepted {len(callers.accepted)}, delivered {stats['completed']}, waiting {left}")


def _show(title: str, figures: dict[str, Any]) -> None:
    table = Table(title=f"Nodes on {title}", title_justify="left")
    table.add_column("what")
    table.add_column("figure", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)


def _keep(path: Path, name: str, figures: dict[str, Any], broken: list[str]) -> None:
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept[name] = {"figures": figures, "broken": broken}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
