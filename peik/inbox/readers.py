"""Reading arrivals: long polls as at Telegram, and streams that go on. What a reader says it has is committed before it
gets more; what it never acknowledged it gets again.
"""

import asyncio
import contextlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, UPDATE_TYPES, WIRE_ID_MAX, Arrival, is_wanted, number_near
from peik.core.events import Arrived, Event, Events, OutageSettled
from peik.errors import Conflict, StoreUnavailable
from peik.inbox.delivery import AsTold
from peik.inbox.outages import OutagePort
from peik.inbox.store import ArrivalFilter, Consumer, ConsumerKind, InboxStore
from peik.wakeup import Wakeup

# Readers that wait for arrivals: who sits where, who rings for them, and who has to go. It never reads the store.
#
# However many wait, there is one listener. A reader costs a seat and a timer, and is woken by what concerns its bot
# alone.


class Seat:
    """One reader's place for as long as it reads. A ring while it looks into the store is remembered."""

    __slots__ = ("_bell", "_dismissal", "bot_id", "consumer_id")

    def __init__(self, bot_id: int, consumer_id: int | None) -> None:
        self.bot_id = bot_id
        self.consumer_id = consumer_id  # None: a reader without a cursor, beside whom any number may sit
        self._bell = Wakeup()
        self._dismissal: Conflict | None = None

    def ring(self) -> None:
        self._bell.ring()

    def dismiss(self, why: Conflict) -> None:
        self._dismissal = why
        self._bell.ring()

    def check(self) -> None:
        """Raises the Conflict that this reader was sent away with."""
        if self._dismissal is not None:
            raise self._dismissal

    async def wait(self, until: float) -> None:
        """Until something may have come, or until the loop's time is `until`. Raises Conflict if it was sent away."""
        await self._bell.wait(until)
        self.check()


class Waiting:
    def __init__(self, *, events: Events) -> None:
        self._seats: dict[int, set[Seat]] = defaultdict(set)
        self._holders: dict[int, Seat] = {}
        self._is_ended = False
        events.listen(self._listen, Arrived, OutageSettled)

    @contextmanager
    def seat(self, bot_id: int, consumer_id: int | None) -> Iterator[Seat]:
        """A place among the readers of a bot. Take it before the first look into the store, so that no ring is missed."""
        seat = Seat(bot_id, consumer_id)
        self._seats[bot_id].add(seat)
        try:
            yield seat
        finally:
            self._seats[bot_id].discard(seat)
            if not self._seats[bot_id]:
                del self._seats[bot_id]
            if consumer_id is not None and self._holders.get(consumer_id) is seat:
                del self._holders[consumer_id]

    def hold(self, seat: Seat, why: Conflict) -> None:
        """From now on this one reads for its consumer: the newest wins, and an older one goes with `why`."""
        assert seat.consumer_id is not None
        older = self._holders.get(seat.consumer_id)
        if older is not None and older is not seat:
            older.dismiss(why)
        self._holders[seat.consumer_id] = seat

    def dismiss(self, consumer_id: int, why: Conflict) -> None:
        """Send away whoever reads for a consumer: it is somebody else's now."""
        older = self._holders.pop(consumer_id, None)
        if older is not None:
            older.dismiss(why)

    def held(self) -> list[int]:
        """The consumers that somebody reads for at this moment."""
        return list(self._holders)

    def is_held(self, consumer_id: int) -> bool:
        return consumer_id in self._holders

    def ring(self, bot_id: int) -> None:
        for seat in self._seats.get(bot_id, ()):
            seat.ring()

    def ring_all(self) -> None:
        """Another process may have written for anybody."""
        for bot_id in self._seats:
            self.ring(bot_id)

    def end(self) -> None:
        """Nobody waits any more, now or later: Peik ends, and must not be held up by those who wait for nothing."""
        self._is_ended = True
        self.ring_all()

    def is_ended(self) -> bool:
        return self._is_ended

    def _listen(self, events: Sequence[Event]) -> None:
        if not self._seats:
            return
        for event in events:
            # What an outage held back may go on when it is settled.
            if isinstance(event, Arrived | OutageSettled):
                self.ring(event.bot_id)


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
        outages: OutagePort,
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


# Arrivals one after another for as long as somebody listens. A stream never holds more than one page, and never
# acknowledges anything by itself: that it was written to a socket does not mean that it was handled.


STREAM_PAGE = 100
STREAM_BYTES_MAX = 1 << 20


class Stream:
    """Where one listener is. Behind it lies what it was given, which may be far ahead of what it acknowledged."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        store: InboxStore,
        clock: Clock,
        waiting: Waiting,
        readers: Readers,
        as_told: AsTold,
        after: int,
        is_tail: bool,
        types: frozenset[str] | None,
    ) -> None:
        self._consumer = consumer  # of a tail: the one through whose eyes it looks
        self._store = store
        self._clock = clock
        self._waiting = waiting
        self._readers = readers
        self._as_told = as_told
        self._after = after
        self._is_tail = is_tail
        self._types = types  # of a tail; None: all

    @contextmanager
    def seated(self) -> Iterator[Seat]:
        """The place from which it listens. The newest stream of a consumer is the one that counts."""
        with self._waiting.seat(self._consumer.bot_id, None if self._is_tail else self._consumer.id) as seat:
            if self._is_tail:
                yield seat
                return
            self._waiting.hold(seat, _other_stream())
            try:
                yield seat
            finally:
                self._readers.saw(self._consumer.id)

    async def next(self, seat: Seat, wait_s: float) -> list[Arrival] | None:
        """The next page; empty if nothing came in time, None when Peik ends. Raises Conflict if it was sent away."""
        deadline = self._clock.mono() + wait_s
        while not self._waiting.is_ended():
            seat.check()
            found = await self._page()
            if found or self._clock.mono() >= deadline:
                return await self._as_told(self._consumer.bot_id, found)
            await seat.wait(deadline)
            if not self._is_tail and not self._waiting.is_ended():
                self._consumer = await self._readers.again(self._consumer)
        return None

    async def _page(self) -> list[Arrival]:
        while self._is_tail or not self._readers.is_held(self._consumer):
            page = await self._store.arrivals_after(
                self._consumer.id, self._after, limit=STREAM_PAGE, bytes_max=STREAM_BYTES_MAX
            )
            found = [arrival for arrival in page if self._wants(arrival)]
            if not page:
                break
            await self._skip(page[-1].number if not found else found[0].number - 1)
            self._after = page[-1].number
            if found:
                return found
        return []

    def _wants(self, arrival: Arrival) -> bool:
        if self._is_tail:
            return self._types is None or arrival.type in self._types
        return wants(self._consumer, arrival)

    async def _skip(self, up_to: int) -> None:
        """What it does not want is over, if there is nothing before it that still has to be acknowledged."""
        if not self._is_tail and self._after == self._consumer.progress.watermark < up_to:
            self._consumer = await self._readers.settled(self._consumer, up_to)


def _other_stream() -> Conflict:
    return Conflict(
        code="other_stream", detail="Another stream of this consumer took over. Make sure that only one is running."
    )
