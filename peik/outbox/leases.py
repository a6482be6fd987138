"""For whom this node acts: beats that keep its leases alive, and who begins and who ends when they come and go."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Protocol

from peik.clock import Clock
from peik.core.events import Events, LeasesLetGo, LeasesLost, LeasesTaken, StoreFailed
from peik.core.nodes import CHORES, Beat, NodeStore
from peik.errors import StoreUnavailable
from peik.wakeup import Wakeup

BEATS = 5  # in the time of a lease
SAFE = 0.8  # of that time, from before the beat was sent: so long this node believes in its leases
CLAIM_S = 1.0  # between two tries for a store that another process holds as a whole
RETRY_S = 0.5

FOR_EVER = float("inf")


class Lease:
    """This node's right to act for one bot, as far as it knows. It ends here before it ends in the store."""

    __slots__ = ("bot_id", "ends_at", "epoch")

    def __init__(self, bot_id: int, epoch: int, *, ends_at: float = FOR_EVER) -> None:
        self.bot_id = bot_id
        self.epoch = epoch
        self.ends_at = ends_at  # by the clock that never jumps

    def __repr__(self) -> str:
        return f"Lease({self.bot_id}, epoch {self.epoch})"


class Duties(Protocol):
    """Everybody who acts for bots."""

    async def begin(self, bot_ids: Collection[int]) -> None:
        """Begin to act for these; CHORES may be among them. Raises StoreUnavailable, and is asked again then."""

    async def let_go(self, bot_id: int) -> None:
        """Begin nothing more for a bot; returns when nothing of it is in flight."""

    def drop(self, bot_id: int) -> None:
        """End at once: somebody else acts for it."""

    def wake(self) -> None:
        """Leases that seemed to be over go on."""

    async def catch_up(self) -> None:
        """After a beat among several nodes: find out what no news told."""


