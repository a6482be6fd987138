"""A Peik that can die, on a disk that can fail, before a Telegram that is watched: whenever it forgets an update, a witness
looks into the store's file. What happens to them is in `fate`.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw

from peik import events
from peik.app import running
from peik.building import Office
from peik.config import load
from peik.core.arrival import Update, read_update
from peik.errors import NotFound, Problem, Unavailable
from peik.inbox.desk import Recovery
from peik.ports import Request
from peik.store.executor import Ended
from peik.testing import Telegram
from peik.testing.deliveries import PushResult
from peik.testing.pushes import Push
from peik.testing.simcarrier import SimCarrier
from peik.testing.updates import Event, QueueId, UpdateQueue
from peik.testing.virtual import VirtualClock
from tests.engine.story import BOT, TOKEN

PUBLIC = "https://peik.example.com"
LATENCY_S = 0.05

T = TypeVar("T")


# ---- the disk ----


class Disk:
    """What becomes of commits. It is dead when its process is: nothing is written any more."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.fails: float = 0.0  # how likely a commit is to fail
        self.is_dead = False

    def watch(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._before

    def _before(self, cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
        if self.is_dead:
            raise apsw.IOError("the process is dead")
        if sql == "BEGIN IMMEDIATE" and self._chance.random() < self.fails / 3:
            raise apsw.BusyError("simulated")
        if sql == "COMMIT" and self._chance.random() < self.fails:
            raise apsw.FullError("simulated")
        return True

    def after(self, value: T) -> T:
        """Now and then all of a commit is on the disk, and SQLite says that it is not."""
        is_commit = isinstance(value, list) and any(isinstance(one, Ended) for one in value)
        if is_commit and (self.is_dead or self._chance.random() < self.fails / 3):
            return [Ended(None, apsw.IOError("simulated")) for _ in value]  # type: ignore[return-value]
        return value


class SlowExecutor:
    """One piece of work after the other, each after a moment, so that others happen while a commit is under way."""

    def __init__(self, chance: random.Random, disk: Disk) -> None:
        self._chance = chance
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self._free_at = 0.0
        self._is_closed = False
        self._timers: deque[asyncio.TimerHandle] = deque(maxlen=1000)

    def run(self, work: Callable[[], T], done: Callable[[Ended[T]], None]) -> None:
        def now() -> None:
            try:
                ended = Ended(self._disk.after(work()), None)
            except BaseException as error:  # noqa: BLE001  it is raised again where the work was asked for
                ended = Ended(None, error)
            done(ended)

        if self._is_closed:
            return
        takes_s = 0.0002 if self._chance.random() < 0.7 else self._chance.uniform(0.001, 0.2)
        self._free_at = max(self._free_at, self._loop.time()) + takes_s
        self._timers.append(self._loop.call_at(self._free_at, now))

    def close(self) -> None:
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()


# ---- Telegram ----


class WatchedQueue(UpdateQueue):
    """Telegram's queue of a bot. Whatever an offset deletes must be durable at that very moment."""

    def __init__(self, chance: random.Random, is_durable: Callable[[Event], bool]) -> None:
        super().__init__(chance)
        self._is_durable = is_durable
        self._is_confirming = False
        self.all: list[Event] = []
        self.given_up: set[int] = set()  # places in `all` of what Telegram itself let go
        self.unsafe: list[str] = []

    def push(
        self, kind: str, payload: bytes, *, now: float, expires_at: float, queue_id: QueueId | None
    ) -> Event | None:
        event = super().push(kind, payload, now=now, expires_at=expires_at, queue_id=queue_id)
        if event is not None:
            self.all.append(event)
        return event

    def drop(self, event: Event) -> None:
        if not event.is_gone and not self._is_durable(event):
            if self._is_confirming:
                self.unsafe.append(f"{event.id} was confirmed, and is not stored")
            self.given_up.add(id(event))
        super().drop(event)

    def _delete_below(self, offset: int) -> None:
        with self._confirming():
            super()._delete_below(offset)

    def clear(self, *, keep: int = 0) -> None:
        with self._confirming():
            super().clear(keep=keep)

    @contextlib.contextmanager
    def _confirming(self) -> Iterator[None]:
        self._is_confirming = True
        yield
        self._is_confirming = False


class MortalCarrier(SimCarrier):
    """Its process can die: then nothing leaves any more, and nothing is heard."""

    is_dead = False

    def start(self, request: Request, done: Any) -> None:
        if not self.is_dead:
            super().start(request, lambda reply: None if self.is_dead else done(reply))


# ---- the life ----


class Life:
    """One process."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.disk = Disk(world.chance)
        self.office: Office | None = None
        self.asking: list[asyncio.Future[Recovery]] = []
        self._end = asyncio.Event()
        self._carrier = MortalCarrier(world.telegram, latency_s=LATENCY_S)
        self._task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        world = self._world
        told = events.Events()
        told.listen(lambda told: None if self.disk.is_dead else world.told.extend(told))
        while not self._end.is_set():
            try:
                await self._serve(told)
            except Unavailable:
                # It could not even start. Whoever looks after it starts it again.
                assert self.office is None
                await asyncio.sleep(1.0)

    async def _serve(self, told: events.Events) -> None:
        world = self._world
        async with running(
            world.config(),
            events=told,
            clock=world.clock,
            carrier=self._carrier,
            chance=random.Random(world.chance.random()),
            executor=lambda name: SlowExecutor(world.chance, self.disk),
            must_own=world.processes == 1,
            is_alone=world.processes == 1,
        ) as office:
            self.disk.watch(office.store._connection)
            self.office = office
            await self._end.wait()

    async def close(self) -> None:
        self._end.set()
        await self._hang_up()
        await self._task

    async def _hang_up(self) -> None:
        """Whoever waits for an answer of this process."""
        for one in self.asking:
            one.cancel()
        for ended in await asyncio.gather(*self.asking, return_exceptions=True):
            assert isinstance(ended, Recovery | Problem | asyncio.CancelledError), ended

    async def crash(self) -> None:
        self.disk.is_dead = self._carrier.is_dead = True
        self.office = None
        await self._hang_up()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, apsw.IOError, Unavailable):
            await self._task

    async def born(self) -> Office:
        while self.office is None:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.01)
        return self.office


class World:
    def __init__(self, clock: VirtualClock, folder: Path, seed: int) -> None:
        self.clock = clock
        self.chance = random.Random(seed)
        self.folder = folder
        self.path = folder / "peik.db"
        self.settings = {
            "inbound": self.chance.choice(["polling", "polling", "webhook"]),
            "missed": self.chance.choice(["process", "notify", "both", "drop"]),
        }
        self.processes = self.chance.choice([1, 1, 1, 2])  # on one file: the second takes over when the first dies
        self.lives: list[Life] = []
        self.token = TOKEN
        began_s = clock.wall_s() - clock.mono()
        # Telegram's clock goes its own way: ours may jump.
        self.telegram = Telegram(now=lambda: began_s + clock.mono(), chance=random.Random(seed + 1))
        self.queue = WatchedQueue(random.Random(seed + 2), self.is_durable)
        self.telegram.bot(TOKEN).queue = self.queue
        self.told: list[events.Event] = []
        self.story: list[str] = []
        self.said = 0
        self._database: apsw.Connection | None = None
        self._pushes_bell = asyncio.Event()
        self.telegram.updated = lambda bot: self._pushes_bell.set()
        self.answers_lost = 0.0  # how likely it is that Telegram does not hear what a push was answered with
        self.pushes_lost = 0.0  # … or that a push does not reach the door

    def config(self) -> Any:
        flags = {
            "store": f"sqlite:///{self.path}",
            "bot_tokens": self.token,
            "public_url": PUBLIC,
            "grace": "1s",
            **self.settings,
        }
        return load(flags, environment={}, folder=self.folder)

    def office(self) -> Office | None:
        """One of those that are open."""
        offices = [life.office for life in self.lives if life.office is not None]
        return self.chance.choice(offices) if offices else None

    def note(self, what: str) -> None:
        self.story.append(f"{self.clock.mono():12.2f} {what}")

    # ---- the witness ----

    def is_durable(self, event: Event) -> bool:
        return bool(self.rows_of(read_update(event.body)))

    def rows_of(self, update: Update) -> list[int]:
        sql = "SELECT number FROM arrivals WHERE bot_id = ? AND lane = ? AND digest = ? AND replay_of IS NULL"
        return self.look(sql, BOT, update.lane, update.digest)

    def look(self, sql: str, *values: object) -> list[Any]:
        """What one column of the store holds at this moment."""
        if self._database is None:
            # By the same SQLite as Peik's: two of them in one process do not see each other's locks.
            self._database = apsw.Connection(str(self.path))
        if not self._database.execute("PRAGMA user_version").fetchone()[0]:  # type: ignore[index]
            return []  # a process that died before it had made a single table
        return [row[0] for row in self._database.execute(sql, values).fetchall()]  # type: ignore[arg-type]

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    # ---- Telegram pushes ----

    async def push_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                for push in self.telegram.pushes_due():
                    group.create_task(self._push(push))
                next_at = self.telegram.next_push_at()
                wait_s = None if next_at is None else max(0.001, next_at - self.telegram.now())
                self._pushes_bell.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._pushes_bell.wait()

    async def _push(self, push: Push) -> None:
        await asyncio.sleep(LATENCY_S / 2)
        life = self.chance.choice(self.lives) if self.lives else None
        result = await self._answer(push, None if life is None else life.office)
        await asyncio.sleep(LATENCY_S / 2)
        if life not in self.lives or self.chance.random() < self.answers_lost:
            result = PushResult(error="Connection closed")
        if result.is_ok and not self.is_durable(push.event):
            self.queue.unsafe.append(f"{push.event.id} was answered with 200, and is not stored")
        self.telegram.push_done(push, result)
        self._pushes_bell.set()

    async def _answer(self, push: Push, office: Office | None) -> PushResult:
        """What the door does."""
        if office is None or self.chance.random() < self.pushes_lost:
            return PushResult(error="Connection refused")
        bot = office.desk.known(push.bot_id)
        if bot is None or bot.inbound != "webhook":
            return PushResult(status=404)
        try:
            # Whoever hangs on to a dead process hears nothing.
            async with asyncio.timeout(60.0):
                await office.receiver.pushed.take_in(push.bot_id, read_update(push.body))
        except Unavailable:
            return PushResult(status=503, retry_after_s=2.0)
        except NotFound:
            return PushResult(status=404)
        except TimeoutError:
            return PushResult(error="Read timeout expired")
        return PushResult(status=200)
