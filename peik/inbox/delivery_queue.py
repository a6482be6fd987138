"""The arrivals of one consumer in memory: which is handed on next. In order and alone within a lane, by turns over lanes.

Memory does not grow with the backlog: a lane keeps a window of its first arrivals, one that has to wait keeps none, and
what is not here is in the store. Pure: it says what to read and what to hand on; somebody else reads, hands on and settles.

How it reads: everything up to the cursor is known, which means over, or in some lane's keeping. A lane that has more than
it keeps is `beyond`, and is read again from its own place when it runs dry. What waited through an outage is handed on at
a pace of its own, and never stands in the way of what came after it in other lanes.
"""

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from peik.core.arrival import Arrival, ConsumerProgress, advanced, is_wanted
from peik.core.letter import Chat
from peik.core.units import RateBucket, UserQuota

PAGE = 500  # arrivals in one read
CATCH_UP_BURST_S = 0.1  # late ones go in small groups: a timer for each would cost more than handing it on


class QueueTerms(msgspec.Struct, frozen=True, kw_only=True):
    at_once: int = 32
    allowed: frozenset[str] | None = None
    user_rate: float = 0.0  # a second; 0 is no limit
    catch_up_rate: float = 0.0  # a second; 0 is no limit
    late_ms: int = 60_000  # an arrival that waited so long while somebody was away is late
    lane_window: int = 16
    late_ahead: int = 32  # lanes with late heads that keep their windows; of the others only the place is known
    held_max: int = 1000
    held_bytes_max: int = 16 << 20
    lanes_max: int = 50_000
    lanes_extra: int = 1000  # for fresh arrivals behind more late lanes than that


