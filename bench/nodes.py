"""`python -m bench.nodes`: accept and drain with one, two and three nodes on one PostgreSQL or Redis, and what a letter costs.

A node is a process with Peik in it (`peik.app.lifetime.running`, default settings, pace off), told by lines on its standard input
what to do. All of it shares the cores of this machine: the CPU seconds per letter say more than the rates. The server is
durable: PostgreSQL with fsync on, Redis with appendfsync always.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from bench.figures import Spread
from bench.load import params
from bench.loop import run
from bench.stub import Stub, running_stub
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core.events import Events
from peik.core.letter import LetterCall
from peik.settings.config import load
from proofs.nodes.databases import Database, Postgres, database

STORES = ("postgres", "redis")
NODES = (1, 2, 3)
BOTS = [7_000_001 + number for number in range(60)]
LETTERS = 20_000  # in each phase, of all nodes together
CALLERS = 50  # of all nodes together; in a crowd, of each
PHASES = ("accept", "crowd", "batch", "drain")
BATCH = 500
PATIENCE_S = 600.0
LOOK_S = 0.02

Find = Callable[[str, float], None]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.nodes", description="Several nodes on one store.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--nodes", nargs="+", type=int, default=NODES)
    parser.add_argument("--write", type=Path, help="a JSON file in which to keep the figures")
    parser.add_argument("--node", nargs=2, metavar=("STORE", "API_ROOT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.node:
        run(_node(*asked.node))
        return 0
    found: dict[str, list[float]] = defaultdict(list)
    with running_stub() as stub:
        for number in range(asked.rounds):
            for kind in asked.store:
                for count in asked.nodes:
                    print(f"round {number + 1}: {kind}, {count} node(s)", flush=True)
                    _measure(
                        kind, count, stub, lambda name, value, key=f"{kind} {count} ": found[key + name].append(value)
                    )
    spreads = {name: Spread.of(values) for name, values in found.items()}
    _show(spreads, asked.store, asked.nodes)
    if asked.write is not None:
        _keep(asked.write, spreads, asked.rounds)
    return 0


# ---- one round ----


def _measure(kind: str, count: int, stub: Stub, find: Find) -> None:
    with tempfile.TemporaryDirectory(prefix="peik-bench-") as folder:
        server = database(kind, Path(folder))
        server.start()
        try:
            with _nodes(server.store, stub, count, Path(folder)) as nodes:
                _wait_for_shares(nodes)
                nodes[0].ask("pause")
                for phase in PHASES[:-1]:
                    with _metered(phase, LETTERS, nodes, server, find):
                        _all(nodes, f"{phase} {LETTERS // count}")
                accepted = len(PHASES[:-1]) * (LETTERS // count) * count
                before = stub.posts()
                with _metered("drain", accepted, nodes, server, find):
                    nodes[0].ask("resume")
                    _wait_for(lambda: stub.posts() - before >= accepted)
                    _wait_for(lambda: int(nodes[0].ask("left")) == 0)
                assert stub.posts() - before == accepted, "a letter went twice"
        finally:
            server.remove()


@contextlib.contextmanager
def _metered(phase: str, letters: int, nodes: Sequence["_Node"], server: Database, find: Find) -> Iterator[None]:
    """Letters a second, and what each of them cost the nodes and the server."""
    node_s, server_s, disk = cpu_s(node.pid for node in nodes), cpu_s([server.pid]), written(server)
    began = time.monotonic()
    yield
    find(f"{phase} per s", letters / (time.monotonic() - began))
    find(f"{phase} node us", (cpu_s(node.pid for node in nodes) - node_s) / letters * 1e6)
    find(f"{phase} server us", (cpu_s([server.pid]) - server_s) / letters * 1e6)
    for name, value in written(server).items():
        find(f"{phase} {name}", (value - disk[name]) / letters)


def cpu_s(pids: Iterator[int] | Sequence[int]) -> float:
    """Of these processes and all their children."""
    total = 0.0
    for pid in pids:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
    return total


def written(server: Database) -> dict[str, float]:
    """Bytes in the server's log so far, and what else it tells of itself."""
    if isinstance(server, Postgres):
        size, log, commits = run(_postgres_figures(server.url))
        return {"bytes kept": size, "log bytes": log, "commits": commits}
    client = server.client()  # type: ignore[attr-defined]
    with client:
        told = client.info()
    return {
        "bytes kept": told["used_memory"],
        "log bytes": told["aof_current_size"],
        "bytes in": told["total_net_input_bytes"],
        "bytes out": told["total_net_output_bytes"],
    }


async def _postgres_figures(url: str) -> tuple[float, float, float]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        size = await connection.fetchval("SELECT pg_database_size(current_database())")
        log = await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        commits = await connection.fetchval(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        )
    finally:
        await connection.close()
    return float(size), float(log), float(commits)


