"""`peik serve` as a process of its own while Telegram is down: batches over REST, memory, and room on the disk."""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import psutil

from bench.figures import Figures
from bench.ground import Ground
from bench.load import TOKEN, batch_bodies
from bench.loop import run

LETTERS = 100_000  # at 20,000 letters of the other measurements
MILLION = 1_000_000
BATCH = 500
CLIENTS = 4
START_S = 20.0
REST_S = 1.0  # what was just done may still be let go of
_GREETING = re.compile(r"listens on (http://\S+)")
_MB = 1_000_000  # as the budget counts


def serve_backlog(ground: Ground) -> Figures:
    return _backlog(ground.path, ground.share(LETTERS), suffix="")


def serve_million(ground: Ground) -> Figures:
    return _backlog(ground.path, ground.share(MILLION), suffix="_million")


def _backlog(folder: Path, letters: int, *, suffix: str) -> Figures:
    with serving(folder, f"http://127.0.0.1:{_closed_port()}") as (process, url, key):
        time.sleep(REST_S)
        idle = _rss(process)
        empty = _database_bytes(folder)
        rate = run(_post_all(url, key, letters))
        time.sleep(REST_S)
        loaded = _rss(process)
        log_bytes = (folder / "peik.db-wal").stat().st_size
    # Closed in good order, all of it is in the database file; the log beside it is bounded and does not grow with it.
    per_letter = (_database_bytes(folder) - empty) / letters
    return {
        f"rest_batch{suffix}": rate,
        f"rss_idle_mb{suffix}": idle / _MB,
        f"rss_more_mb{suffix}": (loaded - idle) / _MB,
        f"disk_bytes{suffix}": per_letter,
        f"log_mb{suffix}": log_bytes / _MB,
    }


async def _post_all(url: str, key: str, letters: int) -> float:
    """Letters a second over a few kept connections. Bodies are made before, since the client is not what is measured."""
    bodies = iter(list(batch_bodies(letters, per_batch=BATCH)))
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def work() -> None:
            for body in bodies:
                async with session.post(f"{url}/v1/letters/batch", data=body) as answer:
                    answered = await answer.read()
                    assert answer.status == 202, answered[:500]

        began = time.monotonic()
        await asyncio.gather(*(work() for _ in range(CLIENTS)))
        rate = letters / (time.monotonic() - began)
        async with session.get(f"{url}/v1/stats") as answer:
            stats = msgspec.json.decode(await answer.read())
    there = stats["waiting"] + stats["active"] + stats["delayed"]
    assert there == letters, f"{letters} letters were accepted and {there} wait"
    return rate


@contextlib.contextmanager
def serving(folder: Path, api_root: str, **settings: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """A server with default settings but for these: the process, its address and its key."""
    key = secrets.token_urlsafe(16)
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(Path(__file__).parents[1]),  # the Peik of this checkout, whichever is installed
        "PEIK_STORE": f"sqlite:///{folder}/peik.db",
        "PEIK_PORT": "0",
        "PEIK_API_ROOT": api_root,
        "PEIK_BOT_TOKENS": TOKEN,
        "PEIK_INBOUND": "off",
        "PEIK_ADMIN_KEY": key,
        **settings,
    }
    command = [sys.executable, "-c", "from peik.app.cli import main; main()", "serve"]
    log = folder / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
    try:
        yield process, _url(process, log), key
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        greeting = _GREETING.search(log.read_text(encoding="utf-8"))
        if greeting:
            return greeting[1]
        time.sleep(0.02)
    raise RuntimeError(f"peik serve did not start:\n{log.read_text(encoding='utf-8')}")


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _rss(process: subprocess.Popen[bytes]) -> int:
    return int(psutil.Process(process.pid).memory_info().rss)


def _database_bytes(folder: Path) -> int:
    return (folder / "peik.db").stat().st_size
