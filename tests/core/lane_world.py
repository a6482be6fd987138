"""A seeded world around Lanes: a store, a sender and other writers, each late in its own way, as the engine has them."""

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import msgspec

from peik.core.lanes import Lanes, Room
from peik.core.letter import RANKS, LaneKey, Letter

ROOM = Room(lanes_per_rank=4, letters_per_lane=2)
SWEPT_AT_ONCE = 3  # the store gives fewer lanes than asked for, so that sweeps go around in parts
PAUSE_S = 1.0


class World:
    def __init__(self, seed: int, *, room: Room = ROOM) -> None:
        self.chance = random.Random(seed)
        self.room = room
        self.lanes = Lanes(room)
        self.now = 0.0
        self.store: dict[int, Letter] = {}  # what waits in its lane, in flight or not
        self.noticed: set[int] = set()  # letters that this node was told of
        self.accepted = 0
        self.ended: list[Letter] = []
        self.flying: dict[int, Letter] = {}
        self.done: set[int] = set()  # ended for the sender, the store does not know yet
        self.later: list[Callable[[], None]] = []  # what others will do when their turn comes
        self.settlements: list[Callable[[], None]] = []  # one writer: these keep their order
        self.holds: dict[int, float] = {}
        self._numbers = 0
        self._next_number: int | None = None
        self._cursors: list[LaneKey | None] = [None] * RANKS
        self._not_before = [0.0] * RANKS
        self._found_nothing = [False] * RANKS
        self._is_sweeping = False

    # ---- letters come and go ----

    def accept(self, chat: int, *, rank: int, thread: int = 0, is_foreign: bool = False) -> Letter:
        """A letter is stored. A foreign one comes from another process: nobody tells this node."""
        self._numbers += 1
        number = self._numbers
        letter = Letter(
            id=number, bot_id=1, number=number, method="sendMessage", params="{}", chat=chat, thread=thread, rank=rank
        )
        self.store[letter.id] = letter
        self.accepted += 1
        if not is_foreign:
            if letter.number != self._next_number:
                self.lanes.forget_all()
                self.noticed.update(self.store)
            self._next_number = letter.number + 1
            self.noticed.add(letter.id)
            self.lanes.offer(letter)
        return letter

    def express(self, chat: int, *, rank: int) -> None:
        """A letter that goes in the commit which stores it, if nobody is before it; else as any other."""
        if self.holds.get(chat, 0.0) > self.now or not self.lanes.is_free((chat, 0), rank):
            self.accept(chat, rank=rank)
            return
        self.lanes.reserve((chat, 0), rank)
        self.later.append(lambda: self._store_express(chat, rank))

    def _store_express(self, chat: int, rank: int) -> None:
        key = (chat, 0)
        if self.chance.random() < 0.05:  # it is not accepted
            self.lanes.leave(key)
            return
        is_first = not any(other.lane == key for other in self.store.values())
        letter = self.accept(chat, rank=rank, is_foreign=True)
        is_next = letter.number == self._next_number
        self._next_number = letter.number + 1
        if is_first:
            if not is_next:
                self.lanes.forget_all()
                self.noticed.update(self.store)
            self.noticed.add(letter.id)
            self._check_its_turn(letter)
            self._fly(letter)
        else:
            self.lanes.leave(key)
            self.lanes.forget_all()
            self.noticed.update(self.store)

    def cancel(self) -> None:
        idle = [letter for letter in self.store.values() if letter.id not in self.flying and letter.id not in self.done]
        if idle:
            letter = self.chance.choice(idle)
            self._end(letter)
            self.lanes.remove(letter.lane, letter.id)

    def move_in(self, old: int, new: int) -> None:
        """A group became a supergroup: its letters, older ones too, now wait in another lane."""
        if any(letter.chat == old for letter in [*self.flying.values(), *(self.store[key] for key in self.done)]):
            return
        for letter in [letter for letter in self.store.values() if letter.chat == old]:
            self.store[letter.id] = msgspec.structs.replace(letter, chat=new)
        self.lanes.forget_chat(old)
        self.lanes.forget_chat(new)

    # ---- the sender ----

    def take(self, ranks: tuple[int, ...] = tuple(range(RANKS))) -> Letter | None:
        letter = self.lanes.take(self.now, turns=ranks, ready_at=self._ready_at)
        if letter is None:
            return None
        if letter.id not in self.flying and self._is_as_stored(letter):
            self._check_its_turn(letter)
        self.later.append(lambda: self._mark(letter))
        return letter

    def _ready_at(self, letter: Letter) -> float:
        hold = self.holds.get(letter.chat, 0.0) if isinstance(letter.chat, int) else 0.0
        return max(hold, letter.due_at_ms / 1000)

    def _is_as_stored(self, letter: Letter) -> bool:
        stored = self.store.get(letter.id)
        return stored is not None and letter.id not in self.done and stored.lane == letter.lane

    def _check_its_turn(self, letter: Letter) -> None:
        for other in self.store.values():
            if other.lane != letter.lane or other.id in self.done or other.order >= letter.order:
                continue
            is_known = other.id in self.noticed or other.rank == letter.rank
            assert not is_known, f"{letter.order} overtakes {other.order} in {letter.lane}"

    def _mark(self, letter: Letter) -> None:
        fate = self.chance.random()
        if fate < 0.05:  # the store does not answer
            self.lanes.put_back(letter)
            return
        stored = self.store.get(letter.id)
        is_same = stored is not None and stored.attempts_made == letter.attempts_made and stored.lane == letter.lane
        if not is_same or letter.id in self.flying:
            self.lanes.forget(letter.lane)
            self.lanes.leave(letter.lane)
            return
        self._fly(letter)

    def _fly(self, letter: Letter) -> None:
        assert not any(other.lane == letter.lane for other in self.flying.values()), "two in flight in one lane"
        self.flying[letter.id] = letter
        self.later.append(lambda: self._land(letter))

    def _land(self, letter: Letter) -> None:
        del self.flying[letter.id]
        if self.chance.random() < 0.7:
            self.done.add(letter.id)
            self.settlements.append(lambda: self._store_end(letter))
            self.lanes.leave_settling(letter.lane)
        else:
            self.lanes.settling(letter.lane)
            wait_s = self.chance.choice((0.0, 0.5, 4.0))
            back = msgspec.structs.replace(
                letter, attempts_made=letter.attempts_made + 1, due_at_ms=int((self.now + wait_s) * 1000)
            )
            self.settlements.append(lambda: self._store_retry(back))
            self.lanes.put_back(back)

    def _store_end(self, letter: Letter) -> None:
        self.done.discard(letter.id)
        self._end(letter)
        self.lanes.settled(letter.lane)

    def _store_retry(self, letter: Letter) -> None:
        if letter.id in self.store:
            self.store[letter.id] = msgspec.structs.replace(letter, chat=self.store[letter.id].chat)
        self.lanes.settled(letter.lane)

    def _end(self, letter: Letter) -> None:
        del self.store[letter.id]
        self.ended.append(letter)

    # ---- outbox/window.py ----

    def read(self) -> None:
        self.lanes.wake(self.now)
        keys = self.lanes.loads()
        if keys:
            self.later.append(lambda: self._read_fronts(keys))
        if self._is_sweeping:
            return
        for rank in range(RANKS):
            if self.now >= self._not_before[rank] and self.lanes.is_hungry(rank, self.now):
                self._is_sweeping = True
                self.lanes.sweep_begins()
                room = min(self.lanes.sweep_room(rank), SWEPT_AT_ONCE)
                self.later.append(partial(self._read_sweep, rank, room))
                return

    def _read_fronts(self, keys: list[LaneKey]) -> None:
        if self.chance.random() < 0.1:
            self.later.append(lambda: self.lanes.load_failed(keys))
            return
        found = {key: self._front(key) for key in keys}

        def arrive() -> None:
            for key, (letters, more) in found.items():
                self.lanes.loaded(key, letters, more=more)

        self.later.append(arrive)

    def _read_sweep(self, rank: int, most: int) -> None:
        after = self._cursors[rank]
        keys = sorted({letter.lane for letter in self.store.values() if letter.rank == rank}, key=repr)
        keys = [key for key in keys if after is None or repr(key) > repr(after)]
        last = keys[most - 1] if len(keys) >= most else None
        found = {key: self._front(key) for key in keys[:most]}
        self.later.append(lambda: self._swept(rank, found, last, is_whole=after is None and last is None))

    def _swept(
        self, rank: int, found: dict[LaneKey, tuple[list[Letter], bool]], last: LaneKey | None, *, is_whole: bool
    ) -> None:
        was_first = self._cursors[rank] is None
        added = self.lanes.swept(rank, found, is_whole=is_whole)
        self._cursors[rank] = last
        self._found_nothing[rank] = added == 0 and (self._found_nothing[rank] or was_first)
        if last is None and self._found_nothing[rank]:
            self._not_before[rank] = self.now + PAUSE_S
        self._is_sweeping = False

    def _front(self, key: LaneKey) -> tuple[list[Letter], bool]:
        letters = sorted((letter for letter in self.store.values() if letter.lane == key), key=lambda one: one.order)
        return letters[: self.room.letters_per_lane], len(letters) > self.room.letters_per_lane

    # ---- time ----

    def let_others_act(self) -> None:
        """One of those who are late acts now; any of them, except that the writer keeps its order."""
        waiting = len(self.later) + (1 if self.settlements else 0)
        if not waiting:
            return
        pick = self.chance.randrange(waiting)
        (self.later.pop(pick) if pick < len(self.later) else self.settlements.pop(0))()

    def run_dry(self, *, turns_max: int = 20_000) -> None:
        """Nobody else writes any more and nothing is held: everything must end."""
        self.holds.clear()
        for _ in range(turns_max):
            self.take()
            self.read()
            self.let_others_act()
            self.check_memory()
            if not self.store:
                return
            if not (self.later or self.settlements):
                self.now += 0.5
        raise AssertionError(f"{len(self.store)} letters are stuck: {list(self.store.values())[:3]}")

    def check_memory(self) -> None:
        lanes = self.lanes
        most = RANKS * self.room.lanes_per_rank + SWEPT_AT_ONCE
        assert len(lanes) <= most
        assert all(len(lane.window) <= self.room.letters_per_lane + 1 for lane in lanes._lanes.values())
        assert all(len(ready) <= len(lanes) for ready in lanes._ready)
        assert len(lanes._timers) <= 2 * most + 65
        loaded: dict[int, int] = defaultdict(int)
        for lane in lanes._lanes.values():
            loaded[lane.rank] += 1
        assert [loaded[rank] for rank in range(RANKS)] == lanes._loaded
