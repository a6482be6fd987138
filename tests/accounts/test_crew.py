"""Sessions shared among nodes: each runs once, under its lock, and never on two nodes at a time."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.accounts.client import ClientError
from peik.accounts.crew import Crew, lock_of
from peik.accounts.events import SessionLockLost, SessionRevoked
from peik.archive.store import Session, SessionState
from peik.errors import Conflict, StoreUnavailable
from peik.storage.sqlite.database import SqliteNodes
from peik.testing.virtual import VirtualClock
from tests.accounts.listening import until
from tests.accounts.stage import Stage
from tests.accounts.test_running import play

LEASE_S = 10.0


class LockServer:
    """The locks and nodes of a store that several nodes share, by its own clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.locks: dict[str, tuple[str, float]] = {}
        self.alive: dict[str, float] = {}
        self.draining: set[str] = set()

    def taking_part(self) -> list[str]:
        now = self.clock.mono()
        return sorted(name for name, ends_at in self.alive.items() if ends_at > now and name not in self.draining)


class NodeLocks:
    """One node's view of it. Cut off, it gets no answer."""

    lease_s: float | None = LEASE_S

    def __init__(self, server: LockServer, node: str) -> None:
        self._server = server
        self.node = node
        self.is_cut = False
        self.is_hanging = False
        self.others: list[str] = []  # who takes part, by the last beat

    async def beat(self) -> None:
        now = await self._reach()
        self._server.alive[self.node] = now + LEASE_S
        self.others = self._server.taking_part()
        for name, (node, _) in self._server.locks.items():
            if node == self.node:
                self._server.locks[name] = (node, now + LEASE_S)

    async def take_lock(self, name: str) -> bool:
        now = await self._reach()
        node, ends_at = self._server.locks.get(name, ("", 0.0))
        if node != self.node and ends_at > now:
            return False
        self._server.locks[name] = (self.node, now + LEASE_S)
        return True

    async def drop_lock(self, name: str) -> None:
        await self._reach()
        if self._server.locks.get(name, ("", 0.0))[0] == self.node:
            del self._server.locks[name]

    async def _reach(self) -> float:
        await asyncio.sleep(0.01)
        if self.is_hanging:
            await asyncio.get_running_loop().create_future()
        if self.is_cut:
            raise StoreUnavailable(code="store_gone", detail="No way there.")
        return self._server.clock.mono()


class Shares:
    """Who acts for which account, as leases would say it: by turns, in the order of the nodes' names."""

    def __init__(self, locks: NodeLocks) -> None:
        self._locks = locks
        self.enlisted: list[str] = []

    def may_run(self, session: Session) -> bool:
        others = self._locks.others
        if not others:
            return False
        return others[int(session.session_id[1:]) % len(others)] == self._locks.node

    async def enlist(self, sessions: Sequence[Session]) -> None:
        self.enlisted = [one.session_id for one in sessions]


class Anybody:
    """Whoever has the lock runs it."""

    def may_run(self, session: Session) -> bool:
        return True

    async def enlist(self, sessions: Sequence[Session]) -> None: ...


class Node:
    """A process with a crew. It tells the crew of its beats, or leaves it to prove its locks by itself."""

    def __init__(self, stage: Stage, server: LockServer, name: str, *, tells: bool = True) -> None:
        self.locks = NodeLocks(server, name)
        self.shares = Shares(self.locks)
        self.crew = Crew(stage.tools(), self.locks, self.shares, look_s=5)
        self._clock = stage.clock
        self._tells = tells

    async def begin(self) -> "Node":
        await self.locks.beat()
        self._tasks = [asyncio.create_task(self.crew.run()), asyncio.create_task(self._beat())]
        return self

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 5)
            began = self._clock.mono()
            try:
                async with asyncio.timeout(LEASE_S / 2):
                    await self.locks.beat()
            except (StoreUnavailable, TimeoutError):
                continue
            if self._tells:
                self.crew.beaten(began)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
            await asyncio.wait([task])


