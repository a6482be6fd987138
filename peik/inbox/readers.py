"""Reading arrivals: long polls as at Telegram, and streams that go on. What a reader says it has is committed before it
gets more; what it never acknowledged it gets again.
"""

import asyncio
import contextlib
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, UPDATE_TYPES, WIRE_ID_MAX, Arrival, is_wanted, number_near, spans_of
from peik.core.events import ArrivalSettled, Arrived, Event, Events, HandedAgain, OutageSettled, StoreFailed
from peik.core.letter import State
from peik.errors import Conflict, NotFound, StoreUnavailable
from peik.inbox.delivery import AsTold
from peik.inbox.handed import DEATHS_MAX, Ended, PollerHand, PollerRun
from peik.inbox.outages import OutagePort
from peik.inbox.store import ArrivalFilter, Burial, Consumer, ConsumerKind, Deferral, InboxStore
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


ANSWER_S_MAX = 50.0  # longer ones are cut to this, as at Telegram (docs/telegram.md, Polling)
POLL_PAGE = 100
POLL_BYTES_MAX = 4 << 20
OFFSET_AHEAD_MAX = 10  # an offset further above the newest update is no offset of ours
KEPT_MAX = 1000  # a larger negative offset counts numbers, and not what this consumer would see
# A sync each time, day and night. As often as sources note themselves, and oftener than a message may wait.
TOUCH_S = 40.0
TYPES_MAX = 100
# Evidence that an update was dealt with comes with calls of the bot, which are commits of their own: one settlement for all of
# a moment. Who is killed within it hands some again that were answered.
SETTLE_S = 0.2
SETTLE_RETRY_S = 2.0
UNKNOWN_MAX = 10_000  # an offset that is further ahead of all that is known skips what is older, as at Telegram

