"""One soak from start to end, with real processes, sockets, clocks and Telegram's real pace."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp

from peik.load.place import sizes_of
from proofs.soak.judge import Found, judge
from proofs.soak.plan import Plan
from proofs.soak.traffic import FIRST_BOT, Traffic, library_of, token_of
from proofs.soak.trouble import Trouble
from tests.processes.programs import Server, served, simulated
from tests.telegram.proxies import HttpProxy, alive

LOOK_S = 2.0
SAY_S = 30.0
PATIENCE_S = 600.0  # for what is still waiting when the trouble is over


async def soak(folder: Path, plan: Plan, say: Callable[[str], None]) -> Found:
    proxy = HttpProxy()
    tokens = [token_of(FIRST_BOT + number) for number in range(plan.bots)]
    async with simulated(folder) as (sim, http), alive(proxy):
        for token in tokens:  # people may write before Peik has asked about its bots
            await sim.post("bots", token=token)
        ways = f"http://127.0.0.1:{proxy.port},direct"
        settings = {"bot_tokens": ",".join(tokens), "inbound": "polling", "routes": ways, "log_format": "json"}
        async with served(folder, sim.url, http, **settings) as server, library_of(server) as library:
            traffic = Traffic(server, sim, http, library, plan)
            trouble = Trouble(server, sim, proxy, plan, say)
            async with _watched(server, traffic, trouble, say):
                await _play(traffic, trouble, server)
            found = await judge(server, sim, traffic, trouble)
            found.figures |= {f"bytes of {name}": size for name, size in sizes_of(folder).items() if size > 4096}
            return found


async def _play(traffic: Traffic, trouble: Trouble, server: Server) -> None:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(traffic.run(stop))
        group.create_task(trouble.run(stop))
        await stop.wait()
    async with asyncio.timeout(PATIENCE_S):
        await server.quiet()


@contextlib.asynccontextmanager
async def _watched(
    server: Server, traffic: Traffic, trouble: Trouble, say: Callable[[str], None]
) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(trouble.watch()), asyncio.create_task(_look(server, traffic, trouble, say))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _look(server: Server, traffic: Traffic, trouble: Trouble, say: Callable[[str], None]) -> None:
    said_at = time.monotonic()
    while True:
        await asyncio.sleep(LOOK_S)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, AssertionError):  # it was just killed
            async with asyncio.timeout(LOOK_S):
                stats = await server.get("/v1/stats")
            waiting = stats["waiting"] + stats["active"] + stats["delayed"]
            trouble.waiting.append((trouble.now_s, float(waiting)))
            if time.monotonic() - said_at >= SAY_S:
                said_at = time.monotonic()
                accepted = sum(len(texts) for texts in traffic.lanes.values())
                memory = trouble.lives[-1].memory[-1][1] / 2**20 if trouble.lives[-1].memory else 0
                say(
                    f"  accepted {accepted:,}, delivered {stats['completed']:,}, waiting {waiting}, memory {memory:.0f} MiB"
                )
