"""How jobs are put together: what they need of the outbox and the spool comes in as small pieces."""

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from peik.app.context import Context
from peik.core.letter import Enclosed, LetterCall, State
from peik.core.nodes import CHORES
from peik.errors import BadInput, NotFound
from peik.inbox.texts import load_texts
from peik.jobs.events import JobSaid
from peik.jobs.folders import Folders
from peik.jobs.hosts import Hosts
from peik.jobs.job import JobChat
from peik.jobs.processes import run_in_process
from peik.jobs.run import RunTools
from peik.jobs.service import JobService, JobsUpkeep
from peik.jobs.status_message import StatusMessages
from peik.jobs.store import JobKinds, JobRetention, KindControls
from peik.jobs.workers import Workers
from peik.outbox.service import OutboxService, keep_files
from peik.outbox.wiring import Outbox
from peik.storage.spool import SpoolPort

CHUNK_BYTES = 256 * 1024


class JobWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """Who works: in a process that knows no kind of jobs they only tell and tidy."""

    workers: Workers
    telling: StatusMessages
    folders: Folders
    upkeep: JobsUpkeep
    kinds: JobKinds

    async def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """What is to be cancelled in the end, besides `stop`."""
        self.telling.start(group)
        chores = [group.create_task(self.upkeep.run()), group.create_task(self.telling.recover())]
        if self.kinds.by_name:
            await self.folders.open()
            self.folders.start(group)
            self.workers.start(group)
        return chores

    async def stop(self, grace_s: float) -> None:
        if self.kinds.by_name:
            await self.workers.stop(grace_s)
            await self.folders.close()
        await self.telling.stop(min(grace_s, 2.0))


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    service: JobService
    workers: JobWorkers
    hosts: Hosts


def jobs_of(context: Context, outbox: Outbox, kinds: JobKinds) -> Jobs:
    config, clock, events, store = context.config, context.clock, context.events, context.store
    letters = JobLetters(outbox.service, context.spool, size_bytes_max=config.upload_bytes_max)
    hosts = Hosts(clock=clock, events=events, chance=context.chance)
    telling = StatusMessages(
        store=store.jobs, letters=letters, kinds=kinds, texts=load_texts(config.texts), clock=clock, events=events
    )
    folders = Folders(
        config.work or config.beside(".work"),
        bytes_max=config.work_max,
        free_min=config.work_free,
        clock=clock,
        events=events,
    )

    def said(job_id: int, line: str) -> None:
        events.tell(JobSaid(job_id=job_id, line=line))

    tools = RunTools(
        folders=folders,
        chat=JobChat(letters),
        hosts=hosts,
        teller=telling,
        processes=partial(run_in_process, on_line=said),
        clock=clock,
        events=events,
        folder_bytes=config.work_max,
    )
    controls = KindControls(store.documents)
    workers = Workers(store=store.jobs, node=store.nodes.node, kinds=kinds, tools=tools, controls=controls)
    service = JobService(
        store=store.jobs,
        controls=controls,
        kinds=kinds,
        teller=telling,
        clock=clock,
        events=events,
        on_queued=workers.ring,
        on_cancel=workers.cancel,
        on_control=workers.control,
    )
    retention = JobRetention(completed_ms=int(config.keep_jobs * 1000), failed_ms=int(config.keep_failed_jobs * 1000))
    upkeep = JobsUpkeep(
        store=store.jobs,
        retention=retention,
        is_ours=lambda: outbox.leases.is_live(CHORES),
        clock=context.settled,
        events=events,
    )
    kept = JobWorkers(workers=workers, telling=telling, folders=folders, upkeep=upkeep, kinds=kinds)
    return Jobs(service=service, workers=kept, hosts=hosts)


class JobLetters:
    """The port `JobLettersPort`: calls with files of this machine, through the outbox."""

    def __init__(self, service: OutboxService, spool: SpoolPort, *, size_bytes_max: int) -> None:
        self._service = service
        self._spool = spool
        self._size_bytes_max = size_bytes_max

    async def accept(
        self, bot_id: int | None, method: str, params: bytes, *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        kept = await keep_files((self._enclosed(field, path) for field, path in files.items()), self._spool.remove)
        call = LetterCall(bot_id=bot_id, method=method, params=params, enclosed=kept, idempotency_key=idempotency_key)
        return (await self._service.accept_with_files(kept, lambda _: call, remove=self._spool.remove)).letter_id

    async def _enclosed(self, field: str, path: Path) -> Enclosed:
        kept = await self._spool.keep(_chunks(path), size_bytes_max=self._size_bytes_max)
        content_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return kept.as_enclosed(field, filename=path.name, content_type=content_type)

    async def state(self, letter_id: int) -> State | None:
        try:
            return (await self._service.letter(letter_id)).state
        except NotFound:
            return None


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    """Bit by bit, off the event loop: a film does not fit into memory."""
    try:
        file = await asyncio.to_thread(path.open, "rb")
    except OSError as error:
        raise BadInput(code="no_file", detail=f"{path.name} cannot be read: {error.strerror}.") from None
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
