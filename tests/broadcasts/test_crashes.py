"""From a seed: Peik dies at any of its steps, again and again, in the middle of a broadcast that is paused and resumed, or ended
and recalled. In the end everybody has what the ledger says, and nobody twice unless a try was uncertain."""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from peik.app.lifetime import running
from peik.broadcasts.model import BroadcastMoved, Canary, Phase, RecipientState
from peik.core import events
from peik.core.events import Surprise
from peik.core.lifecycle import Move
from peik.errors import Conflict
from peik.storage.executor import Executor, InlineExecutor
from peik.testing import Telegram
from peik.testing.virtual import SimCarrier, VirtualClock
from simulation import processes
from simulation.node import SlowExecutor
from simulation.processes import OUTSIDE, Process, WorldLoop, run_world
from tests.accounts.house import Died, outlived
from tests.broadcasts.story import Campaign, people
from tests.outbox.story import BOT, TOKEN, Stage

SEEDS = int(os.environ.get("TEST_BROADCAST_SEEDS", "10"))
RECIPIENTS = 400
LIVES = 12
NEVER = 10**9


class Mortal(Process):
    """One that dies before a given step of its own."""

    def __init__(self, name: str, loop: WorldLoop, on_death: Callable[["Mortal"], None]) -> None:
        super().__init__(name, loop)
        self.steps = 0
        self.dies_at = NEVER
        self._on_death = on_death

    @property
    def is_late(self) -> bool:
        """Asked before each of its steps. What a dead one puts off is never made up for."""
        self.steps += 1
        if self.steps >= self.dies_at and not self.is_dead:
            self._on_death(self)
        return self.is_dead or super().is_late


class SlowStage(Stage):
    """A stage whose disk takes its time."""

    executor: Callable[[str], Executor] = staticmethod(lambda name: InlineExecutor())

    on_told: Callable[[Sequence[events.Event]], None] = staticmethod(lambda told: None)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        told = events.Events()
        told.listen(self.told.extend)
        told.listen(lambda events: self.on_told(events))
        self._seed += 1
        async with running(
            self.config(),
            events=told,
            clock=self.clock,
            carrier=SimCarrier(self.telegram),
            chance=random.Random(self._seed),
            executor=self.executor,
            is_alone=True,
        ) as self.peik:
            yield


AIMS: dict[str, Callable[[events.Event], bool]] = {
    "after a batch was accepted": lambda event: isinstance(event, events.Accepted),
    "after letters were taken back": lambda event: isinstance(event, events.Settled) and event.move is Move.CANCEL,
    "after an end": lambda event: isinstance(event, events.Settled) and event.state.is_final,
    "after it moved": lambda event: isinstance(event, BroadcastMoved),
}


class World:
    """One machine, on which Peik lives several times."""

    def __init__(self, loop: WorldLoop, clock: VirtualClock, folder: Path, seed: int) -> None:
        self.loop = loop
        self.chance = random.Random(seed)
        telegram = Telegram(now=clock.wall_s, chance=random.Random(seed))
        telegram.bot(TOKEN)
        self.stage = SlowStage(clock, folder, telegram, {})
        self.campaign = Campaign(self.stage)
        self.deaths = 0
        self._lives = 0

    def _aimed(self, process: Mortal) -> Callable[[Sequence[events.Event]], None]:
        """Most lives end a few steps after something of which half may be stored."""
        is_it = AIMS[self.chance.choice(list(AIMS))]
        left = self.chance.randrange(1, 12)

        def listen(told: Sequence[events.Event]) -> None:
            nonlocal left
            if any(is_it(event) for event in told) and process.dies_at == NEVER:
                left -= 1
                if left == 0:
                    process.dies_at = process.steps + self.chance.randrange(1, 20)

        return listen

    async def live(self, story: Callable[[], Coroutine[Any, Any, None]], *, is_last: bool = False) -> bool:
        """One life. Whether it came to the end of the story before it died."""
        self._lives += 1
        process = Mortal(f"peik.{self._lives}", self.loop, self._die)
        self.stage.on_told = lambda told: None
        if not is_last and self.chance.random() < 0.8:
            self.stage.on_told = self._aimed(process)
        elif not is_last:
            process.dies_at = self.chance.randrange(50, 4000)
        chance = random.Random(self.chance.random())
        self.stage.executor = lambda name: SlowExecutor(process, chance)

        async def whole() -> None:
            async with self.campaign.open():
                await story()

        try:
            await outlived(process, process.start(whole()))
        except Died:
            return False
        process.is_dead = True
        process.bury()
        return True

    def _die(self, process: Mortal) -> None:
        process.kill()
        self.deaths += 1
        self.loop.call_soon(process.bury, context=OUTSIDE)


