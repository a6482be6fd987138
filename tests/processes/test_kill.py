"""`kill -9` at random moments while letters keep coming: every acknowledged letter ends as promised."""

import asyncio
import random
from collections import Counter, defaultdict
from pathlib import Path

import aiohttp
import pytest

from tests.processes.programs import Server, served, simulated

pytestmark = pytest.mark.gate  # fifty kills

KILLS = 50
FEEDERS = 12


class Feeder:
    """Posts letters to one chat, one after the other, and remembers those that were acknowledged, in order."""

    def __init__(self, chat_id: int) -> None:
        self.chat_id = chat_id
        self.acknowledged: list[tuple[str, str, bool]] = []  # id, text, held
        self._number = 0

    async def run(self, server: Server, stop: asyncio.Event, chance: random.Random) -> None:
        while not stop.is_set():
            self._number += 1
            is_held = chance.random() < 0.25
            text = f"{self.chat_id}/{self._number}"
            body = {"method": "sendMessage", "params": {"chat_id": self.chat_id, "text": text}, "backoff_ms": 100}
            if is_held:
                body["on_uncertain"] = "hold"
            try:
                status, answer = await server.call("POST", "/v1/letters", json=body)
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(0.02)  # Peik is down: nothing was promised
                continue
            assert status == 202, answer
            self.acknowledged.append((answer["id"], text, is_held))
            await asyncio.sleep(chance.uniform(0, 0.03))


@pytest.mark.gate
@pytest.mark.timeout(900)  # half a hundred starts take a slow machine minutes
def test_killed_50_times_nothing_acknowledged_is_lost_and_held_letters_arrive_at_most_once(tmp_path: Path) -> None:
    chance = random.Random(1)

    async def story() -> None:
        async with simulated(tmp_path, limits={"on": False}) as (sim, http):
            await sim.post("faults", kind="slow", least_s=0.0, most_s=0.05)
            async with served(tmp_path, sim.url, http, pace="off") as server:
                stop = asyncio.Event()
                feeders = [Feeder(chat_id) for chat_id in range(1, FEEDERS + 1)]
                feeding = asyncio.gather(*(feeder.run(server, stop, chance) for feeder in feeders))
                for _ in range(KILLS):
                    await asyncio.sleep(chance.uniform(0.01, 0.4))
                    await server.program.kill()
                    await server.start()
                stop.set()
                await feeding
                stats = await server.quiet()
                assert not server.surprises()
                await judge(server, await arrivals(sim), feeders)
                assert stats["completed"] + stats["failed"] >= sum(len(feeder.acknowledged) for feeder in feeders)

    asyncio.run(story())


async def arrivals(sim: object) -> dict[int, list[str]]:
    by_chat: dict[int, list[str]] = defaultdict(list)
    after = 0
    while True:
        page = await sim.get("sent", after=after, limit=5000)  # type: ignore[attr-defined]
        for one in page["deliveries"]:
            by_chat[one["chat_id"]].append(one["text"])
            after = one["number"]
        if not page["deliveries"]:
            return by_chat


async def judge(server: Server, arrived: dict[int, list[str]], feeders: list[Feeder]) -> None:
    uncertain = 0
    repeats = 0
    for feeder in feeders:
        seen = Counter(arrived[feeder.chat_id])
        for letter_id, text, is_held in feeder.acknowledged:
            letter = await server.get(f"/v1/letters/{letter_id}")
            uncertain += letter["uncertain_tries"]
            repeats += max(0, seen[text] - 1)
            if is_held:
                assert seen[text] <= 1, text
                is_told = letter["state"] == "completed" or letter["failed_reason"] == "uncertain"
            else:
                assert seen[text] >= 1, text
                assert seen[text] <= 1 + letter["uncertain_tries"], text
                is_told = letter["state"] == "completed"
            assert is_told, letter
        first_seen = list(dict.fromkeys(arrived[feeder.chat_id]))
        promised = [text for _, text, _ in feeder.acknowledged if seen[text]]
        assert [text for text in first_seen if text in set(promised)] == promised
    assert repeats <= uncertain
