"""Stories of jobs in virtual time: real Workers and desks, several of them on one store."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from peik.core.documents import DocumentStore
from peik.core.events import Event, Events, Surprise
from peik.core.letter import State
from peik.errors import Conflict
from peik.jobs.events import JobRan, JobsQueued
from peik.jobs.hosts import Hosts
from peik.jobs.model import JobRecord as Record
from peik.jobs.model import JobRequest
from peik.jobs.outcome import NoRoom
from peik.jobs.processes import run_in_process
from peik.jobs.run import RunTools
from peik.jobs.service import JobService
from peik.jobs.store import JobKind, JobKinds, JobStore, KindControls, KindTerms
from peik.jobs.workers import Workers
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.testing.virtual import VirtualClock, run_virtual
from tests.jobs.memory_jobs import MemoryJobs, Place

MB = 1_000_000


class Folders:
    """Folders of runs, on a real disk. `is_full`: there is no room."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.is_full = False
        self.asides: list[int] = []  # what was set aside for each run
        self.on_size: Callable[[int], None] = lambda job_id: None

    def _of(self, job: Record) -> Path:
        return self.base / f"{job.id}-{job.run}"

    async def begin(self, job: Record, bytes_max: int) -> Path:
        if self.is_full:
            raise NoRoom("There is no room for work.")
        self.asides.append(bytes_max)
        self._of(job).mkdir()
        return self._of(job)

    async def size(self, job: Record) -> int:
        self.on_size(job.id)
        return sum(one.stat().st_size for one in self._of(job).iterdir())

    async def end(self, job: Record) -> None:
        for one in self._of(job).iterdir():
            one.unlink()
        self._of(job).rmdir()

    def left(self) -> list[str]:
        return sorted(one.name for one in self.base.iterdir())


