"""The facts behind `peik doctor`: one table of checks, each a function that looks at the scene and says what it found."""

import asyncio
import contextlib
import http.client
import os
import random
import resource
import shutil
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from peik.accounts.registry import HealthGrade, health_of
from peik.accounts.wiring import archive_named
from peik.admin.audit import Audit, Outcome
from peik.admin.oidc import BACK, Oidc, OidcFailed, check_oidc
from peik.alerts.api import AlertApi
from peik.alerts.looks import memory_of
from peik.archive.store import Archive, SessionFilter
from peik.archive.wiring import beside
from peik.backups.model import BackupLedger
from peik.cli.command import CommandContext, context_to
from peik.cli.remote import HEALTH_S
from peik.clock import SystemClock
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Events
from peik.core.letter import State
from peik.core.nodes import NodeStore
from peik.core.outcome import Delivered
from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.errors import BadInput, Problem, StartError, to_install
from peik.inbox.source import read_info
from peik.jobs.folders import Folders
from peik.jobs.hosts import Hosts
from peik.jobs.job import Job
from peik.jobs.model import JobRecord as Record
from peik.jobs.model import JobRequest
from peik.jobs.processes import run_in_process
from peik.jobs.run import RunTools
from peik.jobs.service import JobService
from peik.jobs.store import JobKind, JobKinds, KindControls, KindTerms
from peik.jobs.workers import Workers
from peik.monitoring import doctor
from peik.monitoring.checks_scene import STORE_S, DoctorScene, DoctorWanted, scene_of, standing
from peik.monitoring.doctor import (
    SUFFIX,
    Finding,
    Grade,
    Keeping,
    LoadFigure,
    MeasuredCapacity,
    Seen,
    read_load_figure,
    verdict,
)
from peik.monitoring.nodes import Nodes, holder_of
from peik.secrets import service
from peik.settings.config import Config, load, shown_address
from peik.settings.values import StoreKind, is_loopback
from peik.storage.open import AnyStore
from peik.telegram.wiring import asker_of

# What is looked at before a launch: whether people are told, what is kept, who is seen, and how much can be taken.

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
        store=store.jobs,
        controls=KindControls(store.documents),
        kinds=kinds,
        teller=nobody,
        clock=clock,
        events=events,
        on_queued=workers.ring,
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
SIGN_INS_SEEN = 200  # lines of the audit log
PANEL = "/admin/sign-in"  # where /admin leads anyone who is not signed in


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


async def of_oidc(scene: DoctorScene) -> list[Finding]:
    """Nothing if nobody signs in by OpenID Connect."""
    config = scene.config
    try:
        check_oidc(config)
    except StartError as error:
        return [Finding(name="oidc", grade=Grade.RED, words=str(error), fix="Mend the settings PEIK_OIDC_….")]
    if config.oidc_issuer is None:
        return []
    root = config.oidc_url or scene.url
    back_url = root + BACK
    documents = None if scene.store is None else scene.store.documents
    try:
        look = await Oidc(config, documents, SystemClock(), asker_of(config)).look(back_url=back_url)
    except OidcFailed as failed:
        return [doctor.of_oidc(config.oidc_issuer, failed.why)]
    is_asked = config.oidc_url is not None and scene.health is not None
    address = doctor.of_oidc_address(
        back_url,
        is_set=config.oidc_url is not None,
        is_alone=all(map(is_loopback, (urlsplit(root).hostname or "", *config.trusted_proxies))),
        refused_status=look.refused_status,
        panel_status=(await asyncio.to_thread(_status, root, context_to(root, config)) or 0) if is_asked else None,
    )
    claim = doctor.of_oidc_claim(
        config.oidc_claim,
        config.oidc_roles,
        scope=config.oidc_scope,
        scopes=look.scopes,
        refused=None if documents is None else await _last_refused(documents),
    )
    return [doctor.of_oidc(config.oidc_issuer, look), claim, address]


async def _last_refused(documents: DocumentStore) -> str | None:
    """What the audit log says of the last one whom the provider named, if no role was given."""
    audit = Audit(documents, SystemClock(), Events())
    for line in (await audit.find(action="sign_in", limit=SIGN_INS_SEEN)).lines:
        if line.target == "oidc" and (line.outcome is Outcome.DONE or line.detail.startswith("oidc_no_role")):
            return None if line.outcome is Outcome.DONE else line.detail.partition(": ")[2]
    return None


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
        is_running=scene.health is not None or await _is_used(scene),
    )
    return [finding]


