"""From a seed: a whole Peik with two accounts is killed at any of its steps, stopped and started, while people write, edit and
delete, letters go out, readers read, and Telegram and the archive fail. Then all faults end, and all of it has to be right:
the archive, the letters, the feeds, and what a reader heard."""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from peik.accounts.client import ClientError, Trouble
from peik.accounts.events import ArchiveGap, SessionDown, SessionRevoked
from peik.accounts.feeds import FeedFilter
from peik.accounts.history import SHARED
from peik.archive.store import LineKind, Message, MessageFilter
from peik.core.letter import State
from peik.errors import StartError, Unavailable
from peik.testing.accounts import Chat, Person, SimClient
from peik.testing.accounts.boxes import Post
from peik.testing.virtual import VirtualClock
from simulation import processes
from simulation.node import SlowExecutor
from simulation.processes import OUTSIDE, Process, WorldLoop, run_world
from tests.accounts.house import Died, House, answered, outlived

pytestmark = pytest.mark.gate  # whole lives

SEEDS = int(os.environ.get("TEST_WHOLE_SEEDS", "12"))
STEPS = 90
CHANGED_MS_MAX = 20 * 3_600_000  # Telegram lets a message be edited for two days
SETTLE_S = 2 * 3600.0
NEVER = 10**9
READER = "books"


class Mortal(Process):
    """One that dies before a given step of its own."""

    def __init__(self, name: str, loop: WorldLoop, on_death: Callable[[], None]) -> None:
        super().__init__(name, loop)
        self.steps = 0
        self.dies_at = NEVER
        self._on_death = on_death

    @property
    def is_late(self) -> bool:
        """Asked before each of its steps. What a dead one puts off is never made up for."""
        self.steps += 1
        if self.steps >= self.dies_at and not self.is_dead:
            self._on_death()
        return self.is_dead or super().is_late


