"""Real libraries with their own defaults, killed in the middle of their handlers: nothing that people wrote is lost."""

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.clients.harness import LIBRARIES, Library, Stage, staged
from tests.patience import PATIENCE_S
from tests.processes.test_nodes import a_store

pytestmark = [pytest.mark.gate, pytest.mark.clients]

DEATHS = 10
SLOW_TEXTS = 5  # written in each life: three by people of their own, two by one person
each_library = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


class Crowd:
    """People who write to a bot, each text once, and what became of each."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names = count(1)
        self.texts: list[str] = []

    def write(self) -> None:
        for place in range(SLOW_TEXTS):
            number = next(self._names)
            self.texts.append(f"/slow {number}")
            self._stage.writes(1000 + number if place < 3 else 999, self.texts[-1])

    def answers(self) -> Counter[str]:
        found = Counter(self._stage.telegram.sent.texts(bot_id=self._stage.bot_id))
        return Counter({text: found[f"echo: {text}"] for text in self.texts})

    async def all_answered(self) -> Counter[str]:
        await self._stage.until(lambda: all(self.answers().values()), f"all of {self.texts} are answered")
        return self.answers()

    async def all_done(self) -> Counter[str]:
        """Everybody has an answer, and nothing is unread or in hand: as when people restart things on a quiet day."""
        answers = await self.all_answered()
        server = self._stage.server
        assert server is not None
        consumers = (await server.get("/v1/consumers"))["consumers"]
        async with asyncio.timeout(PATIENCE_S):
            while any(one["open"] for one in consumers):
                consumers = (await server.get("/v1/consumers"))["consumers"]
        return answers

    async def in_the_middle(self) -> None:
        """One handler of this life has ended, and another one has begun and not ended."""
        facts = self._stage.bot.facts

        def is_so() -> bool:
            ended = sum("handled" in fact for fact in facts)
            began = sum("began" in fact for fact in facts)
            return 0 < ended < began or ended >= SLOW_TEXTS  # all at the same time, before anybody could look

        await self._stage.bot.until(is_so, "the bot is in the middle of a handler")


async def _ended(library: Library, folder: Path, *, is_killed: bool = True, **settings: str) -> Counter[str]:
    """How often each text was answered, by a bot that was ended ten times in the middle of its work."""
    async with staged(library, route="peik", mode="polling", folder=folder, **settings) as [stage]:
        crowd = Crowd(stage)
        for _ in range(DEATHS):
            crowd.write()
            await crowd.in_the_middle()
            if is_killed:
                await stage.bot.kill()
            else:
                await stage.bot.end()
                stage.bot.facts = []
            await stage.bot.start()
        answers = await crowd.all_answered()
        assert stage.server is not None
        dead = await stage.server.get(f"/v1/arrivals/dead?bot_id={stage.bot_id}")
        assert not dead["arrivals"], "no update was given up"
        return answers


@each_library
def test_a_bot_that_is_killed_ten_times_in_its_handlers_loses_nothing(library: Library, tmp_path: Path) -> None:
    library.skip_if_missing()
    answers = asyncio.run(_ended(library, tmp_path))
    assert len(answers) == DEATHS * SLOW_TEXTS


@each_library
def test_a_bot_that_is_ended_in_good_order_in_the_middle_of_its_handlers_loses_nothing(
    library: Library, tmp_path: Path
) -> None:
    library.skip_if_missing()
    answers = asyncio.run(_ended(library, tmp_path, is_killed=False))
    assert len(answers) == DEATHS * SLOW_TEXTS


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_the_same_on_a_server(kind: str, tmp_path: Path) -> None:
    [aiogram] = [library for library in LIBRARIES if library.name == "aiogram"]
    answers = asyncio.run(_ended(aiogram, tmp_path, store=a_store(kind)))
    assert len(answers) == DEATHS * SLOW_TEXTS


@each_library
def test_restarts_in_good_order_lose_nothing_and_double_nothing_that_was_answered(
    library: Library, tmp_path: Path
) -> None:
    """Of the bot, of Peik, and of Peik without a word."""
    library.skip_if_missing()

    async def story() -> None:
        async with staged(library, route="peik", mode="polling", folder=tmp_path) as [stage]:
            assert stage.server is not None
            crowd = Crowd(stage)
            for turn in range(6):
                crowd.write()
                await crowd.all_done()
                if turn % 3 == 0:
                    await stage.bot.end()
                    stage.bot.facts = []
                    await stage.bot.start()
                elif turn % 3 == 1:
                    await stage.server.program.terminate()
                    await stage.server.start()
                else:
                    await stage.server.program.kill()
                    await stage.server.start()
            crowd.write()
            answers = await crowd.all_answered()
            assert set(answers.values()) == {1}, answers

    asyncio.run(story())