async def played(loop: WorldLoop, clock: VirtualClock, folder: Path, seed: int) -> World:
    world = World(loop, clock, folder, seed)
    chance, campaign = world.chance, world.campaign
    made: list[str] = []
    key = f"seed {seed}"

    async def story() -> None:
        if not made:  # whoever was not answered asks again, under the same key
            canary = Canary(count=30, limit=0.9) if seed % 2 else None
            made.append((await campaign.create(people(RECIPIENTS), start=True, key=key, canary=canary)).id)
        while True:
            await asyncio.sleep(chance.choice([0.05, 0.4, 3.0]))
            found = await campaign.service.get(made[0])
            if found.phase is Phase.COMPLETED:
                return
            try:
                if chance.random() < 0.2 and found.phase is not Phase.PAUSED:
                    await campaign.service.pause(made[0])
                elif found.phase is Phase.PAUSED and chance.random() < 0.6:
                    await campaign.service.resume(made[0])
            except Conflict:
                pass  # it has ended in this moment

    for _ in range(LIVES):
        if await world.live(story):
            break

    async def to_the_end() -> None:
        await story()
        await judge(world, made[0])

    assert await world.live(to_the_end, is_last=True)
    return world


async def judge(world: World, broadcast_id: str) -> None:
    got = world.campaign.got()
    ledger = await world.campaign.ledger(broadcast_id)
    done = await world.campaign.service.get(broadcast_id)
    assert [line.chat for line in ledger.values()] == people(RECIPIENTS)
    for number, line in ledger.items():
        assert line.state is RecipientState.DELIVERED, (number, line)
        assert isinstance(line.chat, int)
        assert 1 <= got[line.chat] <= 1 + line.uncertain_tries, (number, line, got[line.chat])
    assert set(got) == set(people(RECIPIENTS))
    assert (done.counts.delivered, done.pending, done.open, done.batch) == (RECIPIENTS, 0, (), None)
    assert len(await world.campaign.service.find()) == 1, "it was made once, however often it was asked for"
    assert not [one for one in world.stage.told if isinstance(one, Surprise)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everybody_gets_it_once_however_often_peik_dies(seed: int, tmp_path: Path) -> None:
    with processes.watched():
        run_world(lambda loop, clock: played(loop, clock, tmp_path, seed))


async def ended_early(loop: WorldLoop, clock: VirtualClock, folder: Path, seed: int) -> World:
    """Somebody cancels it or recalls it on the way, and asks again until it is so."""
    world = World(loop, clock, folder, seed)
    chance, campaign = world.chance, world.campaign
    wish, end = (Phase.CANCELLING, Phase.CANCELLED) if seed % 2 else (Phase.RECALLING, Phase.RECALLED)
    least = chance.randrange(0, 250)

    async def story() -> None:
        made = await campaign.create(people(RECIPIENTS), start=True, key=f"seed {seed}")
        while True:
            await asyncio.sleep(chance.choice([0.05, 0.4, 3.0]))
            found = await campaign.service.get(made.id)
            if found.phase is end:
                return
            with contextlib.suppress(Conflict):  # it is so, or it went on in this moment
                if found.phase.is_sending and found.counts.delivered >= least:
                    await (campaign.service.cancel if wish is Phase.CANCELLING else campaign.service.recall)(made.id)
                elif found.phase is Phase.RECALLING and chance.random() < 0.1:
                    await campaign.service.pause(made.id)
                elif found.phase is Phase.PAUSED:
                    await campaign.service.resume(made.id)

    for _ in range(LIVES):
        if await world.live(story):
            break

    async def to_the_end() -> None:
        await story()
        await judge_ended(world, end)

    assert await world.live(to_the_end, is_last=True)
    return world


async def judge_ended(world: World, end: Phase) -> None:
    (done,) = await world.campaign.service.find()
    got = world.campaign.got()
    ledger = await world.campaign.ledger(done.id)
    sent_state = RecipientState.DELIVERED if end is Phase.CANCELLED else RecipientState.RECALLED
    telegram = world.stage.telegram
    for number, line in ledger.items():
        assert isinstance(line.chat, int)
        # Whoever was paused while letters were taken back does not know what became of one that may have arrived.
        is_unknown = line.state is RecipientState.FAILED and line.uncertain_tries > 0
        assert is_unknown or line.state in (sent_state, RecipientState.CANCELLED), (number, line)
        least = int(line.state is sent_state)
        assert least <= got[line.chat] <= least + line.uncertain_tries, (number, line, got[line.chat])
        is_there = any(telegram.message(BOT, line.chat, message) for message in line.messages)
        assert is_there is (line.state is RecipientState.DELIVERED), (number, line)
    assert (done.phase, done.pending, done.open, done.batch, done.unrecalled) == (end, 0, (), None, 0)
    assert done.counts.done == RECIPIENTS
    assert not [one for one in world.stage.told if isinstance(one, Surprise)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ended_early_the_ledger_is_right_however_often_peik_dies(seed: int, tmp_path: Path) -> None:
    with processes.watched():
        run_world(lambda loop, clock: ended_early(loop, clock, tmp_path, seed))
