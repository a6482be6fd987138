"""What a Peik that is built does from its start to its end. It opens and closes nothing: see `app`."""

import asyncio
import contextlib
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from peik.accounts.wiring import MakeArchive, MakeBudget, MakeClients, kit_of
from peik.app.build import build, custodian_of
from peik.app.context import Context
from peik.app.node import Node
from peik.app.runtime import Runtime
from peik.clock import Clock, SettledClock, SystemClock
from peik.core.events import Events, StoreUpgraded
from peik.core.nodes import CHORES
from peik.errors import StartError, StoreUnavailable
from peik.inbox.service import Recovery
from peik.inbox.store import PushPort
from peik.jobs.store import JobKinds
from peik.monitoring.figures import LATE_MINUTES
from peik.notifications.wiring import BotNames
from peik.outbox.store import BotRecord, Poster
from peik.outbox.wiring import tokens_of
from peik.secrets.seals import BAD_KEY
from peik.settings.config import Config
from peik.settings.values import RouteAddress, StoreKind
from peik.storage.executor import Executor, ThreadExecutor
from peik.storage.open import AnyStore, store_of
from peik.storage.shared_spool import SharedSpool
from peik.storage.spool import FolderSpool, SpoolPort
from peik.storage.sqlite.database import OwnerLock
from peik.telegram.port import Carrier
from peik.telegram.wiring import carrier_to, poster_of, pusher_of

MEND_AFTER_S = 60.0 * (LATE_MINUTES + 1)
HOOKS_GRACE_S = 5.0  # for webhooks on their way when Peik ends; what does not come back is told again


@asynccontextmanager
async def alive(runtime: Runtime, *, is_alone: bool) -> AsyncIterator[None]:
    """`is_alone`: see `peik.app.lifetime.running`."""
    try:
        async with asyncio.TaskGroup() as group:
            lifetime = Lifetime(runtime, group, is_alone=is_alone)
            await lifetime.begin()
            try:
                yield
            finally:
                await lifetime.end()
    except BaseExceptionGroup as errors:
        # The caller that opened Peik wants to see the one thing that went wrong, as itself.
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