class Leases:
    """Beats never wait for what they set off: a node that is slow to begin must not lose what it has."""

    def __init__(self, *, store: NodeStore, clock: Clock, events: Events) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._bell = Wakeup()
        self._begin_bell = Wakeup()
        self._held: dict[int, Lease] = {}
        self._to_begin: set[int] = set()
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._left: list[int] = []  # nothing of these is in flight any more; to be released
        self._releasing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._catching_up: asyncio.Task[None] | None = None
        self._whole_epoch = 0
        self._is_draining = False
        self._told_of_beats: list[Callable[[float], None]] = []

    # ---- what others ask ----

    def of(self, bot_id: int) -> Lease | None:
        """The lease of a bot, if this node holds it and does not let it go."""
        if self._whole_epoch and bot_id not in self._held:
            self._held[bot_id] = Lease(bot_id, self._whole_epoch)
        return None if bot_id in self._leaving else self._held.get(bot_id)

    def holds(self, bot_id: int) -> bool:
        return self.of(bot_id) is not None

    def is_live(self, bot_id: int) -> bool:
        """Whether this node holds it, and could prove it just now."""
        lease = self.of(bot_id)
        return lease is not None and self._clock.mono() < lease.ends_at

    @property
    def is_whole(self) -> bool:
        """Whether this node acts for all bots, and nobody else can."""
        return self._whole_epoch > 0

    def ring(self) -> None:
        """A bot came, or a node let something go: there may be something to take."""
        self._bell.ring()

    def when_beaten(self, tell: Callable[[float], None]) -> None:
        """`tell` hears of each beat that was answered, and when it was sent: other rights of this node go on with it, too."""
        self._told_of_beats.append(tell)

    def forget(self, bot_id: int) -> None:
        """The bot is removed, and its lease with it."""
        self._held.pop(bot_id, None)
        self._to_begin.discard(bot_id)

    # ---- running ----

    async def open(self, duties: Duties, group: asyncio.TaskGroup) -> None:
        """The first beat. What a store that fails just now cannot give comes with the next ones."""
        self._duties = duties
        self._group = group
        try:
            await self._beat()
            await self._begin()
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(what="a beat", why=error.detail))

    async def run(self) -> None:
        beginning = self._task(self._begin_fresh())
        try:
            while True:
                await self._bell.wait(self._next_at())
                try:
                    await self._beat()
                except StoreUnavailable as error:
                    self._events.tell(StoreFailed(what="a beat", why=error.detail))
                    await asyncio.sleep(RETRY_S)
                    self._bell.ring()
        finally:
            beginning.cancel()

    async def drain(self, grace_s: float) -> None:
        """Let everything go, each as soon as nothing of it is in flight. What is held as a whole ends with the process."""
        if self._whole_epoch:
            return
        self._is_draining = True
        self._let_go(list(self._held))
        if self._leaving:
            await asyncio.wait(list(self._leaving.values()), timeout=grace_s)

    def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        # A group that is ending because something failed takes no more; what is left to be done is done all the same.
        task = asyncio.create_task(work) if self._is_draining else self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _next_at(self) -> float | None:
        if self._store.lease_s is not None:
            return self._clock.mono() + self._store.lease_s / BEATS
        return None if self._whole_epoch else self._clock.mono() + CLAIM_S

    # ---- one beat ----

    async def _beat(self) -> None:
        if self._whole_epoch:
            return
        began = self._clock.mono()
        beat = await self._answered()
        if beat.is_whole:
            self._whole_epoch = beat.epoch
            self._to_begin.add(CHORES)
            self._begin_bell.ring()
            return
        self._lose(beat)
        self._renew(beat, began)
        for tell in self._told_of_beats:
            tell(began)
        wanted = [bot_id for bot_id in sorted(self._held, reverse=True) if bot_id not in self._leaving]
        self._let_go(wanted[: max(0, beat.surplus - len(self._leaving))])  # CHORES is the last of them
        if self._store.lease_s is not None and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = self._task(self._catch_up())

    async def _answered(self) -> Beat:
        """Late is as good as never: a beat that hangs must not keep the next one from being sent."""
        lease_s = self._store.lease_s
        try:
            async with asyncio.timeout(None if lease_s is None else lease_s / 2):
                return await self._store.beat(is_draining=self._is_draining)
        except TimeoutError:
            raise StoreUnavailable(code="store_slow", detail="The store does not answer a beat.") from None

    def _lose(self, beat: Beat) -> None:
        lost = [one.bot_id for one in self._held.values() if beat.leases.get(one.bot_id) != one.epoch]
        for bot_id in lost:
            del self._held[bot_id]
            self._to_begin.discard(bot_id)
            leaving = self._leaving.pop(bot_id, None)
            if leaving is not None:
                leaving.cancel()
                self._left = [one for one in self._left if one != bot_id]
            self._duties.drop(bot_id)
        if lost:
            self._events.tell(LeasesLost(lost=len(lost), held=len(self._held)))

    def _renew(self, beat: Beat, began: float) -> None:
        lease_s = self._store.lease_s
        ends_at = FOR_EVER if lease_s is None else began + lease_s * SAFE
        was_over = any(one.ends_at <= self._clock.mono() for one in self._held.values())
        for lease in self._held.values():
            lease.ends_at = ends_at
        fresh = [bot_id for bot_id in beat.leases if bot_id not in self._held]
        for bot_id in fresh:
            self._held[bot_id] = Lease(bot_id, beat.leases[bot_id], ends_at=ends_at)
        if fresh:
            self._to_begin.update(fresh)
            self._begin_bell.ring()
            self._events.tell(LeasesTaken(taken=len(fresh), held=len(self._held)))
        if was_over:
            self._duties.wake()

    async def _catch_up(self) -> None:
        try:
            await self._duties.catch_up()
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(what="a look at other nodes", why=error.detail))

    # ---- beginning ----

    async def _begin_fresh(self) -> None:
        while True:
            await self._begin_bell.wait()
            try:
                await self._begin()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="leases that are new here", why=error.detail))
                await asyncio.sleep(RETRY_S)
                self._begin_bell.ring()

    async def _begin(self) -> None:
        fresh = {bot_id for bot_id in self._to_begin if self.holds(bot_id)}
        if not fresh:
            return
        self._to_begin -= fresh  # before: one that is lost and won again meanwhile has to begin once more
        try:
            await self._duties.begin(fresh)
        except StoreUnavailable:
            self._to_begin |= {bot_id for bot_id in fresh if self.holds(bot_id)}
            raise

    # ---- letting go ----

    def _let_go(self, bot_ids: Sequence[int]) -> None:
        for bot_id in bot_ids:
            if bot_id not in self._leaving:
                self._leaving[bot_id] = self._task(self._leave(bot_id))

    async def _leave(self, bot_id: int) -> None:
        """It is kept alive until nothing of it is in flight, and then others may have it."""
        self._to_begin.discard(bot_id)
        await self._duties.let_go(bot_id)
        self._left.append(bot_id)
        if self._releasing is None or self._releasing.done():
            self._releasing = self._task(self._release())
        await asyncio.wait([self._releasing])

    async def _release(self) -> None:
        """With all that are ready by then, in one go."""
        while self._left:
            await asyncio.sleep(0)
            left = list(self._left)
            try:
                await self._store.release(left)
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="leases to let go", why=error.detail))
                await asyncio.sleep(RETRY_S)
                continue
            self._left = [one for one in self._left if one not in left]
            for bot_id in left:
                self._held.pop(bot_id, None)
                self._leaving.pop(bot_id, None)
            self._events.tell(LeasesLetGo(let_go=len(left), held=len(self._held)))
