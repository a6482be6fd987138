"""A bot of a real library with Peik in its own process, and people in a simulated Telegram over real sockets."""

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from peik import Peik, Receipt
from peik.testing import Limits, Options, SimServer
from tests.clients.harness import BOTS, Library, Stage
from tests.clients.stories import CAPABILITIES
from tests.patience import PATIENCE_S

TOKEN = "42000:AA-inside"
BOT = 42000
SETTINGS: dict[str, Any] = {"pace": False, "gateway_wait": "4s", "grace": "5s", "log_level": "error"}


def program(library: Library, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The library's test bot as it is run against a gateway: its handlers, fresh. It asks its environment for an API root."""
    monkeypatch.setenv("API_ROOT", "http://nowhere.invalid")
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    spec = importlib.util.spec_from_file_location("bot_program", BOTS / library.program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BotInside:
    """What a stage wants to know of a bot."""

    log = "nothing: it runs in this process"

    def __init__(self, library: Library) -> None:
        self.library = library
        self.handled: list[int] = []
        self._told = asyncio.Event()

    def note(self, user: int) -> None:
        """The bot has handled an update of that person to its end."""
        self.handled.append(user)
        self._told.set()

    def has_handled(self, user: int) -> bool:
        return user in self.handled

    async def until(self, fact: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not fact():
                self._told.clear()
                await self._told.wait()


@contextlib.asynccontextmanager
async def telegram() -> AsyncIterator[SimServer]:
    async with SimServer(options=Options(limits=Limits(on=False), anti_busy_loop=False), seed=7) as sim:
        sim.telegram.bot(TOKEN)
        yield sim


def opened(folder: Path, sim: SimServer, **settings: Any) -> Peik:
    return Peik.open(f"sqlite:///{folder}/peik.db", token=TOKEN, api_root=sim.url, **{**SETTINGS, **settings})


def play(story: Callable[[Peik, SimServer], Awaitable[None]], folder: Path, **settings: Any) -> None:
    """Tell a story of an open Peik and its Telegram."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim, opened(folder, sim, **settings) as peik:
            await story(peik, sim)

    asyncio.run(main())


async def shows_all_it_can(sim: SimServer, bot: BotInside) -> None:
    """Everything that bots do through the gateway, each for a person of its own, at the same time."""
    stage = Stage(sim, bot, None)  # type: ignore[arg-type]
    stage.bot_id = BOT
    async with asyncio.TaskGroup() as group:
        for user, can in enumerate(CAPABILITIES.values(), start=101):
            group.create_task(can(stage, user))


@contextlib.asynccontextmanager
async def beside(work: Awaitable[None]) -> AsyncIterator[None]:
    """Something that runs until it is cancelled. If it ends by itself before, the story ends with it, and by its error."""

    async def run() -> None:
        await work
        raise AssertionError("It ended by itself.")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
        yield
        task.cancel()


async def unread(peik: Peik, consumer: str = "default") -> int:
    """How many updates this consumer has not acknowledged yet."""
    tallies = await peik._transport.runtime.inbox.service.tallies(BOT)  # type: ignore[attr-defined]
    return sum(tally.open + tally.delayed for tally in tallies if tally.consumer.name == consumer)


async def letters(peik: Peik) -> list[Receipt]:
    """All of them, the oldest first."""
    return [receipt async for receipt in peik.letters()][::-1]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a fact in the store, which has no bell for tests."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
