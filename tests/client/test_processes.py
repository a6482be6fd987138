"""Three real processes on one file: two programs on `Peik.open` and a `peik serve`. One sends; when it dies, another does."""

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from peik import Peik
from peik.testing import SimServer
from tests.client.counters import telegram
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, TOKEN, served

LETTERS = 200
CHATS = 8


class Worker:
    """A program that sends by its own `Peik.open`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self) -> list[str]:
        """Let it send; the ids of what it was promised."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{LETTERS} {CHATS}\n".encode())
        return list(await self.said())

    async def said(self) -> object:
        assert self.process.stdout is not None
        return json.loads(await self.process.stdout.readline())


@contextlib.asynccontextmanager
async def worker(folder: Path, sim: SimServer, name: str) -> AsyncIterator[Worker]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.client.worker", f"sqlite:///{folder}/peik.db", TOKEN, sim.url, name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    one = Worker(process)
    try:
        assert await one.said() == "open"
        yield one
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def send_over_rest(peik: Peik, first: int) -> list[str]:
    return [(await peik.send_text(number % CHATS + 1, f"rest {number}")).id for number in range(first, first + LETTERS)]


def judge(sim: SimServer, senders: dict[str, int], *, uncertain_tries: int) -> None:
    """Everything arrived, each sender's letters in order within each chat, and nothing twice without a doubt before."""
    by_lane: dict[tuple[int, str], list[int]] = defaultdict(list)
    for delivery in sim.telegram.sent:
        name, number = delivery.text.split()
        by_lane[delivery.chat_id, name].append(int(number))
    doubles = 0
    for (chat, name), numbers in by_lane.items():
        first_seen = list(dict.fromkeys(numbers))
        assert first_seen == [n for n in range(senders[name]) if n % CHATS + 1 == chat], (chat, name)
        doubles += sum(count - 1 for count in Counter(numbers).values())
    assert len(by_lane) == CHATS * len(senders)
    assert doubles <= uncertain_tries


def owner_of(folder: Path) -> int:
    return int((folder / "peik.db.owner").read_text())


def uncertain_tries(folder: Path) -> int:
    with contextlib.closing(sqlite3.connect(folder / "peik.db")) as connection:
        (count,) = connection.execute("SELECT sum(uncertain_tries) FROM letters").fetchone()
    return int(count)


def test_three_processes_share_a_file_and_one_takes_over_when_the_owner_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            telegram() as sim,
            aiohttp.ClientSession() as http,
            served(tmp_path, sim.url, http, pace="off") as server,
            worker(tmp_path, sim, "a") as a,
            worker(tmp_path, sim, "b") as b,
            Peik.connect(server.url, key=KEY) as rest,
        ):
            promised = [*await asyncio.gather(a.send(), b.send(), send_over_rest(rest, 0))]
            ids = {letter_id for own in promised for letter_id in own}
            assert len(ids) == 3 * LETTERS
            await sim.until(lambda: len(sim.telegram.sent) >= 3 * LETTERS, timeout=PATIENCE_S)
            judge(sim, {"a": LETTERS, "b": LETTERS, "rest": LETTERS}, uncertain_tries=0)
            assert owner_of(tmp_path) == server.pid

            sim.telegram.faults.add("slow", least_s=0.01, most_s=0.05)
            sending = asyncio.gather(a.send(), b.send())
            await sim.until(lambda: len(sim.telegram.sent) >= 3 * LETTERS + 50, timeout=PATIENCE_S)
            await server.program.kill()
            await sending
            names = {"a": 2 * LETTERS, "b": 2 * LETTERS, "rest": LETTERS}
            await sim.until(
                lambda: len({(one.chat_id, one.text) for one in sim.telegram.sent}) == sum(names.values()),
                timeout=PATIENCE_S,
            )
            assert owner_of(tmp_path) in (a.process.pid, b.process.pid)
            assert not server.surprises(), "".join(server.output)
        judge(sim, names, uncertain_tries=uncertain_tries(tmp_path))

    asyncio.run(story())
