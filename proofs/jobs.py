"""`make jobs-proof`: the jobs of many users, done by real worker processes that are killed in the middle.

Each job downloads 200 KB into its folder from a web server on this machine, which sees who is there at once. Workers are killed
with SIGKILL at random moments and started again. Prints what it found, and ends with code 1 if a limit was broken, a job is not
done, or a file is left.
"""

import argparse
import asyncio
import contextlib
import random
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from peik import Job, JobInfo, Peik, QueuedJob
from peik.jobs.model import JobEnd
from peik.jobs.workers import Workers
from tests.processes.programs import Program
from tests.storage.redis_server import shared

KIND = "download"
CONCURRENCY = 32
PER_USER = 2
SIZE_BYTES = 200 * 1024
CHUNKS = 8
TAKES_S = (0.2, 0.5)
LEASE_S = 3.0  # a dead worker is missed so soon; by default it takes half a minute
LOOK_S = 0.1  # between two looks at the store
PATIENCE_S = 420.0
ROOT = Path(__file__).parents[1]


# ---- a worker ----


async def work(store: str, folder: str, attempts: int) -> None:
    defaults = Workers.__init__.__kwdefaults__
    assert defaults is not None
    defaults["lease_s"] = LEASE_S
    peik = Peik.open(store, token=None, work=folder, work_free="1M")
    async with aiohttp.ClientSession() as http:

        @peik.job(KIND, concurrency=CONCURRENCY, per_user=PER_USER, folder="1M", timeout="60s", attempts=attempts)
        async def download(job: Job) -> int:
            file, done = job.folder / "file.bin", 0
            who = {"job": str(job.id), "user": job.user}
            async with http.get(job.params["url"], params=who) as answer:
                answer.raise_for_status()
                with file.open("wb") as out:
                    async for chunk in answer.content.iter_any():
                        out.write(chunk)
                        done += len(chunk)
                        await job.progress(done / SIZE_BYTES)
            return file.stat().st_size

        async with peik:
            print("open", flush=True)
            await peik.run()


# ---- what all of them are seen to do ----


