"""Figures over a `kill -9`: the last hour of the overview is whole again, as the counts of letters are."""

import asyncio
from pathlib import Path

from tests.faults.hurting import hurt_server, until
from tests.processes.programs import simulated


def test_after_a_kill_the_last_hour_says_what_the_counts_say(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, pace="off", inbound="off") as server,
        ):
            await server.start()
            for chat in range(1, 21):
                await server.post(chat, "hello")
            await server.quiet()
            await server.program.kill()  # within the minute: nothing of it is filed
            await server.start()

            async def is_whole() -> bool:
                hour, stats = (await server.get("/v1/overview"))["hour"], await server.quiet()
                return bool((hour["delivered"], hour["failed"]) == (stats["completed"], stats["failed"]) == (20, 0))

            assert await until(is_whole)
            assert not server.surprises()

    asyncio.run(story())
