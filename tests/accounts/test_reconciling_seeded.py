"""From a seed: people write, edit and delete, Telegram forgets and floods, the archive fails, and the process dies at any await.
At the end the archive has what Telegram has: nothing is missing, and nothing is there twice."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from peik.accounts.events import ArchiveGap, HolesFilled
from peik.accounts.registry import Registry
from peik.accounts.runner import SessionRunner
from peik.testing.accounts import Chat, Person
from peik.testing.accounts.boxes import Post
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.inline_archive import Fate, Mortal
from tests.accounts.listening import until
from tests.accounts.stage import Stage

SEEDS = int(os.environ.get("TEST_SESSION_SEEDS", "40"))
STEPS = 80
RECONCILE_S = 900.0


class World:
    """Ali's session through many processes, each of which may die at any await."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage = stage
        self.chance = chance
        self.chats = [stage.private, stage.group, stage.team]
        self.chats.append(stage.telegram.channel("News", stage.sara, stage.ali, is_broadcast=True))
        self.chats.append(stage.telegram.private(stage.ali, stage.telegram.register("+998900000003")))
        self.posts: list[tuple[Chat, Post]] = []
        self.number = 0
        self.fate: Fate | None = None
        self.clients: list[Any] = []
        self.task: asyncio.Task[Any] | None = None
        self.runner: SessionRunner | None = None
        self.deaths = 0

    def begin(self) -> None:
        stage = self.stage
        fate = self.fate = Fate()
        self.clients = []

        def clients(**wanted: Any) -> Any:
            self.clients.append(stage.telegram.clients(**wanted))
            return Mortal(self.clients[-1], fate)

        book: Any = Mortal(stage.archive, fate)
        registry = Registry(book, stage.clock)
        tools = stage.tools(book=book, registry=registry, clients=clients, reconcile_s=RECONCILE_S)
        self.runner = SessionRunner("s1", tools)
        self.task = asyncio.create_task(self.runner.run())

    async def end(self, *, is_death: bool) -> None:
        assert self.task is not None
        assert self.fate is not None
        if is_death:
            self.fate.dead.set()
        self.task.cancel()
        await asyncio.wait([self.task])
        self.task = None
        if self.fate.dead.is_set():
            self.deaths += 1
            for client in self.clients:
                await client.disconnect()  # the kernel closes what the process had open
        assert not any(client.is_connected for client in self.clients)

    def write(self) -> None:
        chat = self.chance.choice(self.chats)
        writers = [one for one in chat.members if chat.may_write(one)]
        self.number += 1
        post = self.stage.telegram.say(chat, self.chance.choice(writers), f"m{self.number}")
        self.posts.append((chat, post))

    async def change(self, *, is_edit: bool) -> None:
        if not self.posts:
            return
        chat, post = self.chance.choice(self.posts)
        if self.stage.clock.wall_ms() - post.at_ms > 20 * 3_600_000:
            return
        await asyncio.sleep(1.1)  # Telegram counts whole seconds
        if is_edit:
            self.number += 1
            self.stage.telegram.edit(chat, post, f"e{self.number}")
        else:
            self.posts.remove((chat, post))
            self.stage.telegram.delete(chat, post)

    async def step(self) -> None:
        deeds = {
            self.write_some: 30,
            self.edit: 8,
            self.delete: 6,
            self.wait: 8,
            self.wait_long: 3,
            self.die: 14,
            self.stop: 3,
            self.forget: 5,
            self.cut: 3,
            self.lose_the_way: 1,
            self.flood: 2,
            self.fill_the_disk: 1,
            self.join: 1,
        }
        await self.chance.choices(list(deeds), list(deeds.values()))[0]()
        await asyncio.sleep(0.02)
        if self.task is not None and self.fate is not None and self.fate.dead.is_set():
            await self.end(is_death=True)
        if self.task is None and self.chance.random() < 0.5:
            self.begin()

    async def write_some(self) -> None:
        for _ in range(self.chance.choice([1, 3, 40])):
            self.write()

    async def edit(self) -> None:
        await self.change(is_edit=True)

    async def delete(self) -> None:
        await self.change(is_edit=False)

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.5, 5.0]))

    async def wait_long(self) -> None:
        await asyncio.sleep(self.chance.uniform(60, 18_000))

    async def die(self) -> None:
        if self.task is not None and self.fate is not None:
            self.fate.die_at = self.fate.count + self.chance.randint(1, 40)

    async def stop(self) -> None:
        if self.task is not None:
            await self.end(is_death=False)

    async def forget(self) -> None:
        places: list[Person | Chat] = [self.stage.ali, self.stage.team, self.chats[3]]
        self.stage.telegram.forget(self.chance.choice(places))

    async def cut(self) -> None:
        self.stage.telegram.cut(self.stage.ali)

    async def lose_the_way(self) -> None:
        self.stage.telegram.is_down = not self.stage.telegram.is_down

    async def flood(self) -> None:
        self.stage.telegram.flood(self.chance.choice(["history", "dialogs"]), self.chance.choice([5, 300]))

    async def fill_the_disk(self) -> None:
        self.stage.archive.is_down = not self.stage.archive.is_down

    async def join(self) -> None:
        self.chats.append(self.stage.telegram.channel(f"New {self.number}", self.stage.sara, self.stage.ali))

    async def settle(self) -> None:
        """Nothing goes wrong any more."""
        self.stage.archive.is_down = self.stage.telegram.is_down = False
        if self.task is not None:
            assert self.fate is not None
            await self.end(is_death=self.fate.dead.is_set())
        self.begin()
        await asyncio.sleep(1000 + 3 * RECONCILE_S + 600)
        await self.end(is_death=False)


