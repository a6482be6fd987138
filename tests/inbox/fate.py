"""What can happen to a Peik and its Telegram, one thing after the other as a seed says; how it must end; what is wrong then."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from peik import events
from peik.building import Office
from peik.core.arrival import read_update
from peik.core.token import Token
from peik.errors import Unavailable
from peik.testing.updates import QueueId
from tests.engine.story import BOT
from tests.inbox.lives import Life, World

HOUR_S = 3600.0
CALM_S = 30 * 60.0  # with all faults off, everything is in by then


class Fate:
    """Lets things happen, one after the other, as the seed says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self._is_alone = world.processes == 1  # two look at each other several times a second: they have less time
        self._deeds = (
            (30, self._people_write),
            (3, self._crowd_writes),
            (5, self._queries),
            (20, self._time_passes),
            (3, self._much_time_passes),
            (6, self._dark),
            (12, self._fault),
            (4, self._faults_end),
            (8, self._disk_fails),
            (6, self._disk_is_well),
            (8, self._crash),
            (4, self._restart),
            (7, self._switch),
            (1, self._rotate),
            (2, self._another_numbering),
            (2, self._clock_jumps),
            (2, self._recover),
        )

    async def play(self, deeds: int) -> None:
        weights = [weight for weight, _ in self._deeds]
        for _ in range(self._world.processes):
            await self._open()
        for _ in range(deeds):
            ((_, deed),) = self._chance.choices(self._deeds, weights)
            self._world.note(deed.__name__)
            await deed()
            if self._chance.random() < 0.5:
                await asyncio.sleep(self._chance.choice([0.0, 0.02, 0.03, 0.06, 0.3, 2.0]))

    async def _open(self) -> None:
        life = Life(self._world)
        self._world.lives.append(life)
        if self._chance.random() < 0.7 or self._world.processes > 1:
            await life.born()

    def _say(self, user: int) -> None:
        world = self._world
        world.said += 1
        message = world.telegram.write(BOT, user, f"n{world.said}")
        if self._chance.random() < 0.1:
            world.telegram.edit(BOT, user, message["message_id"], f"n{world.said} edited")

    async def _people_write(self) -> None:
        for _ in range(self._chance.randint(1, 5)):
            self._say(self._chance.randint(1, 4))

    async def _crowd_writes(self) -> None:
        for _ in range(self._chance.randint(90, 250)):
            self._say(self._chance.randint(1, 6))

    async def _queries(self) -> None:
        for _ in range(self._chance.randint(1, 3)):
            self._world.telegram.ask(BOT, self._chance.randint(1, 4), self._chance.choice(["inline", "pre_checkout"]))

    async def _time_passes(self) -> None:
        await asyncio.sleep(self._chance.choice([0.5, 1.0, 3.0, 10.0, 40.0, 70.0]))

    async def _much_time_passes(self) -> None:
        await asyncio.sleep(self._chance.choice([200.0, 200.0, 600.0, HOUR_S][: 4 if self._is_alone else 1]))

    async def _dark(self) -> None:
        self._world.telegram.outage(self._chance.choice([1.0, 5.0, 30.0, 90.0, 600.0]))

    async def _fault(self) -> None:
        kind = self._chance.choice(
            ["error", "hang", "lose_before", "lose_after", "garbage", "truncate", "flood", "slow", "late"]
        )
        methods = [None, "getUpdates", "getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo"]
        self._world.telegram.faults.add(
            kind,
            method=self._chance.choice(methods),
            probability=self._chance.choice([0.2, 0.5, 1.0]),
            seconds=self._chance.choice([2.0, 20.0, 100.0]),
            after=self._chance.random() < 0.5,
            retry_after=2,
            most_s=self._chance.choice([1.0, 40.0]),
        )
        self._world.answers_lost = self._chance.choice([0.0, 0.2])
        self._world.pushes_lost = self._chance.choice([0.0, 0.5])

    async def _faults_end(self) -> None:
        self._world.telegram.faults.clear()
        self._world.answers_lost = self._world.pushes_lost = 0.0

    async def _disk_fails(self) -> None:
        self._chance.choice(self._world.lives).disk.fails = self._chance.choice([0.1, 0.3, 0.8, 1.0])

    async def _disk_is_well(self) -> None:
        for life in self._world.lives:
            life.disk.fails = 0.0

    async def _crash(self) -> None:
        await asyncio.sleep(self._chance.choice([0.0, self._chance.uniform(0.0, 0.4)]))
        life = self._world.lives.pop(self._chance.randrange(len(self._world.lives)))
        await life.crash()
        await self._down()

    async def _restart(self) -> None:
        await self._disk_is_well()
        life = self._chance.choice(self._world.lives)
        await life.born()
        self._world.lives.remove(life)
        await life.close()
        await self._down()

    async def _down(self) -> None:
        down_s = [0.0, 0.5, 5.0, 5.0, 100.0, 100.0, 2 * HOUR_S, 30 * HOUR_S]
        await asyncio.sleep(self._chance.choice(down_s[: 8 if self._is_alone else 5]))
        for _ in range(self._chance.randint(0, 3)):
            self._say(self._chance.randint(1, 4))
        if self._is_alone and self._chance.random() < 0.3:
            self._world.settings["api_root"] = self._chance.choice(["http://local.example", "https://api.telegram.org"])
        await self._open()

    async def _change(self, **change: Any) -> None:
        office = self._world.office()
        if office is not None:
            with contextlib.suppress(Unavailable):
                await office.desk.change_bot(BOT, **change)

    async def _switch(self) -> None:
        await self._change(inbound=self._chance.choice(["polling", "polling", "webhook", "webhook", "off"]))

    async def _rotate(self) -> None:
        if self._world.office() is not None:
            await self._disk_is_well()
            self._world.token = self._world.telegram.revoke(BOT)
            await asyncio.sleep(self._chance.choice([0.0, 5.0, 100.0]))
            await self._change(token=Token(self._world.token))

    async def _another_numbering(self) -> None:
        """As after a silent week: there is nothing left of the old one."""
        queue = self._world.queue
        if queue.size == 0:
            queue._tail_id = self._chance.randint(2_000_001, 1_000_000_000)

    async def _clock_jumps(self) -> None:
        self._world.clock.wall_offset_s = self._chance.choice([-HOUR_S, 0.0, 0.0, 60.0, HOUR_S, 24 * HOUR_S])

    async def _recover(self) -> None:
        life = self._chance.choice(self._world.lives)
        if life.office is not None:
            life.asking.append(asyncio.ensure_future(life.office.inbox.recover(BOT)))


