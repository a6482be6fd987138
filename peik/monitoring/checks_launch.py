"""What `peik doctor` looks at before a launch: whether people are told, what is kept, who is seen, and how much can be taken."""

import asyncio
import http.client
import os
import random
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from peik.alerts.api import AlertApi
from peik.alerts.looks import memory_of
from peik.backups.model import BackupLedger
from peik.cli.command import CommandContext
from peik.cli.remote import HEALTH_S
from peik.clock import SystemClock
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Events
from peik.core.letter import State
from peik.core.outcome import Delivered
from peik.core.pace import PaceLimits
from peik.errors import BadInput, Problem, StartError
from peik.jobs.folders import Folders
from peik.jobs.hosts import Hosts
from peik.jobs.job import Job
from peik.jobs.model import JobRecord as Record
from peik.jobs.model import JobRequest
from peik.jobs.processes import run_in_process
from peik.jobs.run import RunTools
from peik.jobs.service import JobService
from peik.jobs.store import JobKind, JobKinds, KindTerms
from peik.jobs.workers import Workers
from peik.monitoring import doctor
from peik.monitoring.checks_scene import DoctorScene, standing
from peik.monitoring.doctor import SUFFIX, Finding, Grade, Keeping, LoadFigure, MeasuredCapacity, Seen, read_load_figure
from peik.settings.config import Config
from peik.storage.open import AnyStore

# The test job of `peik doctor`: queued, done by a worker of this process, and stored, as every job is. Its kind is
# known nowhere else; if the process dies in between, the next examination does what it left.


KIND = "peik.doctor"
USER = "doctor"
DONE_S = 15.0
WORDS = "This is what a test job writes."


async def run_test_job(config: Config, store: AnyStore) -> tuple[float | None, str | None]:
    """How long it took, or why it was not done."""
    clock, events = SystemClock(), Events()
    kinds = JobKinds()
    kinds.add(
        JobKind(name=KIND, work=_work, terms=KindTerms(concurrency=16, per_user=16), attempts=1, timeout_s=DONE_S)
    )
    folders = Folders(
        config.work or config.beside(".work"),
        bytes_max=config.work_max,
        free_min=config.work_free,
        clock=clock,
        events=events,
    )
    nobody = _Nobody()
    tools = RunTools(
        folders=folders,
        chat=nobody,
        hosts=Hosts(clock=clock, events=events, chance=random.Random()),
        teller=nobody,
        processes=run_in_process,
        clock=clock,
        events=events,
        folder_bytes=config.work_max,
    )
    workers = Workers(store=store.jobs, node=store.nodes.node, kinds=kinds, tools=tools)
    service = JobService(
        store=store.jobs, kinds=kinds, teller=nobody, clock=clock, events=events, on_queued=workers.ring
    )
    try:
        await folders.open()
    except StartError as error:
        return None, str(error)
    try:
        async with asyncio.TaskGroup() as group:
            folders.start(group)
            workers.start(group)
            try:
                return await _done(service)
            finally:
                await workers.stop(1.0)
                await folders.close()
    except* Problem as problems:
        why = str(problems.exceptions[0])
    return None, why


async def _done(service: JobService) -> tuple[float | None, str | None]:
    began = time.monotonic()
    (queued,) = await service.queue([JobRequest(kind=KIND, user=USER)])
    job = await service.wait(queued.job_id, DONE_S)
    if job.state is State.COMPLETED:
        return time.monotonic() - began, None
    if job.failed_reason is not None:
        return None, job.failed_reason
    return None, f"it is still {job.state} after {DONE_S:.0f} s."


async def _work(job: Job) -> str:
    """Writes into its folder and reads it again: most jobs need a folder."""
    path = job.folder / "test"
    path.write_text(WORDS, encoding="utf-8")
    return path.read_text(encoding="utf-8")


