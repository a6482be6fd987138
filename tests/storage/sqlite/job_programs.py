"""A worker as a process of its own, so that several can take from one file, and one can be killed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from peik.clock import SystemClock
from peik.jobs.model import JobEnd, Ran
from peik.jobs.store import KindTerms
from peik.storage.sqlite.store import SqliteStore
from tests.storage.job_acts import KIND

ROOT = Path(__file__).parents[3]
TERMS = KindTerms(concurrency=5, per_user=2)


def start(path: Path, *, lease_ms: int, is_lazy: bool = False) -> "subprocess.Popen[str]":
    """One that works until nothing waits, and says what it saw run. A lazy one takes, and does nothing more."""
    command = [sys.executable, "-m", "tests.storage.sqlite.job_programs", str(path), str(lease_ms), str(int(is_lazy))]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def _work(path: Path, lease_ms: int, *, is_lazy: bool) -> None:
    clock = SystemClock()
    store = SqliteStore(path, clock=clock, is_owner=False)
    await store.open()
    _say(f"ready {os.getpid()}")
    sys.stdin.readline()
    while True:
        jobs = await store.jobs.take(KIND, TERMS, limit=3, lease_ms=lease_ms, at_ms=clock.wall_ms())
        if is_lazy and jobs:
            _say(" ".join(str(job.id) for job in jobs))
            await asyncio.to_thread(sys.stdin.read)
        running = await store.jobs.active()
        users = [job.user for job in running]
        _say(f"{len(running)} {max(map(users.count, users), default=0)}")
        runs = [Ran(job_id=job.id, run=job.run, end=JobEnd.DONE, result=f'"{os.getpid()}"') for job in jobs]
        assert None not in await store.jobs.settle(runs, at_ms=clock.wall_ms())
        if not (await store.jobs.tallies())[KIND].waiting:
            break
    await store.close()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1]), int(sys.argv[2]), is_lazy=bool(int(sys.argv[3]))))