# ---- the end ----


async def come_to_rest(world: World) -> None:
    """All faults are over. Whatever is still owed comes in within a bounded time."""
    world.note("calm")
    world.telegram.faults.clear()
    world.answers_lost = world.pushes_lost = 0.0
    for life in world.lives:
        life.disk.fails = 0.0
    offices = [await life.born() for life in world.lives]
    await asyncio.sleep(2.0)  # each hears of what the other changed within a second
    if world.token != offices[0].desk.bot(BOT).token.reveal():
        await offices[0].desk.change_bot(BOT, token=Token(world.token))
    if offices[0].desk.bot(BOT).inbound == "off":
        await offices[0].desk.change_bot(BOT, inbound="polling")
    until = world.clock.mono() + CALM_S
    while left := owed(world, next(office for office in offices if office.store.is_owner)):
        assert world.clock.mono() < until, left
        await asyncio.sleep(5.0)
    for life in world.lives:
        await life.close()


def owed(world: World, office: Office) -> list[str]:
    """What has not come to its end yet."""
    status = office.receiver.status(BOT)
    left = [] if status.is_well else [f"the source is not well: {status.why}"]
    if world.queue.size:
        left.append(f"{world.queue.size} updates are still at Telegram")
    if open_ones := world.look("SELECT id FROM outages WHERE settled_at IS NULL"):
        left.append(f"outages {open_ones} are not settled")
    if office.outages.holds(BOT):
        left.append("arrivals are held")
    return left


def verdict(world: World) -> Iterator[str]:
    """What is wrong with the world."""
    yield from world.queue.unsafe
    lines: dict[QueueId, int] = {}
    for place, event in enumerate(world.queue.all):
        found = world.rows_of(read_update(event.body))
        if len(found) > 1 or (not found and id(event) not in world.queue.given_up):
            yield f"update {place} ({event.id}) is stored {len(found)} times"
        for number in found:
            if number < lines.get(event.queue_id, 0):
                yield f"update {place} ({event.id}) is out of order"
            lines[event.queue_id] = number
    numbers = world.look("SELECT number FROM arrivals ORDER BY number")
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        yield "the numbers have gaps"
    for surprise in {event for event in world.told if isinstance(event, events.Surprise)}:
        if surprise.where != "sender":  # a disk that fails is a surprise to letters
            yield f"a surprise: {surprise}"
