"""From a seed: people write, pushes get lost, the archive fails, Peik dies and comes back. Nothing that was written is lost,
and nothing is counted as seen before it was kept. Told over Telethon, and over the simulated Telegram."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from peik.accounts.client import AccountClient
from peik.archive.store import Message
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.listening import Notebook, until
from tests.accounts.test_client import PHONE, SimWorld, TlWorld, World

SEEDS = 25
STEPS = 60


class Archive(Notebook):
    """What outlives a process: messages by what they are, and the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[str] = set()
        self.is_full = False

    async def on_messages(self, messages: Sequence[Message]) -> None:
        await asyncio.sleep(0.01)
        if self.is_full:
            raise OSError("disk full")
        self.kept.update(one.text for one in messages)


class Life:
    """One session through many processes: each begins with the last state that was kept, and nothing else."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.archive = Archive()
        self.secret: str | None = None
        self.written: list[str] = []
        self.client = self.new()

    def new(self) -> AccountClient:
        return self.world.factory(session_id="s", agent_id="a", secret=self.secret, file=None, proxy=None)

    async def begin(self) -> None:
        await self.client.connect()
        sent = await self.client.send_code(PHONE)
        await self.client.sign_in(PHONE, self.world.code(), sent.code_hash)
        self.secret = self.client.secret()
        await self.client.listen(self.archive, None)
        await until(lambda: self.archive.state is not None)

    async def come_back(self) -> None:
        self.client = self.new()
        await self.client.connect()
        await self.client.listen(self.archive, self.archive.state)

    async def step(self, number: int) -> None:
        world = self.world
        match self.chance.choices(["write", "post", "deaf", "full", "die", "cut", "wait"], [8, 6, 2, 1, 2, 1, 6])[0]:
            case "write":
                self.written.append(f"w{number}")
                world.write(self.written[-1])
            case "post":
                self.written.append(f"p{number}")
                world.post(self.written[-1])
            case "deaf" if isinstance(world, TlWorld):
                world.server.is_deaf = not world.server.is_deaf
            case "full":
                self.archive.is_full = not self.archive.is_full
            case "die":
                await self.client.disconnect()
            case "cut" if self.client.is_connected:
                world.cut()
            case _:
                await asyncio.sleep(self.chance.choice([0.0, 0.2, 3.0]))
        if not self.client.is_connected and self.chance.random() < 0.7:
            await self.come_back()


async def tell(world: World, chance: random.Random) -> None:
    life = Life(world, chance)
    await life.begin()
    for number in range(STEPS):
        await life.step(number)
    life.archive.is_full = False
    if isinstance(world, TlWorld):
        world.server.is_deaf = False
    await life.client.disconnect()
    await life.come_back()
    await until(lambda: life.archive.kept.issuperset(life.written), within_s=600)
    assert life.archive.kept == set(life.written)
    assert not life.archive.gaps
    await life.client.disconnect()


@pytest.mark.parametrize("kind", [TlWorld, SimWorld])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost(seed: int, kind: type) -> None:
    async def main(clock: VirtualClock) -> None:
        await tell(kind(clock), random.Random(seed))

    run_virtual(main)