class World:
    """The machine on which Peik lives, and everything around it."""

    def __init__(self, loop: WorldLoop, house: House, seed: int, *, more: int = 0) -> None:
        """`more`: accounts besides the two, in the supergroup and the group."""
        self.loop = loop
        self.house = house
        self.chance = random.Random(seed)
        self.telegram = house.accounts
        self.people = [house.ali, house.sara]
        for number in range(more):
            person = self.telegram.register(f"+9989000001{number:02}", first_name=f"P{number}")
            self.telegram.let_in(person, self.telegram.invite(house.team))
            self.people.append(person)
        self.hidden = self.telegram.register("+998900000003", first_name="Zayn")
        self.group = self.telegram.group("Group", *self.people, self.hidden)
        self.news = self.telegram.channel("News", house.sara, house.ali, is_broadcast=True)
        self.chats = [house.private, house.team, self.group, self.news, self.telegram.private(house.ali, self.hidden)]
        self.posts: list[tuple[Chat, Post]] = []
        self.letters: dict[str, int | None] = {}  # by their text; None: nobody knows whether it was taken
        self.heard: list[tuple[str, int]] = []
        self.sessions: dict[str, Person] = {}
        self.before: dict[str, set[tuple[int, int]]] = {}
        self.number = 0
        self.counts: Counter[str] = Counter()
        self.process: Mortal | None = None
        self._end = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._is_open = False
        self._lives = 0
        self._clients = 0  # of those that are gone

    # ---- Peik ----

    def begin(self) -> None:
        assert self.process is None
        self._lives += 1
        process = self.process = Mortal(f"peik.{self._lives}", self.loop, self.die)
        chance = random.Random(f"{self.chance.random()} {process}")
        self.house.executor = lambda name: SlowExecutor(process, chance)
        self._end, self._is_open, self._clients = asyncio.Event(), False, len(self.house.clients)
        self._life = process.start(self._live(self._end))

    async def _live(self, end: asyncio.Event) -> None:
        async with self.house.open():
            reading = asyncio.create_task(self._read())
            self._is_open = True
            await end.wait()
            reading.cancel()

    async def _read(self) -> None:
        """A program with a name: it does its work line by line, and says so after the last."""
        chance = random.Random(f"reader {self.chance.random()}")
        follower = await self.house.service.follow(FeedFilter(), reader=READER)
        while True:
            try:
                for line in await follower.next(timeout_s=30):
                    await asyncio.sleep(chance.choice([0.0, 0.0, 0.001, 0.1]))
                    self.heard.append((line.session_id, line.number))
                await follower.confirm()
            except Unavailable:
                await asyncio.sleep(5)
            if follower.is_over:
                return

    def die(self) -> None:
        """In the middle of whatever it does. The system closes what it had open."""
        process = self.process
        assert process is not None
        process.kill()
        self.counts["deaths"] += 1
        self._gone()
        self.loop.call_soon(self._buried, process, self.house.clients[self._clients :], context=OUTSIDE)

    @staticmethod
    def _buried(process: Process, clients: list[SimClient]) -> None:
        process.bury()
        for client in clients:
            client.cut(ClientError(Trouble.OFFLINE, "The process died."))

    def _gone(self) -> None:
        self.process, self._is_open, self._life = None, False, None

    async def stop(self) -> None:
        """As after a signal."""
        process, life = self.process, self._life
        if process is None or life is None:
            return
        self.counts["stops"] += 1
        process.tell(self._end.set)
        try:
            await outlived(process, life, timeout_s=600)
        except Died:
            assert process.is_dead, "it does not end"
            return
        except (Unavailable, StartError):
            self.counts["hard ends"] += 1
        process.is_dead = True
        process.bury()
        assert not any(client.is_connected for client in self.house.clients)
        self._gone()

    async def _until(self, is_so: Callable[[], object]) -> None:
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def asked(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """An answer of Peik, if it lives so long. None: there is none."""
        if self.process is None or not self._is_open:
            return None
        try:
            return await answered(self.process, work())
        except (Died, Unavailable):
            return None

    # ---- what people do ----

    async def write_some(self) -> None:
        for _ in range(self.chance.choice([1, 3, 40])):
            chat = self.chance.choice(self.chats)
            writers = [one for one in chat.members if chat.may_write(one)]
            self.number += 1
            post = self.telegram.say(chat, self.chance.choice(writers), f"m{self.number}")
            self.posts.append((chat, post))

    async def edit(self) -> None:
        found = await self._changeable()
        if found is not None:
            self.number += 1
            self.telegram.edit(*found, f"e{self.number}")

    async def delete(self) -> None:
        found = await self._changeable()
        if found is not None:
            self.posts.remove(found)
            self.telegram.delete(*found)

    async def _changeable(self) -> tuple[Chat, Post] | None:
        if not self.posts:
            return None
        chat, post = self.chance.choice(self.posts)
        if self.house.clock.wall_ms() - post.at_ms > CHANGED_MS_MAX:
            return None
        await asyncio.sleep(1.1)  # Telegram counts whole seconds
        return chat, post

    async def send_letter(self) -> None:
        self.number += 1
        await self._send(f"letter {self.number}")

    async def send_again(self) -> None:
        """Who had no answer asks again, with the same key."""
        unsure = [text for text, letter in self.letters.items() if letter is None]
        if unsure:
            await self._send(unsure[0])

    async def _send(self, text: str) -> None:
        self.letters.setdefault(text, None)
        chance = random.Random(text)
        person = chance.choice(self.people)
        chat = chance.choice(
            [one for one in (self.house.private, self.house.team, self.group) if person in one.members]
        )
        self.letters[text] = await self.asked(
            lambda: self.house.send_as(person, chat.id_for(person), text, idempotency_key=text)
        )

    # ---- what goes wrong ----

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.5, 5.0]))

    async def wait_long(self) -> None:
        await asyncio.sleep(self.chance.uniform(60, 18_000))

    async def kill(self) -> None:
        if self.process is not None:
            self.process.dies_at = self.process.steps + self.chance.choice([1, 10, 100, 1000, 5000])

    async def forget(self) -> None:
        places: list[Person | Chat] = [*self.people, self.house.team, self.news]
        self.telegram.forget(self.chance.choice(places))

    async def cut(self) -> None:
        self.telegram.cut(self.chance.choice(self.people))

    async def lose_the_way(self) -> None:
        self.telegram.is_down = not self.telegram.is_down

    async def lose_an_answer(self) -> None:
        self.telegram.lose_answer("sendMessage")

    async def flood(self) -> None:
        method = self.chance.choice(["history", "dialogs", "sendMessage"])
        self.telegram.flood(method, self.chance.choice([5, 300]))

    async def fill_the_disk(self) -> None:
        if self.house.archives:
            self.house.archive.is_down = not self.house.archive.is_down

    async def join(self) -> None:
        self.chats.append(self.telegram.channel(f"New {self.number}", self.house.sara, self.house.ali))

    async def pause(self) -> None:
        session_id = self.chance.choice(list(self.sessions))
        act = self.chance.choice(["stop", "start", "start"])
        await self.asked(lambda: getattr(self.house.service.crew, act)(session_id))

    async def step(self) -> None:
        deeds = {
            self.write_some: 30,
            self.edit: 8,
            self.delete: 6,
            self.send_letter: 12,
            self.send_again: 4,
            self.wait: 8,
            self.wait_long: 3,
            self.kill: 14,
            self.stop: 3,
            self.forget: 5,
            self.cut: 3,
            self.lose_the_way: 1,
            self.lose_an_answer: 3,
            self.flood: 2,
            self.fill_the_disk: 1,
            self.join: 1,
            self.pause: 1,
        }
        await self.chance.choices(list(deeds), list(deeds.values()))[0]()
        await asyncio.sleep(0.02)
        if self.process is None and self.chance.random() < 0.5:
            self.begin()

    # ---- the beginning and the end ----

    async def sign_in(self) -> None:
        self.begin()
        await self._until(lambda: self._is_open)
        for person in self.people:
            session = await self.asked(lambda person=person: self.house.sign_in(person, session_id=person.first_name))
            self.sessions[session.session_id] = person
            self.before[session.session_id] = set(there(person))
        for session_id, person in self.sessions.items():
            await self._begun(session_id, person)
        self.posts.clear()

    async def _begun(self, session_id: str, person: Person) -> None:
        """From here on everything is owed, and letters are taken."""
        while not (  # noqa: ASYNC110
            any(one.chat_id == SHARED for one in await self.house.archive.chat_states(session_id))
            and self.house.peik.outbox.service.known(person.user_id) is not None
        ):
            await asyncio.sleep(0.01)

    async def settle(self) -> None:
        """Nothing goes wrong any more."""
        self.telegram.is_down = self.house.archive.is_down = False
        await self.stop()
        self.begin()
        await self._until(lambda: self._is_open)
        for session_id in self.sessions:
            await self.asked(lambda session_id=session_id: self.house.service.crew.start(session_id))
        while None in self.letters.values():
            await self.send_again()
        await asyncio.sleep(SETTLE_S)


