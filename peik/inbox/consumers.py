"""All consumers that this process hands arrivals to: handlers of the program around it, and pushes if it owns the store.

It follows the store: whoever sets, changes or removes a consumer writes it there, and `look` takes it up.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial

import msgspec

from peik.clock import Clock
from peik.core.address import AddressReach
from peik.core.events import Arrived, ConsumerWaits, Event, Events, StoreFailed, Surprise
from peik.core.nodes import NodeStore
from peik.errors import StoreUnavailable, described
from peik.inbox.delivery import (
    PATIENCE,
    Accept,
    AsTold,
    Handle,
    InProcess,
    PushTaker,
    Taker,
    TellLimited,
    as_they_came,
    patience_of,
    tell_nobody,
)
from peik.inbox.delivery_queue import QueueTerms
from peik.inbox.outages import NoOutages, OutagePort
from peik.inbox.runner import Bounds, ConsumerRunner
from peik.inbox.store import Consumer, ConsumerKind, InboxStore, PushHealth, PushPort
from peik.outbox.store import BotRecord
from peik.wakeup import Wakeup

TOUCH_S = 40.0  # as readers do: see readers.py
LOCK_S = 1.0  # between two looks whether another process has ended
RESTART_S = 1.0
RETRY_S = 2.0

Key = tuple[int, str]  # bot, name


class ConsumerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that matter here."""

    handlers: int
    handler_timeout_s: float
    handler_attempts: int
    user_rate: float
    catch_up_rate: float
    missed_after_s: float


async def _nothing() -> None: ...


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of a program that want a consumer's arrivals. `prepare` is awaited once before the first."""

    handle: Handle
    allowed: frozenset[str] | None
    at_once: int | None = None  # how many they take at the same time, if that is less than is set for all
    prepare: Callable[[], Awaitable[None]] = _nothing


