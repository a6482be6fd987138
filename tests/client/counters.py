"""The two ways into the library, for stories that must be told the same on both: this process, and a real `peik serve`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peik import Peik
from peik.testing import Limits, Options, SimServer
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, TOKEN, served

Story = Callable[[Peik, SimServer], Coroutine[Any, Any, None]]
both = pytest.mark.parametrize("way", ["open", "connect"])
SETTINGS = {"pace": "off", "backoff_ms": "50", "upload_max": "1M"}


def play(way: str, folder: Path, story: Story) -> None:
    """Tell a story to a Peik that was opened in this way, with a simulated Telegram behind it."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim, entered(way, folder, sim) as peik:
            await story(peik, sim)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def telegram() -> AsyncIterator[SimServer]:
    async with SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim:
        sim.telegram.bot(TOKEN)
        yield sim


@contextlib.asynccontextmanager
async def entered(way: str, folder: Path, sim: SimServer) -> AsyncIterator[Peik]:
    if way == "open":
        async with opened(folder, sim) as peik:
            yield peik
        return
    async with (
        aiohttp.ClientSession() as http,
        served(folder, sim.url, http, **SETTINGS) as server,
        Peik.connect(server.url, key=KEY) as peik,
    ):
        yield peik
        assert not server.surprises(), "".join(server.output)


def opened(folder: Path, sim: SimServer, **settings: str) -> Peik:
    return Peik.open(f"sqlite:///{folder}/peik.db", token=TOKEN, api_root=sim.url, **SETTINGS, **settings)
