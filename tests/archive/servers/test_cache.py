"""The cache of sessions in Redis tries to be stale, and is not."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from peik.archive.cache import CachedArchive, SessionCache
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Fed, LogFilter, Session
from peik.errors import Conflict
from tests.archive.samples import NOW, line, log, session
from tests.archive.servers.ways import Way
from tests.storage.redis_server import RedisServer, shared

pytestmark = pytest.mark.gate  # lives at random on a real server

KEPT_S = 0.2


class LateArchive(SqliteArchive):
    """Its answers about sessions sometimes come so late that they are not true any more."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        super().__init__(path)
        self._chance = chance
        self.asked = 0

    async def session(self, session_id: str) -> Session | None:
        self.asked += 1
        found = await super().session(session_id)
        await self._be_late()
        return found

    async def session_by_phone(self, phone: str) -> Session | None:
        found = await super().session_by_phone(phone)
        await self._be_late()
        return found

    async def _be_late(self) -> None:
        late = asyncio.Event()
        delay_s = self._chance.choice([0, 0, 0.002, 0.01, KEPT_S, 2 * KEPT_S])
        asyncio.get_running_loop().call_later(delay_s, late.set)
        await late.wait()


class Deaf(SessionCache):
    """A planted bug: who wrote does not see to it that others forget."""

    async def forget(self, names: Sequence[str]) -> None:
        await asyncio.sleep(0)


@asynccontextmanager
async def node(
    path: Path, port: int, chance: random.Random, *, kind: type[SessionCache] = SessionCache, kept_s: float = KEPT_S
) -> AsyncIterator[CachedArchive]:
    url = f"redis://127.0.0.1:{port}/0?prefix=cache-{path.parent.name}:"
    archive = CachedArchive(LateArchive(path, chance), kind(url, kept_s=kept_s))
    await archive.open()
    try:
        yield archive
    finally:
        await archive.close()


async def test_a_session_is_read_from_redis(tmp_path: Path) -> None:
    quiet = random.Random(0)
    quiet.choice = lambda among: among[0]  # type: ignore[method-assign]
    async with node(tmp_path / "a", shared().port, quiet, kept_s=30) as archive:
        added = await archive.add_session(session(phone="+1", secret=b"\0"))
        for _ in range(5):
            assert await archive.session("s1") == added
            assert await archive.session_by_phone("+1") == added
            assert await archive.session("nobody") is None
        assert archive._archive.asked == 2  # once for each id
        changed = await archive.save_session(msgspec.structs.replace(added, phone="+2"))
        assert await archive.session("s1") == changed
        assert await archive.session_by_phone("+1") is None
        assert await archive.session_by_phone("+2") == changed
        await archive.remove_session("s1")
        assert await archive.session("s1") is None
        assert await archive.session_by_phone("+2") is None


async def test_no_phone_and_no_id_stands_in_a_key(tmp_path: Path) -> None:
    async with node(tmp_path / "a", shared().port, random.Random(0)) as archive:
        await archive.add_session(session("some-id", phone="+4915112345"))
        await archive.session("some-id")
        await archive.session_by_phone("+4915112345")
    with shared().client() as client:
        assert not [key for key in client.keys("*") if b"some-id" in key or b"4915112345" in key]