HangsUp = Callable[[], Awaitable[None]]


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
        events: Events,
        redelivery_s: Callable[[int], float],
    ) -> None:
        """`redelivery_s`: of a bot, for how long what its pollers confirmed may be handed again; 0: never."""
        self._store = store
        self._events = events
        self._redelivery_s = redelivery_s
        self._hands: dict[tuple[int, str], PollerHand] = {}
        self._settle_bell: Wakeup | None = None
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
        hangs_up: HangsUp | None = None,
    ) -> list[Arrival]:
        """getUpdates. Raises Conflict where Telegram does: a webhook is set, or a newer poll took this one's place.
        `hangs_up` returns when the client has closed its connection."""
        consumer = await self._reader(bot_id, name, ConsumerKind.POLL, allowed)
        deadline = self._clock.mono() + min(max(timeout_s, 0.0), ANSWER_S_MAX)
        poll = Poll(
            hand=self._hand_of(consumer),
            run=PollerRun(self._clock.mono()),
            limit=min(max(limit, 1), POLL_PAGE),
            deadline=deadline,
        )
        with self._waiting.seat(bot_id, consumer.id) as seat:
            consumer = await self._asked(poll, consumer, offset, is_short=timeout_s <= 0)
            if self._is_back(consumer):
                await self._settle_hands()  # what was dealt with before it went has not waited for it
            self._note_back(consumer)
            await self.tell_seen()
            watching = None if hangs_up is None else asyncio.ensure_future(self._watched(poll, seat, hangs_up()))
            poll.run.parked += 1
            try:
                found = await self._parked(poll, consumer, seat)
            except Conflict:
                if poll.run.parked == 1:
                    poll.run.replaced_at = self._clock.mono()
                raise
            except asyncio.CancelledError:
                self._left(poll)
                raise
            finally:
                poll.run.parked -= 1
                if watching is not None:
                    watching.cancel()
        self.saw(consumer.id)
        await self.tell_seen()  # the next poll may come to another node, which knows only what is stored
        return found

    async def _parked(self, poll: "Poll", consumer: Consumer, seat: Seat) -> list[Arrival]:
        while True:
            found, consumer = await self._front(poll, consumer)
            if found or self._clock.mono() >= poll.deadline or self._waiting.is_ended() or poll.run.is_closed:
                return found
            # Only now: at Telegram, too, a poll that finds something sends nobody away.
            self._waiting.hold(seat, _other_poll())
            await self.tell_seen(until=poll.deadline)
            again_at = None if poll.hand is None else poll.hand.again_at()
            await seat.wait(poll.deadline if again_at is None else min(poll.deadline, again_at))
            if self._waiting.is_ended():  # ten thousand that look once more would keep Peik from ending
                return []
            consumer = await self.again(consumer)
            if poll.hand is not None:
                poll.hand.follow(consumer.progress)
                consumer = await self._taken_over(poll, consumer)

    async def _watched(self, poll: "Poll", seat: Seat, hangs_up: Awaitable[None]) -> None:
        """A poll whose client has gone ends: what comes is for whoever asks next."""
        await hangs_up
        self._left(poll)
        seat.ring()

    def _left(self, poll: "Poll") -> None:
        if poll.hand is not None and poll.run.parked == 1:
            poll.hand.close(poll.run, self._clock.mono())
            self._ring_settling(poll.hand)
        elif poll.hand is None:
            poll.run.is_closed = True

    async def _asked(self, poll: "Poll", consumer: Consumer, offset: int | None, *, is_short: bool) -> Consumer:
        """The consumer after the poll has said by its offset how far it is."""
        hand = poll.hand
        if hand is None:
            return await self._moved(consumer, offset)
        if offset is not None and offset < 0:
            consumer = await self._keep_last(consumer, -offset)
        seen_elsewhere_at = self._seen_elsewhere_at(consumer)
        if seen_elsewhere_at is not None:
            hand.put_off(seen_elsewhere_at)
        hand.follow(consumer.progress)
        number = await self._said(hand, consumer, offset)
        if number is not None and number > hand.known_to:
            consumer = await self._looked_up(hand, consumer, number)
        now = self._clock.mono()
        poll.run, is_new = hand.come(number, now, is_short=is_short)
        if is_new:
            self._told_at = min(self._told_at, now - TOUCH_S)  # other nodes hear that it has begun
        consumer = await self._taken_over(poll, consumer, is_new=is_new)
        if is_short and poll.run.is_long:
            await self._settle_hands()  # it says goodbye: whoever comes next may ask another node
        self._ring_settling(hand)
        return consumer

    async def _said(self, hand: PollerHand, consumer: Consumer, offset: int | None) -> int | None:
        """The number that an offset confirms. None: it is no offset of ours, as that of a program that has just started."""
        if not offset or not 0 < offset <= WIRE_ID_MAX + 1:
            return None
        number = number_near(offset, near=consumer.progress.watermark) - 1
        if number <= hand.known_to:
            return number
        newest = await self._newest(consumer)
        return None if number > newest + OFFSET_AHEAD_MAX else min(number, newest)

    async def _looked_up(self, hand: PollerHand, consumer: Consumer, number: int) -> Consumer:
        """What an offset confirms that nobody here was seen to be given: before Peik was started anew, or by another node."""
        while hand.known_to < number:
            page = await self._store.arrivals_after(
                consumer.id, hand.known_to, limit=POLL_PAGE, bytes_max=POLL_BYTES_MAX
            )
            here = [arrival for arrival in page if arrival.number <= number]
            wanted = [arrival for arrival in here if wants(consumer, arrival)]
            up_to = number if len(here) < POLL_PAGE else here[-1].number
            hand.learn(wanted, [arrival.number for arrival in here if arrival not in wanted], up_to)
            if number - hand.known_to > UNKNOWN_MAX:
                consumer = await self.settled(consumer, number - UNKNOWN_MAX)
                hand.follow(consumer.progress)
        return consumer

    async def _taken_over(self, poll: "Poll", consumer: Consumer, *, is_new: bool = False) -> Consumer:
        """The consumer after what pollers that have ended had in hand is this one's."""
        assert poll.hand is not None
        ended = poll.hand.ended(poll.run, self._clock.mono(), is_new=is_new)
        if ended is None:
            return consumer
        if ended.dead is not None:
            consumer = await self._buried(poll.hand, consumer, ended)
        if ended.again:
            poll.hand.note_again(ended, at_ms=self._clock.wall_ms())
            told = HandedAgain(
                bot_id=consumer.bot_id, consumer=consumer.name, count=len(ended.again), first_number=ended.again[0].number,
                deaths=ended.deaths,
            )  # fmt: skip
            self._events.tell(told)
        return consumer

    async def _buried(self, hand: PollerHand, consumer: Consumer, ended: Ended) -> Consumer:
        dead, at_ms = ended.dead, self._clock.wall_ms()
        assert dead is not None
        reason = f"its poller died {DEATHS_MAX} times in a row with only this update in hand"
        entry = _entry(at_ms, "poller died", reason)
        burial = Burial(number=dead.number, tries=DEATHS_MAX, reason=reason, entry=entry)
        try:
            progress = await self._store.settle_arrivals(consumer.id, dead=[burial], at_ms=at_ms)
        except StoreUnavailable:
            hand.hand_again([dead])
            raise
        hand.follow(progress)
        told = ArrivalSettled(
            bot_id=consumer.bot_id, consumer=consumer.name, arrival_id=dead.arrival_id, number=dead.number,
            kind=dead.kind, state=State.FAILED, tries=DEATHS_MAX, reason=reason,
        )  # fmt: skip
        self._events.tell(told)
        return msgspec.structs.replace(consumer, progress=progress)

    # ---- what pollers have in hand ----

    def _hand_of(self, consumer: Consumer) -> PollerHand | None:
        key, window_s = (consumer.bot_id, consumer.name), self._redelivery_s(consumer.bot_id)
        hand = self._hands.get(key)
        if window_s <= 0 and (hand is None or hand.is_idle()):
            self._hands.pop(key, None)
            return None
        if hand is None or hand.consumer_id != consumer.id:
            hand = self._hands[key] = PollerHand(consumer.id, consumer.progress, window_s=window_s)
        hand.window_s = window_s
        return hand

    async def let_go(self, bot_id: int, name: str) -> None:
        """Nobody polls for it any more: what was not seen to be dealt with is for whoever reads now."""
        with contextlib.suppress(StoreUnavailable):  # then that gets some twice
            await self._settle_hands()
        self._hands.pop((bot_id, name), None)

    def hand(self, bot_id: int, name: str) -> PollerHand | None:
        return self._hands.get((bot_id, name))

    def answered(self, bot_id: int, name: str, method: str, params: bytes) -> None:
        """The bot that reads as this consumer has called a method: what that is evidence for is dealt with."""
        hand = self._hands.get((bot_id, name))
        if hand is not None and hand.answered(method, params, self._clock.mono()):
            self._ring_settling(hand)
            self._waiting.ring(bot_id)  # what goes one by one may go on

    def _ring_settling(self, hand: PollerHand) -> None:
        if hand.over and self._settle_bell is not None:
            self._settle_bell.ring()

    async def settle(self) -> None:
        """Store what is dealt with, soon after it is known. Runs until it is cancelled."""
        self._settle_bell = bell = Wakeup()
        while True:
            await bell.wait()
            await asyncio.sleep(SETTLE_S)
            try:
                await self._settle_hands()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="what pollers have dealt with", why=error.detail))
                await asyncio.sleep(SETTLE_RETRY_S)
                bell.ring()

    async def _settle_hands(self) -> None:
        for hand in [one for one in self._hands.values() if one.over]:
            done, at_ms = list(hand.over), self._clock.wall_ms()
            try:
                progress = await self._store.settle_arrivals(hand.consumer_id, over=spans_of(done), at_ms=at_ms)
            except NotFound:  # it was removed, here or by another node, with all that it had
                hand.over.clear()
                continue
            del hand.over[: len(done)]
            hand.follow(progress)

    async def close(self) -> None:
        """What is dealt with is stored, and when consumers were here."""
        with contextlib.suppress(StoreUnavailable):  # then it is handed again
            await self._settle_hands()
        await self.tell_seen(is_last=True)

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
        newest = await self._newest(consumer)
        if up_to > newest + OFFSET_AHEAD_MAX:
            return consumer
        return await self.settled(consumer, min(up_to, newest))

    async def _keep_last(self, consumer: Consumer, count: int) -> Consumer:
        newest = await self._newest(consumer)
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

    async def _newest(self, consumer: Consumer) -> int:
        state = await self._store.inbox(consumer.bot_id)
        return 0 if state is None else state.last_number

    async def _front(self, poll: "Poll", consumer: Consumer) -> tuple[list[Arrival], Consumer]:
        """What it has not acknowledged yet, from the oldest, and the consumer as it stands then. What it does not want
        is over as soon as nothing stands before it, so that the same is not skipped at every poll."""
        hand, limit = poll.hand, poll.limit
        at_once = None if hand is None else hand.at_once(self._clock.mono())
        if self.is_held(consumer) or at_once == 0:
            return [], consumer
        limit = limit if at_once is None else at_once
        after = consumer.progress.watermark if hand is None else hand.cover.watermark
        while True:
            # Between what is to be handed again there may be much that is not.
            most = limit if hand is None or not hand.cover.spans else POLL_PAGE
            page = await self._store.arrivals_after(consumer.id, after, limit=most, bytes_max=POLL_BYTES_MAX)
            here = page if hand is None else [one for one in page if not hand.cover.is_over(one.number)]
            found = [arrival for arrival in here if wants(consumer, arrival)][:limit]
            if here and (not found or found[0] is not here[0]):
                consumer = await self._skipped(hand, consumer, here, found)
            if found:
                await self._given(poll, consumer, here, found)
            if found or not page:
                return found, consumer
            after = page[-1].number

    async def _skipped(
        self, hand: PollerHand | None, consumer: Consumer, page: Sequence[Arrival], found: Sequence[Arrival]
    ) -> Consumer:
        up_to = found[0].number - 1 if found else page[-1].number
        if hand is None:
            return await self.settled(consumer, up_to)
        skipped = spans_of([arrival.number for arrival in page if arrival.number <= up_to])
        progress = await self._store.settle_arrivals(consumer.id, over=skipped, at_ms=self._clock.wall_ms())
        hand.follow(progress)
        return msgspec.structs.replace(consumer, progress=progress)

    async def _given(self, poll: "Poll", consumer: Consumer, page: Sequence[Arrival], found: Sequence[Arrival]) -> None:
        """Note what goes to a poller; of what is handed again, also for people, before it goes."""
        hand = poll.hand
        if hand is None:
            return
        given = {arrival.number for arrival in found}
        between = [one.number for one in page if found[0].number < one.number < found[-1].number]
        skipped = [number for number in between if number not in given]
        again = hand.give(poll.run, found, skipped, self._clock.mono())
        if again:
            at_ms = self._clock.wall_ms()
            entry = _entry(at_ms, "handed again", "its poller ended, and nothing showed that it was dealt with")
            stories = [
                Deferral(number=one.number, tries=hand.tries.get(one.number, 1), due_at_ms=at_ms, entry=entry)
                for one in again
            ]
            with contextlib.suppress(StoreUnavailable):  # nobody goes without an update for this
                await self._store.settle_arrivals(consumer.id, deferred=stories, at_ms=at_ms)

    def is_held(self, consumer: Consumer) -> bool:
        """Whether an outage of the bot is being settled: what waited through it is nobody's until then."""
        return consumer.name == DEFAULT_CONSUMER and self._outages.holds(consumer.bot_id)

    # ---- who reads ----

    async def reader(self, bot_id: int, name: str, kind: ConsumerKind, allowed: Sequence[str] | None) -> Consumer:
        """The consumer, made at its first use, as one that reads for itself. Raises Conflict if it is handed arrivals."""
        consumer = await self._reader(bot_id, name, kind, allowed)
        self._note_back(consumer)
        await self.tell_seen()
        return consumer

    async def _reader(self, bot_id: int, name: str, kind: ConsumerKind, allowed: Sequence[str] | None) -> Consumer:
        at_ms = self._clock.wall_ms()
        consumer = await self._store.ensure_consumer(bot_id, name, at_ms=at_ms, most=self._consumers_max)
        await self._check_free(consumer)
        if _as_reader(consumer, kind, allowed) != consumer:
            async with self.changing:
                consumer = _as_reader(await self.again(consumer), kind, allowed)
                await self._store.save_consumer(consumer)
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
        seen, is_back = self._seen_before(consumer), self._is_back(consumer)
        self.saw(consumer.id)
        if is_back and seen is not None:
            self._outages.expect(consumer.bot_id, "consumer", seen)
            self._outages.over(consumer.bot_id, "consumer")

    def _is_back(self, consumer: Consumer) -> bool:
        """Whether it was away for so long that what waited meanwhile counts as missed."""
        seen = self._seen_before(consumer)
        if consumer.name != DEFAULT_CONSUMER or seen is None or self._waiting.is_held(consumer.id):
            return False
        return self._clock.wall_ms() - seen > self._missed_after_ms

    def _seen_before(self, consumer: Consumer) -> int | None:
        # The later one: its polls may go to another node for a while.
        seen = max((at for at in (self._seen.get(consumer.id), consumer.seen_at_ms) if at is not None), default=None)
        seen_here = self._seen_here.get(consumer.id)
        if seen is not None and seen_here is not None:  # whatever the clock was set to meanwhile
            seen = max(seen, self._clock.wall_ms() - int((self._clock.steady() - seen_here) * 1000))
        return seen

    def _seen_elsewhere_at(self, consumer: Consumer) -> float | None:
        """When another node was polled for it since it was here last, by the clock of this process."""
        here, stored = self._seen.get(consumer.id), consumer.seen_at_ms
        if stored is None or (here is not None and stored <= here):
            return None
        return self._clock.mono() - max(0, self._clock.wall_ms() - stored) / 1000

    async def tell_seen(self, *, is_last: bool = False, until: float | None = None) -> None:
        """Store when consumers were last here: one write for all of them, about every forty seconds. `until`: when somebody who
        begins to wait comes by again, if nobody else does; what was told then may be older than a message may wait."""
        now = self._clock.mono()
        told_s = now - self._told_at
        is_soon_late = until is not None and told_s >= TOUCH_S / 2 and until - self._told_at > ANSWER_S_MAX
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


class Poll(msgspec.Struct, kw_only=True):
    """One call of getUpdates while it is answered. Without a hand an offset is believed, and nothing is handed again."""

    hand: PollerHand | None
    run: PollerRun
    limit: int
    deadline: float


def _entry(at_ms: int, outcome: str, words: str) -> str:
    return msgspec.json.encode({"at": at_ms, "outcome": outcome, "words": words}).decode()


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
