"""Many accounts in one process: what a session costs in memory, and how long a message takes from Telegram to a reader of the
feed, also while one session among them misbehaves.

    python -m bench.sessions --sessions 200 --seconds 40

The clients are real ones of Telethon on a wire in memory: every request and every update is written as TL and read again, but not
encrypted. Store and archive are SQLite files with the settings that Peik has by default. Telegram and the reader run in the same
process, so that their time counts, too. Without --pace nobody waits for his turn to connect, or to ask.
"""

import argparse
import asyncio
import gc
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.table import Table
from telethon import types

from peik.accounts.budget import Budget
from peik.accounts.events import SessionDown, SessionUp
from peik.accounts.feeds import FeedFilter
from peik.accounts.service import AccountService
from peik.accounts.telethon.client import TelethonClients
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.clock import SystemClock
from peik.core.events import Event, Events
from peik.settings.config import load
from tests.accounts.tl_server import CODE, TlTelegram

AGENTS = 5
PER_S = 50.0  # messages to all sessions together
SICK_PER_S = 200.0  # to the one that misbehaves
SICK_TURN_S = 3.0
FIRST_USER = 1_000_000
KEY = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="


class OneAccount(TlTelegram):
    """The Telegram of one account."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.phone = f"+9989{number:08}"
        self.requests = _Forgetful()

    def me(self) -> types.User:
        return types.User(
            id=FIRST_USER + self.number, access_hash=1, first_name="Ali", phone=self.phone[1:], is_self=True
        )


class _Forgetful(list[Any]):
    def append(self, _: Any) -> None:
        return


class World:
    def __init__(self, count: int) -> None:
        self.servers = [OneAccount(number) for number in range(count)]
        clock = SystemClock()
        self.made = {
            _name(one.number): TelethonClients(api_id=1, api_hash="h", clock=clock, prepare=one.prepare)
            for one in self.servers
        }
        self.events: list[Event] = []
        self.late: dict[str, list[float]] = {}  # by what goes on: seconds from Telegram to the reader
        self.sick: OneAccount | None = None
        self.what = "warm-up"
        self.runtime: Runtime

    def clients(self, *, session_id: str, **wanted: Any) -> Any:
        return self.made[session_id](session_id=session_id, **wanted)

    @property
    def service(self) -> AccountService:
        assert self.runtime.accounts is not None
        return self.runtime.accounts

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        flags = {"store": f"sqlite:///{folder}/peik.db", "inbound": "off", "grace": "1s", "secret_key": KEY}
        config = load(flags | {"api_root": "http://127.0.0.1:9"}, environment={}, folder=folder)
        told = Events()
        told.listen(self.events.extend)
        async with running(
            config, events=told, is_alone=True, make_clients=lambda config, clock: self.clients
        ) as self.runtime:
            await _until(lambda: self.service.trouble() is None)
            yield

    async def sign_in(self, servers: list[OneAccount]) -> None:
        for one in servers:
            session_id = _name(one.number)
            await self.service.create_session(f"agent{one.number % AGENTS}", phone=one.phone, session_id=session_id)
            await self.service.signing_in.begin(session_id)
            await self.service.signing_in.give_code(session_id, CODE)
        await _until(lambda: all(self.service.line_of(FIRST_USER + one.number) for one in servers))

    # ---- what is measured ----

    async def read(self) -> None:
        follower = await self.service.follow(FeedFilter())
        while not follower.is_over:
            lines = await follower.next(timeout_s=5.0)
            now = time.perf_counter()
            sick = None if self.sick is None else _name(self.sick.number)
            for line in lines:
                if line.session_id != sick:
                    sent_at, _, what = json.loads(line.body)["text"].partition(" ")
                    self.late.setdefault(what, []).append(now - float(sent_at))

    async def write(self) -> None:
        chance = random.Random(1)
        while True:
            server = chance.choice(self.servers)
            if server is not self.sick:
                server.private(f"{time.perf_counter()} {self.what}")
            await asyncio.sleep(chance.expovariate(PER_S))

    async def misbehave(self) -> None:
        """Messages pour in, its requests are refused, its connection breaks, and nobody answers; in turns."""
        sick = self.sick = self.servers[0]
        turn = 0
        while True:
            turn += 1
            for name in ("GetHistory", "GetDialogs", "GetDifference"):
                sick.scripted[name] = ["FLOOD_WAIT_2" if turn % 2 else "RPC_CALL_FAIL"] * 3
            sick.is_down = turn % 4 == 0
            if turn % 3 == 0:
                for sender in sick.senders:
                    if sender.is_connected():
                        sender.end(ConnectionError("cut"))
            sick.senders = [one for one in sick.senders if one.is_connected()]
            ends_at = time.perf_counter() + SICK_TURN_S
            while time.perf_counter() < ends_at:
                sick.private(f"{time.perf_counter()} sick")
                await asyncio.sleep(1 / SICK_PER_S)


async def measure(world: World, folder: Path, seconds: float) -> dict[str, float]:
    async with world.open(folder):
        await world.sign_in(world.servers[:1])  # what the first one loads is not the others' cost
        before = _rss()
        began = time.perf_counter()
        await world.sign_in(world.servers[1:])
        took_s = time.perf_counter() - began
        await asyncio.sleep(2)
        figures = {"sign_in_s": took_s, "rss_per_session": (_rss() - before) / (len(world.servers) - 1)}
        tasks = [asyncio.create_task(work) for work in (world.read(), world.write())]
        await asyncio.sleep(min(5.0, seconds / 8))
        figures |= await _phase(world, "all well", seconds / 2)
        figures["rss_after"] = (_rss() - before) / (len(world.servers) - 1)
        tasks.append(asyncio.create_task(world.misbehave()))
        figures |= await _phase(world, "one misbehaves", seconds / 2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sick = _name(world.servers[0].number)
        downs = [one.session_id for one in world.events if isinstance(one, SessionDown)]
        figures["breaks of the one"] = downs.count(sick)
        figures["breaks of others"] = len(downs) - downs.count(sick)
        figures["ups"] = sum(isinstance(one, SessionUp) for one in world.events)
        for server in world.servers:
            server.is_down = False
    return figures


async def _phase(world: World, what: str, seconds: float) -> dict[str, float]:
    world.what = what
    began_cpu, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    cpu = (time.process_time() - began_cpu) / (time.perf_counter() - began)
    world.what = "between"
    await asyncio.sleep(1.0)
    late = world.late.get(what, [])
    cuts = quantiles(late, n=100) if len(late) > 1 else [0.0] * 99
    found = {"count": len(late), "p50_s": cuts[49], "p99_s": cuts[98], "max_s": max(late, default=0.0), "cpu": cpu}
    return {f"{what}: {name}": value for name, value in found.items()}


def show(figures: dict[str, float], count: int) -> None:
    memory = Table(title=f"{count} sessions in one process", title_justify="left")
    memory.add_column("what")
    memory.add_column("figure", justify="right")
    memory.add_row("memory per session, connected", f"{figures['rss_per_session'] / 1024:.0f} KiB")
    memory.add_row("the same after traffic", f"{figures['rss_after'] / 1024:.0f} KiB")
    memory.add_row("all signed in and connected", f"{figures['sign_in_s']:.1f} s")
    memory.add_row(
        "connections lost: the one, others", f"{figures['breaks of the one']:.0f}, {figures['breaks of others']:.0f}"
    )
    late = Table(title="From Telegram to a reader of the feed", title_justify="left")
    for name in ("while", "messages", "p50", "p99", "longest", "processor"):
        late.add_column(name, justify="left" if name == "while" else "right")
    for what in ("all well", "one misbehaves"):
        late.add_row(
            what,
            f"{figures[f'{what}: count']:.0f}",
            *(f"{figures[f'{what}: {name}'] * 1000:.1f} ms" for name in ("p50_s", "p99_s", "max_s")),
            f"{figures[f'{what}: cpu']:.0%}",
        )
    console = Console()
    console.print(memory)
    console.print(late)


def _name(number: int) -> str:
    return f"s{number:04}"


def _rss() -> int:
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def _until(is_so: Callable[[], object], *, within_s: float = 600.0) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--pace", action="store_true", help="connect at Peik's own pace, two a second")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.pace:
        assert Budget.__init__.__kwdefaults__ is not None
        Budget.__init__.__kwdefaults__.update(per_account=60_000.0, in_all=60_000.0)
    with tempfile.TemporaryDirectory(prefix="peik-bench-") as folder:
        run: Coroutine[Any, Any, dict[str, float]] = measure(World(options.sessions), Path(folder), options.seconds)
        figures = asyncio.run(run)
    if options.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        show(figures, options.sessions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