class World:
    """Two nodes change and read a few sessions while the ways to Redis, and Redis itself, fail at random."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.path = folder / "a"
        (folder / "redis").mkdir()
        self.server = RedisServer(folder / "redis", dbfilename="old.rdb").start()
        self.acknowledged: dict[str, int] = {}
        self.phones: dict[str, str] = {}  # the phone of a session in the last version that was acknowledged
        self.trying: dict[str, int] = {"s1": 0, "s2": 0}  # who changes a session right now
        self.tried: dict[str, int] = {"s1": 0, "s2": 0}
        self.stale: list[str] = []
        self.reads = self.writes = 0

    async def live(self, rounds: int, kind: type[SessionCache]) -> None:
        async with AsyncExitStack() as stack:
            ways = [await stack.enter_async_context(Way(self.server.port, self.chance).open()) for _ in range(2)]
            nodes = [await stack.enter_async_context(node(self.path, way.port, self.chance, kind=kind)) for way in ways]
            for name in ("s1", "s2"):
                self.acknowledged[name] = (await nodes[0].add_session(session(name))).version
            async with asyncio.TaskGroup() as group:
                for one in nodes:
                    group.create_task(self._write(one, rounds))
                    for _ in range(3):
                        group.create_task(self._read(one, rounds * 4))
                group.create_task(self._harm(ways, rounds))

    async def _write(self, one: CachedArchive, rounds: int) -> None:
        for number in range(rounds):
            name = self.chance.choice(["s1", "s2"])
            phone = f"+{id(one)}{number}" if self.chance.random() < 0.5 else None  # one that nobody has had
            self.trying[name] += 1
            self.tried[name] += 1
            try:
                seen = await one.session(name)
                assert seen is not None
                changed = await one.save_session(msgspec.structs.replace(seen, phone=phone or seen.phone))
            except Conflict:
                continue
            finally:
                self.trying[name] -= 1
            self.writes += 1
            if changed.version > self.acknowledged[name]:
                self.acknowledged[name] = changed.version
                self.phones[name] = changed.phone or ""

    async def _read(self, one: CachedArchive, rounds: int) -> None:
        for _ in range(rounds):
            name = self.chance.choice(["s1", "s2"])
            floor = self.acknowledged[name]
            if self.chance.random() < 0.7 or not self.phones.get(name):
                found = await one.session(name)
                assert found is not None
            else:
                phone, tried, is_quiet = self.phones[name], self.tried[name], not self.trying[name]
                by_phone = await one.session_by_phone(phone)
                if by_phone is None:
                    if is_quiet and tried == self.tried[name]:
                        self.stale.append(f"{name}: nobody has its phone")
                    continue
                found = by_phone
            self.reads += 1
            if found.version < floor:
                self.stale.append(f"{name}: version {found.version} was read after {floor} was acknowledged")

    async def _harm(self, ways: list[Way], rounds: int) -> None:
        for _ in range(rounds):
            way = self.chance.choice(ways)
            match self.chance.choice(["cut", "lose", "mend", "mend", "save", "restart"]):
                case "cut":
                    way.cut()
                case "lose":
                    way.loses = self.chance.choice([0.1, 0.5, 1.0])
                case "mend":
                    way.mend()
                    way.loses = 0.0
                case "save":  # what a restart brings back
                    with self.server.client() as client:
                        client.save()
                case "restart":
                    self.server.kill()
                    self.server.start()
            moment = asyncio.Event()
            asyncio.get_running_loop().call_later(self.chance.random() * 0.1, moment.set)
            await moment.wait()
        for way in ways:
            way.mend()
            way.loses = 0.0


@pytest.mark.parametrize("seed", range(4))
async def test_nobody_reads_less_than_was_acknowledged(tmp_path: Path, seed: int) -> None:
    world = World(seed, tmp_path)
    try:
        await world.live(12, SessionCache)
    finally:
        world.server.kill()
    assert world.stale == []
    assert world.reads > 50
    assert world.writes > 2


async def test_a_cache_that_does_not_forget_is_caught(tmp_path: Path) -> None:
    """The story above can fail."""
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = World(seed, folder)
        try:
            await world.live(6, Deaf)
        finally:
            world.server.kill()
        if world.stale:
            return
    pytest.fail("ten lives with a planted bug, and none of them showed it")


async def test_a_restart_does_not_bring_back_what_was_forgotten(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis", dbfilename="old.rdb").start()
    quiet = random.Random(0)
    quiet.choice = lambda among: among[0]  # type: ignore[method-assign]
    try:
        async with node(tmp_path / "a", server.port, quiet, kept_s=60) as archive:
            added = await archive.add_session(session())
            await archive.session("s1")
            with server.client() as client:
                client.save()  # with the first version in it
            changed = await archive.save_session(msgspec.structs.replace(added, username="new"))
            server.kill()
            server.start()
            async with node(tmp_path / "a", server.port, quiet, kept_s=60) as other:
                assert await other.session("s1") == changed
    finally:
        server.kill()


async def test_who_cannot_reach_redis_waits_until_nobody_is_told_the_old(tmp_path: Path) -> None:
    quiet = random.Random(0)
    quiet.choice = lambda among: among[0]  # type: ignore[method-assign]
    async with (
        Way(shared().port, quiet).open() as way,
        node(tmp_path / "a", way.port, quiet, kept_s=0.5) as cut_off,
        node(tmp_path / "a", shared().port, quiet, kept_s=0.5) as other,
    ):
        added = await cut_off.add_session(session(phone="+1"))
        assert await other.session("s1") == added  # Redis has it now
        way.cut()
        changed = await cut_off.save_session(msgspec.structs.replace(added, username="new"))
        assert await other.session("s1") == changed
        assert await cut_off.session("s1") == changed


async def test_what_is_not_cached_goes_to_the_archive_behind(tmp_path: Path) -> None:
    async with node(tmp_path / "a", shared().port, random.Random(1)) as archive:
        assert await archive.feed([line("a"), line("b")]) == 2
        assert [one.key for one in await archive.fed("s1", after=1, limit=1)] == ["b"]
        assert await archive.fed_to(["s1", "s2"]) == {"s1": Fed(first=1, last=2)} == await archive.fed_to()
        await archive.save_places("reader", {"s1": 2}, at_ms=NOW)
        assert await archive.places("reader") == {"s1": 2}
        assert await archive.remove_reader("reader")
        assert await archive.places("reader") == {}
        await archive.keep_logs([log("one"), log("two", level="error")])
        found, cursor = await archive.logs(LogFilter(level="error"), cursor=None, limit=5)
        assert ([one.event for one in found], cursor) == (["two"], None)