class _Nobody:
    """The chat of a job that tells nobody."""

    def changed(self, job: Record) -> None: ...

    def progressed(self, job: Record, progress: float | None, text: str | None) -> None: ...

    async def send(
        self, job: Record, method: str, params: Mapping[str, Any], *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        raise BadInput(code="no_chat", detail="A test job has no chat.")


COLLECTION = "doctor"
MEASURE_S = 1.0
COMMITS_MAX = 2000
SENT_S = 60.0  # for a running Peik to say how a test alert went
PANEL = "/admin/sign-in"  # where /admin leads whoever is not signed in


async def of_admin_key(scene: DoctorScene) -> list[Finding]:
    path = scene.config.beside(".key")
    mode = path.stat().st_mode if path.is_file() else None
    return [doctor.of_admin_key(scene.config.admin_key, file_mode=mode)]


# ---- a running Peik ----


async def of_panel(scene: DoctorScene) -> list[Finding]:
    """Nothing without a running Peik."""
    if scene.health is None:
        return []
    return [doctor.of_panel(f"{scene.url}/admin", await asyncio.to_thread(_status, scene.url, scene.context))]


def _status(url: str, context: ssl.SSLContext | None) -> int | None:
    parts = urlsplit(url)
    host, timeout_s = parts.hostname or "", 5 * HEALTH_S
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    )
    try:
        connection.request("GET", parts.path.rstrip("/") + PANEL)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


async def of_alerts(scene: DoctorScene) -> list[Finding]:
    config = scene.config
    found = [doctor.of_alerts(len(config.admin_chats), len(config.alert_urls))]
    return found + (await asyncio.to_thread(_sent, scene) if scene.wanted.may_send else [])


def _sent(scene: DoctorScene) -> list[Finding]:
    """By the running Peik, with the settings that it has: they may not be those of this command."""
    if scene.health is None:
        return [doctor.of_alert_sent("anybody", "no Peik is running that could send it. Start it: peik serve")]
    client = CommandContext({"url": scene.url}, is_json=True, may_create=False).client
    try:
        ways = client.ask(AlertApi.test_alerts, timeout_s=SENT_S).ways
    except Problem as problem:
        return [doctor.of_alert_sent("anybody", str(problem))]
    if not ways:
        return [doctor.of_alert_sent("anybody", "the running Peik has nobody to tell. Set PEIK_ADMIN_CHATS.")]
    return [doctor.of_alert_sent(one.way, None if one.is_done else one.why or "it failed.") for one in ways]


# ---- what is kept ----


async def of_log(scene: DoctorScene) -> list[Finding]:
    path, age_s, can_write = scene.config.log_file, None, True
    if path is not None:
        path = path.absolute()
        can_write = os.access(path if path.exists() else standing(path.parent), os.W_OK)
        age_s = _age_s(path)
    finding = doctor.of_log(
        None if path is None else str(path),
        age_s=age_s,
        can_write=can_write,
        is_archived=scene.config.log_in_archive,
        is_running=scene.health is not None,
    )
    return [finding]


def _age_s(path: Path) -> float | None:
    try:
        told = path.stat()
    except OSError:
        return None
    return max(0.0, time.time() - told.st_mtime) if told.st_size else None


async def of_backup(scene: DoctorScene) -> list[Finding]:
    assert scene.store is not None
    entries = sorted((await BackupLedger(scene.store.documents).entries()).values(), key=lambda one: one.made_at_ms)
    good = [one.made_at_ms for one in entries if not one.is_broken]
    finding = doctor.of_backup(
        good[-1] if good else None,
        now_ms=int(time.time() * 1000),
        every_s=scene.config.backup_every,
        newest_is_broken=bool(entries) and entries[-1].is_broken,
        is_launch=scene.wanted.is_launch,
    )
    return [finding]


async def of_job(scene: DoctorScene) -> list[Finding]:
    assert scene.store is not None
    return [doctor.of_job(*await run_test_job(scene.config, scene.store))]


# ---- people ----


class _Member(msgspec.Struct):
    status: str = ""


_SEEN = {"creator": Seen.ADMIN, "administrator": Seen.ADMIN, "member": Seen.MEMBER, "restricted": Seen.MEMBER}