async def sign_in_many(stage: Stage, count: int) -> list[str]:
    names = []
    for number in range(count):
        person = stage.telegram.register(f"+99890100{number:04}")
        names.append(f"m{number:02}")
        await stage.sign_in(person, names[-1])
    return names


def nobody_was_revoked(stage: Stage) -> bool:
    """Telegram ends a key that is used twice at once: the simulated one, too."""
    return not stage.told_of(SessionRevoked)


@pytest.mark.parametrize("tells", [True, False])
def test_nodes_share_sessions_and_give_them_on(tmp_path: Path, tells: bool) -> None:
    async def story(stage: Stage) -> None:
        server = LockServer(stage.clock)
        await sign_in_many(stage, 9)
        one = await Node(stage, server, "one", tells=tells).begin()
        await until(lambda: len(one.crew.running()) == 10)
        two = await Node(stage, server, "two", tells=tells).begin()
        three = await Node(stage, server, "three", tells=tells).begin()
        await asyncio.sleep(60)
        assert sorted(len(node.crew.running()) for node in (one, two, three)) == [3, 3, 4]
        assert len({name for node in (one, two, three) for name in node.crew.running()}) == 10
        await two.end()
        await asyncio.sleep(40)
        assert len(one.crew.running()) + len(three.crew.running()) == 10
        server.draining.add("three")
        await asyncio.sleep(40)
        assert nobody_was_revoked(stage)
        await one.end()
        await three.end()
        assert not server.locks
        assert all(not one.is_connected for one in await stage.registry.get_all_active_sessions())

    play(tmp_path, story)


@pytest.mark.parametrize("how", ["is_cut", "is_hanging"])
def test_a_node_that_cannot_prove_its_locks_disconnects_before_they_end(tmp_path: Path, how: str) -> None:
    async def story(stage: Stage) -> None:
        server = LockServer(stage.clock)
        one = await Node(stage, server, "one").begin()
        await until(lambda: one.crew.running() == ["s1"])
        await asyncio.sleep(20)
        setattr(one.locks, how, True)
        cut_at = stage.clock.mono()
        two = await Node(stage, server, "two").begin()
        key = stage.telegram.keys.of(stage.ali)[0]
        first = key.client
        await until(lambda: key.client is not first, within_s=60)
        assert stage.told_of(SessionLockLost)
        assert stage.clock.mono() - cut_at < LEASE_S
        await until(lambda: two.crew.running() == ["s1"], within_s=60)
        setattr(one.locks, how, False)
        await asyncio.sleep(60)
        assert nobody_was_revoked(stage)
        assert len(one.crew.running()) + len(two.crew.running()) == 1
        await one.end()
        await two.end()

    play(tmp_path, story)


