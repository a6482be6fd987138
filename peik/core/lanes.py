"""The lanes of one bot in memory: who goes next. Fair over lanes, by priority without starvation, the head of a lane alone.

Memory does not grow with the backlog: each lane keeps a window of its first letters, and only some lanes are loaded.
What is not here is in the store; `beyond` says where to look. Pure: it decides what to read, somebody else reads.
"""

import enum
import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from peik.core.letter import EDITS_TURN, RANKS, Chat, LaneKey, Letter

# Shares of the ranks when all of them want to go: the higher goes first nearly always, and the lowest still goes.
WEIGHTS = (64, 16, 4, 1, 1, 16)  # the last is that of edits
_TURNS = EDITS_TURN + 1
_NEVER = float("inf")


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the backlog may be in memory."""

    lanes_per_rank: int = 512
    letters_per_lane: int = 16


class LanePlace(enum.Enum):
    READY = "ready"  # in a ready queue
    TIMED = "timed"  # waits for an instant
    FLYING = "flying"  # its head is being marked or sent
    LOADING = "loading"  # its window is to be read from the store
    RESTING = "resting"  # empty; stays until its last settlement is stored


# By themselves: an enum's member costs ten times as much when it is asked of its class, and lanes ask at every step.
_READY, _TIMED, _FLYING, _LOADING, _RESTING = LanePlace


class Lane:
    """One lane's window. `window` is always the front of the lane: nothing in the store goes before its last letter."""

    __slots__ = (
        "beyond",
        "came",
        "has_gone",
        "key",
        "place",
        "queued",
        "rank",
        "stamp",
        "turn",
        "unsettled",
        "wants_load",
        "window",
    )

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.window: list[Letter] = []
        self.beyond = False
        self.came: list[Letter] = []  # while its front is being read, which may miss them: the first of these, in order
        self.has_gone = False  # it has had a turn since it was loaded
        self.place = _RESTING
        self.rank = 0
        self.turn = 0  # of its head, as `rank` is
        self.queued: set[int] = set()  # the ready queues that hold it, each once, even if it is not ready now
        self.stamp = 0  # tells a live timer from a stale one
        self.unsettled = 0  # settlements on their way to the store
        self.wants_load = False


def _order(letter: Letter) -> tuple[int, int]:
    return (letter.rank, letter.number)


