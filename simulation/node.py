"""One Peik of the seeded world: production code in a simulated process, started again whenever it has ended."""

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import structlog

from peik.app import rest
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core import events
from peik.core.address import AddressReach
from peik.core.arrival import Arrival
from peik.errors import StartError, Unavailable
from peik.gateway.app import Gateway
from peik.inbox.consumers import Handling
from peik.inbox.delivery import Absent
from peik.inbox.store import PushAnswer
from peik.monitoring.log import EventLog
from peik.outbox.store import Posted
from peik.settings.config import Config
from peik.storage.executor import Finished
from peik.storage.open import AnyStore, store_of
from peik.testing.virtual import VirtualClock
from simulation.network import App, WeatherCarrier
from simulation.processes import OUTSIDE, Process

if TYPE_CHECKING:
    from simulation.world import World

T = TypeVar("T")

RESTART_S = 1.0
RESTART_S_MAX = 60.0
READER = "peik-reader"  # the executor that reads


class SlowExecutor:
    """One piece of work after the other, each after a moment, so that others happen while a commit is under way."""

    def __init__(self, process: Process, chance: random.Random, *, failure: Callable[[], float] = lambda: 0.0) -> None:
        """`failure`: how likely a piece of work is to fail just now, before it begins."""
        self._process = process
        self._chance = chance
        self._failure = failure
        self._loop = asyncio.get_running_loop()
        self._free_at = 0.0

    def run(self, work: Callable[[], T], done: Callable[[Finished[T]], None]) -> None:
        def now() -> None:
            try:
                failure = 0.0 if work.__name__ == "close" else self._failure()
                if failure and self._chance.random() < failure:
                    raise apsw.IOError("disk I/O error")
                ended = Finished(work(), None)
            except BaseException as error:  # noqa: BLE001  it is raised again where the work was asked for
                ended = Finished(None, error)
            if not self._process.is_dead:  # it may have died in the middle of it
                done(ended)

        takes_s = 0.0002 if self._chance.random() < 0.8 else self._chance.uniform(0.001, 0.2)
        self._free_at = max(self._free_at, self._loop.time()) + takes_s
        self._loop.call_at(self._free_at, now)

    def close(self) -> None:
        pass


