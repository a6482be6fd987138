"""Opens Peik and closes it. What it is built of is in `building`, what it does meanwhile in `lifetime`."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from peik.building import build, custodian_of
from peik.building_ground import Ground
from peik.building_routes import carrier_to, poster_of, pusher_of
from peik.building_sessions import MakeArchive, MakeClients, kit_of
from peik.carrier_ports import Carrier
from peik.clock import Clock, SettledClock, SystemClock
from peik.config import Config
from peik.events import Events
from peik.hook_ports import Poster
from peik.inbox.desk import Recovery
from peik.inbox_ports import Pusher
from peik.jobs.kinds import Kinds
from peik.lifetime import alive, bots_of
from peik.office import Office as Office
from peik.settings_values import RouteAddress
from peik.store.choosing import AnyStore, store_of
from peik.store.executor import Executor, ThreadExecutor
from peik.store.shared_spool import SharedSpool
from peik.store.spool import FolderSpool, Spool


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
    address: str | None = None,
    make_store: Callable[..., AnyStore] = store_of,
    make_clients: MakeClients | None = None,
    make_archive: MakeArchive | None = None,
    job_kinds: Kinds | None = None,
) -> AsyncIterator[Office]:
    """Peik from open to close. On the way out it stops taking letters and gives those in flight the grace to end.

    Each route of the settings has a carrier of its own, from `make_carrier`; `carrier` stands for all of them.
    While another process owns a SQLite file, StartError is raised; or, without `must_own`, letters are accepted here and
    sent there, until that process ends and this one takes over. `is_alone` promises that no other process has the file:
    nobody looks for its writes then, twice a second for all of a virtual month. `address` is where others find the doors
    of this node. `make_clients` makes the connections of accounts, `make_archive` their archive; by default the settings do.
    Jobs of `job_kinds` are done by this process.
    """
    clock = clock or SystemClock()
    events = events or Events()
    chance = chance or random.Random()
    files = Files(config)
    kit = await kit_of(config, clock=clock, make_clients=make_clients, make_archive=make_archive)
    store = make_store(
        config, clock=clock, must_own=must_own, address=address, executor=executor, on_blobs_freed=files.remove
    )
    await store.open()
    spool = files.open(store)
    pusher = pusher or pusher_of(config)
    make_carrier = make_carrier or carrier_to
    carriers = [carrier or make_carrier(address, config) for address in config.routes]
    office: Office | None = None
    try:
        custodian = custodian_of(config, store, clock=clock, events=events)
        await custodian.begin()
        office = build(
            _ground(config, clock=clock, chance=chance, events=events, store=store, spool=spool),
            carriers=carriers,
            poster=poster or poster_of(config),
            pusher=pusher,
            kit=kit,
            job_kinds=job_kinds,
            custodian=custodian,
        )
        async with alive(office, is_alone=is_alone):
            yield office
    finally:
        if office is not None:
            await office.ways.close()
            if office.sessions is not None:
                await office.sessions.close()
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
        ground = _ground(config, clock=clock, chance=random.Random(), events=Events(), store=store, spool=spool)
        office = build(ground, carriers=carriers, poster=poster_of(config), pusher=pusher_of(config))
        office.desk.open(await bots_of(store))
        async with asyncio.TaskGroup() as group:
            # An outage that ends with this pass is noted, so that the next start settles it.
            office.outages.open(group, list)
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
        await spool.close()
        await store.close()


def _ground(
    config: Config, *, clock: Clock, chance: random.Random, events: Events, store: AnyStore, spool: Spool
) -> Ground:
    settled = SettledClock(clock, settles_s=config.clock_settles)
    return Ground(config=config, clock=clock, settled=settled, chance=chance, events=events, store=store, spool=spool)


class Files:
    """Where the files of letters lie: beside the database, in a folder that all nodes share, or in the store itself."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._spool: Spool | None = None

    def open(self, store: AnyStore) -> Spool:
        folder = self._config.files or self._config.beside(".files")
        if store.files is None or self._config.files is not None:
            self._spool = FolderSpool(folder)
        else:
            self._spool = SharedSpool(folder, store.files, bytes_max=self._config.files_in_store)
        return self._spool

    def remove(self, blobs: Sequence[str]) -> None:
        if self._spool is not None:
            self._spool.remove(blobs)
