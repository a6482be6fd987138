"""The one file that knows the concrete classes: it builds Peik, opens it, drains it and closes it."""

import asyncio
import contextlib
import os
import random
import secrets
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from peik.carrier.botapi import BotApiCarrier
from peik.carrier.dialling import Connect
from peik.carrier.poster import HttpPoster
from peik.carrier.proxy import Proxy, through_http, through_socks5
from peik.clock import Clock, SystemClock
from peik.config import Config, RouteAddress, RouteKind
from peik.core.problem import Problem
from peik.core.token import Token
from peik.desk import Defaults, Desk
from peik.engine.courier import Courier
from peik.engine.hooks import Hooks
from peik.engine.neighbours import Neighbours
from peik.engine.route import Route
from peik.engine.routes import Routes
from peik.engine.sender import Sender, Terms
from peik.engine.timekeeper import Timekeeper
from peik.errors import StartError, StoreUnavailable
from peik.events import Events
from peik.keyring import Keyring
from peik.ports import BotRecord, Carrier, Poster, Retention
from peik.store.database import OwnerLock
from peik.store.executor import Executor, ThreadExecutor
from peik.store.spool import FolderSpool
from peik.store.sqlite import SqliteStore

HOOKS_GRACE_S = 5.0  # for webhooks on their way when Peik ends; what does not come back is told again


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """A running Peik as its doors see it."""

    config: Config
    clock: Clock
    desk: Desk
    courier: Courier
    spool: FolderSpool
    events: Events
    store: SqliteStore
    keyring: Keyring
    hooks: Hooks


@asynccontextmanager
async def running(
    config: Config,
    *,
    events: Events | None = None,
    clock: Clock | None = None,
    carrier: Carrier | None = None,
    chance: random.Random | None = None,
    executor: Callable[[str], Executor] = ThreadExecutor,
    make_carrier: Callable[[RouteAddress, Config], Carrier] | None = None,
    poster: Poster | None = None,
    must_own: bool = True,
    is_alone: bool = False,
) -> AsyncIterator[Office]:
    """Peik from open to close. On the way out it stops taking letters and gives those in flight the grace to end.

    Each route of the settings has a carrier of its own, from `make_carrier`; `carrier` stands for all of them.
    While another process owns the store, StartError is raised; or, without `must_own`, letters are accepted here and
    sent there, until that process ends and this one takes over. `is_alone` promises that no other process has the file:
    nobody looks for its writes then, twice a second for all of a virtual month.
    """
    clock = clock or SystemClock()
    events = events or Events()
    chance = chance or random.Random()
    path = config.sqlite_path.absolute()
    spool = FolderSpool(path.with_name(path.name + ".files"))
    store = SqliteStore(path, clock=clock, is_owner=must_own, executor=executor, on_blobs_freed=spool.remove)
    await store.open()
    make_carrier = make_carrier or _carrier
    carriers = [carrier or make_carrier(address, config) for address in config.routes]
    try:
        office = _build(
            config,
            events=events,
            clock=clock,
            carriers=carriers,
            chance=chance,
            poster=poster or HttpPoster(may_be_private=config.hooks_allow_private),
            store=store,
            spool=spool,
        )
        async with _engine(office, is_alone=is_alone):
            yield office
    finally:
        await asyncio.gather(*(each.close() for each in carriers))
        await store.close()


