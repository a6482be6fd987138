"""`make people-proof`: a bot that tells news to 1,200 chats, 40 at once, and answers people meanwhile, in real processes.

Peik between a client of the Bot API and a simulated Telegram with strict limits and the latency of a server in Europe. How long
people wait for their answers amid the news and alone, by turns; a hundred edits in a private chat straight and through Peik, by
turns; a hundred edits in a group. Prints the figures, and ends with 1 if one of them is not as promised or Telegram said 429.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from proofs.restarts import keep
from tests.processes.programs import TOKEN, Server, Sim, served, simulated

CHATS = range(10_001, 11_201)
AT_ONCE = 40
PEOPLE = 60  # in each turn; every third is one whom the news are for
PAUSE_S = 0.5  # between them
LATENCY_S = 0.05
EDITS = 100
TURNS = 3  # of the edits
ADDED_S_MAX = 0.1
RATIO_MAX = 1.5
STRICT = {"bot_per_s": 30.0, "bot_burst": 3, "chat_burst": 3, "flood_lengthens_s": 1.0}


class Bot:
    """It answers whoever writes, each in a task of its own, as libraries do."""

    def __init__(self, root: str, http: aiohttp.ClientSession) -> None:
        self._root = root
        self._http = http
        self.answered: dict[str, asyncio.Future[float]] = {}

    async def call(self, method: str, *, root: str | None = None, **fields: Any) -> Any:
        async with self._http.post(f"{root or self._root}/bot{TOKEN}/{method}", json=fields) as response:
            body = await response.json()
            assert body["ok"], body
            return body["result"]

    async def answers(self) -> None:
        offset = 0
        async with asyncio.TaskGroup() as group:
            while True:
                for update in await self.call("getUpdates", offset=offset, timeout=20):
                    offset = update["update_id"] + 1
                    group.create_task(self._answer(update["message"]))

    async def _answer(self, message: Any) -> None:
        await self.call("sendMessage", chat_id=message["chat"]["id"], text=f"answer to {message['text']}")
        self.answered[message["text"]].set_result(time.monotonic())

    async def tells_news(self) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def tell(chat: int) -> None:
            async with places:
                await self.call("sendMessage", chat_id=chat, text="news")

        async with asyncio.TaskGroup() as group:
            for chat in CHATS:
                group.create_task(tell(chat))


async def people_wait(bot: Bot, sim: Sim, turn: str) -> list[float]:
    """How long each of them waited for the answer."""
    waited: list[asyncio.Task[float]] = []

    async def write(number: int) -> float:
        text = f"{turn} {number}"
        bot.answered[text] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        await sim.post("write", bot=TOKEN, user=_person(number), text=text)
        return await bot.answered[text] - began

    for number in range(PEOPLE):
        await asyncio.sleep(PAUSE_S)
        waited.append(asyncio.create_task(write(number)))
    return list(await asyncio.gather(*waited))


def _person(number: int) -> int:
    return CHATS[number * 17] if number % 3 == 0 else 500 + number


async def edit(bot: Bot, chat: int, root: str | None = None) -> float:
    """How long a hundred edits take that wait for each other."""
    shown = await bot.call("sendMessage", root=root, chat_id=chat, text="0 %")
    began = time.monotonic()
    for number in range(1, EDITS + 1):
        await bot.call("editMessageText", root=root, chat_id=chat, message_id=shown["message_id"], text=f"{number} %")
    return time.monotonic() - began


async def measured(folder: Path) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=600)
    async with (
        simulated(folder, limits=STRICT) as (sim, http),
        served(folder, sim.url, http, is_copy=False, inbound="polling") as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as calls,
    ):
        await sim.post("faults", kind="slow", least_s=LATENCY_S, most_s=LATENCY_S)
        for number in range(PEOPLE):
            await sim.post("users", id=_person(number))
        bot = Bot(server.url, calls)
        answering = asyncio.create_task(bot.answers())
        waits: dict[str, list[float]] = {"alone": [], "amid": []}
        waits["alone"] += await people_wait(bot, sim, "before")
        began = time.monotonic()
        news = asyncio.create_task(bot.tells_news())
        waits["amid"] += await people_wait(bot, sim, "amid")
        is_amid = not news.done()
        await news
        news_s = time.monotonic() - began
        waits["alone"] += await people_wait(bot, sim, "after")
        answering.cancel()
        refused = (await sim.get("counters"))["limited"]
        return {
            "people alone, p95 s": _p95(waits["alone"]),
            "people amid the news, p95 s": _p95(waits["amid"]),
            "people amid the news, slowest s": round(max(waits["amid"]), 3),
            "news, s": round(news_s, 1),
            "429": refused,
            **await _edits(server, sim, bot),
        } | ({} if is_amid else {"wrong": "the news were over before the last person wrote"})


async def _edits(server: Server, sim: Sim, bot: Bot) -> dict[str, Any]:
    ratios = []
    for turn in range(TURNS):
        straight = await edit(bot, 20_000 + turn, root=sim.url)
        ratios.append(await edit(bot, 21_000 + turn) / straight)
    private = (await sim.get("counters"))["limited"]
    chats = [bot.call("sendMessage", chat_id=-1_000_500, text=str(number)) for number in range(10)]
    shown = await asyncio.gather(*chats)
    group = [
        bot.call("editMessageText", chat_id=-1_000_500, message_id=one["message_id"], text=f"{turn}")
        for turn in range(EDITS // len(shown))
        for one in shown
    ]
    await asyncio.gather(*group)
    await server.quiet()
    everything = (await sim.get("counters"))["limited"]
    return {
        "edits in a private chat, ratio": round(statistics.median(ratios), 2),
        "429 after edits": private,
        "429 after edits in a group": everything,
    }


def _p95(waits: list[float]) -> float:
    return round(statistics.quantiles(waits, n=20)[-1], 3)


def faults_in(found: dict[str, Any]) -> list[str]:
    """What is not as promised."""
    added = found["people amid the news, p95 s"] - found["people alone, p95 s"]
    faults = [f"people wait {added:.3f} s longer amid the news"] if added > ADDED_S_MAX else []
    if found["edits in a private chat, ratio"] > RATIO_MAX:
        faults.append("edits are slower than they may be")
    return faults + [f"{name}: {value}" for name, value in found.items() if name.startswith(("429", "wrong")) and value]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peik-people-") as folder:
        found = await measured(Path(folder))
    print(json.dumps(found))
    keep(given.write, "people", found)
    faults = faults_in(found)
    for fault in faults:
        print(f"! {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
