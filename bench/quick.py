"""`make bench-quick`: ceilings and Peik by turns in one run, under two minutes on two cores.

Each round does every measurement once, in an order that is rotated from round to round, so that a noisy minute does not
fall on one of them alone. Each has a folder of its own, on a real disk, removed afterwards.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console

from bench import ceilings, courier, gateway, inbox, server, table
from bench.figures import Figures, Spread
from bench.stub import Stub, running_stub

ROUNDS = 3
RESULTS = Path(__file__).parent / "results"

Measurement = Callable[[Path, Stub], Figures]

# A figure and its ceiling stand side by side, so that both meet the same weather.
MEASUREMENTS: tuple[Measurement, ...] = (
    ceilings.fsync,
    ceilings.sqlite_commits,
    courier.accept_one_caller,
    courier.accept_many_callers,
    courier.accept_batches,
    server.serve_backlog,
    ceilings.stub_ceiling,
    ceilings.aiohttp_loop,
    courier.drain,
    courier.deliver_as_accepted,
    ceilings.idle_commit_and_post,
    courier.idle_latency,
    gateway.gateway,
    inbox.recover,
    inbox.read_page,
)


def main() -> int:
    options = _options()
    chosen = [one for one in MEASUREMENTS if not options.only or one.__name__ in options.only]
    console = Console(width=None if sys.stdout.isatty() else 190)
    began = time.monotonic()
    RESULTS.mkdir(exist_ok=True)
    rounds = _measure(chosen, options.rounds, console, with_million=options.million)
    spreads = {name: Spread.of(values) for name, values in rounds.items()}
    table.show(console, spreads)
    taken_s = time.monotonic() - began
    result = {"taken_s": taken_s, "load_average": os.getloadavg(), "cores": os.cpu_count()}
    path = RESULTS / "quick.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result | table.as_json(spreads, rounds))))
    console.print(f"{options.rounds} rounds in {taken_s:.0f} s on {os.cpu_count()} cores; also in {path}", style="dim")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.quick", description="Measure Peik beside its ceilings.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--million", action="store_true", help="also a server with 1,000,000 letters waiting")
    names = [one.__name__ for one in MEASUREMENTS]
    parser.add_argument("--only", nargs="+", choices=names, help="only these")
    return parser.parse_args()


def _measure(
    chosen: Sequence[Measurement], rounds: int, console: Console, *, with_million: bool
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    with running_stub() as stub, console.status("…") as status:
        for number in range(rounds):
            for measure in _rotated(chosen, number, rounds):
                status.update(f"round {number + 1} of {rounds}: {measure.__name__}")
                _take(measure, stub, found)
        if with_million:
            status.update("a million letters")
            _take(server.serve_million, stub, found)
    return found


def _rotated(chosen: Sequence[Measurement], number: int, rounds: int) -> list[Measurement]:
    start = number * len(chosen) // rounds
    return [*chosen[start:], *chosen[:start]]


def _take(measure: Measurement, stub: Stub, found: dict[str, list[float]]) -> None:
    with _folder() as folder:
        for name, value in measure(folder, stub).items():
            found[name].append(value)


@contextmanager
def _folder() -> Iterator[Path]:
    """On the disk of the checkout unless TMPDIR says otherwise: /tmp is often memory, where a sync costs nothing."""
    path = Path(tempfile.mkdtemp(prefix="peik-bench-", dir=os.environ.get("TMPDIR") or RESULTS))
    try:
        yield path
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    sys.exit(main())