# ---- nodes, from outside ----


class _Node:
    def __init__(self, store: str, stub: Stub, folder: Path) -> None:
        folder.mkdir()
        command = [sys.executable, "-m", "bench.nodes", "--node", store, stub.root]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PEIK_BENCH": str(folder)},
        )
        self.pid = self._process.pid
        assert self.answer() == "ready"

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "a node has ended"
        return line.strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.answer()

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def _nodes(store: str, stub: Stub, count: int, folder: Path) -> Iterator[list[_Node]]:
    nodes: list[_Node] = []
    try:
        while len(nodes) < count:
            nodes.append(_Node(store, stub, folder / f"node-{len(nodes)}"))
        yield nodes
    finally:
        for node in nodes:
            node.end()


def _all(nodes: Sequence[_Node], line: str) -> None:
    for number, node in enumerate(nodes):
        node.tell(f"{line} {number} {len(nodes)}")
    for node in nodes:
        assert node.answer() == "done"


def _wait_for_shares(nodes: Sequence[_Node]) -> None:
    most = -(-(len(BOTS) + 1) // len(nodes))
    _wait_for(lambda: min(held := [int(node.ask("held")) for node in nodes]) > 0 and max(held) <= most)


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "too slow"
        time.sleep(LOOK_S)


# ---- one node, from within ----


async def _node(store: str, api_root: str) -> None:
    tokens = ",".join(f"{bot}:AAE-bench-bench-bench-bench-bench-0" for bot in BOTS)
    folder = Path(os.environ["PEIK_BENCH"])
    flags = {"store": store, "api_root": api_root, "bot_tokens": tokens, "pace": "off", "inbound": "off"}
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with running(load(flags, environment={}, folder=folder), events=Events()) as peik:
        print("ready", flush=True)
        while line := (await lines.readline()).decode().split():
            print(await _done(peik, line[0], [int(one) for one in line[1:]]), flush=True)


async def _done(peik: Runtime, order: str, figures: Sequence[int]) -> str:
    match order:
        case "held":
            return str(sum(peik.outbox.leases.holds(bot) for bot in BOTS))
        case "pause" | "resume":
            reason = "a measurement begins" if order == "pause" else None
            await asyncio.gather(*(peik.outbox.service.change_bot(bot, paused=reason) for bot in BOTS))
            return "done"
        case "left":
            tallies = await peik.outbox.service.tallies()
            return str(sum(one.waiting + one.active + one.delayed for one in tallies.values()))
        case "accept" | "crowd":
            letters, place, nodes = figures
            callers = CALLERS // nodes if order == "accept" else CALLERS

            async def one_caller(first: int) -> None:
                for number in range(first, letters, callers):
                    await peik.outbox.service.accept([_call(number * nodes + place)])

            await asyncio.gather(*(one_caller(first) for first in range(callers)))
            return "done"
        case "batch":
            letters, place, nodes = figures
            for first in range(0, letters, BATCH):
                numbers = range(first, min(first + BATCH, letters))
                await peik.outbox.service.accept([_call(number * nodes + place) for number in numbers])
            return "done"
    raise ValueError(order)


def _call(number: int) -> LetterCall:
    return LetterCall(method="sendMessage", params=params(number), bot_id=BOTS[number % len(BOTS)])


# ---- showing ----

_COLUMNS = ("per s", "node us", "server us", "log bytes", "bytes kept")


def _show(spreads: dict[str, Spread], kinds: Sequence[str], counts: Sequence[int]) -> None:
    table = Table(title="Nodes on one store: median (least to most)", title_justify="left")
    for name in (
        "store",
        "nodes",
        "what",
        "letters/s",
        "CPU of nodes, µs/letter",
        "of the server",
        "log, bytes",
        "kept, bytes",
    ):
        table.add_column(name, justify="left" if name in ("store", "what") else "right")
    for kind in kinds:
        for phase in PHASES:
            for count in counts:
                cells = [spreads[f"{kind} {count} {phase} {column}"] for column in _COLUMNS]
                table.add_row(
                    kind,
                    str(count),
                    phase,
                    *(f"{one.median:,.0f} ({one.least:,.0f} to {one.most:,.0f})" for one in cells),
                )
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def _keep(path: Path, spreads: dict[str, Spread], rounds: int) -> None:
    kept = msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
    kept["throughput"] = {
        "cores": os.cpu_count(),
        "rounds": rounds,
        "letters": LETTERS,
        "load_average_after": os.getloadavg(),
        "figures": {name: {"median": one.median, "min": one.least, "max": one.most} for name, one in spreads.items()},
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
