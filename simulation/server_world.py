"""The other kind of world: a server that keeps the letters, and several nodes on it behind a balancer."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from peik.app.runtime import Runtime
from peik.core.nodes import CHORES
from peik.settings.config import Config
from peik.storage.open import AnyStore
from peik.testing.virtual import VirtualClock
from simulation.judge import LeaseRules
from simulation.model_store import ModelStore
from simulation.network import Try
from simulation.node import Node
from simulation.processes import Process, WorldLoop
from simulation.server import Server
from simulation.wire import Link
from simulation.world import World

LEASES_S = (10.0, 15.0, 30.0)
UP_S = 200.0  # longer than the longest pause between two starts
START_S = 5.0  # for the first beats after a start
HANDLERS_MAX = 2  # nodes that have them
NODES_MAX = 4


class ServerNode(Node):
    """A machine of its own: its clock may be wrong, and its way to the server may fail."""

    def __init__(self, world: "ServerWorld", name: str) -> None:
        super().__init__(world, name)
        self.clock = VirtualClock(world.loop)
        self.link = Link()
        self._cluster = world
        self._opened = 0

    def make_store(self, config: Config, **how: Any) -> AnyStore:
        assert self.process is not None
        self._opened += 1
        return ModelStore(
            self._cluster.server,
            process=self.process,
            link=self.link,
            chance=self.world.chance_for(f"link {self.process} {self._opened}"),
            node=f"{self.process}/{self._opened}",
            clock=how["clock"],
            lease_s=config.lease,
            address=how["address"],
            on_blobs_freed=how["on_blobs_freed"],
        )

    @property
    def store_name(self) -> str | None:
        """The name under which the server knows it."""
        return None if self.runtime is None else self.runtime.store.nodes.node

    @property
    def is_reached(self) -> bool:
        """Whether a balancer finds it. It does not see that a process is frozen, or cut off from others."""
        return self.is_up


class ServerWorld(World):
    bots = 3
    is_balanced = True
    is_refusal_doubtful = True  # the answer of a commit may have been lost: only a key makes a repeat safe
    calm_s = 3600.0  # shorter than on a file, as beats go on all the time
    jump_s_max = 3600.0

    def __init__(self, loop: WorldLoop, clock: VirtualClock, folder: Path, seed: int) -> None:
        self._data = folder / "server"
        self._data.mkdir()
        self.members: list[ServerNode] = []  # the nodes as what they are
        super().__init__(loop, clock, folder, seed)
        chance = self.chance_for("server")
        self.lease_s = chance.choice(LEASES_S)
        self._keeps_files = chance.random() < 0.5
        self.server = Server(
            loop, self.data / "peik.db", note=self.note, granted=self._granted, began_ms=clock.wall_ms()
        )
        self.rules = LeaseRules(self.witness, now_ms=self.server.now_ms, note=self.judge.note)
        self.guest = f"7000009:AAguest{seed}"  # a bot that comes and goes
        self.telegram.add_bot(self.guest)

    # ---- making ----

    @property
    def data(self) -> Path:
        return self._data

    def size(self, chance: random.Random) -> int:
        return chance.choice([2, 2, 3])

    def make_node(self, name: str) -> Node:
        node = ServerNode(self, name)
        self.members.append(node)
        return node

    @property
    def is_alone(self) -> bool:
        return False

    def has_handlers(self, node: Node) -> bool:
        return node in self.nodes[:HANDLERS_MAX]

    def places(self, node: Node) -> dict[str, str]:
        places = {
            "store": "postgresql://peik@server.example/peik",
            "home": str(self.folder / node.name),
            "lease": f"{self.lease_s:g}s",
        }
        return places if self._keeps_files else places | {"files": str(self.data / "files")}

    async def start(self) -> None:
        self.server.start()
        await super().start()

    def join(self) -> None:
        """One node more, if there is room."""
        if len(self.members) < NODES_MAX:
            node = self.make_node(f"node{len(self.members)}")
            self.nodes.append(node)
            node.start()

    # ---- what happens ----

    def _granted(self, bot_id: int, epoch: int, node: str) -> None:
        self.note(f"{node} has {'the chores' if bot_id == CHORES else bot_id} under {epoch}")
        self.rules.granted(bot_id, epoch, node)

    def left(self, one: Try) -> None:
        super().left(one)
        promise = self.judge.promise_of(one.request)
        if promise is not None:
            chat = msgspec.json.decode(one.request.params).get("chat_id")
            self.rules.has_jumped = self.judge.has_jumped
            self.rules.left(one, promise, self.judge.row_of(promise), chat)

    def balanced(self, chance: random.Random, *, is_anywhere: bool) -> Node:
        reached = [node for node in self.members if node.is_reached]
        return chance.choice(reached or self.members)

    def believers(self, bot_id: int) -> list[ServerNode]:
        """Nodes that believe to act for a bot."""
        now = self.clock.mono()
        found = []
        for node in self.members:
            lease = None if node.runtime is None else node.runtime.outbox.leases.of(bot_id)
            if lease is not None and lease.ends_at > now:
                found.append(node)
        return found

    def holder(self, bot_id: int) -> Runtime | None:
        return next((node.runtime for node in self.believers(bot_id)), None)

    def look_at_owners(self) -> None:
        for bot_id in (*self.tokens, CHORES):
            found = self.believers(bot_id)
            if len(found) > 1:
                self.judge.note(f"{' and '.join(node.name for node in found)} both act for {bot_id}")

    # ---- the server ----

    def kill_server(self) -> None:
        process = self.server.process
        if process is not None:
            self.disk.kill(process.name)
            self._server_died(process)

    def kill_server_after(self, operations: int) -> Process | None:
        """In the middle of one of its next writes."""
        process = self.server.process
        if process is not None:
            self.disk.kill_after(process.name, operations, lambda: self._server_died(process))
        return process

    def _server_died(self, process: Process) -> None:
        self.server.died(process)
        self.dead.append(process)

    def start_server(self) -> None:
        if not self.server.is_up:
            self.server.start()

    # ---- the end ----

    @property
    def deaths(self) -> int:
        return super().deaths + self.rules.grants  # whoever takes over finds what the last one had in hand

    def calm(self) -> None:
        self.start_server()
        for node in self.members:
            node.link.clear()
            node.is_apart = False
        super().calm()

    async def mend(self) -> None:
        await self._all_up()
        for node in self.members:
            assert node.runtime is not None
            name = node.runtime.store.nodes.node
            assert node.process is not None
            node.process.start(node.runtime.store.nodes.drain_node(name, is_draining=False))
        await asyncio.sleep(2 * self.lease_s + START_S)
        self.judge.wrong += self.rules.lost(self._living())
        await self._set_right()

    def _living(self) -> list[str]:
        return [node.process.name for node in self.members if node.process is not None]

    def owed(self) -> Iterator[str]:
        yield from super().owed()
        yield from self.rules.lost(self._living())
        yield from self.rules.uneven(self._living())

    async def _all_up(self) -> None:
        try:
            async with asyncio.timeout(UP_S):
                for node in self.members:
                    await node.up()
        except TimeoutError:
            self.judge.note(f"not all nodes serve after {UP_S:g} calm seconds")
            raise

    async def _set_right(self) -> None:
        """A token that nobody has told Peik, a bot that receives nothing."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        for bot_id, known, inbound in self.witness.look("SELECT bot_id, token, inbound FROM bots ORDER BY bot_id"):
            change: dict[str, str] = {}
            if known != self.tokens.get(bot_id, known):
                change["token"] = self.tokens[bot_id]
            if inbound == "off" and bot_id in self.tokens:
                change["inbound"] = "polling"
            if change:
                body = msgspec.json.encode(change)
                answer = await self.ask("PATCH", f"/v1/bots/{bot_id}", headers=headers, body=body)
                if answer.status != 200:
                    self.judge.note(f"bot {bot_id} could not be changed: {answer.status} {answer.body[:200]!r}")

    def end(self) -> None:
        super().end()
        self.kill_server()
