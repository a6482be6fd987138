"""A large backlog: accepted in one call, harmless to memory, and no burden to other chats."""

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes.programs import Server, served, simulated

pytestmark = pytest.mark.gate  # a hundred thousand letters

MIB = 1024 * 1024


def letters(count: int, chat_id: int | None = None) -> list[dict[str, Any]]:
    text = "A letter of about the usual length, so that a hundred thousand of them weigh what they weigh in life. " * 2
    return [
        {"method": "sendMessage", "params": {"chat_id": chat_id or 1 + n % 5000, "text": f"{n} {text}"}}
        for n in range(count)
    ]


def rss(server: Server) -> int:
    return int(psutil.Process(server.pid).memory_info().rss)


def test_100000_letters_in_one_call_and_memory_does_not_grow_with_the_backlog(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path, limits={"on": False}) as (sim, http):
            await sim.post("faults", kind="dark")
            async with served(tmp_path, sim.url, http, is_copy=False, pace="off") as server:
                whole = {"letters": letters(100_000)}
                status, answer = await server.call("POST", "/v1/letters/batch", json=whole)
                assert status == 202
                assert len(set(answer["ids"])) == 100_000
                for _ in range(4):
                    await server.call("POST", "/v1/letters/batch", json={"letters": letters(5000)})
                before = rss(server)
                for _ in range(20):
                    await server.call("POST", "/v1/letters/batch", json={"letters": letters(5000)})
                assert (await server.get("/v1/stats"))["waiting"] == 220_000
                assert rss(server) - before < 16 * MIB

    asyncio.run(story())


def test_a_group_with_50000_waiting_letters_does_not_delay_other_chats(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            await server.call("POST", "/v1/letters/batch", json={"letters": letters(50_000, chat_id=-100500)})
            for chat_id in range(1, 21):
                body = {"method": "sendMessage", "params": {"chat_id": chat_id, "text": "quick"}}
                status, letter = await server.call("POST", "/v1/letters?wait=200s", json=body)
                assert (status, letter["state"]) == (200, "completed")
            stats = await server.get("/v1/stats")
            assert stats["completed"] < 100
            assert stats["waiting"] > 49_900

    asyncio.run(story())
