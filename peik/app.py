"""Opens Peik, drains it and closes it. What it is built of is in `building`."""

import asyncio
import contextlib
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from peik.building import Office as Office
from peik.building import build, carrier_to
from peik.building_inbox import token_of
from peik.carrier.poster import HttpPoster
from peik.carrier.pusher import HttpPusher
from peik.clock import Clock, SystemClock
from peik.config import Config, RouteAddress
from peik.engine.neighbours import Neighbours
from peik.errors import StartError, StoreUnavailable
from peik.events import Events
from peik.inbox.desk import Recovery
from peik.inbox_ports import Pusher
from peik.ports import Carrier, Poster
from peik.store.database import OwnerLock
from peik.store.executor import Executor, ThreadExecutor
from peik.store.spool import FolderSpool
from peik.store.sqlite import SqliteStore

HOOKS_GRACE_S = 5.0  # for webhooks on their way when Peik ends; what does not come back is told again


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
    pusher: Pusher | None = None,
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
    pusher = pusher or HttpPusher()
    make_carrier = make_carrier or carrier_to
    carriers = [carrier or make_carrier(address, config) for address in config.routes]
    try:
        office = build(
            config,
            events=events,
            clock=clock,
            carriers=carriers,
            chance=chance,
            poster=poster or HttpPoster(may_be_private=config.hooks_allow_private),
            pusher=pusher,
            store=store,
            spool=spool,
        )
        async with _engine(office, is_alone=is_alone):
            yield office
    finally:
        await pusher.close()
        await asyncio.gather(*(each.close() for each in carriers))
        await store.close()


async def recover_once(
    config: Config, bot_id: int, *, clock: Clock | None = None, carrier: Carrier | None = None
) -> Recovery:
    """One pass over everything that Telegram has kept for a bot, by a process that does nothing else with the store.

    Raises StartError if another process owns the store, Conflict if another program stands in the way, Unavailable if
    Telegram or the store cannot be reached.
    """
    clock = clock or SystemClock()
    path = config.sqlite_path.absolute()
    spool = FolderSpool(path.with_name(path.name + ".files"))
    store = SqliteStore(path, clock=clock, is_owner=True, executor=ThreadExecutor, on_blobs_freed=spool.remove)
    await store.open()
    carriers = [carrier or carrier_to(address, config) for address in config.routes]
    try:
        office = build(
            config,
            events=Events(),
            clock=clock,
            carriers=carriers,
            chance=random.Random(),
            poster=HttpPoster(may_be_private=config.hooks_allow_private),
            pusher=HttpPusher(),
            store=store,
            spool=spool,
        )
        office.desk.open(await store.bots())
        async with asyncio.TaskGroup() as group:
            # An outage that ends with this pass is noted, so that the next start settles it.
            await office.outages.start([], group)
            watching = group.create_task(office.courier.routes.run())
            try:
                return await office.receiver.recover(office.desk.bot(bot_id))
            finally:
                watching.cancel()
                office.outages.stop()
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise
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


@asynccontextmanager
async def _engine(office: Office, *, is_alone: bool) -> AsyncIterator[None]:
    try:
        async with asyncio.TaskGroup() as group:
            await _start(office, group)
            watching = None if is_alone else group.create_task(_neighbours(office, group).run())
            noting = group.create_task(office.keyring.run())
            alerting = group.create_task(office.alerts.run())
            try:
                yield
            finally:
                if watching is not None:
                    watching.cancel()  # before the drain: nobody may take over now
                noting.cancel()
                await office.receiver.stop()  # first: from now on nothing comes in that nobody would hand on
                office.outages.stop()
                office.upkeep.stop()
                office.inbox.end()
                # Handlers may still send while they end, so the courier is the last to stop.
                began_at = office.clock.mono()
                await office.consumers.drain(office.config.grace)
                left_s = office.config.grace - (office.clock.mono() - began_at)
                await office.courier.drain(max(left_s, min(office.config.grace, HOOKS_GRACE_S)))
                await office.hooks.drain(min(office.config.grace, HOOKS_GRACE_S))
                office.hooks.stop()
                office.courier.stop()
                office.consumers.stop()
                alerting.cancel()
                await _note_keys(office)
                await office.inbox.close()
    except BaseExceptionGroup as errors:
        # Whoever opened Peik wants to see the one thing that went wrong, as itself.
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


async def _start(office: Office, group: asyncio.TaskGroup) -> None:
    bots = await office.store.bots()
    tokens = [token_of(text) for text in office.config.tokens()]
    office.desk.open(bots)
    office.courier.open(group)
    await office.keyring.refresh()
    if await office.store.claim():
        await _take_over(office, group)
    else:
        await office.outages.start([], group)
    if tokens and office.config.inbound == "webhook" and office.config.public_url is None:
        raise StartError("PEIK_INBOUND=webhook needs PEIK_PUBLIC_URL: where Telegram can reach this Peik.")
    for token in tokens:
        if all(bot.token != token for bot in bots):
            known = office.desk.known(token.bot_id)  # under another token: how its updates come in stays
            await office.desk.save_bot(token, inbound=office.config.inbound if known is None else known.inbound)
    office.consumers.start(group)


async def _take_over(office: Office, group: asyncio.TaskGroup) -> None:
    """Begin to send: this process owns the store now."""
    office.spool.sweep(await office.store.blobs())
    office.courier.start(office.desk.bots(), group)
    office.hooks.start(group)
    await office.outages.start(office.desk.bots(), group)
    office.outages.look_after(office.desk.bots)
    office.upkeep.start(group)
    office.receiver.start(office.desk.bots(), group)
    office.consumers.own()


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
        await office.inbox.look()
        if not office.store.is_owner:
            await office.outages.look(office.consumers.handled_bots())  # before its arrivals are seen
        office.consumers.look()

    async def take_over() -> None:
        await reread()
        await _take_over(office, group)

    return Neighbours(store=office.store, clock=office.clock, events=office.events, reread=reread, take_over=take_over)


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
