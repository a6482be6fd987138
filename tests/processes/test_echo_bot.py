"""A bot that is stopped while people write to it, with real processes: the example bot, its users, Ctrl-C and `kill -9`."""

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.faults.hurting import is_confirmed
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, TOKEN, Program, Sim, simulated

pytestmark = pytest.mark.gate  # kills of a real bot

EXAMPLE = Path(__file__).parents[2] / "examples" / "echo_bot.py"
USERS = 50
RECOVERED = re.compile("recovered what Telegram kept")
LANGUAGES = ("fa", "en", "ru", "uz")
NOTICED = {"fa": "پیام", "en": "We received", "ru": "получили", "uz": "qabul"}


class EchoBot:
    """The example as its reader would start it; only the places differ."""

    def __init__(self, folder: Path, sim: Sim) -> None:
        self._folder = folder
        self._settings = {"BOT_TOKEN": TOKEN, "PEIK_API_ROOT": sim.url, "PEIK_MISSED_AFTER": "1s"}
        self.output: list[str] = []

    async def start(self) -> None:
        self.program = Program(str(EXAMPLE), folder=self._folder, **self._settings)
        self.program.output = self.output
        await self.program.start(RECOVERED)


@contextlib.asynccontextmanager
async def ended_after(bot: EchoBot) -> AsyncIterator[EchoBot]:
    try:
        yield bot
    finally:
        await bot.program.kill()


async def write(sim: Sim, user: int, text: str) -> None:
    await sim.post("users", id=user, first_name=f"User {user}", language_code=LANGUAGES[user % len(LANGUAGES)])
    await sim.post("write", bot=TOKEN, user=user, text=text)


async def texts(sim: Sim) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for message in (await sim.get("sent", bot=BOT, limit=1000))["deliveries"]:
        found.setdefault(int(message["chat_id"]), []).append(str(message["text"]))
    return found


async def until(sim: Sim, is_so: Callable[[dict[int, list[str]]], bool]) -> dict[int, list[str]]:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so(found := await texts(sim)):  # noqa: ASYNC110  another process is waited for
            await asyncio.sleep(0.1)
    return found


async def confirmed(sim: Sim) -> None:
    """Until Telegram was told that all of it has come: what it was not told of it would keep for the next start."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_confirmed(sim):  # noqa: ASYNC110  another process is waited for
            await asyncio.sleep(0.02)


def echoes(found: dict[int, list[str]], user: int) -> list[str]:
    return [text for text in found.get(user, []) if text.startswith("You said: ")]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_fifty_write_it_dies_fifty_more_write_and_all_are_answered_in_order(tmp_path: Path, ending: int) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, _), ended_after(EchoBot(tmp_path, sim)) as bot:
            await bot.start()
            first, second = range(1000, 1000 + USERS), range(1000 + USERS // 2, 1000 + USERS // 2 + USERS)
            for user in first:
                await write(sim, user, f"first of {user}")
            await until(sim, lambda found: all(echoes(found, user) for user in first))
            await confirmed(sim)
            await end(bot, ending)

            for user in second:
                await write(sim, user, f"second of {user}")
            await asyncio.sleep(1.2)  # the one thing that only time can do: they have waited
            await bot.start()
            await until(sim, lambda found: all(len(found.get(user, [])) >= 2 for user in second))
            found = await until(
                sim, lambda found: all(echoes(found, user)[-1:] == [f"You said: second of {user}"] for user in second)
            )
            await end(bot, signal.SIGINT)

            for user in set(first) | set(second):
                said = [f"You said: first of {user}"] * (user in first) + [f"You said: second of {user}"] * (
                    user in second
                )
                assert echoes(found, user) == said, "answered once, in order"
                notices = [text for text in found[user] if not text.startswith("You said")]
                assert len(notices) == (user in second), "told once, and only who waited"
                assert all(
                    NOTICED[LANGUAGES[user % 4]] in text and f"second of {user}"[:50] in text for text in notices
                )
            recovered = [line for line in bot.output if RECOVERED.search(line)]
            assert len(recovered) == 2
            assert f"found={USERS}" in recovered[1]
            assert f"stored={USERS}" in recovered[1]

    asyncio.run(story())


async def end(bot: EchoBot, how: int) -> None:
    bot.program.process.send_signal(how)
    assert await bot.program.ended() == (-how if how == signal.SIGKILL else 0), "".join(bot.output[-20:])


def test_five_and_five_as_the_document_says(tmp_path: Path) -> None:
    """Run, send 5, stop, send 5 more, run: the second 5 arrive, the user is told, the log says how many."""

    async def story() -> None:
        async with simulated(tmp_path) as (sim, _), ended_after(EchoBot(tmp_path, sim)) as bot:
            await bot.start()
            for number in range(5):
                await write(sim, 7, f"message {number}")
            await until(sim, lambda found: len(echoes(found, 7)) == 5)
            await confirmed(sim)
            await end(bot, signal.SIGINT)
            for number in range(5, 10):
                await write(sim, 7, f"message {number}")
            await asyncio.sleep(1.2)
            await bot.start()
            found = await until(sim, lambda found: len(found.get(7, [])) == 11)
            await end(bot, signal.SIGINT)
            assert echoes(found, 7) == [f"You said: message {number}" for number in range(10)]
            log = "".join(bot.output)
            assert re.search(r"recovered what Telegram kept\" .*found=5 stored=5", log)
            assert re.search(r"outage settled\" .*missed=5 handed=5 notices=1", log)
            assert str(BOT) in log
            assert TOKEN.partition(":")[2] not in log

    asyncio.run(story())