def there(person: Person) -> dict[tuple[int, int], str]:
    """What Telegram has for somebody."""
    return {
        (chat_id, post.message_id): post.text
        for chat_id, chat in person.chats.items()
        for post in chat.box_of(person).posts.values()
        if post.chat_id == chat_id
    }


async def judge(world: World) -> None:
    assert not world.house.told_of(SessionRevoked), "a key was used from two places"
    for session_id, person in world.sessions.items():
        await judge_archive(world, session_id, person)
        await judge_feed(world, session_id)
    await judge_letters(world)


async def kept(world: World, session_id: str) -> list[Message]:
    found: list[Message] = []
    cursor: str | None = None
    while True:
        page, cursor = await world.house.archive.messages(
            MessageFilter(session_id=session_id), cursor=cursor, limit=1000
        )
        found += page
        if cursor is None:
            return found


async def judge_archive(world: World, session_id: str, person: Person) -> None:
    messages = await kept(world, session_id)
    keys = [(one.chat_id, one.message_id) for one in messages]
    assert len(keys) == len(set(keys)), "something is there twice"
    old = world.before[session_id]
    here = {(one.chat_id, one.message_id): one.text for one in messages if one.deleted_at_ms is None}
    assert {key: text for key, text in here.items() if key not in old} == {
        key: text for key, text in there(person).items() if key not in old
    }