class _Lines:
    """Log lines as they would be printed, for the world's log."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def msg(self, message: str) -> None:
        self._tell(message)

    debug = info = warning = error = msg


class Node:
    """A place where Peik runs, one process after the other."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.runtime: Runtime | None = None
        self.app: App | None = None
        self.clock: VirtualClock = world.clock
        self.is_apart = False  # from Telegram, while the others are not
        self._lives = 0
        self._served = asyncio.Event()
        self._end: asyncio.Event | None = None
        self._ended: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self.app is not None and self.process is not None and not self.process.is_dead

    async def up(self) -> None:
        """Until it serves."""
        await self._served.wait()

    def start(self) -> None:
        assert self.process is None
        self._lives += 1
        self.process = Process(f"{self.name}.{self._lives}", self.world.loop)
        self.world.note(f"{self.process} starts")
        self.world.judge.began(self.process.name)
        self._end = asyncio.Event()
        self._ended = self.process.start(self._live(self.process, self._end))

    async def _live(self, process: Process, end: asyncio.Event) -> None:
        wait_s = RESTART_S
        carrier = self._carrier(process)
        while not end.is_set():
            try:
                await self._serve(process, end, carrier)
            except (Unavailable, StartError) as error:
                # It could not even start, or not end as it should. Whoever looks after it starts it again.
                self.world.note(f"{process} fails: {error}")
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RESTART_S_MAX)
            except Exception as error:  # noqa: BLE001  nobody would start it again
                if not process.loop.is_closed():  # the world is not over
                    self.world.judge.note(f"{process} ended: {''.join(traceback.format_exception(error))}")
                return

    def _carrier(self, process: Process) -> WeatherCarrier:
        world = self.world
        return WeatherCarrier(
            world.telegram,
            process,
            world.weather,
            chance=world.chance_for(f"wire {process}"),
            tally=world.tally,
            left=world.left,
            told=world.judge.told,
            is_apart=lambda: self.is_apart,
        )

    async def _serve(self, process: Process, end: asyncio.Event, carrier: WeatherCarrier) -> None:
        world = self.world
        told = events.Events()
        told.listen(lambda heard: world.heard(process, heard))
        log = structlog.wrap_logger(
            _Lines(lambda line: world.note(f"{process} {line}")),
            processors=[structlog.processors.LogfmtRenderer(key_order=["event"])],
            wrapper_class=structlog.make_filtering_bound_logger(10),
        )
        told.listen(EventLog(level="debug", log=log, clock=self.clock))
        chance = world.chance_for(f"process {process}")
        async with running(
            world.config(self),
            events=told,
            clock=self.clock,
            carrier=carrier,
            chance=chance,
            executor=lambda name: SlowExecutor(
                process, world.chance_for(f"{name} {process}"), failure=lambda: self._reads_fail(name)
            ),
            poster=_Poster(world, process),
            pusher=_Pusher(world, process),
            must_own=False,
            is_alone=world.is_alone,
            make_store=self.make_store,
            address=f"http://{self.name}.example",
        ) as runtime:
            for bot in world.programs:
                if bot.kind == "handlers" and world.has_handlers(self):
                    runtime.inbox.consumers.handle(
                        bot.bot_id, "default", Handling(handle=self._handler(bot), allowed=None)
                    )
            self.runtime, self.app = runtime, Gateway(runtime, rest.build(runtime, world.key), keeps_files=False)
            self._served.set()
            world.note(f"{process} serves")
            try:
                await end.wait()
            finally:
                self.runtime = self.app = None
                self._served.clear()

    def _reads_fail(self, executor: str) -> float:
        return self.world.disk.reading_failure() if executor == READER else 0.0

    def make_store(self, config: Config, **how: Any) -> AnyStore:
        """What it opens as its store."""
        return store_of(config, **how)

    def _handler(self, program: Any) -> Callable[[Arrival, int], Any]:
        async def handle(arrival: Arrival, tries: int) -> None:
            if not program.is_up:
                raise Absent("the program is away")
            await program.handle(self, arrival.number, bytes(arrival.wire()))

        return handle

    def kill(self) -> None:
        """The end of it, in the middle of whatever it does."""
        process = self.process
        if process is None:
            return
        self.world.disk.kill(process.name)
        self.died(process)

    def died(self, process: Process) -> None:
        """None of its code runs from now on. What it held is taken from it when nothing of it is on the stack any more."""
        self.world.note(f"{process} dies")
        process.kill()
        if self.process is process:
            self.forget()
        self.world.dead.append(process)
        self.world.loop.call_soon(process.bury, context=OUTSIDE)

    def forget(self) -> None:
        self.process = self.runtime = self.app = None
        self._served.clear()

    async def stop(self) -> None:
        """A graceful end, as after a signal. A process that does not come to it is killed."""
        if self.process is None or self._end is None or self._ended is None:
            return
        process, ended = self.process, self._ended
        self.world.note(f"{process} is told to end")
        process.tell(self._end.set)
        await asyncio.wait([ended], timeout=120.0)
        if process.is_dead:
            return
        if not ended.done():
            self.world.judge.note(f"{process} did not end within two minutes")
            self.kill()
            return
        if not ended.cancelled() and ended.exception() is not None:
            self.world.judge.note(f"{process} ended with {ended.exception()!r}")
        process.is_dead = True
        process.bury()
        self.forget()


class _Poster:
    """Takes word of ended letters from one process to whoever wanted to hear it."""

    def __init__(self, world: "World", process: Process) -> None:
        self._world = world
        self._process = process

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> Posted:
        take = partial(self._world.take_post, url, body)
        return await _carried(self._world, self._process, take, timeout_s) or Posted(why="no answer in time")


class _Pusher:
    """Takes updates from one process to the bots' own webhooks."""

    def __init__(self, world: "World", process: Process) -> None:
        self._world = world
        self._process = process

    async def push(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> PushAnswer:
        take = partial(self._world.take_push, url, body)
        return await _carried(self._world, self._process, take, timeout_s) or PushAnswer(why="no answer in time")

    async def close(self) -> None: ...


async def _carried(
    world: "World", process: Process, take: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]], timeout_s: float
) -> T | None:
    """What the outside answers; None if it does not in time."""
    answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def tell(answer: T) -> None:
        process.tell(lambda: None if answered.done() else answered.set_result(answer))

    world.outside(take(tell))
    try:
        async with asyncio.timeout(timeout_s):
            return await answered
    except TimeoutError:
        return None
