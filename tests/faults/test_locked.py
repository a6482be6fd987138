"""A stranger locks the database for longer than Peik waits: callers are told, reading goes on, and so does all else after."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.hurting import hurt_server, is_confirmed, pending, sent_texts, until, write
from tests.processes.programs import Program, simulated

pytestmark = pytest.mark.gate  # it waits out a lock

STRANGER = """
import pathlib, sqlite3, time
print("ready", flush=True)
while not pathlib.Path("now").exists():
    time.sleep(0.01)
connection = sqlite3.connect("peik.db", isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(3600)
"""


@contextlib.asynccontextmanager
async def a_stranger(folder: Path) -> AsyncIterator[Program]:
    """Another program, which is told when to lock and dies in the middle of its transaction: SQLite's locks die with it."""
    stranger = Program("-c", STRANGER, folder=folder)
    await stranger.start(re.compile("ready"))
    try:
        yield stranger
    finally:
        await stranger.kill()


async def locks(stranger: Program, folder: Path) -> None:
    (folder / "now").touch()
    await until(lambda: "locked\n" in stranger.output)


def test_a_stranger_that_locks_the_database_delays_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(
                tmp_path, sim, http, pace="off", inbound="polling", poll_timeout="1s", backoff_ms="100"
            ) as server,
        ):
            await server.start()
            # Its answer must come while the stranger has the lock, who keeps it for longer than that.
            await sim.post("faults", kind="slow", method="sendMessage", least_s=4.0, most_s=4.0, count=1)
            async with a_stranger(tmp_path) as stranger:
                assert (await server.post(5, "in flight"))[0] == 202
                await sim.get("sent", at_least=1)
                await locks(stranger, tmp_path)
                await write(sim, 7, "meanwhile")
                by_rest, by_gateway = await asyncio.gather(
                    server.post(5, "refused"), server.ask("sendMessage", chat_id=5, text="refused as well")
                )
                assert (by_rest[0], by_rest[1]["code"]) == (503, "store_locked")
                assert (by_gateway[0], by_gateway[1]["ok"]) == (503, False)
                assert (await server.get("/v1/stats"))["completed"] == 0, "reading goes on, and no end is told unstored"
                assert (await server.get("/health"))["parts"]["store"]["status"] == "store_locked"
                await until(lambda: server.said("updates cannot be stored"))
                assert await pending(sim) == 1
                waits_for_the_lock = asyncio.create_task(server.post(5, "patient"))
                await asyncio.sleep(0.1)
            assert (await waits_for_the_lock)[0] == 202
            await until(lambda: is_confirmed(sim))
            await server.quiet()
            assert await sent_texts(sim, 5) == ["in flight", "patient"]
            assert [one["text"] for one in await server.arrivals()] == ["meanwhile"]
            assert [one["uncertain_tries"] for one in await server.letters()] == [0, 0]
            assert not server.surprises()

    asyncio.run(story())