async def of_channels(scene: DoctorScene) -> list[Finding]:
    """Whether the bot sees who is in each channel that a sponsor gate asks for."""
    wanted = scene.wanted
    if not wanted.channels:
        return []
    token = scene.tokens.get(wanted.bot_id) if wanted.bot_id else next(iter(scene.tokens.values()), None)
    if token is None or scene.way is None:
        fix = "Look at the bots and the routes above, or say which bot with --bot."
        return [Finding(name="channel", grade=Grade.RED, words="There is no bot that could see them.", fix=fix)]
    found = []
    for channel in wanted.channels:
        outcome = await scene.ask(token, "getChatMember", {"chat_id": channel, "user_id": token.bot_id})
        seen = _seen(outcome.result) if isinstance(outcome, Delivered) else None
        found.append(doctor.of_channel(channel, outcome, seen))
    return found


def _seen(result: bytes) -> Seen:
    try:
        return _SEEN.get(msgspec.json.decode(result, type=_Member).status, Seen.OUTSIDE)
    except msgspec.DecodeError:
        return Seen.OUTSIDE


async def of_support(scene: DoctorScene) -> list[Finding]:
    """Only before a launch, or if somebody was named: not every Peik has users who ask."""
    wanted = scene.wanted
    return [doctor.of_support(wanted.support)] if wanted.is_launch or wanted.support is not None else []


# ---- how much ----


async def of_capacity(scene: DoctorScene) -> list[Finding]:
    users, config = scene.wanted.users_a_day, scene.config
    if users is None:
        return []
    memory = memory_of()
    place = standing(config.beside(".files").parent.absolute())
    told = os.statvfs(place)
    figure, unread = _load_figure(config)
    measured = MeasuredCapacity(
        commits_per_s=None if scene.store is None else await commits_per_s(scene.store.documents),
        letters_per_s=_letters_per_s(scene),
        memory_bytes=None if memory is None else memory.total,
        room_bytes=told.f_bavail * told.f_frsize,
        load=figure,
    )
    keeping = Keeping(
        letters_s=config.keep_completed,
        arrivals_s=config.keep_arrivals,
        log_s=config.keep_log,
        work_bytes=config.work_max,
    )
    return unread + doctor.findings(users, measured, keeping, room_bytes=scene.wanted.room_bytes)


def _load_figure(config: Config) -> tuple[LoadFigure | None, list[Finding]]:
    """Of the store that this Peik uses; a figure of another kind of store says nothing about it."""
    path = config.beside(SUFFIX)
    try:
        figure = read_load_figure(path)
    except ValueError as error:
        fix = f"Measure again: peik load --find-limit --write {path}"
        return None, [Finding(name="load test", grade=Grade.YELLOW, words=f"{error}", fix=fix)]
    if figure is None or figure.store == config.store_kind:
        return figure, []
    words = f"The load test of {path} was made on {figure.store}, and the store is {config.store_kind}."
    return None, [Finding(name="load test", grade=Grade.YELLOW, words=words, fix="Measure again with --store.")]


def _letters_per_s(scene: DoctorScene) -> float | None:
    """At the pace for bulk, which is the narrower one. None: no pace is kept."""
    if not scene.config.pace:
        return None
    own = {bot.bot_id: bot.limits for bot in scene.bots if bot.limits is not None}
    return sum(own.get(bot_id, PaceLimits()).bulk_per_s for bot_id in scene.tokens) or PaceLimits().bulk_per_s


async def commits_per_s(documents: DocumentStore, *, measure_s: float = MEASURE_S) -> float:
    """One after the other, for a moment, on one document that is taken away again. Letters go many in one commit, so this is the
    least that the store can do."""
    began, count = time.monotonic(), 0
    try:
        while count < COMMITS_MAX and (count == 0 or time.monotonic() - began < measure_s):
            await documents.file([Filing(collection=COLLECTION, key="commit", body=str(count))])
            count += 1
        return count / max(time.monotonic() - began, 1e-6)
    finally:
        await documents.file([Filing(collection=COLLECTION, key="commit", body=None)])