async def judge_feed(world: World, session_id: str) -> None:
    lines = await world.house.lines(session_id)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    keys = [line.key for line in lines]
    assert len(keys) == len(set(keys)), "something was told twice"
    told = {line.key for line in lines if line.kind in (LineKind.MESSAGE, LineKind.EDITED)}
    messages = await kept(world, session_id)
    in_force = {f"m {one.chat_id} {one.message_id} {one.edited_at_ms}" for one in messages if one.deleted_at_ms is None}
    assert in_force <= told, "something was archived and not told"
    versions = {
        f"m {one.chat_id} {one.message_id} {one.edited_at_ms}"
        for message in messages
        for one in await world.house.archive.versions(session_id, message.chat_id, message.message_id)
    }
    assert told <= versions, "something was told and not archived"
    heard = [number for name, number in world.heard if name == session_id]
    assert list(dict.fromkeys(heard)) == list(range(1, len(lines) + 1)), "a reader missed a line, or had it too early"


async def judge_letters(world: World) -> None:
    arrived = Counter(post.text for post in world.telegram.deliveries)
    assert arrived == Counter(dict.fromkeys(world.letters, 1))
    for text, letter_id in world.letters.items():
        assert letter_id is not None
        view = await world.house.peik.outbox.service.letter(letter_id)
        assert view.state is State.COMPLETED, f"{text} is {view.state}"


def live(seed: int, folder: Path, *, steps: int = STEPS, check: bool = True, more: int = 0) -> World:
    async def main(loop: WorldLoop, clock: VirtualClock) -> World:
        house = House(clock, folder, seed=seed, keep_feed="365d", keep_completed="365d")
        world = World(loop, house, seed, more=more)
        await world.write_some()
        await world.sign_in()
        for _ in range(steps):
            await world.step()
        await world.settle()
        if check:
            await judge(world)
        await world.stop()
        return world

    with processes.watched():
        return run_world(main)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_is_right_in_the_end(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path)


def test_twenty_accounts_live_through_it_without_a_rate_that_is_banned_for(tmp_path: Path) -> None:
    """Kills, floods, gaps, a full disk and no way to Telegram, over hours: all is archived and sent once; and in no second of
    it was Telegram asked by one account for more than a person at a keyboard asks for."""
    world = live(7, tmp_path, steps=150, more=18)
    busiest = world.telegram.busiest()
    hours = round(world.house.clock.mono() / 3600)
    told = {"accounts": len(world.people), "hours": hours, **world.counts, "most in a second, per account": busiest}
    sys.stdout.write(f"{told}\n")
    assert world.counts["deaths"] > 2
    assert busiest.pop("connect") <= 2, "a process that died, and the next one"
    assert all(count <= 2 for count in busiest.values()), busiest


def test_the_lives_are_hard(tmp_path: Path) -> None:
    """Else the story above would prove little."""
    counts: Counter[str] = Counter()
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = live(seed, folder, check=False)
        counts += world.counts
        counts["gaps"] += len(world.house.told_of(ArchiveGap))
        counts["breaks"] += len(world.house.told_of(SessionDown))
        counts["letters"] += len(world.letters)
        counts["repeats"] += len(world.heard) - len(set(world.heard))
    assert all(counts[name] > 2 for name in ("deaths", "stops", "gaps", "breaks", "letters", "repeats")), counts
