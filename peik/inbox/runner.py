"""Hands one consumer's arrivals on: reads ahead, delivers, judges, settles. At least once, and in order per chat.

Nothing is over before whoever got it said so, and before that is stored; a crash hands on again exactly what was not. What
a delivery is, a function or a request, is its taker's to know.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from peik.clock import Clock
from peik.core.arrival import DEFAULT_CONSUMER, Arrival, ConsumerProgress, spans_of
from peik.core.events import (
    ArrivalDeferred,
    ArrivalSettled,
    ConsumerAway,
    ConsumerBack,
    Event,
    Events,
    HandedOn,
    StoreFailed,
    StoreRecovered,
    Surprise,
    UserLimited,
)
from peik.core.letter import Backoff, State
from peik.core.lifecycle import backoff_ms
from peik.errors import NotFound, StoreUnavailable
from peik.inbox.delivery import (
    WORDS_MAX,
    Away,
    DeliveryPatience,
    Done,
    Failed,
    Taker,
    TellLimited,
    Verdict,
    language_of,
    line_of,
    tell_nobody,
)
from peik.inbox.delivery_queue import DeliveryQueue, InHand, PutOff, QueueRead, QueueTerms
from peik.inbox.outages import NoOutages, OutagePort
from peik.inbox.store import Burial, Consumer, Deferral, InboxStore
from peik.wakeup import Wakeup

# Stores what became of one consumer's arrivals: all that ended while the last commit was under way goes into the
# next.
#
# Nothing that was handled is forgotten while the store does not answer: it is kept and offered again until it takes.


RETRY_S = 2.0


class _Ended:
    """What ended since the last commit, and what is told of it after the next."""

    def __init__(self) -> None:
        self.over: list[int] = []
        self.deferred: list[Deferral] = []
        self.dead: list[Burial] = []
        self.told: list[Event] = []

    def __len__(self) -> int:
        return len(self.over) + len(self.deferred) + len(self.dead)


class Settlements:
    """`stored` hears the consumer's progress after every commit. Raises NotFound when the consumer is gone."""

    def __init__(
        self,
        consumer_id: int,
        *,
        store: InboxStore,
        clock: Clock,
        events: Events,
        stored: Callable[[ConsumerProgress], None],
    ) -> None:
        self._consumer_id = consumer_id
        self._store = store
        self._clock = clock
        self._events = events
        self._stored = stored
        self._ended = _Ended()
        self._under_way = 0
        self._bell = Wakeup()
        self._idle_bell = Wakeup()
        self.is_stuck = False  # the store does not take what ended

    def __len__(self) -> int:
        """How many are not stored yet."""
        return len(self._ended) + self._under_way

    def over(self, numbers: Sequence[int], *told: Event) -> None:
        self._add(told)
        self._ended.over += numbers

    def deferred(self, deferral: Deferral, *told: Event) -> None:
        self._add(told)
        self._ended.deferred.append(deferral)

    def dead(self, burial: Burial, *told: Event) -> None:
        self._add(told)
        self._ended.dead.append(burial)

    def _add(self, told: Sequence[Event]) -> None:
        self._ended.told += told
        self._bell.ring()

    async def run(self) -> None:
        while True:
            await self._bell.wait()
            while self._ended:
                await self._commit()
            self._idle_bell.ring()

    async def finish(self) -> None:
        """Until everything is stored. Somebody must be in `run`."""
        while len(self):
            await self._idle_bell.wait()

    async def _commit(self) -> None:
        ended, self._ended = self._ended, _Ended()
        self._under_way = len(ended)
        progress = await self._settle(ended)
        self._under_way = 0
        self._stored(progress)
        self._events.tell_all(ended.told)

    async def _settle(self, ended: _Ended) -> ConsumerProgress:
        while True:
            try:
                progress = await self._store.settle_arrivals(
                    self._consumer_id,
                    over=spans_of(ended.over),
                    deferred=ended.deferred,
                    dead=ended.dead,
                    at_ms=self._clock.wall_ms(),
                )
            except StoreUnavailable as error:
                if not self.is_stuck:
                    self.is_stuck = True
                    self._events.tell(StoreFailed(what="settling arrivals", why=error.detail))
                await asyncio.sleep(RETRY_S)
                continue
            if self.is_stuck:
                self.is_stuck = False
                self._events.tell(StoreRecovered())
            return progress