async def judge(world: World, before: set[tuple[int, int]]) -> None:
    ali = world.stage.ali
    there = {}
    for chat in ali.chats.values():
        chat_id = chat.id_for(ali)
        for post in chat.box_of(ali).posts.values():
            if post.chat_id == chat_id:
                there[chat_id, post.message_id] = post.text
    kept = await world.stage.kept()
    keys = [(one.chat_id, one.message_id) for one in kept]
    assert len(keys) == len(set(keys)), "something is there twice"
    here = {(one.chat_id, one.message_id): one.text for one in kept if one.deleted_at_ms is None}
    assert {key: text for key, text in here.items() if key not in before} == {
        key: text for key, text in there.items() if key not in before
    }
    for one in kept:
        versions = await world.stage.archive.versions("s1", one.chat_id, one.message_id)
        dates = [version.edited_at_ms for version in versions]
        assert dates == sorted(set(dates))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_gap_and_no_double(seed: int, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        stage = await Stage(clock, seed).open(tmp_path)
        world = World(stage, random.Random(seed))
        for _ in range(20):
            world.write()
        await stage.sign_in(stage.ali)
        before = {(chat.id_for(stage.ali), one) for chat in world.chats for one in chat.box_of(stage.ali).posts}
        world.posts.clear()
        world.begin()
        runner = world.runner
        assert runner is not None
        await until(lambda: runner.client)
        for _ in range(STEPS):
            await world.step()
        await world.settle()
        await judge(world, before)
        await stage.archive.close()

    run_virtual(main)


def test_the_seeds_have_deaths_and_gaps(tmp_path: Path) -> None:
    """Else the story above would prove little."""
    deaths = gaps = holes = 0

    async def main(clock: VirtualClock, seed: int) -> None:
        nonlocal deaths, gaps, holes
        stage = await Stage(clock, seed).open(tmp_path / str(seed))
        world = World(stage, random.Random(seed))
        await stage.sign_in(stage.ali)
        world.begin()
        for _ in range(STEPS):
            await world.step()
        await world.settle()
        deaths += world.deaths
        gaps += len(stage.told_of(ArchiveGap))
        holes += sum(one.found for one in stage.told_of(HolesFilled))
        await stage.archive.close()

    for seed in range(5):
        (tmp_path / str(seed)).mkdir()

        async def one(clock: VirtualClock, seed: int = seed) -> None:
            await main(clock, seed)

        run_virtual(one)
    assert deaths > 5
    assert gaps > 5
    assert holes > 20