class Site:
    """The web server. A download that goes on is a run that goes on: one whose worker was killed breaks off."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now: Counter[str] = Counter()  # by user
        self._jobs: Counter[str] = Counter()
        self.most = self.most_of_one = self.most_of_a_job = 0
        self.whole = self.broken = 0
        self.began_at: dict[str, float] = {}  # of each job's first run, by the wall clock

    async def serve(self, request: web.Request) -> web.StreamResponse:
        user, job = request.query["user"], request.query["job"]
        self.began_at.setdefault(job, time.time())
        self._now[user] += 1
        self._jobs[job] += 1
        self.most = max(self.most, self._now.total())
        self.most_of_one = max(self.most_of_one, self._now[user])
        self.most_of_a_job = max(self.most_of_a_job, self._jobs[job])
        answer = web.StreamResponse(headers={"Content-Length": str(SIZE_BYTES)})
        is_whole = False
        try:
            with contextlib.suppress(ConnectionError):
                await answer.prepare(request)
                is_whole = await self._is_sent(request, answer)
        finally:
            self.whole += is_whole
            self.broken += not is_whole
            self._now[user] -= 1
            self._jobs[job] -= 1
        return answer

    async def _is_sent(self, request: web.Request, answer: web.StreamResponse) -> bool:
        pause_s = self._chance.uniform(*TAKES_S) / CHUNKS
        for _ in range(CHUNKS):
            await asyncio.sleep(pause_s)
            if request.transport is None:
                return False  # its worker is gone
            await answer.write(b"x" * (SIZE_BYTES // CHUNKS))
        await answer.write_eof()
        return True

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/file", self.serve)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            yield f"http://127.0.0.1:{port}/file"
        finally:
            await runner.cleanup()


class Watch:
    """What the store says, looked at again and again. A run of a dead worker counts until it is given up."""

    def __init__(self, peik: Peik) -> None:
        self._peik = peik
        self.most = self.most_of_one = self.looks = 0

    async def run(self) -> None:
        while True:
            users = Counter([job.user async for job in self._peik.find_jobs(kind=KIND, state="active")])
            self.looks += 1
            self.most = max(self.most, users.total())
            self.most_of_one = max(self.most_of_one, *users.values(), 0)
            await asyncio.sleep(LOOK_S)


class Crew:
    """The workers. Each one that is killed is started again."""

    def __init__(self, store: str, folder: Path, attempts: int) -> None:
        self._arguments = ("-m", "proofs.jobs", "--work", store, str(folder / "work"), "--attempts", str(attempts))
        self._folder = folder
        self._programs: list[Program] = []
        self.kills = 0
        self.ends: list[int] = []

    async def start(self) -> None:
        program = Program(*self._arguments, folder=self._folder, PYTHONPATH=str(ROOT))
        self._programs.append(program)  # before it is up: what does not come up is ended, too
        await program.start(re.compile(r"^open"))

    async def kill_some(self, site: Site, at: list[int], chance: random.Random) -> None:
        """One each time so many downloads are done: at random, and always while there is work."""
        for whole in at:
            while site.whole < whole:  # noqa: ASYNC110  other processes are waited for
                await asyncio.sleep(0.02)
            victim = self._programs.pop(chance.randrange(len(self._programs)))
            await victim.kill()
            self.kills += 1
            await self.start()

    async def stop(self) -> None:
        for program in self._programs:
            self.ends.append(await program.terminate())
            if self.ends[-1]:
                print("".join(program.output[-20:]))
        self._programs.clear()

    async def kill_all(self) -> None:
        for program in self._programs:
            if hasattr(program, "process"):
                await program.kill()


# ---- the proof ----


async def prove(asked: argparse.Namespace) -> int:
    chance = random.Random(asked.seed)
    total = asked.users * asked.each
    with tempfile.TemporaryDirectory(prefix="peik-jobs-") as name:
        folder = Path(name)
        store = f"sqlite:///{folder}/peik.db"
        if asked.store == "redis":
            store = f"{shared().url}?prefix=jobs-{uuid.uuid4().hex[:12]}"
        site, crew = Site(chance), Crew(store, folder, attempts=asked.kills + 3)
        at = sorted(chance.sample(range(total // 20, total * 9 // 10), asked.kills))
        async with asyncio.timeout(PATIENCE_S), site.open() as url, Peik.open(store, token=None) as peik:
            watch = Watch(peik)
            try:
                await asyncio.gather(*(crew.start() for _ in range(asked.workers)))
                began = time.monotonic()
                watching = asyncio.create_task(watch.run())
                killing = asyncio.create_task(crew.kill_some(site, at, chance))
                queued = await queue_all(peik, asked, url)
                queued_s = time.monotonic() - began
                jobs = [await peik.wait_job(job, timeout=PATIENCE_S) for of_user in queued for job in of_user]
                took_s = time.monotonic() - began
                await killing
                watching.cancel()
                await asyncio.wait([watching])
                if not watching.cancelled():
                    watching.result()
                left = list((folder / "work").rglob("file.bin"))  # before they tidy up at their own end
                await crew.stop()
            finally:
                await crew.kill_all()
        left += (folder / "work").rglob("*")
        firsts = {of_user[0].id for of_user in queued}
        print(f"{total} jobs of {asked.users} users, {asked.workers} workers, {asked.store}: {took_s:.1f} s")
        print(f"queued in {queued_s:.1f} s; {crew.kills} workers killed")
        return judge(asked, jobs, firsts, left, site, watch, crew)


async def queue_all(peik: Peik, asked: argparse.Namespace, url: str) -> list[list[QueuedJob]]:
    """By user. Each user comes with all of his at once, the first user first."""

    async def of_user(user: int) -> list[QueuedJob]:
        return [
            await peik.queue_job(KIND, user=user, attempts=asked.kills + 3, backoff_ms=100, url=url)
            for _ in range(asked.each)
        ]

    return [await of_user(user) for user in range(asked.users)]


def judge(
    asked: argparse.Namespace,
    jobs: list[JobInfo],
    firsts: set[str],
    left: list[Path],
    site: Site,
    watch: Watch,
    crew: Crew,
) -> int:
    ends = Counter(run.end for job in jobs for run in job.history)
    waits = {job.id: site.began_at[job.id] - job.created_at.timestamp() for job in jobs if job.id in site.began_at}
    by_worker = Counter(run.node for job in jobs for run in job.history if run.end is JobEnd.DONE)
    done = sum(job.is_done and job.result == SIZE_BYTES for job in jobs)
    print(
        f"most at once: {site.most} at the server, {watch.most} in the store ({watch.looks} looks); {CONCURRENCY} may"
    )
    print(f"most of one user: {site.most_of_one} at the server, {watch.most_of_one} in the store; {PER_USER} may")
    print(f"most runs of one job at once: {site.most_of_a_job}")
    print(f"first jobs waited {spread([waits[one] for one in firsts if one in waits])}")
    print(f"all jobs waited   {spread(list(waits.values()))}")
    print(f"downloads: {site.whole} whole, {site.broken} broken off")
    print(f"runs: {', '.join(f'{count} {end}' for end, count in sorted(ends.items()))}; lost: {ends[JobEnd.LOST]}")
    print(f"done: {done} of {asked.users * asked.each}")
    print(f"done by each worker: {', '.join(str(count) for count in sorted(by_worker.values(), reverse=True))}")
    files = [path for path in left if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"left in the work folder: {len(left)} entries, {len(files)} files, {size} bytes")
    broken = [
        what
        for what, is_broken in {
            "more than may ran at once": max(site.most, watch.most) > CONCURRENCY,
            "a user had more than he may": max(site.most_of_one, watch.most_of_one) > PER_USER,
            "a job ran twice at once": site.most_of_a_job > 1,
            "a job is not done": done != asked.users * asked.each,
            "something is left in the work folder": bool(left),
            "a run was lost though nobody was killed": not asked.kills and ends[JobEnd.LOST] > 0,
            "a worker did not end well": any(crew.ends),
        }.items()
        if is_broken
    ]
    print("every promise kept" if not broken else f"A PROMISE WAS BROKEN: {'; '.join(broken)}")
    return 1 if broken else 0


def spread(waits: list[float]) -> str:
    if len(waits) < 2:
        return "(too few to say)"
    late = statistics.quantiles(waits, n=20, method="inclusive")[-1]
    return f"min {min(waits):.2f} s, median {statistics.median(waits):.2f} s, 95 % {late:.2f} s, max {max(waits):.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.jobs", description=__doc__)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--each", type=int, default=5, help="jobs of each user")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--store", choices=["sqlite", "redis"], default="sqlite")
    parser.add_argument("--seed", type=int, default=20261116)
    parser.add_argument("--attempts", type=int, default=3, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=2, metavar=("STORE", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        store, folder = asked.work
        asyncio.run(work(store, folder, asked.attempts))
        return 0
    return asyncio.run(prove(asked))


if __name__ == "__main__":
    sys.exit(main())
