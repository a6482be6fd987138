"""A house for stories of jobs: a whole Peik that does two kinds of jobs, served on a real socket by the real clock.

`download` shows how far it is and goes on when the story lets it; `refuse` cannot be done.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from peik.app import rest
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.clock import SystemClock
from peik.core.events import Events
from peik.gateway.app import Gateway
from peik.jobs.hosts import HostDown
from peik.jobs.job import Job
from peik.jobs.outcome import JobHopeless
from peik.jobs.store import JobKind, JobKinds, KindTerms, Quota
from peik.settings.config import load
from peik.testing.accounts import Accounts
from tests.patience import PATIENCE_S
from tests.web.accounts import KEY, NOWHERE, House, _served, until

DOWNLOADS_MAX = 1  # at once: the next one waits
JOBS_A_DAY = 3  # of refuse, for one user


class Works(House):
    """Peik, and what the jobs in it wait for."""

    def __init__(self, folder: Path, runtime: Runtime, http: aiohttp.ClientSession, gates: "Gates") -> None:
        super().__init__(folder, runtime, Accounts(SystemClock(), seed=1), http)
        self._gates = gates

    def let_go(self, name: str) -> None:
        """The download of this name may come to its end."""
        self._gates[name].set()

    async def queued(self, kind: str = "download", **more: Any) -> str:
        """A new job's id."""
        return str((await self.post("/v1/jobs", {"kind": kind, **more}))["id"])

    async def download(self, name: str, **more: Any) -> str:
        return await self.queued(params={"name": name}, **more)

    async def job(self, job_id: str, query: str = "") -> dict[str, Any]:
        return dict(await self.get(f"/v1/jobs/{job_id}{query}"))

    async def once(self, job_id: str, **facts: object) -> dict[str, Any]:
        """The job as soon as this is so."""

        async def look() -> dict[str, Any] | None:
            job = await self.job(job_id)
            return job if all(job[name] == value for name, value in facts.items()) else None

        return await until(look)


class Gates(defaultdict[str, asyncio.Event]):
    def __init__(self) -> None:
        super().__init__(asyncio.Event)


def _kinds(gates: Gates) -> JobKinds:
    async def download(job: Job) -> dict[str, object]:
        await job.progress(0.25, "reading")
        (job.folder / "film").write_bytes(b"1234567890")
        await gates[job.params["name"]].wait()
        return {"name": job.params["name"], "attempt": job.attempt}

    async def refuse(job: Job) -> None:
        if "host" in job.params:
            async with job.host(job.params["host"]):
                raise HostDown("nobody answers", is_connect=True)
        raise JobHopeless("There is no such film.")

    kinds = JobKinds()
    kinds.add(JobKind(name="download", work=download, terms=KindTerms(concurrency=DOWNLOADS_MAX, per_user=1)))
    kinds.add(
        JobKind(
            name="refuse",
            work=refuse,
            terms=KindTerms(concurrency=4, per_user=4),
            attempts=2,
            backoff_ms=10,
            quota=Quota(jobs=JOBS_A_DAY),
        )
    )
    return kinds


@asynccontextmanager
async def works(folder: Path, *, does_jobs: bool = True, **settings: str) -> AsyncIterator[Works]:
    """`does_jobs` False: it knows no kind of jobs, and only queues them."""
    told, gates = Events(), Gates()
    flags = {"store": f"sqlite:///{folder}/peik.db", "api_root": NOWHERE, "inbound": "off", "grace": "1s", **settings}
    config = load(flags, environment={}, folder=folder)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as http,
        running(
            config,
            events=told,
            chance=random.Random(1),
            job_kinds=_kinds(gates) if does_jobs else None,
        ) as runtime,
    ):
        built = Works(folder, runtime, http, gates)
        told.listen(built.told.extend)
        async with _served(Gateway(runtime, rest.build(runtime, KEY))) as built.url:
            yield built
        assert built.surprises() == []


def play_works(folder: Path, story: Callable[[Works], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run one story in a house of its own."""

    async def whole() -> None:
        async with works(folder, **more) as built:
            await story(built)

    asyncio.run(whole())
