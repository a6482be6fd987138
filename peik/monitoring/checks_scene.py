"""What all checks of `peik doctor` share: the settings, the open store, the ways to Telegram, the running Peik. Asked once."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from peik.cli.client import Document
from peik.cli.command import context_to
from peik.cli.remote import HEALTH_S, RestClient
from peik.clock import SystemClock
from peik.core.outcome import Outcome, Uncertain, Unsent, judge
from peik.core.token import Token
from peik.errors import Problem, StartError
from peik.monitoring.api import HealthApi
from peik.monitoring.doctor import ROOM_BYTES, Finding, Grade
from peik.outbox.store import BotRecord
from peik.secrets.seals import BAD_KEY
from peik.settings.config import Config
from peik.settings.values import RouteAddress, StoreKind
from peik.storage.open import AnyStore, store_of
from peik.telegram.port import Carrier, Request
from peik.telegram.wiring import carrier_to

STORE_S = 15.0
ASK_S = 10.0


class DoctorWanted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to know beyond what is always looked at."""

    users_a_day: int | None = None  # before a launch for this many
    room_bytes: int = ROOM_BYTES
    channels: tuple[str, ...] = ()
    bot_id: int | None = None  # who must see them; None: the first bot
    support: str | None = None
    may_send: bool = False

    @property
    def is_launch(self) -> bool:
        return self.users_a_day is not None


class DoctorScene(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    wanted: DoctorWanted
    opening: Finding  # of the store
    store: AnyStore | None
    bots: tuple[BotRecord, ...]
    tokens: Mapping[int, Token]  # of the settings and of the store, no accounts
    routes: tuple[tuple[RouteAddress, Outcome], ...]
    way: Carrier | None  # the first that answers
    url: str
    context: ssl.SSLContext | None  # whose certificates are believed there
    health: Document | None  # of the Peik that runs there

    def inbound(self, bot_id: int) -> str:
        return next((bot.inbound for bot in self.bots if bot.bot_id == bot_id), self.config.inbound)

    async def ask(self, token: Token, method: str, params: Mapping[str, object]) -> Outcome:
        """Only where there is a way."""
        assert self.way is not None
        return await _ask(self.way, token, method, msgspec.json.encode(params))


@asynccontextmanager
async def scene_of(config: Config, wanted: DoctorWanted) -> AsyncIterator[DoctorScene]:
    async with AsyncExitStack() as stack:
        store, opening = await _store(config, stack)
        bots: tuple[BotRecord, ...] = ()
        if store is not None:
            try:
                async with asyncio.timeout(STORE_S):
                    bots = tuple(await store.bots())
            except (Problem, TimeoutError) as error:
                store, opening = None, _closed(config, error)
        tokens = {token.bot_id: token for text in config.tokens() if (token := _token(text)) is not None}
        tokens |= {bot.bot_id: bot.token for bot in bots if not bot.token.is_account}
        routes, way = await _ways(config, next(iter(tokens.values()), None), stack)
        url = config.url or f"{'http' if config.tls_cert is None else 'https'}://{_host(config)}:{config.port}"
        context = context_to(url, config)
        yield DoctorScene(
            config=config,
            wanted=wanted,
            opening=opening,
            store=store,
            bots=bots,
            tokens=tokens,
            routes=routes,
            way=way,
            url=url,
            context=context,
            health=await asyncio.to_thread(_health, url, context),
        )


def _token(text: str) -> Token | None:
    try:
        return Token(text)
    except Problem:  # `peik serve` says so
        return None


# ---- the store ----


async def _store(config: Config, stack: AsyncExitStack) -> tuple[AnyStore | None, Finding]:
    if config.store_kind is StoreKind.SQLITE and not config.sqlite_path.absolute().exists():
        return None, _no_file(config.sqlite_path.absolute())
    try:
        store = store_of(config, clock=SystemClock())
        async with asyncio.timeout(STORE_S):
            await store.open()
    except (StartError, Problem, TimeoutError) as error:
        return None, _closed(config, error)

    async def close() -> None:
        with contextlib.suppress(Problem):
            await store.close()

    stack.push_async_callback(close)
    words = "The store opens, and its schema fits this Peik."
    return store, Finding(name="store", grade=Grade.GREEN, words=words)


def _closed(config: Config, error: Exception) -> Finding:
    is_silent = isinstance(error, TimeoutError)
    words = f"The store at {config.store_shown} does not answer." if is_silent else str(error)
    if isinstance(error, Problem) and error.code in BAD_KEY:
        return Finding(
            name="secrets", grade=Grade.RED, words=words, fix="Set PEIK_SECRET_KEY to the key of this store."
        )
    return Finding(name="store", grade=Grade.RED, words=words, fix="Mend it, or name another one in PEIK_STORE.")


def _no_file(path: Path) -> Finding:
    folder = standing(path.parent)
    if os.access(folder, os.W_OK | os.X_OK):
        return Finding(name="store", grade=Grade.GREEN, words=f"There is no {path} yet; `peik serve` makes it.")
    fix = "Give this user the right to write there, or name another file in PEIK_STORE."
    return Finding(name="store", grade=Grade.RED, words=f"{folder} cannot be written.", fix=fix)


def standing(folder: Path) -> Path:
    """It, or the nearest above it that is there."""
    return next(one for one in (folder, *folder.parents) if one.is_dir())


# ---- Telegram ----


async def _ways(
    config: Config, token: Token | None, stack: AsyncExitStack
) -> tuple[tuple[tuple[RouteAddress, Outcome], ...], Carrier | None]:
    """Nothing without a bot to ask for."""
    if token is None:
        return (), None
    carriers = [carrier_to(address, config) for address in config.routes]
    for carrier in carriers:
        stack.push_async_callback(carrier.close)
    outcomes = await asyncio.gather(*(_ask(carrier, token, "getMe") for carrier in carriers))
    answering = [not isinstance(outcome, Unsent | Uncertain) for outcome in outcomes]
    way = carriers[answering.index(True)] if any(answering) else None
    return tuple(zip(config.routes, outcomes, strict=True)), way


async def _ask(carrier: Carrier, token: Token, method: str, params: bytes = b"{}") -> Outcome:
    reply = await carrier.carry(Request(token=token, method=method, params=params, timeout_s=ASK_S))
    return judge(reply, method=method)


# ---- a running Peik ----


def _host(config: Config) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # noqa: S104
    return f"[{host}]" if ":" in host else host


def _health(url: str, context: ssl.SSLContext | None) -> Document | None:
    client = RestClient(url, None, context=context)
    if not client.is_there():
        return None
    try:
        return client.document(HealthApi.get_health, timeout_s=2 * HEALTH_S)
    except Problem:
        return None
