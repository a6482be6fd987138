"""The downloader bot and its worker as real processes: killed in the middle, and in the variant with Peik inside."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.examples.town import ADMIN, OMID, PEIK, SARA, Town, empty_town, play_inside, until_known, until_tidy
from tests.examples.web import SMALL
from tests.jobs.leased import DIES_S, LIVES_S
from tests.patience import PATIENCE_S
from tests.processes.programs import Program, served

pytestmark = pytest.mark.gate  # kills, and the whole demo

ROOT = Path(__file__).parents[2]
_READY = re.compile(r"is ready")


@contextlib.asynccontextmanager
async def program(town: Town, *arguments: str, lease_s: str = LIVES_S) -> AsyncIterator[Program]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = ("-m", "tests.jobs.leased", lease_s, "examples.downloader_bot", *arguments)
    one = Program(*command, folder=town.folder, PYTHONPATH=path, **town.environment)
    await one.start(_READY)
    try:
        yield one
    finally:
        if one.process.returncode is None:
            await one.kill()


def test_a_bot_that_is_killed_takes_no_download_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), empty_town(tmp_path) as town, aiohttp.ClientSession() as http:
            store = town.environment["PEIK_STORE"]
            async with served(tmp_path, town.sim.url, http, store=store, missed="both", **PEIK) as server:
                town.server = server
                town.environment["PEIK_URL"] = server.url
                async with program(town, "--worker") as hands:
                    async with program(town) as bot:
                        town.says(SARA, f"{town.web.url}/slow.bin")
                        await town.web.is_waiting.wait()
                        town.says(ADMIN, "/admin")
                        town.presses(ADMIN, await town.gets(ADMIN, "Admin panel"), "Ban")
                        await town.gets(ADMIN, "Send me the id")
                        await bot.kill()
                    town.says(ADMIN, str(SARA))
                    town.web.is_open.set()
                    assert town.content(await town.gets(SARA, method="sendDocument")) == SMALL
                    await until_known(town, f"{town.web.url}/slow.bin")
                    await until_tidy(town)
                    async with program(town) as bot:
                        await town.gets(ADMIN, f"{SARA} is banned")  # he goes on where he was
                        assert await bot.terminate() == 0
                    assert await hands.terminate() == 0

    asyncio.run(main())


def test_a_worker_that_is_killed_leaves_its_job_to_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), empty_town(tmp_path) as town:
            async with program(town, "--in-process", lease_s=DIES_S) as first:
                town.says(OMID, f"{town.web.url}/slow.bin")
                await town.web.is_waiting.wait()
                await town.sees(OMID, "Your download")  # an edit: the message that it is of is surely settled by now
                await first.kill()
            town.web.is_open.set()
            async with program(town, "--in-process") as second:
                assert town.content(await town.gets(OMID, method="sendDocument")) == SMALL
                await until_tidy(town)
                assert await second.terminate() == 0
            assert town.web.asked["/slow.bin"] == 2
            assert len(town.got(OMID, "Your download", "sendMessage")) == 1  # the same message goes on

    asyncio.run(main())


def test_the_demo_plays_to_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        demo = Program("-m", "examples.downloader_bot.demo", folder=tmp_path, PYTHONPATH=str(ROOT))
        await demo.start(re.compile("Everybody has what they asked for. Files left in work folders: 0."))
        assert await demo.ended() == 0
        assert (
            sum("<- sendVideo" in line for line in demo.output) == 5
        )  # one of them a second time, from Telegram's own copy

    asyncio.run(main())


def test_with_peik_inside_it_is_the_same_bot(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        link = f"{town.web.url}/small.txt"
        town.says(SARA, "/start")
        await town.gets(SARA, "لینک را بفرستید")
        town.says(SARA, link)
        assert town.content(await town.gets(SARA, method="sendDocument")) == SMALL
        await until_known(town, link)
        town.says(OMID, link)
        await town.gets(OMID, method="sendDocument")
        assert town.web.asked["/small.txt"] == 1
        town.says(ADMIN, "/admin")
        town.presses(ADMIN, await town.gets(ADMIN, "Admin panel"), "Statistics")
        await town.gets(ADMIN, "Requests today: 2, 1 of them answered at once.")
        town.says(SARA, f"{town.web.url}/moved.txt")
        await town.gets(SARA, "سهم امروز شما")
        await until_tidy(town)

    play_inside(story, tmp_path, DOWNLOADS_A_DAY="1")
