"""The simulated Telegram as a program: `peik sim` and `python -m peik.testing`."""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from peik.testing.faults import Options
from peik.testing.server import SimServer
from peik.testing.telegram import Telegram

LEDGER_MAX = 1_000_000  # a program may run for weeks; a test that needs more says so


async def run_sim(
    host: str = "127.0.0.1",
    port: int = 8082,
    *,
    control_port: int = 0,
    seed: int | None = None,
    ready: Callable[[SimServer], None] | None = None,
    **options: object,
) -> None:
    """Serve until SIGINT, SIGTERM or cancellation. `options` are those of `Options`; `ready` is called once it listens."""
    chosen = Options(ledger_max=LEDGER_MAX)
    chosen.change(options)
    telegram = Telegram(now=time.time, chance=random.Random(seed), options=chosen)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        async with SimServer(telegram, host, port, control_port=control_port) as sim:
            if ready is not None:
                ready(sim)
            await stopped.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def announce(sim: SimServer) -> None:
    """One line of JSON on standard output, for whoever started this process."""
    sys.stdout.write(json.dumps({"url": sim.url, "control_url": sim.control_url}) + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m peik.testing", description="A simulated Telegram Bot API.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--control-port", type=int, default=0)
    parser.add_argument("--seed", type=int, help="of all chance: ids, jitter, faults")
    parser.add_argument("--config", default="{}", help="options as JSON, or the path of a JSON file")
    parser.add_argument("--no-uvloop", action="store_true")
    given = parser.parse_args(arguments)
    text = given.config if given.config.lstrip().startswith("{") else Path(given.config).read_text()
    program = run_sim(
        given.host, given.port, control_port=given.control_port, seed=given.seed, ready=announce, **json.loads(text)
    )
    if given.no_uvloop:
        asyncio.run(program)
    else:
        _run_fast(program)


def _run_fast(program: Coroutine[object, object, None]) -> None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        asyncio.run(program)
    else:
        uvloop.run(program)