class Lifetime:
    """Who runs from the start to the end, and in which order they end."""

    def __init__(self, runtime: Runtime, group: asyncio.TaskGroup, *, is_alone: bool) -> None:
        self._runtime = runtime
        self._group = group
        self._is_alone = is_alone
        self._node = Node(runtime, group)

    async def begin(self) -> None:
        runtime, run = self._runtime, self._group.create_task
        await _start(runtime, self._node, self._group)
        self._beating = run(runtime.outbox.leases.run())
        self._following = None if self._is_alone else run(self._node.follow())
        self._copying = None
        if runtime.outbox.log_copy is not None:
            await runtime.outbox.log_copy.open()
            self._copying = run(runtime.outbox.log_copy.run())
        self._noting = run(runtime.keyring.run())
        self._sealing = run(runtime.secrets.run()) if runtime.secrets.is_waiting else None
        self._alerting = run(runtime.watch.alerts.run())
        self._counting = [
            run(runtime.watch.figures.run()),
            run(runtime.watch.standings.run()),
            run(_mend_figures(runtime)),
        ]
        if not self._is_alone:  # looks four times a minute, for all of a virtual month
            names = BotNames(
                runtime.outbox.service,
                runtime.outbox.courier.routes,
                runtime.clock,
                is_meant=lambda: runtime.outbox.leases.holds(CHORES),
            )
            self._counting += [run(runtime.watch.rounds.run()), run(runtime.watch.clock.run()), run(names.run())]
        self._chores = await runtime.jobs.workers.start(self._group)
        runtime.notifications.contacts.start(self._group)
        runtime.notifications.contacts.look()

    async def end(self) -> None:
        """What is being sent or delivered gets the grace to end; nothing new is taken meanwhile."""
        grace_s = self._runtime.config.grace
        await self._stop_working(grace_s)
        await self._stop_receiving()
        await self._drain(grace_s)
        await self._stop_looking()

    async def _stop_working(self, grace_s: float) -> None:
        runtime = self._runtime
        if self._following is not None:
            self._following.cancel()
        await runtime.jobs.workers.stop(grace_s)  # while what they send is still taken
        for chore in self._chores:
            chore.cancel()
        await runtime.watch.clock.close()  # while the chores are this node's
        await runtime.outbox.leases.drain(grace_s)
        self._beating.cancel()  # before the drain of a whole store: nothing may be taken over now
        runtime.outbox.leases.stop()
        self._noting.cancel()
        if self._sealing is not None:
            self._sealing.cancel()
        runtime.notifications.contacts.stop()
        runtime.notifications.releases.stop()
        runtime.broadcasts.engine.stop()
        runtime.schedules.engine.stop()
        if runtime.backups is not None:
            runtime.backups.stop()
        runtime.eraser.stop()

    async def _stop_receiving(self) -> None:
        runtime = self._runtime
        await runtime.inbox.receiver.stop()  # first: from now on nothing comes in that nobody would deliver
        runtime.inbox.outages.stop()
        runtime.inbox.upkeep.stop()
        self._node.stop()
        runtime.inbox.service.end()

    async def _drain(self, grace_s: float) -> None:
        """Handlers may still send while they end, so the courier is the last to stop."""
        runtime = self._runtime
        began_at = runtime.clock.mono()
        await runtime.inbox.consumers.drain(grace_s)
        left_s = grace_s - (runtime.clock.mono() - began_at)
        await runtime.outbox.courier.drain(max(left_s, min(grace_s, HOOKS_GRACE_S)))
        if runtime.accounts is not None:
            await runtime.accounts.end()  # their letters have had their time
        runtime.outbox.ways.stop()
        await runtime.outbox.hooks.drain(min(grace_s, HOOKS_GRACE_S))
        runtime.outbox.hooks.stop()
        runtime.outbox.timekeeper.stop()
        runtime.outbox.courier.stop()
        runtime.inbox.consumers.stop()

    async def _stop_looking(self) -> None:
        runtime = self._runtime
        self._alerting.cancel()
        if self._copying is not None and runtime.outbox.log_copy is not None:
            self._copying.cancel()
            await asyncio.wait([self._copying])
            await runtime.outbox.log_copy.close()
        for one in self._counting:
            one.cancel()
        await runtime.watch.figures.close()
        await runtime.watch.standings.close()
        await _note_keys(runtime)
        await runtime.inbox.service.close()


async def _start(runtime: Runtime, node: Node, group: asyncio.TaskGroup) -> None:
    bots = await bots_of(runtime.store)
    await runtime.watch.clock.begin()
    tokens = tokens_of(runtime.config)
    runtime.outbox.service.open(bots)
    runtime.outbox.courier.open(group)
    runtime.outbox.ways.open(group)
    runtime.inbox.receiver.open(group)
    runtime.inbox.outages.open(group, node.served)
    runtime.inbox.service.open(group)
    await runtime.keyring.refresh()
    await runtime.outbox.leases.open(node, group)
    if tokens and runtime.config.inbound == "webhook" and runtime.config.public_url is None:
        raise StartError("PEIK_INBOUND=webhook needs PEIK_PUBLIC_URL: where Telegram can reach this Peik.")
    kept = {bot.bot_id: bot.token for bot in bots}
    for token in tokens:
        if kept.get(token.bot_id) != token or await runtime.outbox.service.guests.has(token.bot_id):
            known = runtime.outbox.service.known(token.bot_id)  # under another token: how its updates come in stays
            await runtime.outbox.service.save_bot(
                token, inbound=runtime.config.inbound if known is None else known.inbound
            )
    runtime.inbox.consumers.start(group)
    if runtime.accounts is not None:
        runtime.accounts.begin(group)