UNSETTLED_MAX = 1000  # ended and not stored yet; beyond that nothing more is begun
AWAY_FIRST_MS = 1000  # the first wait for a taker that is away; it doubles up to a minute
AWAY_S_MAX = 3600.0  # the longest wait that a taker may ask for
SUSPICIONS_MAX = 3
DUE_S_MAX = 60.0  # no wait that we chose is longer; a clock that was set back must not make it so
HAIR_S = 0.001  # a loop's timers may fire a hair too early, and then nothing would be due yet
PAGE_BYTES_MAX = 4 << 20
LANE_BYTES_MAX = 1 << 20

T = TypeVar("T")


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    terms: QueueTerms
    patience: DeliveryPatience
    missed_after_s: float  # whoever was away for longer has missed something


class _Suspect(msgspec.Struct):
    answers: int  # that the taker had given when it was last away for this arrival
    times: int = 0


class ConsumerRunner:
    """`run` ends after `drain`, or when its consumer is gone."""

    def __init__(
        self,
        consumer: Consumer,
        taker: Taker,
        *,
        store: InboxStore,
        clock: Clock,
        events: Events,
        bounds: Bounds,
        outages: OutagePort | None = None,
        tell_limited: TellLimited = tell_nobody,
        is_ours: Callable[[], bool] = lambda: True,
    ) -> None:
        self.consumer = consumer
        self._taker = taker
        self._store = store
        self._clock = clock
        self._events = events
        self._bounds = bounds
        self._outages = outages or NoOutages()
        self._tell_limited = tell_limited
        self._is_ours = is_ours  # whether this node may hand on now
        self._settlements = Settlements(consumer.id, store=store, clock=clock, events=events, stored=self._stored)
        self._course = DeliveryQueue(bounds.terms, consumer.progress)
        self._resumed_at_ms = clock.wall_ms()
        self._bell = Wakeup()
        self._reader_bell = Wakeup()
        self._is_stale = True  # what memory holds is not what the store would give
        self._is_begun = False
        self._is_draining = False
        self._away_since: float | None = None  # in steady seconds
        self._away_times = 0
        self._away_until = 0.0
        self._probe: int | None = None
        self._answers = 0  # of the taker, so far
        self._suspects: dict[int, _Suspect] = {}  # arrivals that it was away for, by number

    @property
    def in_hand(self) -> frozenset[int]:
        """The numbers that are being worked on."""
        return self._course.in_hand

    @property
    def is_well(self) -> bool:
        """Whether its taker is there, as far as we know."""
        return self._is_begun and self._away_since is None

    # ---- what others tell it ----

    def news(self, last_number: int) -> None:
        self._course.news(last_number)
        self._reader_bell.ring()

    def look(self, progress: ConsumerProgress) -> None:
        """Others wrote to the store: arrivals, or what is over for this consumer."""
        self._course.learned(progress)
        self._course.look()
        self._reader_bell.ring()

    def released(self) -> None:
        """An outage was settled, and with it perhaps arrivals that stand in memory as open."""
        self._is_stale = True
        self._bell.ring()

    def wake(self) -> None:
        """What kept it from handing on may be over."""
        self._bell.ring()

    def drain(self) -> None:
        """Begin nothing more; `run` ends when what is in hand has ended and is stored."""
        self._is_draining = True
        self._bell.ring()

    # ---- running ----

    async def run(self) -> None:
        if self.consumer.seen_at_ms is not None and self._tell_outage(since_ms=self.consumer.seen_at_ms):
            await self._outages.kept(self.consumer.bot_id)
        self._is_begun = True
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read_ahead())
                settling = group.create_task(self._settlements.run())
                await self._hand_on(group)
                reading.cancel()
                await self._settlements.finish()
                settling.cancel()
        except* NotFound:
            pass  # the consumer was removed: there is nobody to settle for

    def _tell_outage(self, *, since_ms: int) -> bool:
        """Whether somebody who was away since then has missed something."""
        if self._clock.wall_ms() - since_ms <= self._bounds.missed_after_s * 1000:
            return False
        if self.consumer.name == DEFAULT_CONSUMER:
            self._outages.expect(self.consumer.bot_id, "consumer", since_ms)
            self._outages.over(self.consumer.bot_id, "consumer")
        return True

    async def _hand_on(self, group: asyncio.TaskGroup) -> None:
        while not (self._is_draining and not self._course.in_hand):
            if self._is_stale and not self._is_held() and not self._course.in_hand and not len(self._settlements):
                await self._begin_anew()
            self._start(group)
            await self._bell.wait(self._wake_at())

    def _is_held(self) -> bool:
        return self.consumer.name == DEFAULT_CONSUMER and self._outages.holds(self.consumer.bot_id)

    async def _begin_anew(self) -> None:
        """Memory from the store: how far the consumer is, and what is put off."""
        consumers = await self._surely(lambda: self._store.consumers(self.consumer.bot_id))
        found = next((one for one in consumers if one.id == self.consumer.id), None)
        if found is None:
            raise NotFound(code="unknown_consumer", detail=f"There is no consumer {self.consumer.name} any more.")
        deferrals = await self._surely(lambda: self._store.deferrals(self.consumer.id))
        state = await self._surely(lambda: self._store.inbox(self.consumer.bot_id))
        self._is_stale = False
        self._course = DeliveryQueue(
            self._bounds.terms,
            found.progress,
            put_off=[self._put_off(deferral) for deferral in deferrals if deferral.lane is not None],
            resumed_at_ms=self._resumed_at_ms,
        )
        self._course.news(0 if state is None else state.last_number)
        self._course.look()  # that was a moment ago
        self._reader_bell.ring()

    def _put_off(self, deferral: Deferral) -> PutOff:
        assert deferral.lane is not None
        wait_s = (deferral.due_at_ms - self._clock.wall_ms()) / 1000
        return PutOff(
            number=deferral.number,
            lane=deferral.lane,
            tries=deferral.tries,
            until=self._clock.mono() + min(max(wait_s, 0.0), DUE_S_MAX),
        )

    # ---- reading ahead ----

    async def _read_ahead(self) -> None:
        while True:
            course = self._course
            read = None if self._is_stale or len(self._settlements) > UNSETTLED_MAX else course.next_read()
            if read is None:
                await self._reader_bell.wait()
                continue
            page = await self._page(read)
            if course is self._course:
                unwanted = course.took(read, page)
                if unwanted:
                    self._settlements.over(unwanted)
                self._bell.ring()

    async def _page(self, read: QueueRead) -> list[Arrival]:
        bytes_max = PAGE_BYTES_MAX if read.lane is None else LANE_BYTES_MAX
        return await self._surely(
            lambda: self._store.arrivals_after(
                self.consumer.id, read.after, limit=read.limit, lane=read.lane, bytes_max=bytes_max
            )
        )

    async def _surely(self, act: Callable[[], Awaitable[T]]) -> T:
        is_told = False
        while True:
            try:
                return await act()
            except StoreUnavailable as error:
                if not is_told:
                    is_told = True
                    self._events.tell(StoreFailed(what="reading arrivals", why=error.detail))
                await asyncio.sleep(RETRY_S)

    # ---- one arrival: take, deliver, judge, settle ----

    def _start(self, group: asyncio.TaskGroup) -> None:
        while self._may_begin():
            handing = self._course.take(self._clock.mono())
            if handing is None:
                break
            self._probe = handing.arrival.number
            group.create_task(self._carry(handing))
        for arrival in self._course.newly_limited():
            assert arrival.user_id is not None
            limited = UserLimited(bot_id=arrival.bot_id, consumer=self.consumer.name, user_id=arrival.user_id)
            self._events.tell(limited)
            group.create_task(self._tell_user(arrival, arrival.user_id))
        self._reader_bell.ring()  # there may be room, and lanes whose time has come

    def _may_begin(self) -> bool:
        if self._is_blocked() or not self._is_ours():
            return False
        is_away = self._away_since is not None
        return not is_away or (not self._course.in_hand and self._clock.mono() >= self._away_until)

    def _is_blocked(self) -> bool:
        """By something whose end rings the bell."""
        is_behind = self._settlements.is_stuck or len(self._settlements) > UNSETTLED_MAX
        return self._is_draining or self._is_stale or is_behind or self._is_held()

    def _wake_at(self) -> float | None:
        if self._is_blocked() or not self._is_ours():  # who makes it ours again rings
            return None
        at = self._course.next_timer()
        if self._away_since is not None and self._course.in_hand:
            at = None
        elif self._away_since is not None and self._clock.mono() < self._away_until:
            at = self._away_until  # after it, with nothing to try the taker with, only the bell can bring something
        return None if at is None else at + HAIR_S

    async def _carry(self, handing: InHand) -> None:
        arrival = handing.arrival
        self._events.tell(HandedOn(bot_id=arrival.bot_id, consumer=self.consumer.name, arrivals=(arrival,)))
        try:
            verdict = await self._taker.deliver(handing.arrival, tries=handing.tries)
        except Exception as error:  # noqa: BLE001  it is told, and costs this arrival a try and no other
            words = f"{type(error).__name__}: {error}"[:WORDS_MAX]
            self._events.tell(Surprise(bot_id=self.consumer.bot_id, where="consumer", error=words))
            verdict = Failed(words=words)
        if isinstance(verdict, Away) and self._is_to_blame(handing.arrival):
            self._fail(handing, Failed(words=verdict.why))
        else:
            self._judge(handing, verdict)
        self._bell.ring()

    def _is_to_blame(self, arrival: Arrival) -> bool:
        """Whether the taker goes away for this one again and again, and is there for others in between."""
        suspect = self._suspects.setdefault(arrival.number, _Suspect(answers=self._answers))
        if suspect.answers != self._answers:
            suspect.answers = self._answers
            suspect.times += 1
        return suspect.times > SUSPICIONS_MAX

    def _judge(self, handing: InHand, verdict: Verdict) -> None:
        number = handing.arrival.number
        match verdict:
            case Away():
                self._went_away(handing.arrival, verdict)
                return
            case Done():
                self._suspects.pop(number, None)
                self._course.over(number)
                self._settlements.over([number], self._settled(handing, State.COMPLETED))
            case Failed():
                self._fail(handing, verdict)
        self._answers += 1
        if self._away_since is not None:
            self._came_back(self._away_since)

    def _fail(self, handing: InHand, failed: Failed) -> None:
        arrival, tries = handing.arrival, handing.tries + 1
        now_ms = self._clock.wall_ms()
        entry, reason = line_of(failed, at_ms=now_ms), failed.words[:WORDS_MAX]
        if tries >= self._bounds.patience.attempts:
            self._suspects.pop(arrival.number, None)
            self._course.over(arrival.number)
            burial = Burial(number=arrival.number, tries=tries, reason=reason, entry=entry)
            self._settlements.dead(burial, self._settled(handing, State.FAILED, reason))
            return
        wait_ms = backoff_ms(failures=tries, first_ms=self._bounds.patience.first_ms, kind=Backoff.EXPONENTIAL)
        self._course.put_off(arrival, tries=tries, until=self._clock.mono() + wait_ms / 1000)
        self._settlements.deferred(
            Deferral(number=arrival.number, tries=tries, due_at_ms=now_ms + wait_ms, entry=entry),
            ArrivalDeferred(
                bot_id=arrival.bot_id,
                consumer=self.consumer.name,
                arrival_id=arrival.id,
                number=arrival.number,
                reason=reason,
                tries=tries,
                wait_s=wait_ms / 1000,
            ),
        )

    def _settled(self, handing: InHand, state: State, reason: str | None = None) -> ArrivalSettled:
        return ArrivalSettled(
            bot_id=handing.arrival.bot_id,
            consumer=self.consumer.name,
            arrival_id=handing.arrival.id,
            number=handing.arrival.number,
            kind=handing.arrival.type,
            state=state,
            tries=handing.tries + 1,
            reason=reason,
        )

    def _stored(self, progress: ConsumerProgress) -> None:
        self._course.settled(progress)
        self._bell.ring()
        self._reader_bell.ring()

    async def _tell_user(self, arrival: Arrival, user_id: int) -> None:
        try:
            await self._tell_limited(arrival.bot_id, user_id, arrival.lane, language_of(arrival))
        except Exception as error:  # noqa: BLE001  a courtesy; nothing depends on it
            self._events.tell(Surprise(bot_id=arrival.bot_id, where="user limit", error=type(error).__name__))

    # ---- a taker that is away ----

    def _went_away(self, arrival: Arrival, away: Away) -> None:
        """It backs off as one, and is probed with one arrival at a time: they all wait for the same thing."""
        self._course.give_back(arrival)
        if self._away_since is None:
            self._away_since = self._clock.steady()
            self._away_times = 0
            self._probe = None
            self._events.tell(ConsumerAway(bot_id=arrival.bot_id, consumer=self.consumer.name, why=away.why))
        elif self._probe != arrival.number:
            return  # it had begun before the taker was known to be away
        self._away_times += 1
        wait_s = backoff_ms(failures=self._away_times, first_ms=AWAY_FIRST_MS, kind=Backoff.EXPONENTIAL) / 1000
        if away.wait_s is not None:
            wait_s = min(max(away.wait_s, 0.0), AWAY_S_MAX)
        self._away_until = self._clock.mono() + wait_s

    def _came_back(self, since: float) -> None:
        self._away_since = None
        away_s = self._clock.steady() - since
        since_ms = self._clock.wall_ms() - int(away_s * 1000)
        self._events.tell(ConsumerBack(bot_id=self.consumer.bot_id, consumer=self.consumer.name, away_s=away_s))
        if self._tell_outage(since_ms=since_ms):
            self._resumed_at_ms = self._clock.wall_ms()
            self._is_stale = True  # what waited is caught up with at its own pace