class Consumers:
    def __init__(
        self,
        *,
        store: InboxStore,
        clock: Clock,
        events: Events,
        limits: ConsumerLimits,
        pusher: PushPort,
        reach_of: Callable[[int], Awaitable[AddressReach]],
        accept: Accept,
        locks: NodeStore,
        is_served: Callable[[int], bool] = lambda bot_id: True,
        is_live: Callable[[int], bool] = lambda bot_id: True,
        outages: OutagePort | None = None,
        tell_limited: TellLimited = tell_nobody,
        as_told: AsTold = as_they_came,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._limits = limits
        self._pusher = pusher
        self._reach_of = reach_of
        self._accept = accept
        self._locks = locks
        self._is_served = is_served  # whether pushes of a bot are this node's to make,
        self._is_live = is_live  # and whether it may begin one now
        self._outages = outages or NoOutages()
        self._tell_limited = tell_limited
        self._as_told = as_told
        self._bell = Wakeup()
        self._began_bell = Wakeup()
        self._claims = 0
        self._is_draining = False
        self._group: asyncio.TaskGroup | None = None
        self._shared: list[asyncio.Task[None]] = []
        self._pushes: dict[int, asyncio.Task[None]] = {}  # by consumer id
        self._pushed_bots: dict[int, int] = {}  # whose they are
        self._healths: dict[int, PushHealth] = {}  # by consumer id
        self._handlings: dict[Key, Handling] = {}
        self._handlers: dict[Key, asyncio.Task[None]] = {}
        self._runners: dict[int, ConsumerRunner] = {}  # by consumer id
        events.listen(self._listen, Arrived)
        self._outages.when_released(self._released)

    # ---- what others ask ----

    def in_hand(self, bot_id: int, consumer: str) -> frozenset[int]:
        """The numbers that are being worked on just now."""
        runner = self._runner_of((bot_id, consumer))
        return frozenset() if runner is None else runner.in_hand

    def push_health(self, consumer: Consumer) -> PushHealth | None:
        """Of pushes to its address; None while another process makes them, or nobody does."""
        known = self._healths.get(consumer.id)
        return known if known is not None and known.url == consumer.url else None

    async def is_handled(self, bot_id: int, consumer: str) -> bool:
        """Whether functions of a program take its arrivals, here or in another process on this store."""
        return (bot_id, consumer) in self._handlings or await self._locks.is_locked(_lock_name(bot_id, consumer))

    def handle(self, bot_id: int, name: str, handling: Handling) -> None:
        """Hand a consumer's arrivals to functions from now on; what was given before is replaced."""
        self._handlings[bot_id, name] = handling
        self.look()

    async def leave(self, bot_id: int, name: str, *, grace_s: float) -> None:
        """The functions take no more of a consumer's arrivals. Returns when what they had in hand has ended and is stored;
        what does not end in time is cancelled, and handed on again to whoever takes them next."""
        key = (bot_id, name)
        self._handlings.pop(key, None)
        task, runner = self._handlers.pop(key, None), self._runner_of(key)
        if task is None:
            return
        if runner is None:
            task.cancel()  # it waits for another process, or for the store
        else:
            await self._touch([runner.consumer.id] if runner.is_well else [])
            runner.drain()
        try:
            await asyncio.wait([task], timeout=grace_s)
        finally:
            task.cancel()
        await asyncio.wait([task])

    def add(self, bot: BotRecord) -> None:
        """A bot is new, or something of it changed."""
        self.look()

    def remove(self, bot_id: int) -> None:
        """Nothing is handed on for this bot any more."""
        for key in [key for key in self._handlings if key[0] == bot_id]:
            del self._handlings[key]
            task = self._handlers.pop(key, None)
            if task is not None:
                task.cancel()
        self.look()

    def look(self) -> None:
        """Consumers, or what is over for them, were changed in the store, here or by another process."""
        self._bell.ring()

    # ---- running ----

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._shared = [group.create_task(self._follow()), group.create_task(self._be_seen())]
        self._bell.ring()

    async def let_go(self, bot_id: int) -> None:
        """Push nothing more for a bot; returns when what is on its way has come back."""
        pushes = self._pushes_of(bot_id)
        for consumer_id in pushes:
            runner = self._runners.get(consumer_id)
            if runner is not None:
                runner.drain()
        if pushes:
            await asyncio.wait(list(pushes.values()))

    def wake_all(self) -> None:
        """Leases that seemed to be over go on."""
        for runner in self._runners.values():
            runner.wake()

    def drop(self, bot_id: int) -> None:
        """Another node pushes for this bot from now on."""
        for task in self._pushes_of(bot_id).values():
            task.cancel()

    def _pushes_of(self, bot_id: int) -> dict[int, asyncio.Task[None]]:
        return {one: task for one, task in self._pushes.items() if self._pushed_bots[one] == bot_id}

    async def drain(self, grace_s: float) -> None:
        """Begin nothing more, and let what is in hand end. What does not in time is handed on again later."""
        self._is_draining = True
        well = [consumer_id for consumer_id, runner in self._runners.items() if runner.is_well]
        for runner in self._runners.values():
            runner.drain()
        for key, task in self._handlers.items():
            if self._runner_of(key) is None:
                task.cancel()  # it waits for another process, or for the store
        ending = [*self._pushes.values(), *self._handlers.values()]
        if ending:
            await asyncio.wait(ending, timeout=grace_s)
        await self._touch(well)

    def stop(self) -> None:
        """End at once."""
        self._is_draining = True
        for task in (*self._shared, *self._pushes.values(), *self._handlers.values()):
            task.cancel()

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Arrived):
                for runner in self._runners.values():
                    if runner.consumer.bot_id == event.bot_id:
                        runner.news(event.last_number)

    def _released(self, bot_id: int) -> None:
        for runner in self._runners.values():
            if runner.consumer.bot_id == bot_id:
                runner.released()

    # ---- following the store ----

    async def _follow(self) -> None:
        while True:
            await self._bell.wait()
            if self._is_draining:
                continue
            claims = self._claims
            try:
                consumers = await self._store.consumers()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="consumers", why=error.detail))
                await asyncio.sleep(RETRY_S)
                self._bell.ring()
                continue
            if claims == self._claims:
                self._take_up(consumers)
            else:
                self._bell.ring()  # what was read may be older than what was written meanwhile

    def _take_up(self, consumers: Sequence[Consumer]) -> None:
        for consumer in consumers:
            runner = self._runners.get(consumer.id)
            if runner is not None:
                runner.look(consumer.progress)
        self._take_up_pushes({one.id: one for one in consumers if _is_pushed(one) and self._is_served(one.bot_id)})
        kinds = {(one.bot_id, one.name): one.kind for one in consumers}
        for key, handling in self._handlings.items():
            self._take_up_handling(key, handling, kinds.get(key))

    def _take_up_pushes(self, wanted: dict[int, Consumer]) -> None:
        """What changed ends first, with what it has in hand, and begins anew after that: its end rings."""
        for consumer_id, task in list(self._pushes.items()):
            runner = self._runners.get(consumer_id)
            consumer = wanted.get(consumer_id)
            if task.done():
                del self._pushes[consumer_id], self._pushed_bots[consumer_id]
            elif runner is not None and (consumer is None or _way(consumer) != _way(runner.consumer)):
                runner.drain()
        for consumer in wanted.values():
            if consumer.id not in self._pushes and consumer.id not in self._runners:  # its handlers end first
                self._pushes[consumer.id] = self._task(self._supervise(consumer, self._push_runner))
                self._pushed_bots[consumer.id] = consumer.bot_id

    def _take_up_handling(self, key: Key, handling: Handling, kind: ConsumerKind | None) -> None:
        task, runner = self._handlers.get(key), self._runner_of(key)
        if task is None or task.done():
            self._handlers[key] = self._task(self._serve(key))
        elif runner is not None and (runner.consumer.allowed != handling.allowed or kind is not ConsumerKind.HANDLER):
            runner.drain()

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        assert self._group is not None
        task = self._group.create_task(work)
        task.add_done_callback(lambda _: self._bell.ring())
        return task

    def _runner_of(self, key: Key) -> ConsumerRunner | None:
        for runner in self._runners.values():
            if (runner.consumer.bot_id, runner.consumer.name) == key:
                return runner
        return None

    # ---- handlers ----

    async def _serve(self, key: Key) -> None:
        """One consumer's handlers, alone among all processes, from the lock to the end."""
        bot_id, name = key
        lock = _lock_name(bot_id, name)
        is_told = False
        while not await self._is_locked_now(lock):
            if not is_told:
                is_told = True
                self._events.tell(ConsumerWaits(bot_id=bot_id, consumer=name))
            await asyncio.sleep(LOCK_S)
        try:
            await self._handlings[key].prepare()
            consumer = await self._claimed(key)
            await self._end_push(consumer.id)
            handling = self._handlings[key]
            await self._supervise(consumer, lambda again: self._handler_runner(again, handling))
        except Exception as error:  # noqa: BLE001  it is told, and tried again while the program wants it
            self._events.tell(Surprise(bot_id=bot_id, where="handlers", error=described(error)))
            await asyncio.sleep(RESTART_S)
        finally:
            with contextlib.suppress(StoreUnavailable):  # then it runs out by itself
                await self._locks.drop_lock(lock)

    async def _is_locked_now(self, lock: str) -> bool:
        try:
            return await self._locks.take_lock(lock)
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(what="the lock of handlers", why=error.detail))
            return False

    async def _claimed(self, key: Key) -> Consumer:
        """The consumer as one that has handlers, whoever read for it before."""
        while True:
            try:
                known = await self._store.ensure_consumer(*key, at_ms=self._clock.wall_ms())
                consumer = msgspec.structs.replace(
                    known,
                    kind=ConsumerKind.HANDLER,
                    url=None,
                    secret=None,
                    allowed=self._handlings[key].allowed,
                )
                if consumer != known:
                    await self._store.save_consumer(consumer)
                    self._claims += 1
                return consumer
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="consumers", why=error.detail))
                await asyncio.sleep(RETRY_S)

    async def _end_push(self, consumer_id: int) -> None:
        runner, task = self._runners.get(consumer_id), self._pushes.get(consumer_id)
        if runner is not None and task is not None:
            runner.drain()
            await asyncio.wait([task])

    # ---- runners ----

    def _handler_runner(self, consumer: Consumer, handling: Handling) -> ConsumerRunner:
        taker = InProcess(handling.handle, timeout_s=self._limits.handler_timeout_s, as_told=self._as_told)
        bounds = Bounds(
            terms=self._terms(consumer, at_once=min(handling.at_once or self._limits.handlers, self._limits.handlers)),
            patience=patience_of(self._limits.handler_attempts),
            missed_after_s=self._limits.missed_after_s,
        )
        return self._runner(consumer, taker, bounds)

    def _push_runner(self, consumer: Consumer) -> ConsumerRunner:
        taker = PushTaker(
            consumer,
            pusher=self._pusher,
            reach_of=self._reach_of,
            accept=self._accept,
            events=self._events,
            clock=self._clock,
            health=self._health_of(consumer),
            as_told=self._as_told,
        )
        bounds = Bounds(
            terms=self._terms(consumer, at_once=consumer.connections_max),
            patience=PATIENCE,
            missed_after_s=self._limits.missed_after_s,
        )
        return self._runner(consumer, taker, bounds, is_ours=partial(self._is_live, consumer.bot_id))

    def _health_of(self, consumer: Consumer) -> PushHealth:
        """Kept while the address stays; another one has failed nobody yet."""
        assert consumer.url is not None
        known = self._healths.get(consumer.id)
        if known is None or known.url != consumer.url:
            known = self._healths[consumer.id] = PushHealth(url=consumer.url)
        return known

    def _terms(self, consumer: Consumer, *, at_once: int) -> QueueTerms:
        return QueueTerms(
            at_once=at_once,
            allowed=consumer.allowed,
            user_rate=self._limits.user_rate,
            catch_up_rate=self._limits.catch_up_rate,
            late_ms=int(self._limits.missed_after_s * 1000),
        )

    def _runner(
        self, consumer: Consumer, taker: Taker, bounds: Bounds, *, is_ours: Callable[[], bool] = lambda: True
    ) -> ConsumerRunner:
        runner = self._runners[consumer.id] = ConsumerRunner(
            consumer,
            taker,
            store=self._store,
            clock=self._clock,
            events=self._events,
            bounds=bounds,
            outages=self._outages,
            tell_limited=self._tell_limited,
            is_ours=is_ours,
        )
        self._began_bell.ring()
        return runner

    async def _supervise(self, consumer: Consumer, make: Callable[[Consumer], ConsumerRunner]) -> None:
        """A runner that meets a surprise begins anew from the store; what it had in hand is handed on again."""
        try:
            while not self._is_draining:
                try:
                    await make(consumer).run()
                except Exception as error:  # noqa: BLE001  it is told, and the other consumers go on
                    self._events.tell(Surprise(bot_id=consumer.bot_id, where="consumer", error=described(error)))
                else:
                    return
                await asyncio.sleep(RESTART_S)
        finally:
            self._runners.pop(consumer.id, None)

    async def _be_seen(self) -> None:
        """Consumers that are served count as present, which says after a crash since when they were not."""
        while True:
            if not self._runners:
                await self._began_bell.wait()
            await asyncio.sleep(TOUCH_S)
            await self._touch([consumer_id for consumer_id, runner in self._runners.items() if runner.is_well])

    async def _touch(self, consumer_ids: Sequence[int]) -> None:
        if consumer_ids:
            with contextlib.suppress(StoreUnavailable):  # the next time will do
                await self._store.touch_consumers(dict.fromkeys(consumer_ids, self._clock.wall_ms()))


def _lock_name(bot_id: int, consumer: str) -> str:
    return f"handlers-{bot_id}-{consumer}"


def _is_pushed(consumer: Consumer) -> bool:
    return consumer.kind is ConsumerKind.PUSH and consumer.url is not None


def _way(consumer: Consumer) -> tuple[object, ...]:
    """What a push depends on: another way is another runner."""
    return (consumer.url, consumer.secret, consumer.allowed, consumer.connections_max)
