"""SIGSTOP and SIGCONT: a process that stood still for longer than all of its timeouts goes on as if it had been slow."""

import asyncio
import random
from pathlib import Path

import pytest

from peik import Peik
from tests.faults.hurting import hurt_server, is_confirmed, pending, sent_texts, until, write
from tests.faults.stores import SqliteFile
from tests.faults.traffic import Traffic
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN, Sim, simulated

pytestmark = pytest.mark.gate  # freezes at random

FREEZES = 8
BEFORE = 10  # letters to one chat: more than Telegram takes at once
FROZEN_S = 2.5  # longer than a try and a poll may take below


def test_frozen_at_random_nothing_is_lost_in_either_direction(tmp_path: Path, store: SqliteFile) -> None:
    chance = random.Random(6)

    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(
                tmp_path,
                sim,
                http,
                store=store.url,
                pace="off",
                inbound="polling",
                poll_timeout="1s",
                timeout="500ms",
                backoff_ms="100",
            ) as server,
        ):
            await sim.post("faults", kind="slow", method="sendMessage", least_s=0.0, most_s=0.05)
            await server.start()
            async with Traffic(server, sim, chance) as traffic:
                for _ in range(FREEZES):
                    await asyncio.sleep(chance.uniform(0.05, 0.5))
                    server.freeze()
                    await asyncio.sleep(chance.uniform(0.1, 1.2))
                    server.wake()
                await traffic.end()
                await traffic.judge()
            assert not server.surprises()

    asyncio.run(story())


async def stands_still(sim: Sim) -> int:
    """How many were sent by who sleeps now. With every answer Telegram has gone through all that had come before: a connection,
    what was written to it, and what comes of that."""
    for _ in range(10):
        sent = int((await sim.get("sent"))["total"])
    return sent


def test_woken_it_keeps_the_pace_and_sends_what_a_guest_accepted_meanwhile(tmp_path: Path, store: SqliteFile) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path) as (sim, http),
            hurt_server(
                tmp_path, sim, http, store=store.url, inbound="polling", poll_timeout="1s", timeout="1s"
            ) as server,
        ):
            await server.start()
            before = [f"before {number}" for number in range(BEFORE)]
            for text in before:
                assert (await server.post(5, text))[0] == 202
            await sim.get("sent", at_least=2)
            await server.freeze_between_commits(store)
            sent = await stands_still(sim)  # what it had written to its sockets by then has arrived
            assert sent < BEFORE, "the pace keeps some of them waiting"
            async with Peik.open(store.url, token=TOKEN, api_root=sim.url) as guest:
                letter = await guest.send_text(5, "by the guest")
                await write(sim, 7, "while it slept")
                await asyncio.sleep(FROZEN_S)
                assert (await sim.get("sent"))["total"] == sent, "the right to send is the sleeper's"
                assert await pending(sim) == 1
                server.wake()
                receipt = await guest.wait(letter.id, timeout=PATIENCE_S)
                assert receipt.state == "completed"
            texts = [*before, "by the guest"]
            letters = {one["params"]["text"]: one for one in await server.letters()}
            arrived = await sent_texts(sim, 5)
            assert list(dict.fromkeys(arrived)) == texts
            assert all(arrived.count(text) <= 1 + letters[text]["uncertain_tries"] for text in texts)
            assert [one["text"] for one in await until(server.arrivals)] == ["while it slept"]
            assert (await sim.get("counters"))["limited"] == 0, "it did not make up for lost time"
            assert not server.surprises()

    asyncio.run(story())


def test_killed_in_its_sleep_a_guest_takes_over(tmp_path: Path, store: SqliteFile) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(
                tmp_path, sim, http, store=store.url, pace="off", inbound="polling", poll_timeout="1s"
            ) as server,
        ):
            await server.start()
            await sim.post("faults", kind="hang", method="sendMessage", after=True, count=1)
            assert (await server.post(5, "in flight"))[0] == 202
            await sim.get("sent", at_least=1)
            assert (await server.post(5, "behind it"))[0] == 202
            await server.freeze_between_commits(store)
            async with Peik.open(store.url, token=TOKEN, api_root=sim.url, pace=False, backoff_ms=100) as guest:
                letter = await guest.send_text(5, "by the guest")
                await write(sim, 7, "to whoever is there")
                await asyncio.sleep(FROZEN_S)
                assert await sent_texts(sim, 5) == ["in flight"]
                await server.program.kill()
                assert (await guest.wait(letter.id, timeout=PATIENCE_S)).state == "completed"
                # What the sleeper had in flight may have arrived, and has: the one repeat is a counted one.
                assert await sent_texts(sim, 5) == ["in flight", "in flight", "behind it", "by the guest"]
                await until(lambda: is_confirmed(sim))
            await server.start()
            assert [one["text"] for one in await server.arrivals()] == ["to whoever is there"]
            assert [one["uncertain_tries"] for one in await server.letters()] == [1, 0, 0]

    asyncio.run(story())