async def _is_used(scene: DoctorScene) -> bool:
    """Whether a program runs with a Peik inside it, which answers no request."""
    if scene.config.store_kind is StoreKind.SQLITE:
        return holder_of(scene.config.sqlite_path.absolute()) is not None
    own = None if scene.store is None else scene.store.nodes.node
    with contextlib.suppress(Problem):
        return scene.store is not None and any(one.name != own for one in await scene.store.nodes.nodes())
    return False


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


# What `peik doctor` finds about accounts: the archive, its durability, the key that seals, the application at
# Telegram.


ARCHIVE_S = 15.0
SESSIONS_PAGE = 500
UNWELL_MAX = 20
_UNWELL = {HealthGrade.WAITING: Grade.YELLOW, HealthGrade.FAILING: Grade.YELLOW, HealthGrade.ENDED: Grade.RED}


async def of_accounts(config: Config) -> list[Finding]:
    """Nothing, if nothing in the settings asks for accounts."""
    if not config.has_sessions:
        return []
    found = [of_application(config.telegram_api_id is not None, config.telegram_api_hash is not None)]
    if config.telegram_api_id is not None:
        found.append(_of_secret_key(config))
    return found + await _of_archive(config)


def of_application(has_id: bool, has_hash: bool) -> Finding:
    if has_id and has_hash:
        return Finding(name="application", grade=Grade.GREEN, words="There is an application to sign in with.")
    fix = "Set TELEGRAM_API_ID and TELEGRAM_API_HASH, from my.telegram.org."
    if has_id or has_hash:
        words = "Of TELEGRAM_API_ID and TELEGRAM_API_HASH only one is set, so that Peik cannot start."
        return Finding(name="application", grade=Grade.RED, words=words, fix=fix)
    words = "There is no application at Telegram: the archive can be read, and no account can run."
    return Finding(name="application", grade=Grade.YELLOW, words=words, fix=fix)


def _of_secret_key(config: Config) -> Finding:
    path = config.beside(".secret")
    if config.secret_key is not None:
        return _of_set_key(config.secret_key)
    if config.secrets_plain:
        words = "Keys of accounts are stored as plain text, since PEIK_SECRETS_PLAIN allows it."
        return Finding(name="secret key", grade=Grade.YELLOW, words=words, fix="Set PEIK_SECRET_KEY.")
    if config.store_kind is not StoreKind.SQLITE:
        words = f"Keys of accounts are sealed with the key in {path}, which other nodes do not have."
        return Finding(
            name="secret key", grade=Grade.YELLOW, words=words, fix="Set the same PEIK_SECRET_KEY on all nodes."
        )
    words = f"Keys of accounts are sealed with the key in {path}; back it up."
    if not path.exists():
        words = f"The key for accounts is made at the first start, in {path}; back it up then."
    return Finding(name="secret key", grade=Grade.GREEN, words=words)


def _of_set_key(setting: str) -> Finding:
    try:
        from peik.secrets.vault import keys_of

        keys = len(keys_of(setting))
    except ImportError:
        words, fix = "PEIK_SECRET_KEY needs a package that is not installed.", to_install("secrets")
        return Finding(name="secret key", grade=Grade.RED, words=words, fix=fix)
    except StartError as error:
        return Finding(name="secret key", grade=Grade.RED, words=str(error), fix="Mend PEIK_SECRET_KEY.")
    older = f", and {keys - 1} older one(s) can be opened" if keys > 1 else ""
    return Finding(
        name="secret key", grade=Grade.GREEN, words=f"Keys of accounts are sealed with PEIK_SECRET_KEY{older}."
    )


async def _of_archive(config: Config) -> list[Finding]:
    try:
        url = config.archive or beside(config.store)
        if (path := _missing_file(url)) is not None:
            words = f"There is no {path} yet; `peik serve` makes it."
            return [Finding(name="archive", grade=Grade.GREEN, words=words)]
        archive = archive_named(config)
        async with asyncio.timeout(ARCHIVE_S):
            await archive.open()
            try:
                sentences = await archive.durability()
                accounts = await _of_sessions(archive)
            finally:
                with contextlib.suppress(Problem):
                    await archive.close()
    except (StartError, Problem) as error:
        return [_closed(str(error))]
    except TimeoutError:
        return [_closed(f"The archive at {shown_address(url)} does not answer.")]
    opened = Finding(name="archive", grade=Grade.GREEN, words=f"The archive at {shown_address(url)} opens.")
    lasting = [msgspec.structs.replace(one, name="archive durability") for one in doctor.of_durability(sentences)]
    if not sentences:
        lasting = [msgspec.structs.replace(one, words="What was archived outlives a power cut.") for one in lasting]
    return [opened, *lasting, *accounts]


