"""Reading arrivals: long polls as at Telegram, and streams that go on. What a reader says it has is committed before it
gets more; what it never acknowledged it gets again.
"""

import asyncio
import contextlib
import re
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, UPDATE_TYPES, WIRE_ID_MAX, Arrival, is_wanted, number_near
from peik.errors import Conflict, StoreUnavailable
from peik.inbox.away import Outages
from peik.inbox.waiting import Waiting
from peik.inbox_ports import ArrivalFilter, Consumer, ConsumerKind, InboxStore

POLL_S_MAX = 50.0  # longer ones are cut to this, as at Telegram (docs/telegram.md, Polling)
POLL_PAGE = 100
POLL_BYTES_MAX = 4 << 20
OFFSET_AHEAD_MAX = 10  # an offset further above the newest update is no offset of ours
KEPT_MAX = 1000  # a larger negative offset counts numbers, and not what this consumer would see
# A sync each time, day and night. As often as sources note themselves, and oftener than a message may wait.
TOUCH_S = 40.0
TYPES_MAX = 100


class Runners(Protocol):
    """What is known of the consumers that Peik itself hands arrivals to: handlers and pushes."""

    async def is_handled(self, bot_id: int, consumer: str) -> bool:
        """Whether functions in this process handle its arrivals."""

    def in_hand(self, bot_id: int, consumer: str) -> Collection[int]:
        """The numbers that are being worked on just now."""

    def look(self) -> None:
        """Consumers or their arrivals changed: look again."""


class NoRunners:
    async def is_handled(self, bot_id: int, consumer: str) -> bool:
        return False

    def in_hand(self, bot_id: int, consumer: str) -> Collection[int]:
        return ()

    def look(self) -> None: ...