class PutOff(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival that failed before: how often, and when it may be tried again."""

    number: int
    lane: Chat
    tries: int
    until: float


class QueueRead(msgspec.Struct, frozen=True, kw_only=True):
    """A page to be read from the store, answered by `took` before the next one is asked for."""

    after: int
    limit: int
    lane: Chat | None = None  # None: of all lanes
    is_peek: bool = False  # only to find lanes that need not wait for the cursor


class InHand(msgspec.Struct, frozen=True, kw_only=True):
    arrival: Arrival
    tries: int  # that have failed before


class _Lane:
    """One lane. Everything of it up to `after` is over, flying or in the window; `beyond`: there may be more."""

    __slots__ = ("after", "beyond", "is_called", "key", "reach", "window")

    def __init__(self, key: Chat, *, after: int, reach: int) -> None:
        self.key = key
        self.window: deque[Arrival] = deque()
        self.after = after
        self.beyond = False
        self.is_called = False  # it is being read because it is its turn
        self.reach = reach  # how many to read at a time: one after a wait, more when it goes well


class DeliveryQueue:
    """`now` is the loop's time; `resumed_at_ms` is when the consumer began, or came back."""

    def __init__(
        self, terms: QueueTerms, progress: ConsumerProgress, *, put_off: Iterable[PutOff] = (), resumed_at_ms: int = 0
    ) -> None:
        self._terms = terms
        self._progress = progress
        self._resumed_at_ms = resumed_at_ms
        self._done: set[int] = set()  # over, and not yet known to be stored so
        self._cursor = progress.watermark
        self._upto = math.inf  # the store has been seen to hold nothing above this
        self._has_news = False  # since the last read began
        self._peek = 0
        self._peek_upto = math.inf
        self._newest = 0
        self._lanes: dict[Chat, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._late: deque[_Lane] = deque()
        self._timers: list[tuple[float, int, _Lane]] = []
        self._ticket = 0
        self._loads: deque[_Lane] = deque()
        self._called = 0
        self._held = self._held_bytes = 0
        self._flying: dict[int, _Lane] = {}
        self._is_full = self._is_crowded = self._is_lates_turn = self._is_loads_turn = False
        self._users = UserQuota(terms.user_rate)
        self._catch_up = RateBucket(terms.catch_up_rate, burst=max(1.0, terms.catch_up_rate * CATCH_UP_BURST_S))
        self._limited: list[Arrival] = []
        self._put_off: dict[int, PutOff] = {}
        for one in put_off:
            self._put_off[one.number] = one
            if one.lane not in self._lanes:
                # Only the head of a lane is ever put off; should another be, reading from the watermark finds its elders.
                self._time(self._add(one.lane, after=progress.watermark, reach=1), one.until)

    @property
    def in_hand(self) -> frozenset[int]:
        return frozenset(self._flying)

    @property
    def held(self) -> int:
        """How many arrivals are in memory and wait."""
        return self._held

    @property
    def lanes(self) -> int:
        return len(self._lanes)

    # ---- news ----

    def look(self) -> None:
        """The store may hold more than we know of."""
        self._upto = self._peek_upto = math.inf
        self._has_news = True

    def news(self, last_number: int) -> None:
        """The store holds arrivals up to this number."""
        self._newest = max(self._newest, last_number)
        self._upto = max(self._upto, last_number)
        self._peek_upto = max(self._peek_upto, last_number)
        self._has_news = True

    # ---- reading ----

    def next_read(self) -> QueueRead | None:
        self._is_loads_turn = not self._is_loads_turn
        if self._is_loads_turn:
            return self._next_load() or self._next_page()
        return self._next_page() or self._next_load()

    def _next_load(self) -> QueueRead | None:
        if not self._loads:
            return None
        lane = self._loads.popleft()
        return QueueRead(after=self._past(lane.after), lane=lane.key, limit=lane.reach)

    def _next_page(self) -> QueueRead | None:
        terms = self._terms
        share = 0.5 if self._is_full else 1.0
        self._is_full = self._held >= terms.held_max * share or self._held_bytes >= terms.held_bytes_max * share
        if self._is_full:
            return None
        limit = min(PAGE, max(1, terms.held_max - self._held))
        self._is_crowded = len(self._lanes) >= terms.lanes_max * (0.9 if self._is_crowded else 1.0)
        if self._is_crowded:
            return self._next_peek(limit)
        self._cursor = self._past(self._cursor)
        if self._cursor >= self._upto:
            return None
        self._has_news = False
        return QueueRead(after=self._cursor, limit=limit)

    def _next_peek(self, limit: int) -> QueueRead | None:
        """The cursor stands before more lanes than we can know. What is fresh in others still goes: from the newest on."""
        self._peek = self._past(max(self._peek or self._newest, self._cursor))
        if self._peek >= self._peek_upto or not self._has_extra_room():
            return None
        self._has_news = False
        return QueueRead(after=self._peek, limit=limit, is_peek=True)

    def _has_extra_room(self) -> bool:
        return len(self._lanes) < self._terms.lanes_max + self._terms.lanes_extra

    def took(self, read: QueueRead, arrivals: Sequence[Arrival]) -> list[int]:
        """What was read. The numbers that this consumer does not want: they are over at once."""
        if read.lane is not None:
            return self._loaded(self._lanes[read.lane], arrivals)
        if read.is_peek:
            self._peeked(arrivals)
            return []
        if not arrivals and not self._has_news:
            self._upto = self._cursor
        unwanted: list[int] = []
        for arrival in arrivals:
            self._cursor = arrival.number
            if self._is_open(arrival, unwanted):
                self._meet(arrival)
        return unwanted

    def _is_open(self, arrival: Arrival, unwanted: list[int]) -> bool:
        if self._is_over(arrival.number):
            return False
        if not is_wanted(arrival.type, self._terms.allowed):
            self._done.add(arrival.number)
            unwanted.append(arrival.number)
            return False
        return True

    def _meet(self, arrival: Arrival) -> None:
        lane = self._lanes.get(arrival.lane)
        if lane is None:
            lane = self._add(arrival.lane, after=arrival.number, reach=self._terms.lane_window)
            self._keep(lane, arrival)
            self._queue(lane)
        elif not lane.beyond and len(lane.window) < self._terms.lane_window:
            lane.after = arrival.number
            self._keep(lane, arrival)
        else:
            lane.beyond = True

    def _loaded(self, lane: _Lane, arrivals: Sequence[Arrival]) -> list[int]:
        unwanted: list[int] = []
        for arrival in arrivals:
            lane.after = arrival.number
            if self._is_open(arrival, unwanted):
                self._keep(lane, arrival)
        # A page may be short because its arrivals are large: only an empty one is the end.
        lane.beyond = bool(arrivals)
        is_extra = self._is_crowded and bool(lane.window) and lane.window[0].number > self._cursor
        if is_extra and self._is_late(lane.window[0]):
            self._unload(lane)
            self._remove(lane)  # it was thought to be fresh; the cursor will come to it
        else:
            self._queue(lane)
        return unwanted

    def _peeked(self, arrivals: Sequence[Arrival]) -> None:
        if not arrivals and not self._has_news:
            self._peek_upto = self._peek
        for arrival in arrivals:
            if not self._has_extra_room():
                return
            self._peek = arrival.number
            lane = self._lanes.get(arrival.lane)
            if lane is not None:
                lane.beyond = True
            elif is_wanted(arrival.type, self._terms.allowed) and not self._is_late(arrival):
                # Only the store knows whether something older of this lane is open: it is read before it goes.
                self._load(self._add(arrival.lane, after=self._cursor, reach=self._terms.lane_window))

    # ---- handing on ----

    def take(self, now: float) -> InHand | None:
        """The next to hand on. It is in hand until `over`, `put_off` or `give_back`."""
        while self._timers and self._timers[0][0] <= now:
            self._load(heapq.heappop(self._timers)[2])
        if len(self._flying) >= self._terms.at_once:
            return None
        turns = (self._take_late, self._take_ready) if self._is_lates_turn else (self._take_ready, self._take_late)
        for turn in turns:
            handing = turn(now)
            if handing is not None:
                self._is_lates_turn = not self._is_lates_turn
                return handing
        return None

    def _take_ready(self, now: float) -> InHand | None:
        while self._ready:
            handing = self._begin(self._ready.popleft(), now)
            if handing is not None:
                return handing
        return None

    def _take_late(self, now: float) -> InHand | None:
        while self._late and self._called < self._terms.late_ahead and self._catch_up.ready_at <= now:
            lane = self._late.popleft()
            if not lane.window:
                lane.is_called = True
                self._called += 1
                self._load(lane)
                continue
            handing = self._begin(lane, now)
            if handing is not None:
                self._catch_up.spend(now)
                return handing
        return None

    def _begin(self, lane: _Lane, now: float) -> InHand | None:
        while lane.window and self._is_over(lane.window[0].number):
            gone = lane.window.popleft()  # by another hand
            self._put_off.pop(gone.number, None)
            self._drop(gone)
        if not lane.window:
            self._queue(lane)
            return None
        head = lane.window[0]
        put_off = self._put_off.get(head.number)
        user_at = self._users.ready_at(head.user_id)
        until = user_at if put_off is None else max(put_off.until, user_at)
        if until > now:
            if user_at > now and head.user_id is not None and self._users.is_news(head.user_id):
                self._limited.append(head)
            self._unload(lane)
            self._time(lane, until)
            return None
        self._users.spend(head.user_id, now)
        self._drop(lane.window.popleft())
        self._flying[head.number] = lane
        return InHand(arrival=head, tries=0 if put_off is None else put_off.tries)

    def newly_limited(self) -> list[Arrival]:
        """The first arrival of each user who is over his limit since this was last asked."""
        limited, self._limited = self._limited, []
        return limited

    def over(self, number: int) -> None:
        """Handled, or given up: the next of its lane may go."""
        lane = self._flying.pop(number)
        self._done.add(number)
        self._put_off.pop(number, None)
        lane.reach = min(lane.reach * 4, self._terms.lane_window)
        self._queue(lane)

    def put_off(self, arrival: Arrival, *, tries: int, until: float) -> None:
        """It failed: its lane waits, and keeps nothing in memory meanwhile."""
        lane = self._flying.pop(arrival.number)
        self._put_off[arrival.number] = PutOff(number=arrival.number, lane=lane.key, tries=tries, until=until)
        self._unload(lane, head=arrival.number)
        self._time(lane, until)

    def give_back(self, arrival: Arrival) -> None:
        """It was not handed on after all: it stands where it stood."""
        lane = self._flying.pop(arrival.number)
        lane.window.appendleft(arrival)
        self._held += 1
        self._held_bytes += len(arrival.payload)
        self._queue(lane)

    def settled(self, progress: ConsumerProgress) -> None:
        """What the store says now."""
        self._progress = progress
        self._done = {number for number in self._done if not _covers(progress, number)}

    def learned(self, progress: ConsumerProgress) -> None:
        """What the store said a while ago: some of it may be news, and some of what we know may be newer."""
        self.settled(advanced(self._progress, [(0, progress.watermark), *progress.spans]))

    def next_timer(self) -> float | None:
        """When `take` may have something that it has not now; None: not before something ends, or is read."""
        if len(self._flying) >= self._terms.at_once:
            return None
        at = self._timers[0][0] if self._timers else math.inf
        if self._late and self._called < self._terms.late_ahead:
            at = min(at, self._catch_up.ready_at)
        return None if at == math.inf else at

    # ---- where a lane stands ----

    def _add(self, key: Chat, *, after: int, reach: int) -> _Lane:
        lane = self._lanes[key] = _Lane(key, after=after, reach=reach)
        return lane

    def _remove(self, lane: _Lane) -> None:
        if lane.is_called:
            lane.is_called = False
            self._called -= 1
        del self._lanes[lane.key]

    def _queue(self, lane: _Lane) -> None:
        """Find the lane's place from what it holds."""
        if not lane.window:
            if lane.beyond:
                self._load(lane)
            else:
                self._remove(lane)
            return
        was_called, lane.is_called = lane.is_called, False
        self._called -= was_called
        if not self._is_late(lane.window[0]):
            self._ready.append(lane)
            return
        if was_called:
            self._late.appendleft(lane)
        else:
            self._late.append(lane)
            if len(self._late) > self._terms.late_ahead:
                self._unload(lane)

    def _load(self, lane: _Lane) -> None:
        lane.beyond = True  # whatever comes meanwhile is read with the rest
        self._loads.append(lane)

    def _time(self, lane: _Lane, at: float) -> None:
        lane.beyond = True
        self._ticket += 1
        heapq.heappush(self._timers, (at, self._ticket, lane))

    def _unload(self, lane: _Lane, *, head: int | None = None) -> None:
        """Keep nothing but the place: `head` and all that follow are read again."""
        first = lane.window[0].number if head is None else head
        for arrival in lane.window:
            self._drop(arrival)
        lane.window.clear()
        lane.after = first - 1
        lane.beyond = True
        lane.reach = 1

    def _keep(self, lane: _Lane, arrival: Arrival) -> None:
        lane.window.append(arrival)
        self._held += 1
        self._held_bytes += len(arrival.payload)

    def _drop(self, arrival: Arrival) -> None:
        self._held -= 1
        self._held_bytes -= len(arrival.payload)

    # ---- what is over, what is late ----

    def _is_over(self, number: int) -> bool:
        return number in self._done or _covers(self._progress, number)

    def _past(self, number: int) -> int:
        """As far as nothing above a number can be open: over a span that begins there."""
        number = max(number, self._progress.watermark)
        spans = self._progress.spans
        at = bisect_right(spans, (number + 1, math.inf)) - 1
        return spans[at][1] if at >= 0 and spans[at][1] > number else number

    def _is_late(self, arrival: Arrival) -> bool:
        """Whether it waited for us, at Telegram or here, and not merely for its turn: a bot that is slow all the time
        would never get through its backlog at the pace of catching up."""
        terms = self._terms
        if not terms.catch_up_rate:
            return False
        came_late = arrival.sent_at_ms is not None and arrival.received_at_ms - arrival.sent_at_ms >= terms.late_ms
        return came_late or self._resumed_at_ms - arrival.received_at_ms >= terms.late_ms


def _covers(progress: ConsumerProgress, number: int) -> bool:
    """The same as `ConsumerProgress.is_over`, quick also where many lanes wait and part the spans."""
    if number <= progress.watermark:
        return True
    at = bisect_right(progress.spans, (number, math.inf)) - 1
    return at >= 0 and progress.spans[at][1] >= number
