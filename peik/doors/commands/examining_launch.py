"""What `peik doctor` looks at before a launch: whether people are told, what is kept, who is seen, and how much can be taken."""

import asyncio
import http.client
import os
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from peik.backups.ledger import Ledger
from peik.config import Config
from peik.core.outcome import Delivered
from peik.core.pace import Limits
from peik.doors.commands.examining_job import run_test_job
from peik.doors.commands.examining_scene import Scene, standing
from peik.doors.commands.remote import HEALTH_S, RestCounter
from peik.doors.commands.visit import Visit
from peik.errors import Problem
from peik.ops import capacity, launch
from peik.ops.alert_machine import memory_of
from peik.ops.capacity import Keeping, Measured
from peik.ops.doctor import Finding, Grade
from peik.ops.launch import Seen
from peik.ops.load_figure import SUFFIX, LoadFigure, read_load_figure
from peik.paper_ports import Filing, PaperStore

SHELF = "doctor"
MEASURE_S = 1.0
COMMITS_MAX = 2000
SENT_S = 60.0  # for a running Peik to say how a test alert went
PANEL = "/admin/sign-in"  # where /admin leads whoever is not signed in


async def of_admin_key(scene: Scene) -> list[Finding]:
    path = scene.config.beside(".key")
    mode = path.stat().st_mode if path.is_file() else None
    return [launch.of_admin_key(scene.config.admin_key, file_mode=mode)]


# ---- a running Peik ----


async def of_panel(scene: Scene) -> list[Finding]:
    """Nothing without a running Peik."""
    if scene.health is None:
        return []
    return [launch.of_panel(f"{scene.url}/admin", await asyncio.to_thread(_status, scene.url, scene.context))]


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


async def of_alerts(scene: Scene) -> list[Finding]:
    config = scene.config
    found = [launch.of_alerts(len(config.admin_chats), len(config.alert_urls))]
    return found + (await asyncio.to_thread(_sent, scene) if scene.wanted.may_send else [])


class _Way(msgspec.Struct, frozen=True):
    way: str
    is_done: bool
    why: str | None = None


def _sent(scene: Scene) -> list[Finding]:
    """By the running Peik, with the settings that it has: they may not be those of this command."""
    if scene.health is None:
        return [launch.of_alert_sent("anybody", "no Peik is running that could send it. Start it: peik serve")]
    counter = Visit({"url": scene.url}, is_json=True, may_create=False).counter
    assert isinstance(counter, RestCounter)
    try:
        page = counter.call("POST", "/v1/alerts/test", timeout_s=SENT_S)
        ways = msgspec.convert(page.get("ways"), list[_Way])
    except Problem as problem:
        return [launch.of_alert_sent("anybody", str(problem))]
    if not ways:
        return [launch.of_alert_sent("anybody", "the running Peik has nobody to tell. Set PEIK_ADMIN_CHATS.")]
    return [launch.of_alert_sent(one.way, None if one.is_done else one.why or "it failed.") for one in ways]


# ---- what is kept ----


async def of_log(scene: Scene) -> list[Finding]:
    path, age_s, can_write = scene.config.log_file, None, True
    if path is not None:
        path = path.absolute()
        can_write = os.access(path if path.exists() else standing(path.parent), os.W_OK)
        age_s = _age_s(path)
    finding = launch.of_log(
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


async def of_backup(scene: Scene) -> list[Finding]:
    assert scene.store is not None
    entries = sorted((await Ledger(scene.store.papers).entries()).values(), key=lambda one: one.made_at_ms)
    good = [one.made_at_ms for one in entries if not one.is_broken]
    finding = launch.of_backup(
        good[-1] if good else None,
        now_ms=int(time.time() * 1000),
        every_s=scene.config.backup_every,
        newest_is_broken=bool(entries) and entries[-1].is_broken,
        is_launch=scene.wanted.is_launch,
    )
    return [finding]


async def of_job(scene: Scene) -> list[Finding]:
    assert scene.store is not None
    return [launch.of_job(*await run_test_job(scene.config, scene.store))]


# ---- people ----


class _Member(msgspec.Struct):
    status: str = ""


_SEEN = {"creator": Seen.ADMIN, "administrator": Seen.ADMIN, "member": Seen.MEMBER, "restricted": Seen.MEMBER}


async def of_channels(scene: Scene) -> list[Finding]:
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
        found.append(launch.of_channel(channel, outcome, seen))
    return found


def _seen(result: bytes) -> Seen:
    try:
        return _SEEN.get(msgspec.json.decode(result, type=_Member).status, Seen.OUTSIDE)
    except msgspec.DecodeError:
        return Seen.OUTSIDE


async def of_support(scene: Scene) -> list[Finding]:
    """Only before a launch, or if somebody was named: not every Peik has users who ask."""
    wanted = scene.wanted
    return [launch.of_support(wanted.support)] if wanted.is_launch or wanted.support is not None else []


# ---- how much ----


async def of_capacity(scene: Scene) -> list[Finding]:
    users, config = scene.wanted.users_a_day, scene.config
    if users is None:
        return []
    memory = memory_of()
    place = standing(config.beside(".files").parent.absolute())
    told = os.statvfs(place)
    figure, unread = _load_figure(config)
    measured = Measured(
        commits_per_s=None if scene.store is None else await commits_per_s(scene.store.papers),
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
    return unread + capacity.findings(users, measured, keeping, room_bytes=scene.wanted.room_bytes)


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


def _letters_per_s(scene: Scene) -> float | None:
    """At the pace for bulk, which is the narrower one. None: no pace is kept."""
    if not scene.config.pace:
        return None
    own = {bot.bot_id: bot.limits for bot in scene.bots if bot.limits is not None}
    return sum(own.get(bot_id, Limits()).bulk_per_s for bot_id in scene.tokens) or Limits().bulk_per_s


async def commits_per_s(papers: PaperStore, *, measure_s: float = MEASURE_S) -> float:
    """One after the other, for a moment, on one paper that is taken away again. Letters go many in one commit, so this is the
    least that the store can do."""
    began, count = time.monotonic(), 0
    try:
        while count < COMMITS_MAX and (count == 0 or time.monotonic() - began < measure_s):
            await papers.file([Filing(shelf=SHELF, key="commit", body=str(count))])
            count += 1
        return count / max(time.monotonic() - began, 1e-6)
    finally:
        await papers.file([Filing(shelf=SHELF, key="commit", body=None)])