async def _mend_figures(runtime: Runtime) -> None:
    """Once, by who has the chores. Where others live they have the time to file what they counted until this node came."""
    if runtime.store.nodes.lease_s is not None:
        await asyncio.sleep(MEND_AFTER_S)
    is_mended = False
    while not is_mended and runtime.outbox.leases.holds(CHORES):
        try:
            await runtime.watch.figures.mend(
                lambda since_ms, until_ms: runtime.store.ended_by_minute(since_ms=since_ms, until_ms=until_ms)
            )
            is_mended = True
        except StoreUnavailable:
            await asyncio.sleep(MEND_AFTER_S)


async def bots_of(store: AnyStore) -> list[BotRecord]:
    """Raises StartError if their tokens are sealed and there is no key for them."""
    try:
        return await store.bots()
    except StoreUnavailable as problem:
        if problem.code not in BAD_KEY:
            raise
        raise StartError(problem.detail) from None


async def _note_keys(runtime: Runtime) -> None:
    """When keys were last used is known to about a minute; a store that does not answer must not keep us from ending."""
    with contextlib.suppress(StoreUnavailable):
        await runtime.keyring.note()


# Opens Peik and closes it. What it is built of is in `peik.app.build`.


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
    pusher: PushPort | None = None,
    must_own: bool = True,
    is_alone: bool = False,
    address: str | None = None,
    make_store: Callable[..., AnyStore] = store_of,
    make_clients: MakeClients | None = None,
    make_archive: MakeArchive | None = None,
    make_budget: MakeBudget | None = None,
    job_kinds: JobKinds | None = None,
) -> AsyncIterator[Runtime]:
    """Peik from open to close. On the way out it stops taking letters and gives those in flight the grace to end.

    Each route of the settings has a carrier of its own, from `make_carrier`; `carrier` stands for all of them.
    While another process owns a SQLite file, StartError is raised; or, without `must_own`, letters are accepted here and
    sent there, until that process ends and this one takes over. `is_alone` promises that no other process has the file:
    nobody looks for its writes then, twice a second for all of a virtual month. `address` is where others find its HTTP server
    of this node. `make_clients` makes the connections of accounts, `make_archive` their archive; by default the settings do.
    `make_budget` says how often accounts ask.
    Jobs of `job_kinds` are done by this process.
    """
    clock = clock or SystemClock()
    events = events or Events()
    chance = chance or random.Random()
    files = Files(config)
    kit = await kit_of(
        config, clock=clock, make_clients=make_clients, make_archive=make_archive, make_budget=make_budget
    )
    loop, tell = asyncio.get_running_loop(), events.tell
    store = make_store(
        config,
        clock=clock,
        must_own=must_own,
        address=address,
        executor=executor,
        on_blobs_freed=files.remove,
        on_upgrade=lambda words: loop.call_soon_threadsafe(tell, StoreUpgraded(words=words)),
    )
    await store.open()
    spool = files.open(store)
    pusher = pusher or pusher_of(config)
    make_carrier = make_carrier or carrier_to
    carriers = [carrier or make_carrier(address, config) for address in config.routes]
    runtime: Runtime | None = None
    try:
        custodian = custodian_of(config, store, clock=clock, events=events)
        await custodian.begin()
        runtime = build(
            _context(config, clock=clock, chance=chance, events=events, store=store, spool=spool),
            carriers=carriers,
            poster=poster or poster_of(config),
            pusher=pusher,
            kit=kit,
            job_kinds=job_kinds,
            custodian=custodian,
        )
        async with alive(runtime, is_alone=is_alone):
            yield runtime
    finally:
        if runtime is not None:
            await runtime.outbox.ways.close()
            if runtime.accounts is not None:
                await runtime.accounts.close()
        await pusher.close()
        await asyncio.gather(*(each.close() for each in carriers))
        await spool.close()
        await store.close()


