"""The facts behind `peik doctor`, asked of the settings, the store, the machine, Telegram and a running Peik."""

import asyncio
import contextlib
import os
import resource
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from peik.building import carrier_to
from peik.clock import SystemClock
from peik.config import Config, StoreKind, load
from peik.core.outcome import Outcome, Uncertain, Unsent, judge
from peik.core.token import Token
from peik.doors.commands.counter import Document
from peik.doors.commands.examining_archive import of_accounts
from peik.doors.commands.remote import HEALTH_S, RestCounter
from peik.doors.node_views import Nodes
from peik.errors import Problem, StartError
from peik.node_ports import NodeStore
from peik.ops import doctor
from peik.ops.doctor import Finding, Grade
from peik.ports import Carrier, Request
from peik.store.choosing import AnyStore, store_of

STORE_S = 15.0
ASK_S = 10.0
ASKED_AT_ONCE = 16
BEATS_S = 5.0  # between two signs of life of a node, at most a fifth of the usual lease and some more
LOOK_S = 0.05


def examine(flags: Mapping[str, str | None]) -> list[Finding]:
    try:
        config = load(flags)
    except StartError as error:
        return [Finding(name="settings", grade=Grade.RED, words=str(error), fix="Look at: peik config show")]
    found = [
        Finding(
            name="settings", grade=Grade.GREEN, words=f"The settings can be read; the store is {config.store_shown}."
        )
    ]
    return found + asyncio.run(_examine(config))


async def _examine(config: Config) -> list[Finding]:
    tokens = {token.bot_id: token for text in config.tokens() if (token := _token(text)) is not None}
    polled = len(tokens) if config.inbound == "polling" else 0
    found, known = await _of_store(config)
    tokens |= {bot_id: token for bot_id, (token, _) in known.items()}
    polled = max(polled, sum(is_polled for _, is_polled in known.values()))
    found += await of_accounts(config)
    found += [doctor.of_room(str(folder), shutil.disk_usage(folder).free) for folder in _folders(config)]
    found.append(doctor.of_open_files(_files_max(), polled=polled))
    found += await _of_telegram(config, list(tokens.values()))
    url = config.url or f"http://{_host(config)}:{config.port}"
    found.append(doctor.of_running(url, await asyncio.to_thread(_health, url), is_named=config.url is not None))
    return found


def _token(text: str) -> Token | None:
    try:
        return Token(text)
    except Problem:  # `peik serve` says so
        return None


# ---- the store ----

_Known = dict[int, tuple[Token, bool]]  # by bot its token, and whether it is polled


async def _of_store(config: Config) -> tuple[list[Finding], _Known]:
    if config.store_kind is StoreKind.SQLITE and not config.sqlite_path.absolute().exists():
        return [_no_file(config.sqlite_path.absolute())], {}
    try:
        async with _opened(config) as store:
            bots = await store.bots()
            words = "The store opens, and its schema fits this Peik."
            found = [Finding(name="store", grade=Grade.GREEN, words=words)]
            found += doctor.of_durability(await store.nodes.durability())
            nodes = Nodes(
                config,
                store.nodes,
                clock=SystemClock(),
                bot_ids=lambda: [bot.bot_id for bot in bots],
                is_node=False,
            )
            found.append(doctor.of_nodes(await nodes.known(), [bot.bot_id for bot in bots]))
            if store.nodes.lease_s is not None:
                found.append(doctor.of_clock(await _skew_s(store.nodes)))
            served = [bot for bot in bots if not bot.token.is_account]
            return found, {bot.bot_id: (bot.token, bot.inbound == "polling") for bot in served}
    except (StartError, Problem) as error:
        words = str(error)
    except TimeoutError:
        words = f"The store at {config.store_shown} does not answer."
    return [Finding(name="store", grade=Grade.RED, words=words, fix="Mend it, or name another one in PEIK_STORE.")], {}


def _no_file(path: Path) -> Finding:
    folder = _standing(path.parent)
    if os.access(folder, os.W_OK | os.X_OK):
        return Finding(name="store", grade=Grade.GREEN, words=f"There is no {path} yet; `peik serve` makes it.")
    fix = "Give this user the right to write there, or name another file in PEIK_STORE."
    return Finding(name="store", grade=Grade.RED, words=f"{folder} cannot be written.", fix=fix)


@asynccontextmanager
async def _opened(config: Config) -> AsyncIterator[AnyStore]:
    store = store_of(config, clock=SystemClock())
    async with asyncio.timeout(STORE_S):
        await store.open()
    try:
        async with asyncio.timeout(STORE_S + BEATS_S):
            yield store
    finally:
        with contextlib.suppress(Problem):
            await store.close()


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


# ---- the machine ----


def _folders(config: Config) -> list[Path]:
    """Where this node writes, each disk once."""
    places = [config.beside(".files").parent, *([config.files] if config.files is not None else [])]
    by_disk = {_standing(place.absolute()).stat().st_dev: _standing(place.absolute()) for place in reversed(places)}
    return list(by_disk.values())


def _standing(folder: Path) -> Path:
    """It, or the nearest above it that is there."""
    return next(one for one in (folder, *folder.parents) if one.is_dir())


def _files_max() -> int:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 2**31 if most == resource.RLIM_INFINITY else most


# ---- Telegram ----


async def _of_telegram(config: Config, tokens: Sequence[Token]) -> list[Finding]:
    if not tokens:
        fix = "Set BOT_TOKEN, or: peik bots add"
        return [Finding(name="bot", grade=Grade.YELLOW, words="There is no bot yet.", fix=fix)]
    carriers = [carrier_to(address, config) for address in config.routes]
    try:
        outcomes = await asyncio.gather(*(_me(carrier, tokens[0]) for carrier in carriers))
        answering = [not isinstance(outcome, Unsent | Uncertain) for outcome in outcomes]
        found = [
            doctor.of_route(address.name, outcome, has_other=any(answering))
            for address, outcome in zip(config.routes, outcomes, strict=True)
        ]
        if not any(answering):
            return found
        way = carriers[answering.index(True)]
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def asked(token: Token) -> Finding:
            async with turns:
                return doctor.of_bot(token.bot_id, await _me(way, token))

        return found + await asyncio.gather(*map(asked, tokens))
    finally:
        await asyncio.gather(*(carrier.close() for carrier in carriers))


async def _me(carrier: Carrier, token: Token) -> Outcome:
    reply = await carrier.carry(Request(token=token, method="getMe", params=b"{}", timeout_s=ASK_S))
    return judge(reply, method="getMe")


# ---- a running Peik ----


def _host(config: Config) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # noqa: S104
    return f"[{host}]" if ":" in host else host


def _health(url: str) -> Document | None:
    counter = RestCounter(url, None)
    if not counter.is_there():
        return None
    try:
        return counter.call("GET", "/health", timeout_s=2 * HEALTH_S, with_key=False)
    except Problem:
        return None
