"""A program that does jobs, and the two ways to ask for them: in that program itself, and at a real `peik serve` on its file."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peik import BlockingJob, Job, Peik
from peik.testing import SimServer
from tests.client.counters import SETTINGS, telegram
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, TOKEN, served

Story = Callable[[Peik, "Doer", SimServer], Coroutine[Any, Any, None]]
both = pytest.mark.parametrize("way", ["open", "connect"])


class Doer:
    """What the program does. A job named "hold" runs until it is let go."""

    def __init__(self, peik: Peik) -> None:
        self.peik = peik
        self.held: dict[int, asyncio.Event] = {}
        self.began: asyncio.Queue[int] = asyncio.Queue()
        self.folders: list[Path] = []
        peik.job("hold", concurrency=1, attempts=2, backoff_ms=10)(self.hold)
        peik.job("add", jobs_a_day=3)(self.add)
        peik.job("flaky", attempts=3, backoff_ms=10)(self.flaky)

    async def hold(self, job: Job) -> str:
        let_go = self.held[job.id] = asyncio.Event()
        await job.progress(0.25, "holding")
        self.began.put_nowait(job.id)
        await let_go.wait()
        return "let go"

    async def add(self, job: Job) -> dict[str, Any]:
        self.folders.append(job.folder)
        (job.folder / "sum").write_text("x" * 100)
        return {"sum": sum(job.params["numbers"]), "user": job.user, "metadata": job.metadata}

    async def flaky(self, job: Job) -> int:
        """Says what it is asked to say, and fails at first."""
        await job.send_text(f"I say {job.params['word']}")
        if job.attempt < 2:
            raise ValueError("not yet")
        return job.attempt


def play(way: str, folder: Path, story: Story) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim, asked(way, folder, sim) as (peik, doer):
            await story(peik, doer, sim)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def asked(way: str, folder: Path, sim: SimServer) -> AsyncIterator[tuple[Peik, Doer]]:
    doer = Doer(doing(folder, sim))
    if way == "open":
        async with doer.peik as peik:
            yield peik, doer
        return
    async with (
        aiohttp.ClientSession() as http,
        served(folder, sim.url, http, **SETTINGS) as server,
        doer.peik,
        Peik.connect(server.url, key=KEY) as peik,
    ):
        yield peik, doer
        assert not server.surprises(), "".join(server.output)


def doing(folder: Path, sim: SimServer, **more: Any) -> Peik:
    return Peik.open(
        f"sqlite:///{folder}/peik.db",
        token=TOKEN,
        api_root=sim.url,
        work_free="1M",
        **{**SETTINGS, "grace": "1s", **more},
    )


def spell(job: BlockingJob) -> dict[str, Any]:
    """For a process, or a thread."""
    job.progress(0.5, "spelling")
    (job.folder / "letters").write_text(job.params["word"])
    return {
        "word": "-".join(job.params["word"]),
        "pid": os.getpid(),
        "is_main": threading.current_thread() is threading.main_thread(),
        "folder": str(job.folder),
    }