class Readers:
    """Everybody who reads for himself, by polls or streams."""

    def __init__(
        self,
        *,
        store: InboxStore,
        clock: Clock,
        waiting: Waiting,
        runners: Runners,
        outages: Outages,
        missed_after_s: float,
        consumers_max: int,
    ) -> None:
        self._store = store
        self._consumers_max = consumers_max
        self._clock = clock
        self._waiting = waiting
        self._runners = runners
        self._outages = outages
        self._missed_after_ms = int(missed_after_s * 1000)
        self._seen: dict[int, int] = {}  # consumer → when it was last here
        self._seen_here: dict[int, float] = {}  # the same in steady seconds
        self._untold: set[int] = set()
        self._told_at = float("-inf")
        self.changing = asyncio.Lock()  # a consumer is read, changed and saved whole: one change must not undo another

    # ---- polls ----

    async def updates(
        self,
        bot_id: int,
        name: str,
        *,
        offset: int | None,
        limit: int,
        timeout_s: float,
        allowed: Sequence[str] | None,
    ) -> list[Arrival]:
        """getUpdates. Raises Conflict where Telegram does: a webhook is set, or a newer poll took this one's place."""
        consumer = await self.reader(bot_id, name, ConsumerKind.POLL, allowed)
        limit = min(max(limit, 1), POLL_PAGE)
        deadline = self._clock.mono() + min(max(timeout_s, 0.0), POLL_S_MAX)
        with self._waiting.seat(bot_id, consumer.id) as seat:
            consumer = await self._moved(consumer, offset)
            while True:
                found, consumer = await self.front(consumer, limit=limit)
                if found or self._clock.mono() >= deadline or self._waiting.is_ended():
                    break
                # Only now: at Telegram, too, a poll that finds something sends nobody away.
                self._waiting.hold(seat, _other_poll())
                await self.tell_seen(until=deadline)
                await seat.wait(deadline)
                if self._waiting.is_ended():  # ten thousand that look once more would keep Peik from ending
                    break
                consumer = await self.again(consumer)
        self.saw(consumer.id)
        await self.tell_seen()  # the next poll may come to another node, which knows only what is stored
        return found

    async def _moved(self, consumer: Consumer, offset: int | None) -> Consumer:
        """The consumer after it said how far it is. Nothing is deleted by it, and progress never goes back."""
        watermark = consumer.progress.watermark
        if not offset or offset > WIRE_ID_MAX + 1:  # no bot was ever given the id before such a one
            return consumer
        if offset < 0:
            return await self._keep_last(consumer, -offset)
        wanted = number_near(offset, near=watermark) - 1
        return consumer if wanted <= watermark else await self.acknowledge(consumer, wanted)

    async def acknowledge(self, consumer: Consumer, up_to: int) -> Consumer:
        """Everything up to a number is over, durably. A number that is not ours to give confirms nothing; one just above
        the newest confirms what there is. Telegram would throw the next ones away: prefer twice to never."""
        state = await self._store.inbox(consumer.bot_id)
        newest = 0 if state is None else state.last_number
        if up_to > newest + OFFSET_AHEAD_MAX:
            return consumer
        return await self.settled(consumer, min(up_to, newest))

    async def _keep_last(self, consumer: Consumer, count: int) -> Consumer:
        state = await self._store.inbox(consumer.bot_id)
        newest = 0 if state is None else state.last_number
        if count > KEPT_MAX:
            return await self.settled(consumer, newest - count)
        wanted = ArrivalFilter(
            bot_id=consumer.bot_id, consumer=consumer.name, first_number=consumer.progress.watermark + 1
        )
        views = await self._store.find_arrivals(wanted, before=None, limit=KEPT_MAX)
        own = [view.arrival.number for view in views if wants(consumer, view.arrival)]
        if len(own) < count and len(views) < KEPT_MAX:
            return consumer  # there are no more than that
        return await self.settled(consumer, own[count - 1] - 1 if len(own) >= count else newest - count)

    async def settled(self, consumer: Consumer, up_to: int) -> Consumer:
        """The consumer after everything up to a number is over."""
        watermark = consumer.progress.watermark
        if up_to <= watermark:
            return consumer
        progress = await self._store.settle_arrivals(
            consumer.id, over=[(watermark + 1, up_to)], at_ms=self._clock.wall_ms()
        )
        return msgspec.structs.replace(consumer, progress=progress)

    async def front(self, consumer: Consumer, *, limit: int) -> tuple[list[Arrival], Consumer]:
        """What it has not acknowledged yet, from the oldest, and the consumer as it stands then. What it does not want
        is over as soon as nothing stands before it, so that the same is not skipped at every poll."""
        if self.is_held(consumer):
            return [], consumer
        while True:
            page = await self._store.arrivals_after(
                consumer.id, consumer.progress.watermark, limit=limit, bytes_max=POLL_BYTES_MAX
            )
            found = [arrival for arrival in page if wants(consumer, arrival)]
            if page and (not found or found[0] is not page[0]):
                consumer = await self.settled(consumer, found[0].number - 1 if found else page[-1].number)
            if found or not page:
                return found, consumer

    def is_held(self, consumer: Consumer) -> bool:
        """Whether an outage of the bot is being settled: what waited through it is nobody's until then."""
        return consumer.name == DEFAULT_CONSUMER and self._outages.holds(consumer.bot_id)

    # ---- who reads ----

    async def reader(self, bot_id: int, name: str, kind: ConsumerKind, allowed: Sequence[str] | None) -> Consumer:
        """The consumer, made at its first use, as one that reads for itself. Raises Conflict if it is handed arrivals."""
        at_ms = self._clock.wall_ms()
        consumer = await self._store.ensure_consumer(bot_id, name, at_ms=at_ms, most=self._consumers_max)
        await self._check_free(consumer)
        if _as_reader(consumer, kind, allowed) != consumer:
            async with self.changing:
                consumer = _as_reader(await self.again(consumer), kind, allowed)
                await self._store.save_consumer(consumer)
        self._note_back(consumer)
        await self.tell_seen()
        return consumer

    async def _check_free(self, consumer: Consumer) -> None:
        name = consumer.name
        if consumer.kind is ConsumerKind.PUSH and consumer.url is not None:
            raise Conflict(
                code="webhook_active",
                detail=f"Arrivals of {name} are pushed to a webhook. Remove it first, or read as another consumer.",
            )
        if await self._runners.is_handled(consumer.bot_id, name):
            raise Conflict(
                code="handler_active",
                detail=f"Handlers in a program take the arrivals of {name}. End it, or read as another consumer.",
            )

    async def again(self, consumer: Consumer) -> Consumer:
        """The same consumer as it stands now: others may have settled something for it meanwhile. Raises Conflict if
        it has come to be handed its arrivals."""
        consumer = await self._store.ensure_consumer(consumer.bot_id, consumer.name, at_ms=self._clock.wall_ms())
        await self._check_free(consumer)
        return consumer

    def _note_back(self, consumer: Consumer) -> None:
        # The later one: its polls may go to another node for a while.
        seen = max((at for at in (self._seen.get(consumer.id), consumer.seen_at_ms) if at is not None), default=None)
        seen_here = self._seen_here.get(consumer.id)
        if seen is not None and seen_here is not None:  # whatever the clock was set to meanwhile
            seen = max(seen, self._clock.wall_ms() - int((self._clock.steady() - seen_here) * 1000))
        self.saw(consumer.id)
        if consumer.name != DEFAULT_CONSUMER or seen is None or self._waiting.is_held(consumer.id):
            return
        if self._clock.wall_ms() - seen > self._missed_after_ms:
            self._outages.expect(consumer.bot_id, "consumer", seen)
            self._outages.over(consumer.bot_id, "consumer")

    async def tell_seen(self, *, is_last: bool = False, until: float | None = None) -> None:
        """Store when consumers were last here: one write for all of them, about every forty seconds. `until`: when somebody who
        begins to wait comes by again, if nobody else does; what was told then may be older than a message may wait."""
        now = self._clock.mono()
        told_s = now - self._told_at
        is_soon_late = until is not None and told_s >= TOUCH_S / 2 and until - self._told_at > POLL_S_MAX
        if not is_last and told_s < TOUCH_S and not is_soon_late:
            return
        self._told_at = now
        for consumer_id in self._waiting.held():
            self.saw(consumer_id)
        seen = {consumer_id: self._seen[consumer_id] for consumer_id in self._untold}
        self._untold.clear()
        if seen:
            with contextlib.suppress(StoreUnavailable):  # nobody who reads is refused for this
                await self._store.touch_consumers(seen)

    def saw(self, consumer_id: int) -> None:
        self._seen[consumer_id] = self._clock.wall_ms()
        self._seen_here[consumer_id] = self._clock.steady()
        self._untold.add(consumer_id)

    def forget(self, consumer_id: int) -> None:
        self._seen.pop(consumer_id, None)
        self._seen_here.pop(consumer_id, None)
        self._untold.discard(consumer_id)


def _other_poll() -> Conflict:
    return Conflict(
        code="other_poll", detail="Another getUpdates of this consumer took over. Make sure that only one is running."
    )


def _as_reader(consumer: Consumer, kind: ConsumerKind, allowed: Sequence[str] | None) -> Consumer:
    types = consumer.allowed if allowed is None else types_of(allowed)
    return msgspec.structs.replace(consumer, kind=kind, allowed=types)


def wants(consumer: Consumer, arrival: Arrival) -> bool:
    return is_wanted(arrival.type, consumer.allowed) and not consumer.progress.is_over(arrival.number)


def types_of(names: Sequence[str]) -> frozenset[str] | None:
    """The types that a list of names asks for. Without any that we know it asks for what Telegram gives by itself.
    Names that we do not know yet stay: they may be tomorrow's."""
    if not _KNOWN.intersection(names):
        return None
    return frozenset([name for name in names if _TYPE.fullmatch(name)][:TYPES_MAX])


_KNOWN = frozenset(UPDATE_TYPES)
_TYPE = re.compile(r"[a-z_]{1,64}")