@contextmanager
def only_server(config: Config) -> Iterator[None]:
    """The right to be the server of a store. Raises StartError, with the process that has it.

    It is not the right to send: a program on `Peik.open` may have taken that over while the server was down. The server
    then starts all the same, accepts, and sends again when that program ends.
    """
    path = config.sqlite_path.absolute()
    lock = OwnerLock(path, suffix=".server")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise StartError(
            f"{path.parent} cannot be written: {error.strerror}. Name another file in PEIK_STORE."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _carrier(address: RouteAddress, config: Config) -> BotApiCarrier:
    api_root = address.api_root or config.api_root
    # One connection per call in flight: a bot's calls never queue for a connection behind another's.
    return BotApiCarrier(api_root, connections_max=max(256, config.in_flight * 4), connect=_connect(address, api_root))


def _connect(address: RouteAddress, api_root: str) -> Connect | None:
    """The way through a proxy. None: straight to the API root."""
    if address.kind not in (RouteKind.HTTP, RouteKind.SOCKS5):
        return None
    proxy = Proxy(host=address.host, port=address.port, user=address.user, password=address.password)
    parts = urllib.parse.urlsplit(api_root)
    is_tls = parts.scheme == "https"
    through = through_http if address.kind is RouteKind.HTTP else through_socks5
    return through(
        proxy,
        host=parts.hostname or "",
        port=parts.port or (443 if is_tls else 80),
        ssl_context=ssl.create_default_context() if is_tls else None,
    )


def _build(
    config: Config,
    *,
    events: Events,
    clock: Clock,
    carriers: Sequence[Carrier],
    chance: random.Random,
    poster: Poster,
    store: SqliteStore,
    spool: FolderSpool,
) -> Office:
    terms = Terms(
        in_flight_max=config.in_flight,
        timeout_s=config.timeout,
        upload_timeout_s=config.upload_timeout,
        is_paced=config.pace,
    )
    ways = [
        Route(
            address.name,
            carrier,
            kind=address.kind,
            clock=clock,
            chance=chance,
            events=events,
            probe_token=lambda: courier.probe_token(),
            trial_s=config.route_trial,
            is_watched=len(carriers) > 1,
        )
        for address, carrier in zip(config.routes, carriers, strict=True)
    ]
    routes = Routes(ways, clock=clock, events=events)
    timekeeper = Timekeeper(
        store=store,
        clock=clock,
        events=events,
        retention=Retention(
            completed_ms=int(config.keep_completed * 1000),
            dead_ms=int(config.keep_dead * 1000),
            log_ms=int(config.keep_log * 1000),
        ),
        remove_blobs=spool.remove,
    )

    def make_sender(bot: BotRecord) -> Sender:
        return Sender(bot, store=store, routes=routes, spool=spool, clock=clock, events=events, terms=terms)

    courier = Courier(clock=clock, events=events, make_sender=make_sender, routes=routes, timekeeper=timekeeper)
    store.listen(courier)
    desk = Desk(
        store=store,
        engine=courier,
        clock=clock,
        events=events,
        defaults=Defaults(
            attempts=config.attempts, backoff_ms=config.backoff_ms, hooks_may_be_private=config.hooks_allow_private
        ),
        expect=timekeeper.expect,
    )
    return Office(
        config=config,
        clock=clock,
        desk=desk,
        courier=courier,
        spool=spool,
        events=events,
        store=store,
        keyring=Keyring(store=store, clock=clock, events=events, hooks_may_be_private=config.hooks_allow_private),
        hooks=Hooks(store=store, poster=poster, clock=clock, events=events),
    )


@asynccontextmanager
async def _engine(office: Office, *, is_alone: bool) -> AsyncIterator[None]:
    try:
        async with asyncio.TaskGroup() as group:
            await _start(office, group)
            watching = None if is_alone else group.create_task(_neighbours(office, group).run())
            noting = group.create_task(office.keyring.run())
            try:
                yield
            finally:
                if watching is not None:
                    watching.cancel()  # before the drain: nobody may take over now
                noting.cancel()
                await office.courier.drain(office.config.grace)
                await office.hooks.drain(min(office.config.grace, HOOKS_GRACE_S))
                office.hooks.stop()
                office.courier.stop()
                await _note_keys(office)
    except BaseExceptionGroup as errors:
        # Whoever opened Peik wants to see the one thing that went wrong, as itself.
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


async def _start(office: Office, group: asyncio.TaskGroup) -> None:
    bots = await office.store.bots()
    tokens = [_token(text) for text in office.config.tokens()]
    office.desk.open(bots)
    await office.keyring.refresh()
    if await office.store.claim():
        await _take_over(office, group)
    for token in tokens:
        if all(bot.token != token for bot in bots):
            await office.desk.save_bot(token, inbound=office.config.inbound)


async def _take_over(office: Office, group: asyncio.TaskGroup) -> None:
    """Begin to send: this process owns the store now."""
    office.spool.sweep(await office.store.blobs())
    office.courier.start(office.desk.bots(), group)
    office.hooks.start(group)


async def _note_keys(office: Office) -> None:
    """When keys were last used is known to about a minute; a store that does not answer must not keep us from ending."""
    with contextlib.suppress(StoreUnavailable):
        await office.keyring.note()


def _neighbours(office: Office, group: asyncio.TaskGroup) -> Neighbours:
    async def reread() -> None:
        office.desk.look_again(await office.store.bots())
        office.courier.reread_all()
        await office.keyring.refresh()
        office.hooks.look()

    async def take_over() -> None:
        await reread()
        await _take_over(office, group)

    return Neighbours(store=office.store, clock=office.clock, events=office.events, reread=reread, take_over=take_over)


def _token(text: str) -> Token:
    try:
        return Token(text)
    except Problem as problem:
        raise StartError(f"PEIK_BOT_TOKENS: {problem.detail}") from None


def admin_key(config: Config) -> tuple[str, Path | None]:
    """The key of the REST API, and the file that it was kept in unless it was set."""
    if config.admin_key:
        return config.admin_key, None
    path = config.sqlite_path.with_name(config.sqlite_path.name + ".key")
    if path.is_file():
        return path.read_text(encoding="utf-8").strip(), path
    key = f"peik_{secrets.token_urlsafe(32)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StartError(f"The admin key cannot be kept in {path}: {error.strerror}. Set PEIK_ADMIN_KEY.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(key + "\n")
    return key, path
