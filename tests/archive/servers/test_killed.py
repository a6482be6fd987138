"""Servers that are killed under load keep everything that they acknowledged."""

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from peik.archive.mongo.archive import MongoArchive
from peik.archive.postgres.archive import PostgresArchive
from peik.archive.store import Archive, Fed, Message
from peik.errors import StoreUnavailable
from tests.archive.mongo_server import MongoServer
from tests.archive.samples import CHAT, NOW, line, message
from tests.storage.servers import PostgresServer

pytestmark = pytest.mark.gate  # kills of servers under load

WRITERS = 8
BEFORE_KILL = 150  # messages that are acknowledged before the kill


class Load:
    """Many who hand in messages and edits, and feed one session, until the server is gone, and again after it is back."""

    def __init__(self) -> None:
        self.acknowledged: list[Message] = []
        self.fed: list[str] = []
        self.enough = asyncio.Event()

    async def run(self, archive: Archive, *, first: int, until_failure: bool) -> None:
        async with asyncio.TaskGroup() as group:
            for writer in range(WRITERS):
                group.create_task(self._write(archive, writer, first, until_failure=until_failure))

    async def _write(self, archive: Archive, writer: int, first: int, *, until_failure: bool) -> None:
        for number in range(first, first + (10_000 if until_failure else 5)):
            new = message(number, session_id=f"s{writer}")
            edited = msgspec.structs.replace(new, text="edited", edited_at_ms=NOW + 1)
            for one in (new, edited):
                key = f"{writer} {number} {one.edited_at_ms}"
                try:
                    await archive.keep_messages([one])
                    await archive.feed([line(key, session_id="fed"), line(f"{key} end", session_id="fed")])
                except StoreUnavailable:
                    assert until_failure
                    return
                self.acknowledged.append(one)
                self.fed += [key, f"{key} end"]
                if len(self.acknowledged) >= BEFORE_KILL:
                    self.enough.set()

    async def check(self, archive: Archive) -> None:
        by_key: dict[tuple[str, int], set[int]] = {}
        for one in self.acknowledged:
            by_key.setdefault((one.session_id, one.message_id), set()).add(one.edited_at_ms)
        for (session_id, message_id), versions in by_key.items():
            found = {one.edited_at_ms for one in await archive.versions(session_id, CHAT, message_id)}
            assert versions <= found, (session_id, message_id)
        lines = await archive.fed("fed", after=0, limit=100_000)
        assert {one.key for one in lines}.issuperset(self.fed)
        assert [one.number for one in lines] == list(range(1, len(lines) + 1))
        assert await archive.fed_to() == {"fed": Fed(first=1, last=len(lines))}


async def test_mongod_killed_under_load_loses_nothing(tmp_path: Path) -> None:
    server = MongoServer(tmp_path).start()
    archive = MongoArchive(server.url.format(database="peik"))
    try:
        await archive.open()
        load = Load()
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(archive, first=0, until_failure=True))
            await load.enough.wait()
            server.kill()
        assert archive.trouble() is not None
        server.start()
        await load.check(archive)
        await load.run(archive, first=20_000, until_failure=False)
        await load.check(archive)
        assert archive.trouble() is None
    finally:
        await archive.close()
        server.kill()


async def test_postgres_killed_under_load_loses_nothing() -> None:
    server = PostgresServer({"fsync": "on", "max_connections": "20"})
    try:
        server.start()
        archive = PostgresArchive(server.url)
        await archive.open()
        load = Load()
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(archive, first=0, until_failure=True))
            await load.enough.wait()
            server._end(signal.SIGQUIT)
        server.start()
        await load.check(archive)
        await load.run(archive, first=20_000, until_failure=False)
        await load.check(archive)
        await archive.close()
    finally:
        server.remove()