class Lanes:
    """Offer letters, take them one by one, give each lane back when its try is over."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._lanes: dict[LaneKey, Lane] = {}
        self._ready: tuple[deque[Lane], ...] = tuple(deque() for _ in range(_TURNS))
        self._timers: list[tuple[float, int, int, Lane]] = []
        self._ticket = 0
        self._passes = [0.0] * _TURNS
        self._loaded = [0] * RANKS
        # Until the store has been read once, it may hold anything.
        self._beyond = [True] * RANKS
        self._is_crowded = [False] * RANKS  # the store has more lanes than there is room for: each gets a short turn
        self._lanes_max = RANKS * room.lanes_per_rank
        self._is_sweeping = False
        self._has_missed = False  # something came into the store since the sweep began, and not to memory
        self._missed_lanes: set[LaneKey] = set()
        self._is_sweep_stale = False  # it may even have missed anything in any lane
        self._loads: list[Lane] = []

    def __len__(self) -> int:
        return len(self._lanes)

    # ---- letters come in ----

    def offer(self, letter: Letter) -> None:
        """A letter that was just made durable, in the order of its number. It is kept here if its place is known."""
        lane = self._lanes.get(letter.lane)
        if lane is not None:
            self._offer_to(lane, letter)
            return
        if not self._has_room(letter.rank):
            self._beyond[letter.rank] = self._is_crowded[letter.rank] = True
            self._missed(letter.lane)
            return
        lane = self._add(letter.lane, letter.rank)
        if any(self._beyond):
            # The store may hold older letters of this lane: read before deciding who is its head.
            self._want_load(lane)
        else:
            lane.window.append(letter)
            self._requeue(lane)

    def _offer_to(self, lane: Lane, letter: Letter) -> None:
        if lane.place is _LOADING:
            # The read under way may have missed it. To read again would never end while letters come faster than that.
            insort(lane.came, letter, key=_order)
            if len(lane.came) > self._room.letters_per_lane:
                lane.came.pop()  # what goes before it fills a window, so that `_with_newcomers` sees that there are more
            return
        window = lane.window
        if window and lane.beyond and _order(letter) > _order(window[-1]):
            return  # it is behind what the store has anyway
        if not window and lane.beyond:
            # Only the store knows the front now. While the head is in flight it must not be read: the head is in it.
            if lane.place is _FLYING:
                lane.wants_load = True
            else:
                self._want_load(lane)
            return
        if len(window) >= self._room.letters_per_lane and _order(letter) > _order(window[-1]):
            lane.beyond = True
            return
        insort(window, letter, key=_order)
        if len(window) > self._room.letters_per_lane:
            window.pop()
            lane.beyond = True
        has_new_head = lane.place is _READY and window[0] is letter  # its turn may be another
        if has_new_head or lane.place in (_RESTING, _TIMED):
            self._requeue(lane)

    def remove(self, key: LaneKey, letter_id: int) -> None:
        """Somebody else ended this letter (cancelled, merged, expired). It must not be tried from memory."""
        lane = self._lanes.get(key)
        if lane is None:
            return
        if lane.place is _LOADING:
            lane.wants_load = True
        lane.window = [letter for letter in lane.window if letter.id != letter_id]
        if lane.place in (_READY, _TIMED):
            self._requeue(lane)

    def forget(self, key: LaneKey) -> None:
        """Drop what is known of a lane's front, to be read again: letters were moved into or out of it."""
        lane = self._lanes.get(key)
        self._beyond = [True] * RANKS
        self._missed(key)
        if lane is None:
            return
        lane.window.clear()
        lane.beyond = True
        if lane.place in (_LOADING, _FLYING):
            lane.wants_load = True
        else:
            self._requeue(lane)

    def forget_chat(self, chat: Chat) -> None:
        """The same for all threads of a chat."""
        self._expect_anything()
        for key in [key for key in self._lanes if key[0] == chat]:
            self.forget(key)

    def recheck(self, chat: Chat | None = None) -> None:
        """A hold of this chat, or a limit of all, was changed by hand: lanes that wait for an instant ask again."""
        for key, lane in self._lanes.items():
            if chat in (None, key[0]) and lane.place is _TIMED:
                self._requeue(lane)

    def forget_all(self) -> None:
        """Others wrote to the store: read everything again, except what is in flight."""
        self._expect_anything()
        for lane in list(self._lanes.values()):
            self.forget(lane.key)

    def _expect_anything(self) -> None:
        """The store may hold letters of any rank that memory does not know, and a sweep under way may miss them."""
        self._beyond = [True] * RANKS
        self._has_missed = self._is_sweep_stale = True

    def _missed(self, key: LaneKey) -> None:
        """This lane has changed in the store and not in memory."""
        self._has_missed = True
        if self._is_sweeping:
            self._missed_lanes.add(key)

    # ---- letters go out ----

    def is_free(self, key: LaneKey, rank: int) -> bool:
        """Whether a letter that is not durable yet would go first of all: nobody waits, here or in the store."""
        nobody = key not in self._lanes and not any(self._ready) and not any(self._beyond)
        return nobody and self._has_room(rank)

    def reserve(self, key: LaneKey, rank: int) -> None:
        """Its lane is in flight from now on: what comes meanwhile waits behind it. Ended by `leave`, as every try."""
        lane = self._add(key, rank)
        self._passes[rank] = max(self._passes[rank], self._least_pass()) + 1 / WEIGHTS[rank]
        lane.place = _FLYING
        lane.has_gone = True

    def take(self, now: float, *, turns: Sequence[int], ready_at: Callable[[Letter], float]) -> Letter | None:
        """The next letter to try, of the given turns. `ready_at` says when a head may go; -inf or the past is now."""
        if self._timers:
            self.wake(now)
        queues, passes = self._ready, self._passes
        while True:
            turn = -1
            for one in turns:
                if queues[one] and (turn < 0 or passes[one] < passes[turn]):
                    turn = one
            if turn < 0:
                return None
            lane = queues[turn].popleft()
            lane.queued.discard(turn)
            if lane.place is not _READY or lane.turn != turn or not lane.window:
                continue  # a stale entry: the lane has been requeued since
            head = lane.window[0]
            at = ready_at(head)
            if at > now:
                self._time(lane, at)
                continue
            self._passes[turn] += 1 / WEIGHTS[turn]
            lane.window.pop(0)
            lane.place = _FLYING
            lane.has_gone = True
            return head

    def put_back(self, letter: Letter) -> None:
        """The try is over and the letter waits on: it takes its place at the front of its lane again."""
        lane = self._lanes[letter.lane]
        insort(lane.window, letter, key=_order)
        self._requeue(lane)

    def leave(self, key: LaneKey) -> None:
        """The try is over and the letter has left its lane: the next may go."""
        self._requeue(self._lanes[key])

    def settling(self, key: LaneKey) -> None:
        """A settlement of this lane is on its way to the store."""
        self._lanes[key].unsettled += 1

    def leave_settling(self, key: LaneKey) -> None:
        """Both at once, as nearly every try ends."""
        lane = self._lanes[key]
        lane.unsettled += 1
        self._requeue(lane)

    def settled(self, key: LaneKey) -> None:
        """It has been stored: the store may be read for this lane again."""
        lane = self._lanes.get(key)
        if lane is None:
            return
        lane.unsettled -= 1
        if lane.unsettled == 0:
            if lane.place is _RESTING:
                self._drop(lane)
            elif lane.place is _LOADING:
                self._loads.append(lane)
            elif lane.place is _READY and lane.has_gone and self._is_crowded[lane.rank]:
                self._give_up(lane)  # it has had its turn, and others wait in the store for theirs

    def next_timer(self) -> float | None:
        while self._timers and not self._is_live(self._timers[0]):
            heapq.heappop(self._timers)
        if not self._timers or self._timers[0][0] == _NEVER:
            return None
        return self._timers[0][0]

    def has_ready(self, turns: Iterable[int]) -> bool:
        return any(self._ready[turn] for turn in turns)

    # ---- reading from the store ----

    def loads(self) -> list[LaneKey]:
        """The lanes whose front must be read now. Each is answered by `loaded`."""
        keys = [lane.key for lane in self._loads if lane.place is _LOADING and lane.unsettled == 0]
        for lane in self._loads:
            lane.wants_load = False
            lane.came.clear()  # what came until now will be found
        self._loads.clear()
        return keys

    def load_failed(self, keys: Iterable[LaneKey]) -> None:
        """The store did not answer: ask for these again."""
        for key in keys:
            lane = self._lanes.get(key)
            if lane is not None and lane.place is _LOADING:
                self._want_load(lane)

    def may_be_beyond(self, rank: int) -> bool:
        return self._beyond[rank]

    def is_hungry(self, rank: int, now: float) -> bool:
        """Whether more lanes of this rank should be looked for in the store."""
        if not self._beyond[rank] or len(self._ready[rank]) >= max(1, self._room.lanes_per_rank // 4):
            return False
        if not self._has_room(rank):
            self._evict(range(RANKS) if len(self._lanes) >= self._lanes_max else (rank,), now)
        return self._has_room(rank)

    def sweep_room(self, rank: int) -> int:
        """How many lanes to ask for: what there is room for; and unless there is a crowd, enough to get past those that are here
        already. Else one sweep could never see that all of them are here."""
        wanted = self._room.lanes_per_rank
        return max(64, wanted - self._loaded[rank]) if self._is_crowded[rank] else wanted

    def sweep_letters(self, rank: int) -> int:
        """How much of each lane to read: in a crowd no more than a short turn needs, nor if most of them are here already."""
        is_brief = self._is_crowded[rank] or self._loaded[rank] > self._room.lanes_per_rank // 4
        return min(2, self._room.letters_per_lane) if is_brief else self._room.letters_per_lane

    def sweep_begins(self) -> None:
        """The store is about to be read: what was offered until now is in it."""
        self._is_sweeping = True
        self._missed_lanes.clear()
        self._has_missed = self._is_sweep_stale = False

    def swept(self, rank: int, found: dict[LaneKey, tuple[list[Letter], bool]], *, is_whole: bool) -> int:
        """What a look into the store found. `is_whole`: it went once around. The number of lanes that were new here."""
        added = 0
        for key, (letters, more) in found.items():
            if key in self._lanes or not letters:
                continue
            own = letters[0].rank
            # In a crowd exactly those were asked for that may come in.
            if not self._has_room(own) and not (own == rank and self._is_crowded[rank]):
                # Its turn is that of its head, so a sweep of that rank will bring it.
                self._beyond[own] = self._has_missed = True
                is_whole = is_whole and own != rank
                continue
            lane = self._add(key, own)
            if self._is_sweep_stale or key in self._missed_lanes:
                self._want_load(lane)  # what was found is its front no more
            else:
                self._fill(lane, letters, more)
            added += 1
        self._is_sweeping = False
        self._missed_lanes.clear()
        self._is_crowded[rank] = not is_whole
        if is_whole and not self._has_missed:
            self._beyond[rank] = False
        return added

    def loaded(self, key: LaneKey, letters: list[Letter], *, more: bool) -> None:
        lane = self._lanes.get(key)
        if lane is None or lane.place is not _LOADING:
            return
        if lane.wants_load:  # something came while the store was being read
            self._want_load(lane)
            return
        self._fill(lane, *self._with_newcomers(lane, letters, more))

    def _with_newcomers(self, lane: Lane, letters: list[Letter], more: bool) -> tuple[list[Letter], bool]:
        """The front that was read, with what came into the lane meanwhile; and whether the store has more than that."""
        if not lane.came:
            return letters, more
        came, lane.came = lane.came, []
        known = {letter.id for letter in letters}
        fresh = [letter for letter in came if letter.id not in known]
        if more:  # what comes behind the front stays where others are before it
            fresh = [letter for letter in fresh if letters and _order(letter) < _order(letters[-1])]
        most = self._room.letters_per_lane
        front = sorted([*letters, *fresh], key=_order)
        return front[:most], more or len(front) > most or len(came) >= most

    def _fill(self, lane: Lane, letters: list[Letter], more: bool) -> None:
        lane.window = letters
        lane.beyond = more
        self._requeue(lane)

    def _want_load(self, lane: Lane) -> None:
        lane.place = _LOADING
        lane.wants_load = False
        if lane.unsettled == 0:
            self._loads.append(lane)

    # ---- where a lane stands ----

    def _add(self, key: LaneKey, rank: int) -> Lane:
        lane = self._lanes[key] = Lane(key)
        lane.rank = rank
        self._loaded[rank] += 1
        return lane

    def _has_room(self, rank: int) -> bool:
        """Lanes change rank with their heads, so a rank may get more than its share; all ranks together may not."""
        return self._loaded[rank] < self._room.lanes_per_rank and len(self._lanes) < self._lanes_max

    def _drop(self, lane: Lane) -> None:
        for turn in lane.queued:
            self._ready[turn].remove(lane)
        del self._lanes[lane.key]
        self._loaded[lane.rank] -= 1
        lane.place = _RESTING
        lane.stamp = -1

    def _requeue(self, lane: Lane) -> None:
        """Find the lane's place again from what it holds."""
        if lane.wants_load:  # while its head was in flight, something came into the lane that memory does not know
            lane.window.clear()
            self._want_load(lane)
        elif lane.window:
            head = lane.window[0]
            if head.rank != lane.rank:
                self._set_rank(lane, head.rank)
            turn = lane.turn = head.turn
            lane.place = _READY
            ready = self._ready[turn]
            if not ready:
                # A rank that was idle must not claim the turns that it did not use.
                self._passes[turn] = max(self._passes[turn], self._least_pass())
            if turn not in lane.queued:
                lane.queued.add(turn)
                ready.append(lane)
        elif lane.beyond:
            self._want_load(lane)
        else:
            lane.place = _RESTING
            if lane.unsettled == 0:
                self._drop(lane)

    def _set_rank(self, lane: Lane, rank: int) -> None:
        self._loaded[lane.rank] -= 1
        self._loaded[rank] += 1
        lane.rank = rank

    def _least_pass(self) -> float:
        busy = [self._passes[turn] for turn in range(_TURNS) if self._ready[turn]]
        return min(busy) if busy else max(self._passes)

    def _time(self, lane: Lane, at: float) -> None:
        self._ticket += 1
        lane.place = _TIMED
        lane.stamp = self._ticket
        heapq.heappush(self._timers, (at, self._ticket, self._ticket, lane))
        if len(self._timers) > 2 * len(self._lanes) + 64:
            # Mostly stale: lanes that were woken by other things than their timers.
            self._timers = [timer for timer in self._timers if self._is_live(timer)]
            heapq.heapify(self._timers)

    def _is_live(self, timer: tuple[float, int, int, Lane]) -> bool:
        return timer[3].place is _TIMED and timer[3].stamp == timer[2]

    def wake(self, now: float) -> None:
        """Lanes whose instant has come are ready."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)
            if self._is_live(timer):
                self._requeue(timer[3])

    def _evict(self, ranks: Collection[int], now: float) -> None:
        """Give up lanes that cannot go soon, so that others get their turn. They come back when the sweep passes by."""
        freed = 0
        for at, _, stamp, lane in self._timers:
            if freed >= max(1, self._room.lanes_per_rank // 2):
                break
            is_idle = lane.place is _TIMED and lane.stamp == stamp and lane.unsettled == 0
            if is_idle and lane.rank in ranks and at > now + 1.0:
                self._give_up(lane)
                freed += 1

    def _give_up(self, lane: Lane) -> None:
        """Forget a lane that has letters. The sweep will find it again, even if another rank is at its front by then."""
        for letter in lane.window:
            self._beyond[letter.rank] = True
        if lane.beyond:
            self._beyond = [True] * RANKS
        self._drop(lane)
