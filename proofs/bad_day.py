"""`make proof`: 5,000 letters over 400 chats on a bad day at Telegram, with real processes, sockets and clocks.

Three outages, ten chats that blocked the bot, 5 % of the requests lost before Telegram saw them and 2 % after. Prints
what it found, and ends with code 1 if a promise was broken. Takes about four minutes: the pace is the real one.
"""

import asyncio
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from tests.processes.programs import BOT, TOKEN, Server, Sim, served, simulated

CHATS = 400
LETTERS = 5000
BLOCKED = range(1, 11)
OUTAGES = ((20, 10), (40, 20), (30, 15))  # seconds of peace, seconds of darkness


async def main() -> int:
    chance = random.Random(20261115)
    wanted = [(chance.randint(1, CHATS), number) for number in range(LETTERS)]
    with tempfile.TemporaryDirectory(prefix="peik-proof-") as folder:
        async with simulated(Path(folder)) as (sim, http), served(Path(folder), sim.url, http) as server:
            await sim.post("bots", token=TOKEN)
            for chat in BLOCKED:
                await sim.post("users", id=chat)
                await sim.post("block", bot=BOT, user=chat)
            await sim.post("faults", kind="lose_before", method="sendMessage", probability=0.05)
            await sim.post("faults", kind="lose_after", method="sendMessage", probability=0.02)
            trouble = asyncio.create_task(outages(sim))
            ids = await accept(server, wanted, chance)
            await watch(server)
            await trouble
            return await judge(server, sim, wanted, ids)


async def outages(sim: Sim) -> None:
    for peace_s, dark_s in OUTAGES:
        await asyncio.sleep(peace_s)
        await sim.post("faults", kind="dark", seconds=dark_s)
        print(f"  Telegram goes dark for {dark_s} s")
        await asyncio.sleep(dark_s)


async def accept(server: Server, wanted: list[tuple[int, int]], chance: random.Random) -> list[str]:
    ids: list[str] = []
    for start in range(0, LETTERS, 100):
        part = wanted[start : start + 100]
        letters = [{"method": "sendMessage", "params": {"chat_id": c, "text": str(n)}} for c, n in part]
        _, answer = await server.call("POST", "/v1/letters/batch", json={"letters": letters})
        ids += answer["ids"]
        await asyncio.sleep(chance.uniform(0, 2))
    return ids


async def watch(server: Server) -> None:
    while True:
        stats = await server.get("/v1/stats")
        waiting = stats["waiting"] + stats["active"] + stats["delayed"]
        rss = psutil.Process(server.pid).memory_info().rss // 2**20
        print(f"  delivered {stats['completed']}, dead {stats['failed']}, waiting {waiting}, memory {rss} MiB")
        if not waiting:
            return
        await asyncio.sleep(10)


async def judge(server: Server, sim: Sim, wanted: list[tuple[int, int]], ids: list[str]) -> int:
    letters = [await server.get(f"/v1/letters/{letter_id}") for letter_id in ids]
    arrived: dict[int, list[str]] = defaultdict(list)
    for one in (await sim.get("sent", limit=100_000))["deliveries"]:
        arrived[one["chat_id"]].append(one["text"])
    deliverable = sum(chat not in BLOCKED for chat, _ in wanted)
    found: dict[str, Any] = {
        "letters": len(ids),
        "deliverable": deliverable,
        "delivered": sum(letter["state"] == "completed" for letter in letters),
        "failed, all to blocked chats": sum(letter["state"] == "failed" for letter in letters),
        "lost": sum(str(n) not in arrived[c] for c, n in wanted if c not in BLOCKED),
        "lanes out of order": sum(
            list(dict.fromkeys(arrived[chat])) != [str(n) for c, n in wanted if c == chat]
            for chat in range(1, CHATS + 1)
            if chat not in BLOCKED
        ),
        "arrived twice": sum(len(texts) - len(set(texts)) for texts in arrived.values()),
        "uncertain tries": sum(letter["uncertain_tries"] for letter in letters),
    }
    counters = await sim.get("counters")
    requests = sum(counters["answers"].values())
    found["requests answered 429"] = f"{counters['limited']} of {requests}"
    for name, value in found.items():
        print(f"{name}: {value}")
    is_kept = (
        found["delivered"] == deliverable
        and found["lost"] == found["lanes out of order"] == 0
        and found["arrived twice"] <= found["uncertain tries"]
        and counters["limited"] < requests * 0.01
        and not server.surprises()
    )
    print("every promise kept" if is_kept else "A PROMISE WAS BROKEN")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
