"""`python -m bench.processes`: letters through `peik serve --processes 1` and 2 on PostgreSQL, over REST and out to a stub.

Callers ask one after the other, fifty for each process, for twenty bots; a run ends when the last letter has left. On two
cores the server, the stub and the callers have their share of both, so that CPU per letter says more than the rate.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.figures import Spread
from bench.hammer import hammered, request
from bench.loop import run
from bench.nodes import BOTS, cpu_s
from bench.payload import params
from bench.server import serving
from bench.stub import Stub, running_stub
from proofs.nodes.databases import Postgres

CALLERS = 50  # of each process
LOOK_S = 0.02
PATIENCE_S = 300.0
SHARED_S = 3.0  # until bots are shared out between nodes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--letters", type=int, default=10_000)
    asked = parser.parse_args()
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    with running_stub() as stub:
        for _ in range(asked.rounds):
            for processes, runs in found.items():
                runs.append(measure(processes, asked.letters, stub))
    table = Table(
        title=f"{asked.letters:,} letters, {asked.rounds} rounds: median (least to most)", title_justify="left"
    )
    for name in ("processes", *found[1][0]):
        table.add_column(name, justify="right")
    for processes, runs in found.items():
        spreads = [Spread.of([one[name] for one in runs]) for name in runs[0]]
        table.add_row(str(processes), *(f"{one.median:,.0f} ({one.least:,.0f} to {one.most:,.0f})" for one in spreads))
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}")
    return 0


def measure(processes: int, letters: int, stub: Stub) -> dict[str, float]:
    server = Postgres()
    server.start()
    try:
        with tempfile.TemporaryDirectory(prefix="peik-bench-") as name:
            tokens = ",".join(f"{bot}:AAE-bench-bench-bench-bench-bench-0" for bot in BOTS[:20])
            settings = {
                "PEIK_STORE": server.store,
                "PEIK_PROCESSES": str(processes),
                "PEIK_PACE": "off",
                "PEIK_BOT_TOKENS": tokens,
            }
            with serving(Path(name), stub.root, **settings) as (process, url, key):
                time.sleep(SHARED_S)
                return _run(process.pid, url, key, letters, stub, server, CALLERS * processes)
    finally:
        server.remove()


def _run(pid: int, url: str, key: str, letters: int, stub: Stub, server: Postgres, callers: int) -> dict[str, float]:
    own = [("Authorization", f"Bearer {key}")]
    asked = [request("/v1/letters", _letter(number), own) for number in range(letters)]
    posts, node_s, server_s = stub.posts(), cpu_s([pid]), cpu_s([server.pid])
    began = time.monotonic()
    accepted = run(hammered(url, asked, connections=callers, status=202))
    while stub.posts() - posts < letters:
        assert time.monotonic() - began < PATIENCE_S, "too slow"
        time.sleep(LOOK_S)
    through = letters / (time.monotonic() - began)
    time.sleep(1)  # what was sent is settled
    assert stub.posts() - posts == letters, "a letter went twice"
    return {
        "accepted a second": accepted,
        "sent a second": through,
        "µs of Peik": (cpu_s([pid]) - node_s) / letters * 1e6,
        "µs of PostgreSQL": (cpu_s([server.pid]) - server_s) / letters * 1e6,
    }


def _letter(number: int) -> bytes:
    return msgspec.json.encode(
        {"bot_id": BOTS[number % 20], "method": "sendMessage", "params": msgspec.Raw(params(number))}
    )


if __name__ == "__main__":
    sys.exit(main())
