"""Accounts on several nodes: each runs where its letters are sent from, on one node at a time, whatever becomes of the nodes.

The servers and the clock are real. Each node is a process of its own within one loop, so that one can be killed at any moment and
all of them share one simulated Telegram, which ends a key that is used twice at once."""

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import peik.app.node
from peik.accounts.client import ClientError, Trouble
from peik.accounts.events import SessionLockLost, SessionRevoked
from peik.accounts.wiring import archive_named
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.archive.store import Archive, FeedRecord, MessageFilter
from peik.clock import SystemClock
from peik.core.events import Event, Events, Surprise
from peik.core.letter import LetterCall, Priority, State
from peik.core.nodes import News
from peik.settings.config import Config, load
from peik.testing.accounts import Accounts, Person, SimClient
from simulation.processes import Process, WorldLoop, _make_task, bring_to_an_end
from tests.accounts.house import KEY, answered, outlived
from tests.patience import PATIENCE_S
from tests.storage.postgres.proxy import Proxy
from tests.storage.redis_server import shared
from tests.storage.servers import postgres

pytestmark = pytest.mark.gate  # kills of nodes, in real time

LOOK_S = 0.05
LEASE = "2s"
PEOPLE = 3


class RealLoop(WorldLoop):
    """Every callback knows its process, and time is that of the machine."""

    def __init__(self) -> None:
        asyncio.SelectorEventLoop.__init__(self)
        self.graveyard = []
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return asyncio.SelectorEventLoop.time(self)

    def run_in_executor(self, *wanted: Any) -> Any:
        return asyncio.SelectorEventLoop.run_in_executor(self, *wanted)


class Way(Proxy):
    """A node's way to the store, which can be cut."""

    def cut(self) -> None:
        self.is_deaf = True
        for task in self._tasks:
            task.cancel()