async def recover_once(
    config: Config, bot_id: int, *, clock: Clock | None = None, carrier: Carrier | None = None
) -> Recovery:
    """One pass over everything that Telegram has kept for a bot, by a process that does nothing else with the store.

    Raises StartError if another process owns the store, Conflict if another program stands in the way, Unavailable if
    Telegram or the store cannot be reached.
    """
    clock = clock or SystemClock()
    files = Files(config)
    store = store_of(config, clock=clock, must_own=True, on_blobs_freed=files.remove)
    await store.open()
    spool = files.open(store)
    carriers = [carrier or carrier_to(address, config) for address in config.routes]
    try:
        context = _context(config, clock=clock, chance=random.Random(), events=Events(), store=store, spool=spool)
        runtime = build(context, carriers=carriers, poster=poster_of(config), pusher=pusher_of(config))
        runtime.outbox.service.open(await bots_of(store))
        async with asyncio.TaskGroup() as group:
            # An outage that ends with this pass is noted, so that the next start settles it.
            runtime.inbox.outages.open(group, list)
            watching = group.create_task(runtime.outbox.courier.routes.run())
            try:
                return await runtime.inbox.receiver.recover(runtime.outbox.service.bot(bot_id))
            finally:
                watching.cancel()
                runtime.inbox.outages.stop()
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise
    finally:
        await asyncio.gather(*(each.close() for each in carriers))
        await spool.close()
        await store.close()


def _context(
    config: Config, *, clock: Clock, chance: random.Random, events: Events, store: AnyStore, spool: SpoolPort
) -> Context:
    settled = SettledClock(clock, settles_s=config.clock_settles)
    return Context(config=config, clock=clock, settled=settled, chance=chance, events=events, store=store, spool=spool)


class Files:
    """Where the files of letters lie: beside the database, in a folder that all nodes share, or in the store itself."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._spool: SpoolPort | None = None

    def open(self, store: AnyStore) -> SpoolPort:
        folder = self._config.files or self._config.beside(".files")
        if store.files is None or self._config.files is not None:
            self._spool = FolderSpool(folder)
        else:
            self._spool = SharedSpool(folder, store.files, bytes_max=self._config.files_in_store)
        return self._spool

    def remove(self, blobs: Sequence[str]) -> None:
        if self._spool is not None:
            self._spool.remove(blobs)


# What the server of a store has that other programs on it have not: the right to be it, and the admin key.


@contextmanager
def only_server(config: Config, *, handed: int | None = None) -> Iterator[OwnerLock | None]:
    """The right to be the server of a store; none is needed where there are nodes. Raises StartError, with the process that has
    it. `handed`: an open file, by which the process that has it shares it with this one.

    It is not the right to send: a program on `Peik.open` may have taken that over while the server was down. The server
    then starts all the same, accepts, and sends again when that program ends.
    """
    if config.store_kind is not StoreKind.SQLITE:
        yield None
        return
    path = config.sqlite_path.absolute()
    lock = OwnerLock(path, suffix=".server")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if handed is None:
            lock.acquire()
        else:
            lock.adopt(handed)
    except OSError as error:
        raise StartError(
            f"{path.parent} cannot be written: {error.strerror}. Name another file in PEIK_STORE."
        ) from None
    try:
        yield lock
    finally:
        lock.release()


async def admin_key(config: Config, store: AnyStore) -> tuple[str, Path | None]:
    """The key of the REST API, and the file that it was kept in unless it was set. All nodes of a server have the same."""
    if config.admin_key:
        return config.admin_key, None
    path = config.beside(".key")
    made = f"peik_{secrets.token_urlsafe(32)}"
    if config.store_kind is not StoreKind.SQLITE:
        made = await store.secret("admin_key", made)
    if path.is_file():
        key = _kept_key(path)
        if key == made or config.store_kind is StoreKind.SQLITE:
            return key, path
        path.unlink()  # of another store
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StartError(f"The admin key cannot be kept in {path}: {error.strerror}. Set PEIK_ADMIN_KEY.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(made + "\n")
    return made, path


def _kept_key(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StartError(
            f"The admin key in {path} cannot be read: {why}. Start Peik as the user it belongs to, or set PEIK_ADMIN_KEY."
        ) from None