def test_a_lock_that_is_over_does_not_come_back_by_a_late_beat(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        server = LockServer(stage.clock)
        one = await Node(stage, server, "one").begin()
        await until(lambda: one.crew.running() == ["s1"])
        held = one.crew._held["s1"]
        held.ends_at = stage.clock.mono()
        one.crew.beaten(stage.clock.mono())
        assert held.ends_at == stage.clock.mono()
        assert held.runner is not None
        assert held.runner.client is None, "nothing is sent with it"
        await until(lambda: stage.told_of(SessionLockLost))
        await one.end()

    play(tmp_path, story)


def test_a_lock_that_another_node_has_is_let_go_of_at_once(tmp_path: Path) -> None:
    """The store was restored from a backup, say: what this node was promised is not there any more."""

    async def story(stage: Stage) -> None:
        server = LockServer(stage.clock)
        one = await Node(stage, server, "one", tells=False).begin()
        await until(lambda: one.crew.line_of(stage.ali.user_id))
        held = one.crew._held["s1"]
        await until(lambda: held.ends_at - stage.clock.mono() > LEASE_S * 0.7)
        server.locks[lock_of("s1")] = ("two", stage.clock.mono() + 3600)
        stolen_at = stage.clock.mono()
        await until(lambda: stage.told_of(SessionLockLost))
        assert stage.clock.mono() - stolen_at < LEASE_S * 0.5
        await asyncio.sleep(60)
        assert one.crew.running() == []
        assert server.locks[lock_of("s1")][0] == "two"
        await one.end()

    play(tmp_path, story)


def test_start_stop_restart_and_new_sessions(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await Node(stage, LockServer(stage.clock), "one").begin()
        crew = node.crew
        await until(lambda: crew.line_of(stage.ali.user_id))
        stopped = await crew.stop("s1")
        assert (stopped.state, stopped.state_reason) == (SessionState.PAUSED, "Its owner paused it.")
        assert stage.telegram.keys.of(stage.ali)[0].client is None
        await asyncio.sleep(30)
        assert crew.running() == []
        await crew.start("s1")
        await until(lambda: crew.line_of(stage.ali.user_id))
        before = crew.runner_of("s1")
        await crew.restart("s1")
        await until(lambda: crew.line_of(stage.ali.user_id))
        assert crew.runner_of("s1") is not before
        await stage.sign_in(stage.sara, "s2")
        crew.ring()
        await until(lambda: crew.running() == ["s1", "s2"], within_s=1)
        await stage.registry.deactivate_session("s1")
        await stage.registry.delete_session("s2")
        await until(lambda: crew.running() == [], within_s=20)
        with pytest.raises(Conflict):
            await crew.restart("s1")
        assert nobody_was_revoked(stage)
        await node.end()

    play(tmp_path, story)


def test_signing_out(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        server = LockServer(stage.clock)
        node = await Node(stage, server, "one").begin()
        await until(lambda: node.crew.line_of(stage.ali.user_id))
        other = Crew(stage.tools(), NodeLocks(server, "two"), Anybody())
        with pytest.raises(Conflict, match="another node"):
            await other.log_out("s1")
        stage.telegram.is_down = True
        with pytest.raises(ClientError):
            await node.crew.log_out("s1")
        stage.telegram.is_down = False
        session = await node.crew.log_out("s1")
        assert (session.state, session.state_reason, session.secret) == (
            SessionState.REVOKED,
            "It was signed out.",
            None,
        )
        assert not stage.telegram.keys.of(stage.ali)
        with pytest.raises(Conflict):
            await node.crew.start("s1")
        await asyncio.sleep(30)
        assert node.crew.running() == []
        await node.end()

    play(tmp_path, story)


def test_what_is_still_being_signed_in_is_left_alone_and_what_failed_is_tried_at_a_start(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        def flooded(old: Any) -> Any:
            half = stage.vault.seal("{}", context="session:s1:signing in")
            until_ms = stage.clock.wall_ms() + 5000
            return msgspec.structs.replace(old, state=SessionState.FLOOD_WAIT, state_until_ms=until_ms, secret=half)

        await stage.registry.change("s1", flooded)
        session = await stage.sign_in(stage.sara, "s2")
        await stage.registry.change("s2", lambda old: msgspec.structs.replace(old, state=SessionState.FAILED))
        node = await Node(stage, LockServer(stage.clock), "one").begin()
        await until(lambda: node.crew.running() == ["s2"])
        await asyncio.sleep(60)
        assert node.crew.running() == ["s2"]
        assert (await stage.session("s1")).state is SessionState.FLOOD_WAIT
        assert (await stage.session("s2")).secret == session.secret
        await node.end()

    play(tmp_path, story)


def test_processes_on_one_file(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async def claim() -> int:
            return 1

        async def has_news() -> bool:
            return False

        def locks() -> SqliteNodes:
            return SqliteNodes(tmp_path / "peik.db", clock=stage.clock, claim=claim, has_news=has_news)

        crews = [Crew(stage.tools(), locks(), Anybody(), look_s=5) for _ in range(2)]
        tasks = [asyncio.create_task(crew.run()) for crew in crews]
        await asyncio.sleep(30)
        assert sorted(crew.running() for crew in crews) == [[], ["s1"]]
        winner = crews.index(next(crew for crew in crews if crew.running()))
        tasks[winner].cancel()
        await asyncio.wait([tasks[winner]])
        await asyncio.sleep(10)
        assert crews[1 - winner].running() == ["s1"]
        assert nobody_was_revoked(stage)
        tasks[1 - winner].cancel()
        await asyncio.wait(tasks)

    play(tmp_path, story)


@pytest.mark.parametrize("seed", range(15))
def test_never_two_at_once(tmp_path: Path, seed: int) -> None:
    """Nodes come, go, are cut off and freeze; the simulated Telegram ends a key that two clients use."""

    async def story(stage: Stage) -> None:
        chance = random.Random(seed)
        server = LockServer(stage.clock)
        names = await sign_in_many(stage, 5)
        nodes: dict[str, Node] = {}

        async def deed(name: str) -> None:
            node = nodes.get(name)
            if node is None:
                nodes[name] = await Node(stage, server, name, tells=chance.random() < 0.7).begin()
            elif chance.random() < 0.3:
                node.locks.is_cut = node.locks.is_hanging = False
                await nodes.pop(name).end()
            else:
                what = chance.choice(["is_cut", "is_hanging"])
                setattr(node.locks, what, not getattr(node.locks, what))

        for _ in range(40):
            await deed(chance.choice(["one", "two", "three"]))
            await asyncio.sleep(chance.choice([0.05, 1.0, 4.0, 15.0, 60.0]))
        for node in nodes.values():
            node.locks.is_cut = node.locks.is_hanging = False
        if not nodes:
            nodes["one"] = await Node(stage, server, "one").begin()
        await asyncio.sleep(120)
        assert nobody_was_revoked(stage)
        running = sorted(name for node in nodes.values() for name in node.crew.running())
        assert running == sorted(["s1", *names])
        for node in nodes.values():
            await node.end()

    play(tmp_path, story, seed=seed)


def test_an_account_that_another_node_acts_for_is_let_go_of(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        node = await Node(stage, LockServer(stage.clock), "one").begin()
        await stage.sign_in(stage.sara, "s2")
        node.crew.ring()
        await until(lambda: node.crew.line_of(stage.ali.user_id) and node.crew.line_of(stage.sara.user_id))
        assert node.shares.enlisted == ["s1", "s2"]
        await node.crew.let_go(stage.sara.user_id)
        assert node.crew.running() == ["s1"]
        assert stage.telegram.keys.of(stage.sara)[0].client is None
        node.crew.drop(stage.ali.user_id)
        await until(lambda: stage.telegram.keys.of(stage.ali)[0].client is None, within_s=1)
        await node.end()

    play(tmp_path, story)


def test_locks_have_names_that_a_file_can_have() -> None:
    assert lock_of("a1b2") == "session-a1b2"
    assert lock_of("../etc") != lock_of("../etd")
    assert "/" not in lock_of("../etc")


def test_a_lock_whose_answer_was_lost_is_given_back_and_so_are_those_of_a_life_before(tmp_path: Path) -> None:
    """Beats keep all locks of a node's name, so that one which nobody here knows of would be ours for ever."""

    async def story(stage: Stage) -> None:
        server = LockServer(stage.clock)
        await sign_in_many(stage, 1)
        server.locks[lock_of("m00")] = ("one", stage.clock.mono() + LEASE_S)  # it died, and is there again
        one = Node(stage, server, "one")
        one.shares.may_run = lambda session: session.session_id == "s1"  # type: ignore[method-assign]
        take, answers = one.locks.take_lock, iter([False])

        async def taken(name: str) -> bool:
            is_ours = await take(name)
            if not next(answers, True):
                one.shares.may_run = lambda session: False  # type: ignore[method-assign]  another node's, meanwhile
                raise StoreUnavailable(code="store_gone", detail="The answer was lost.")
            return is_ours

        one.locks.take_lock = taken  # type: ignore[method-assign]
        await one.begin()
        await asyncio.sleep(3 * LEASE_S)
        assert (server.locks, one.crew.running()) == ({}, [])
        await one.end()

    play(tmp_path, story)