async def _of_sessions(archive: Archive) -> list[Finding]:
    """Those that do not run as they should, each with its reason; the first ones, if there are many."""
    found: list[Finding] = []
    ok = 0
    after: str | None = None
    while len(found) < UNWELL_MAX:
        page = await archive.sessions(SessionFilter(), after=after, limit=SESSIONS_PAGE)
        for session in page:
            health = health_of(session)
            if (grade := _UNWELL.get(health.grade)) is not None:
                words = f"{session.session_id}: {health.line}"
                found.append(Finding(name="account", grade=grade, words=words, fix=health.todo))
            ok += health.grade is HealthGrade.OK
        if len(page) < SESSIONS_PAGE:
            break
        after = page[-1].session_id
    if found or not ok:
        return found[:UNWELL_MAX]
    return [Finding(name="accounts", grade=Grade.GREEN, words=f"All accounts that are to run are connected: {ok}.")]


def _missing_file(url: str) -> Path | None:
    """Of an archive in a file that nobody made yet."""
    scheme, _, rest = url.partition("://")
    path = Path(rest[1:]).absolute()
    return path if scheme == "sqlite" and not path.exists() else None


def _closed(words: str) -> Finding:
    return Finding(name="archive", grade=Grade.RED, words=words, fix="Mend it, or name another one in PEIK_ARCHIVE.")


ASKED_AT_ONCE = 16
BEATS_S = 5.0  # between two signs of life of a node, at most a fifth of the usual lease and some more
LOOK_S = 0.05


def examine(flags: Mapping[str, str | None], wanted: DoctorWanted) -> list[Finding]:
    try:
        config = load(flags)
    except StartError as error:
        return [Finding(name="settings", grade=Grade.RED, words=str(error), fix="Look at: peik config show")]
    found = [
        Finding(
            name="settings", grade=Grade.GREEN, words=f"The settings can be read; the store is {config.store_shown}."
        )
    ]
    found += asyncio.run(_examine(config, wanted))
    return found if wanted.users_a_day is None else [*found, verdict(wanted.users_a_day, found)]


async def _examine(config: Config, wanted: DoctorWanted) -> list[Finding]:
    async with scene_of(config, wanted) as scene:
        found = [scene.opening]
        for check in CHECKS:
            found += await _looked(check, scene)
        return found


async def _looked(check: "DoctorCheck", scene: DoctorScene) -> list[Finding]:
    """One that breaks is a finding, too: the others go on."""
    if check.needs_store and scene.store is None:
        return []
    try:
        async with asyncio.timeout(STORE_S + BEATS_S if check.needs_store else None):
            return await check.look(scene)
    except TimeoutError:
        words = "The store does not answer."
    except (StartError, Problem, OSError) as error:
        words = str(error)
    return [Finding(name=check.name, grade=Grade.RED, words=words, fix="Mend it, and ask again.")]


# ---- the store and its nodes ----


async def _of_durability(scene: DoctorScene) -> list[Finding]:
    assert scene.store is not None
    nodes = scene.store.nodes
    return doctor.of_durability(await nodes.durability(), failover_loses=await nodes.failover_loses())


async def _of_nodes(scene: DoctorScene) -> list[Finding]:
    assert scene.store is not None
    bot_ids = [bot.bot_id for bot in scene.bots]
    nodes = Nodes(scene.config, scene.store.nodes, clock=SystemClock(), bot_ids=lambda: bot_ids, is_node=False)
    return [doctor.of_nodes(await nodes.known(), bot_ids)]


async def _of_clock(scene: DoctorScene) -> list[Finding]:
    assert scene.store is not None
    if scene.store.nodes.lease_s is None:  # a file goes by the clock of this machine
        return []
    return [doctor.of_clock(await _skew_s(scene.store.nodes))]


async def _skew_s(nodes: NodeStore) -> float | None:
    """How far this machine is ahead of the store: a node's sign of life bears the store's time, and is seen as it comes."""
    until = time.monotonic() + BEATS_S
    first = {node.name: node.seen_at_ms for node in await nodes.nodes()}
    while first and time.monotonic() < until:
        for node in await nodes.nodes():
            if node.seen_at_ms != first.get(node.name):
                return time.time() - node.seen_at_ms / 1000
        await asyncio.sleep(LOOK_S)
    return None


async def _of_secrets(scene: DoctorScene) -> list[Finding]:
    assert scene.store is not None
    standing = await service.standing(scene.store.sealed, scene.store.seals)
    return doctor.of_secrets(plain=standing.plain, sealed=standing.sealed + standing.older, advice=standing.advice)


