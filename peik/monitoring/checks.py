"""The facts behind `peik doctor`: one table of checks, each a function that looks at the scene and says what it found."""

import asyncio
import contextlib
import resource
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from peik.accounts.registry import HealthGrade, health_of
from peik.accounts.wiring import archive_named
from peik.alerts.looks import memory_of
from peik.archive.store import Archive, SessionFilter
from peik.archive.wiring import beside
from peik.clock import SystemClock
from peik.core.nodes import NodeStore
from peik.core.outcome import Delivered
from peik.core.token import Token
from peik.errors import Problem, StartError
from peik.inbox.source import read_info
from peik.monitoring import checks_launch as launching
from peik.monitoring import doctor
from peik.monitoring.checks_scene import STORE_S, DoctorScene, DoctorWanted, scene_of, standing
from peik.monitoring.doctor import Finding, Grade, verdict
from peik.monitoring.nodes import Nodes
from peik.secrets import service
from peik.settings.config import Config, load, shown_address
from peik.settings.values import StoreKind

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
        words, fix = "Accounts need a package that is not installed.", "pip install 'peik[sessions]'"
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
    return doctor.of_durability(await scene.store.nodes.durability())


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
    DoctorCheck(name="admin key", look=launching.of_admin_key),
    DoctorCheck(name="route", look=_of_routes),
    DoctorCheck(name="bot", look=_of_bots),
    DoctorCheck(name="running", look=_of_running),
    DoctorCheck(name="panel", look=launching.of_panel),
    DoctorCheck(name="log", look=launching.of_log),
    DoctorCheck(name="backup", look=launching.of_backup, needs_store=True),
    DoctorCheck(name="alerts", look=launching.of_alerts),
    DoctorCheck(name="job", look=launching.of_job, needs_store=True),
    DoctorCheck(name="channel", look=launching.of_channels),
    DoctorCheck(name="support", look=launching.of_support),
    DoctorCheck(name="capacity", look=launching.of_capacity),
)