class Node:
    archive: Archive

    def __init__(self, world: "World", name: str, way: Way, archive_way: Way) -> None:
        self.world = world
        self.name = name
        self.way = way
        self.archive_way = archive_way
        self.told: list[Event] = []
        self.process: Process | None = None
        self.runtime: Runtime | None = None
        self._clients: list[SimClient] = []
        self._end = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def up(self) -> Runtime:
        assert self.runtime is not None, f"{self} is down"
        return self.runtime

    async def open(self) -> None:
        self._end = asyncio.Event()
        process = self.process = Process(self.name, self.world.loop)
        self._life = process.start(self._live(self._end))
        await until(lambda: self.runtime or (self._life is not None and self._life.done()))
        if self.runtime is None:
            await self._life

    async def _live(self, end: asyncio.Event) -> None:
        told = Events()
        told.listen(self.told.extend)
        async with running(
            self.world.config(self.way.port, self.archive_way.port),
            events=told,
            chance=random.Random(self.name),
            make_clients=lambda config, clock: self._client,
            make_archive=self._make_archive,
        ) as runtime:
            assert runtime.accounts is not None
            while runtime.accounts.trouble() is not None:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
            self.runtime = runtime
            await end.wait()

    def _make_archive(self, config: Config) -> Archive:
        self.archive = archive_named(config)
        return self.archive

    def _client(self, **wanted: Any) -> SimClient:
        self._clients.append(self.world.telegram.clients(**wanted))
        return self._clients[-1]

    async def drain(self) -> None:
        assert self.process is not None
        assert self._life is not None
        self.process.tell(self._end.set)
        await outlived(self.process, self._life, timeout_s=PATIENCE_S)
        self.runtime = None

    async def kill(self) -> None:
        """At once, in the middle of whatever it does. The system closes what it had open, as it does for real ones."""
        process = self.process
        assert process is not None
        self.runtime = None
        process.kill()
        for client in self._clients:
            client.cut(ClientError(Trouble.OFFLINE, "The process died."))
        for way in (self.way, self.archive_way):
            way.cut()
            way.is_deaf = False

    def running(self) -> list[str]:
        return [] if self.runtime is None or self.runtime.accounts is None else self.runtime.accounts.running()

    async def asked(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self.process is not None
        return await answered(self.process, work, timeout_s=PATIENCE_S)


class World:
    def __init__(self, loop: RealLoop, kind: str, folder: Path) -> None:
        self.loop = loop
        self.kind = kind
        self.folder = folder
        self.own = f"n{uuid.uuid4().hex[:12]}"
        self.telegram = Accounts(SystemClock(), seed=1)
        self.people = [self.telegram.register(f"+99890000000{number}") for number in range(PEOPLE)]
        self.friend = self.telegram.register("+998900000099", first_name="Friend")
        self.chats = [self.telegram.private(one, self.friend) for one in self.people]
        self.chats.append(self.telegram.channel("Team", self.friend, *self.people))
        self.letters: list[int] = []
        self.number = 0
        self.nodes: list[Node] = []

    def config(self, port: int, archive_port: int) -> Config:
        if self.kind == "redis":
            store = f"{shared().url.replace(str(shared().port), str(port))}?prefix={self.own}"
            archive = f"sqlite:///{self.folder}/accounts.archive"
        else:
            url = postgres().url
            store = f"{url.replace(str(postgres().port), str(port))}?schema={self.own}"
            archive = f"{url.replace(str(postgres().port), str(archive_port))}?schema={self.own}_archive"
        flags = {"store": store, "archive": archive, "lease": LEASE, "grace": "1s", "secret_key": KEY, "inbound": "off"}
        return load(flags | {"api_root": "http://127.0.0.1:9"}, environment={}, folder=self.folder)

    async def sign_in(self, node: Node) -> None:
        assert node.up.accounts is not None
        service = node.up.accounts
        for number, person in enumerate(self.people):
            made = await node.asked(service.create_session("a", phone=person.phone, session_id=f"s{number}"))
            await node.asked(service.signing_in.begin(made.session_id))
            await node.asked(service.signing_in.give_code(made.session_id, self.telegram.code_of(person.phone)))

    async def run_by(self, *nodes: Node) -> None:
        """Until each session is connected on exactly one of these nodes, on that which has the lease of its account."""

        def is_so() -> bool:
            places = Counter(session_id for node in self.nodes for session_id in node.running())
            return (
                all(node.running() for node in nodes)
                and not any(node.running() for node in self.nodes if node not in nodes)
                and len(places) == PEOPLE
                and set(places.values()) == {1}
                and all(self._serves(self._at(f"s{number}"), one) for number, one in enumerate(self.people))
            )

        await until(is_so)

    def _at(self, session_id: str) -> Node:
        return next(node for node in self.nodes if session_id in node.running())

    @staticmethod
    def _serves(node: Node, person: Person) -> bool:
        assert node.up.accounts is not None
        return node.up.outbox.leases.holds(person.user_id) and node.up.accounts.line_of(person.user_id) is not None

    def talk(self) -> None:
        for chat in self.chats:
            self.number += 1
            self.telegram.say(chat, self.friend, f"m{self.number}")

    async def write(self, node: Node) -> None:
        """A letter of each account, handed in at this node, wherever it is sent from."""
        for person in self.people:
            self.number += 1
            params = f'{{"chat_id":{self.friend.user_id},"text":"letter {self.number}"}}'.encode()
            call = LetterCall(bot_id=person.user_id, method="sendMessage", params=params, priority=Priority.HIGH)
            self.letters.append((await node.asked(node.up.outbox.service.accept([call])))[0].letter_id)

    # ---- the end ----

    async def judge(self, node: Node) -> None:
        for letter_id in self.letters:
            view = await node.asked(node.up.outbox.service.wait(letter_id, PATIENCE_S))
            assert view.state is State.COMPLETED, view
        assert len(self.telegram.deliveries) == len(self.letters), "each arrived once"
        told = [event for one in self.nodes for event in one.told]
        assert not [event for event in told if isinstance(event, SessionRevoked | Surprise)]
        for number, person in enumerate(self.people):
            await self._judge_archive(node, f"s{number}", person)

    async def _judge_archive(self, node: Node, session_id: str, person: Person) -> None:
        assert node.up.accounts is not None
        service = node.up.accounts
        there = sorted(post.text for chat in person.chats.values() for post in chat.box_of(person).posts.values())
        wanted = MessageFilter(session_id=session_id)
        lines: list[FeedRecord] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(lines) < len(there):
                lines = await node.asked(node.archive.fed(session_id, after=0, limit=10_000))
                await asyncio.sleep(LOOK_S)
        found, _ = await node.asked(service.archive.messages(wanted, cursor=None, limit=1000))
        assert sorted(one.text for one in found) == there
        assert [line.number for line in lines] == list(range(1, len(there) + 1)), "each was told once"


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


@contextlib.asynccontextmanager
async def two_nodes(loop: RealLoop, kind: str, folder: Path) -> AsyncIterator[tuple[World, Node, Node]]:
    world = World(loop, kind, folder)
    port = shared().port if kind == "redis" else postgres().port
    async with contextlib.AsyncExitStack() as stack:
        ways = [await stack.enter_async_context(Way(port).running()) for _ in range(4)]
        first, second = world.nodes = [Node(world, "first", *ways[:2]), Node(world, "second", *ways[2:])]
        await first.open()
        await second.open()
        await world.sign_in(first)
        await world.run_by(first, second)
        world.talk()
        await world.write(first)
        yield world, first, second
        for node in world.nodes:
            if node.runtime is not None:
                await node.drain()


def play(kind: str, folder: Path, story: Callable[[World, Node, Node], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with two_nodes(loop, kind, folder) as (world, first, second):
            await story(world, first, second)

    loop = RealLoop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main())
    finally:
        left = [*loop.graveyard, *asyncio.all_tasks(loop)]
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        loop.graveyard.clear()
        bring_to_an_end(left)


STORES = pytest.mark.parametrize("kind", ["redis", "postgres"])


@STORES
def test_a_node_that_is_drained_hands_its_sessions_on_and_gets_some_back(kind: str, tmp_path: Path) -> None:
    async def story(world: World, first: Node, second: Node) -> None:
        await second.drain()
        world.talk()
        await world.run_by(first)
        await world.write(first)
        await second.open()
        await world.run_by(first, second)
        world.talk()
        await world.judge(second)

    play(kind, tmp_path, story)


@STORES
def test_another_node_takes_over_from_one_that_was_killed(kind: str, tmp_path: Path) -> None:
    async def story(world: World, first: Node, second: Node) -> None:
        await first.kill()
        world.talk()
        await world.run_by(second)
        await world.write(second)
        world.talk()
        await world.judge(second)

    play(kind, tmp_path, story)


@STORES
def test_a_node_that_is_cut_off_from_the_store_has_left_before_another_comes(kind: str, tmp_path: Path) -> None:
    async def story(world: World, first: Node, second: Node) -> None:
        second.way.cut()
        world.talk()
        await world.run_by(first)
        assert any(isinstance(one, SessionLockLost) for one in second.told)
        await world.write(first)
        second.way.is_deaf = False
        await world.run_by(first, second)
        world.talk()
        await world.judge(first)

    play(kind, tmp_path, story)


def test_a_node_ends_even_if_the_library_of_its_store_swallows_that() -> None:
    """As redis-py does now and then on Python 3.11, by asyncio.wait_for."""

    class Swallowing(peik.app.node.Node):
        async def hear(self, news: News) -> None:
            heard.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(PATIENCE_S)

    class Nodes:
        async def news(self) -> News:
            assert not heard.is_set(), "it goes on"
            return News(is_all=True)

    async def story() -> None:
        runtime: Any = SimpleNamespace(store=SimpleNamespace(nodes=Nodes()))
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            following = group.create_task(Swallowing(runtime, group).follow())
            await heard.wait()
            following.cancel()

    heard = asyncio.Event()
    asyncio.run(story())