async def _of_accounts(scene: DoctorScene) -> list[Finding]:
    return await of_accounts(scene.config)


# ---- the machine ----


async def _of_room(scene: DoctorScene) -> list[Finding]:
    return [doctor.of_room(str(folder), shutil.disk_usage(folder).free) for folder in _folders(scene.config)]


def _folders(config: Config) -> list[Path]:
    """Where this node writes, each disk once."""
    places = [config.beside(".files").parent, *([config.files] if config.files is not None else [])]
    by_disk = {standing(place.absolute()).stat().st_dev: standing(place.absolute()) for place in reversed(places)}
    return list(by_disk.values())


async def _of_memory(scene: DoctorScene) -> list[Finding]:
    return [doctor.of_memory(memory_of(), percent_max=scene.config.alert_memory)]


async def _of_open_files(scene: DoctorScene) -> list[Finding]:
    polled = sum(scene.inbound(bot_id) == "polling" for bot_id in scene.tokens)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return [doctor.of_open_files(2**31 if most == resource.RLIM_INFINITY else most, polled=polled)]


async def _of_python(_: DoctorScene) -> list[Finding]:
    return [doctor.of_python(sys.version_info[:3])]


# ---- Telegram ----


async def _of_routes(scene: DoctorScene) -> list[Finding]:
    return [
        doctor.of_route(address.name, outcome, has_other=scene.way is not None) for address, outcome in scene.routes
    ]


async def _of_bots(scene: DoctorScene) -> list[Finding]:
    if not scene.tokens:
        fix = "Set BOT_TOKEN, or: peik bots add"
        return [Finding(name="bot", grade=Grade.YELLOW, words="There is no bot yet.", fix=fix)]
    if scene.way is None:  # the routes say so
        return []
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def asked(token: Token) -> list[Finding]:
        async with turns:
            return await _of_bot(scene, token)

    return [one for found in await asyncio.gather(*map(asked, scene.tokens.values())) for one in found]


async def _of_bot(scene: DoctorScene, token: Token) -> list[Finding]:
    outcome = await scene.ask(token, "getMe", {})
    found = [doctor.of_bot(token.bot_id, outcome)]
    if not isinstance(outcome, Delivered):
        return found
    told = await scene.ask(token, "getWebhookInfo", {})
    info = read_info(told.result) if isinstance(told, Delivered) else None
    if info is None:
        return found
    own = scene.config.public_url
    webhook = doctor.of_webhook(
        token.bot_id,
        inbound=scene.inbound(token.bot_id),
        host=info.host if info.url else None,
        own_host=None if own is None else urlsplit(own).hostname,
        error=info.last_error_message,
        error_age_s=max(0.0, time.time() - info.last_error_date),
        pending=info.pending_update_count,
    )
    return [*found, webhook]


# ---- a running Peik ----


async def _of_running(scene: DoctorScene) -> list[Finding]:
    return [doctor.of_running(scene.url, scene.health, is_named=scene.config.url is not None)]


# ---- all of them ----


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    look: Callable[[DoctorScene], Awaitable[list[Finding]]]
    needs_store: bool = False  # nothing is found without one, and the store's own finding says why


CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck(name="durability", look=_of_durability, needs_store=True),
    DoctorCheck(name="nodes", look=_of_nodes, needs_store=True),
    DoctorCheck(name="clock", look=_of_clock, needs_store=True),
    DoctorCheck(name="secrets", look=_of_secrets, needs_store=True),
    DoctorCheck(name="archive", look=_of_accounts),
    DoctorCheck(name="room", look=_of_room),
    DoctorCheck(name="memory", look=_of_memory),
    DoctorCheck(name="open files", look=_of_open_files),
    DoctorCheck(name="python", look=_of_python),
    DoctorCheck(name="admin key", look=of_admin_key),
    DoctorCheck(name="route", look=_of_routes),
    DoctorCheck(name="bot", look=_of_bots),
    DoctorCheck(name="running", look=_of_running),
    DoctorCheck(name="panel", look=of_panel),
    DoctorCheck(name="oidc", look=of_oidc),
    DoctorCheck(name="log", look=of_log),
    DoctorCheck(name="backup", look=of_backup, needs_store=True),
    DoctorCheck(name="alerts", look=of_alerts),
    DoctorCheck(name="job", look=of_job, needs_store=True),
    DoctorCheck(name="channel", look=of_channels),
    DoctorCheck(name="support", look=of_support),
    DoctorCheck(name="capacity", look=of_capacity),
)