class Chats:
    """Letters by their keys, as the outbox accepts them."""

    def __init__(self) -> None:
        self.letters: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.came = asyncio.Event()

    async def send(
        self, job: Record, method: str, params: Mapping[str, Any], *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        call = (method, {**params, **{name: path.name for name, path in files.items()}})
        known = self.letters.setdefault(idempotency_key, call)
        self.came.set()
        if known != call:
            raise Conflict(code="idempotency_key_reused", detail="The key was used for another letter.")
        return list(self.letters).index(idempotency_key) + 1


class Heard:
    """A teller that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, object]] = []

    def changed(self, job: Record) -> None:
        self.told.append(("changed", job.id, job.state))

    def progressed(self, job: Record, progress: float | None, text: str | None) -> None:
        self.told.append(("progressed", job.id, progress))

    def of(self, job_id: int) -> list[tuple[str, object]]:
        return [(what, detail) for what, one, detail in self.told if one == job_id]


class Node:
    """One process with workers and a service."""

    def __init__(self, stage: "Stage", name: str) -> None:
        self.name = name
        self.events = Events()
        self.events.listen(stage.told.extend)
        self.events.listen(lambda events: stage.pass_on(self, events))
        self.jobs = stage.store_of(name)
        self.hosts = Hosts(clock=stage.clock, events=self.events, chance=random.Random(7))
        self.tools = RunTools(
            folders=stage.folders,
            chat=stage.chats,
            hosts=self.hosts,
            teller=stage.heard,
            processes=run_in_process,
            clock=stage.clock,
            events=self.events,
            folder_bytes=10 * MB,
        )
        controls = KindControls(stage.documents_of(name))
        self.workers = Workers(store=self.jobs, node=name, kinds=stage.kinds, tools=self.tools, controls=controls)
        self.service = JobService(
            store=self.jobs,
            controls=controls,
            kinds=stage.kinds,
            teller=stage.heard,
            clock=stage.clock,
            events=self.events,
            on_queued=self.workers.ring,
            on_cancel=self.workers.cancel,
            on_control=self.workers.control,
        )
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self.workers.start(group)

    async def kill(self) -> None:
        """As by a power cut: nothing is settled any more."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def stop(self, grace_s: float) -> None:
        await self.workers.stop(grace_s)
        await asyncio.wait([self.task])


class Stage:
    """A store, what the nodes on it share, and what was seen of all of them."""

    def __init__(self, clock: VirtualClock, folder: Path) -> None:
        self.clock = clock
        self.place = Place(clock)
        self.folders = Folders(folder)
        self.chats = Chats()
        self.heard = Heard()
        self.kinds = JobKinds()
        self.nodes: dict[str, Node] = {}
        self.told: list[Event] = []
        self.store_of: Callable[[str], JobStore] = self.place.node
        documents: Any = self.place.documents  # as much of them as is asked for
        self.documents_of: Callable[[str], DocumentStore] = lambda name: documents

    def kind(
        self, name: str, work: Callable[..., Any], *, concurrency: int = 32, per_user: int = 2, **terms: Any
    ) -> None:
        self.kinds.add(
            JobKind(name=name, work=work, terms=KindTerms(concurrency=concurrency, per_user=per_user), **terms)
        )

    def node(self, name: str = "one") -> Node:
        self.nodes[name] = Node(self, name)
        return self.nodes[name]

    async def kill(self, name: str) -> None:
        await self.nodes.pop(name).kill()

    def memory_of(self, name: str) -> MemoryJobs:
        jobs = self.nodes[name].jobs
        assert isinstance(jobs, MemoryJobs)
        return jobs

    def pass_on(self, origin: Node, events: Any) -> None:
        """News for the other nodes, a moment after the commit."""
        if any(isinstance(event, (JobRan, JobsQueued)) for event in events):
            asyncio.get_running_loop().call_later(0.05, self._hear, origin)

    def _hear(self, origin: Node) -> None:
        for node in self.nodes.values():
            if node is not origin:
                node.workers.hear()
                node.service.ask_again()

    async def queue(self, kind: str = "work", *, at: str | None = None, **terms: Any) -> int:
        """One job, by the service of a node. Its id."""
        node = self.nodes[at] if at is not None else next(iter(self.nodes.values()))
        return (await node.service.queue([JobRequest(kind=kind, **terms)]))[0].job_id

    async def ended(self, job_id: int, timeout_s: float = 3600.0) -> Record:
        job = await next(iter(self.nodes.values())).service.wait(job_id, timeout_s)
        assert job.state.is_final, f"job {job_id} is still {job.state}"
        return job

    async def until(self, job_id: int, state: State) -> Record:
        for _ in range(10_000):
            job = await self.get(job_id)
            if job.state is state:
                return job
            await asyncio.sleep(0.1)
        raise AssertionError(f"job {job_id} never was {state}: it is {job.state}")

    async def get(self, job_id: int) -> Record:
        job = await self.store_of("reader").job(job_id)
        assert job is not None
        return job

    async def quiet(self, timeout_s: float = 86_400.0) -> None:
        """Until every job has ended."""
        deadline = self.clock.mono() + timeout_s
        reader = self.store_of("reader")
        while True:
            tallies = (await reader.tallies()).values()
            if not any(one.waiting or one.delayed or one.active for one in tallies):
                return
            assert self.clock.mono() < deadline, tallies
            await asyncio.sleep(5.0)

    def ends(self, job_id: int) -> list[str]:
        return [event.end.value for event in self.told if isinstance(event, JobRan) and event.job_id == job_id]

    def surprises(self) -> list[Event]:
        return [event for event in self.told if isinstance(event, Surprise)]


class Crowd:
    """Work that knows how many run at once."""

    def __init__(self, clock: VirtualClock, seconds: Callable[[Any], float]) -> None:
        self._clock = clock
        self._seconds = seconds
        self.now: Counter[str] = Counter()
        self.jobs_now: Counter[int] = Counter()
        self.most = 0
        self.most_of_one = 0
        self.most_of_a_job = 0
        self.began: dict[int, float] = {}  # first run
        self.runs: Counter[int] = Counter()

    async def __call__(self, job: Any) -> int:
        self.began.setdefault(job.id, self._clock.mono())
        self.runs[job.id] += 1
        self.now[job.user] += 1
        self.jobs_now[job.id] += 1
        self.most = max(self.most, self.now.total())
        self.most_of_one = max(self.most_of_one, self.now[job.user])
        self.most_of_a_job = max(self.most_of_a_job, self.jobs_now[job.id])
        try:
            (job.folder / "part").write_bytes(b"x")
            await asyncio.sleep(self._seconds(job))
            return int(job.id)
        finally:
            self.now[job.user] -= 1
            self.jobs_now[job.id] -= 1


Story = Callable[[Stage], Coroutine[Any, Any, None]]
Play = Callable[[Story], None]


def play(story: Story) -> None:
    """Tell a story; all nodes that it leaves behind are stopped, and no folder may be left."""

    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-jobs-") as folder:
            await _tell(story, Stage(clock, Path(folder)))

    run_virtual(main)


def play_on_a_file(story: Story, names: tuple[str, ...] = ("one", "two", "three", "reader")) -> None:
    """The same on SQLite: each node has connections of its own to one file."""

    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-jobs-") as folder:
            stage = Stage(clock, make_folder(Path(folder) / "work"))
            async with AsyncExitStack() as opened:
                stores: dict[str, SqliteStore] = {}
                for name in names:
                    store = SqliteStore(
                        Path(folder) / "peik.db", clock=clock, is_owner=False, executor=lambda _: InlineExecutor()
                    )
                    await store.open()
                    opened.push_async_callback(store.close)
                    store.nodes.node = name
                    stores[name] = store
                stage.store_of = lambda name: stores[name].jobs
                stage.documents_of = lambda name: stores[name].documents
                await _tell(story, stage)

    run_virtual(main)


async def _tell(story: Story, stage: Stage) -> None:
    try:
        await story(stage)
    finally:
        for node in list(stage.nodes.values()):
            await node.kill()
    assert stage.folders.left() == []


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


def history(job: Record) -> list[str]:
    return [line["end"] for line in msgspec.json.decode(job.history)]
