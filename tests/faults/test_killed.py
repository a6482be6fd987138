"""`kill -9` at random moments while letters go out and updates come in: both directions keep their promises."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.faults.hurting import hurt_server, under_way
from tests.faults.stores import SqliteFile
from tests.faults.traffic import Traffic
from tests.processes.programs import simulated

pytestmark = pytest.mark.gate  # kills at random

KILLS = {"polling": 9, "webhook": 7}


@pytest.mark.parametrize("inbound", ["polling", "webhook"])
def test_killed_at_random_nothing_is_lost_in_either_direction(tmp_path: Path, store: SqliteFile, inbound: str) -> None:
    chance = random.Random(5)

    async def story() -> None:
        async with (
            simulated(tmp_path, mode="local", limits={"on": False}) as (sim, http),
            hurt_server(
                tmp_path, sim, http, store=store.url, pace="off", inbound=inbound, poll_timeout="1s", backoff_ms="100"
            ) as server,
        ):
            await sim.post("faults", kind="slow", method="sendMessage", least_s=0.0, most_s=0.05)
            await server.start()
            async with Traffic(server, sim, chance) as traffic:
                for _ in range(KILLS[inbound]):
                    await asyncio.sleep(chance.uniform(0.05, 0.5))
                    await server.program.kill()
                    await server.start()
                await under_way(sim)
                await server.program.kill()
                await server.start()
                await traffic.end()
                uncertain = await traffic.judge()
            assert uncertain > 0, "some of them died in flight"
            assert not server.surprises()

    asyncio.run(story())
