"""Who is handed on next: examples for each rule, and a world of chance that holds the promises over thousands of steps."""

import itertools
import random
from bisect import bisect_right
from collections import defaultdict, deque

import pytest

from peik.core.arrival import Arrival, ConsumerProgress, advanced, spans_of
from peik.inbox.delivery_queue import PAGE, DeliveryQueue, InHand, PutOff, QueueRead, QueueTerms

MINUTE_MS = 60_000


def arrival(number: int, lane: int = 1, *, at_ms: int = 0, user_id: int | None = None, **more: object) -> Arrival:
    return Arrival(
        id=number,
        bot_id=7,
        number=number,
        epoch=1,
        update_id=number,
        type=str(more.get("type", "message")),
        lane=lane,
        user_id=user_id,
        received_at_ms=at_ms,
        sent_at_ms=more.get("sent_at_ms"),  # type: ignore[arg-type]
        payload="{}" + " " * int(str(more.get("size", 0))),
    )


class Shelf:
    """A store as the course knows it: it reads what it is asked for, and counts it."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.progress = ConsumerProgress(watermark=0)
        self.rows_read = 0

    def add(self, *arrivals: Arrival) -> None:
        self.arrivals.extend(arrivals)

    def page(self, read: QueueRead) -> list[Arrival]:
        above = itertools.islice(
            self.arrivals, bisect_right(self.arrivals, read.after, key=lambda one: one.number), None
        )
        found = list(itertools.islice((one for one in above if read.lane in (None, one.lane)), read.limit))
        self.rows_read += len(found)
        return found

    def settle(self, numbers: list[int]) -> ConsumerProgress:
        self.progress = advanced(self.progress, spans_of(numbers))
        return self.progress


def fed(course: DeliveryQueue, shelf: Shelf) -> None:
    """Read until the course wants no more."""
    while (read := course.next_read()) is not None:
        unwanted = course.took(read, shelf.page(read))
        course.settled(shelf.settle(unwanted))


def taken(course: DeliveryQueue, shelf: Shelf, now: float = 0.0) -> list[InHand]:
    """All that may be handed on at this moment."""
    found = []
    while True:
        fed(course, shelf)
        handing = course.take(now)
        if handing is None:
            fed(course, shelf)
            handing = course.take(now)
        if handing is None:
            return found
        found.append(handing)


def numbers(handings: list[InHand]) -> list[int]:
    return [handing.arrival.number for handing in handings]


def stocked(*arrivals: Arrival) -> Shelf:
    shelf = Shelf()
    shelf.add(*arrivals)
    return shelf


def test_one_of_a_lane_at_a_time_and_lanes_by_turns() -> None:
    shelf = stocked(*(arrival(number, lane=number % 2) for number in range(1, 7)))
    course = DeliveryQueue(QueueTerms(), ConsumerProgress(watermark=0))
    assert numbers(taken(course, shelf)) == [1, 2]
    course.over(2)
    assert numbers(taken(course, shelf)) == [4]
    course.over(1)
    course.over(4)
    assert numbers(taken(course, shelf)) == [3, 6]


def test_no_more_at_once_than_the_bound() -> None:
    shelf = stocked(*(arrival(number, lane=number) for number in range(1, 10)))
    course = DeliveryQueue(QueueTerms(at_once=3), ConsumerProgress(watermark=0))
    assert numbers(taken(course, shelf)) == [1, 2, 3]
    course.over(2)
    assert numbers(taken(course, shelf)) == [4]
    assert course.in_hand == {1, 3, 4}


def test_what_is_over_is_not_handed_on_and_not_even_read() -> None:
    shelf = stocked(*(arrival(number, lane=number) for number in range(1, 2001)))
    shelf.progress = ConsumerProgress(watermark=3, spans=((5, 1999),))
    course = DeliveryQueue(QueueTerms(), shelf.progress)
    assert numbers(taken(course, shelf)) == [4, 2000]
    assert shelf.rows_read < PAGE + 10


def test_a_lane_that_is_put_off_waits_without_payloads_and_the_others_go_on() -> None:
    shelf = stocked(*(arrival(number, lane=number % 2) for number in range(1, 9)))
    course = DeliveryQueue(QueueTerms(), ConsumerProgress(watermark=0))
    odd = taken(course, shelf)[0]
    course.put_off(odd.arrival, tries=1, until=10.0)
    assert course.held == 3  # of the other lane
    for number in (2, 4, 6, 8):
        course.over(number)
        taken(course, shelf)
    assert course.held == 0
    assert course.next_timer() == 10.0
    assert taken(course, shelf, 9.9) == []
    (again,) = taken(course, shelf, 10.0)
    assert (again.arrival.number, again.tries) == (1, 1)
    course.over(1)
    assert numbers(taken(course, shelf, 10.0)) == [3]


def test_after_a_restart_a_deferral_still_waits_and_counts() -> None:
    shelf = stocked(*(arrival(number, lane=5) for number in (1, 2)), arrival(3, lane=6))
    put_off = PutOff(number=1, lane=5, tries=3, until=7.0)
    course = DeliveryQueue(QueueTerms(), ConsumerProgress(watermark=0), put_off=[put_off])
    assert numbers(taken(course, shelf)) == [3]
    (again,) = taken(course, shelf, 7.0)
    assert (again.arrival.number, again.tries) == (1, 3)


def test_one_chat_with_a_great_backlog_does_not_crowd_out_another() -> None:
    shelf = stocked(*(arrival(number, lane=1) for number in range(1, 3001)), arrival(3001, lane=2))
    course = DeliveryQueue(QueueTerms(), ConsumerProgress(watermark=0))
    assert numbers(taken(course, shelf)) == [1, 3001]
    assert course.held < QueueTerms().lane_window
    for number in range(1, 3000):  # and all of it comes in the end, in order
        course.over(number)
        assert numbers(taken(course, shelf)) == [number + 1]


def test_memory_is_bounded_by_count_and_by_bytes() -> None:
    for size, bound in ((0, 1000 + PAGE), (100_000, 160 + PAGE)):
        shelf = stocked(*(arrival(number, lane=number, size=size) for number in range(1, 5001)))
        course = DeliveryQueue(QueueTerms(at_once=2), ConsumerProgress(watermark=0))
        taken(course, shelf)
        assert course.held <= bound
        assert course.lanes <= bound + 2


def test_unwanted_types_are_over_at_once_whatever_their_lane_waits_for() -> None:
    shelf = stocked(arrival(1), arrival(2, type="poll"), arrival(3, type="message"))
    course = DeliveryQueue(QueueTerms(allowed=frozenset({"message"})), ConsumerProgress(watermark=0))
    assert numbers(taken(course, shelf)) == [1]
    assert shelf.progress == ConsumerProgress(watermark=0, spans=((2, 2),))


def test_late_ones_go_at_their_pace_and_fresh_ones_pass_them_by() -> None:
    shelf = stocked(*(arrival(number, lane=number) for number in range(1, 201)))
    shelf.add(*(arrival(number, lane=number, at_ms=5 * MINUTE_MS) for number in range(201, 211)))
    course = DeliveryQueue(
        QueueTerms(at_once=1000, catch_up_rate=10.0), ConsumerProgress(watermark=0), resumed_at_ms=5 * MINUTE_MS
    )
    first = taken(course, shelf)
    assert sorted(numbers(first))[1:] == list(range(201, 211))  # all that is fresh, and one that is late
    assert course.held <= QueueTerms().late_ahead * 16
    for second in range(1, 20):
        late = taken(course, shelf, second)
        assert 1 <= len(late) <= 11
    assert course.next_timer() is not None


def test_an_update_that_telegram_had_kept_for_us_is_late_though_it_came_just_now() -> None:
    now_ms = 10 * MINUTE_MS
    shelf = stocked(*(arrival(number, lane=number, at_ms=now_ms, sent_at_ms=1000) for number in range(1, 101)))
    course = DeliveryQueue(QueueTerms(at_once=1000, catch_up_rate=10.0), ConsumerProgress(watermark=0))
    assert len(taken(course, shelf)) == 1


def test_a_bot_that_is_merely_slow_is_not_held_to_the_pace_of_catching_up() -> None:
    """What came while we were here and waited for its turn is not late, or such a bot would never get through."""
    shelf = stocked(*(arrival(number, lane=number, at_ms=MINUTE_MS) for number in range(1, 101)))
    course = DeliveryQueue(
        QueueTerms(at_once=1000, catch_up_rate=1.0), ConsumerProgress(watermark=0), resumed_at_ms=MINUTE_MS
    )
    assert len(taken(course, shelf, 3600.0)) == 100


def test_behind_more_late_lanes_than_memory_knows_a_fresh_chat_still_goes() -> None:
    shelf = stocked(*(arrival(number, lane=number) for number in range(1, 3001)))
    terms = QueueTerms(at_once=1000, catch_up_rate=1.0, lanes_max=1000, lanes_extra=10)
    course = DeliveryQueue(terms, ConsumerProgress(watermark=0), resumed_at_ms=5 * MINUTE_MS)
    course.news(3000)
    assert len(taken(course, shelf)) == 1
    shelf.add(arrival(3001, lane=9001, at_ms=5 * MINUTE_MS))  # a chat with nothing older
    shelf.add(arrival(3002, lane=2900, at_ms=5 * MINUTE_MS))  # one that has something older still in the store
    course.news(3002)
    assert numbers(taken(course, shelf)) == [3001]
    assert course.lanes <= 1000 + PAGE + 10


def test_a_users_excess_waits_in_its_lane_and_is_told_once() -> None:
    shelf = stocked(*(arrival(number, lane=5, user_id=5) for number in range(1, 21)), arrival(21, lane=6, user_id=6))
    course = DeliveryQueue(QueueTerms(user_rate=0.5), ConsumerProgress(watermark=0))
    done: list[int] = []
    while handings := taken(course, shelf):
        for handing in handings:
            done.append(handing.arrival.number)
            course.over(handing.arrival.number)
    assert done == [1, 21, 2, 3, 4, 5]  # a burst of five, and nobody else waits for him
    assert [one.user_id for one in course.newly_limited()] == [5]
    assert course.held == 0
    assert course.next_timer() == 2.0
    for at, number in ((2.0, 6), (4.0, 7)):
        assert numbers(taken(course, shelf, at)) == [number]
        course.over(number)
        assert taken(course, shelf, at) == []
    assert course.newly_limited() == []


def test_what_another_hand_settled_is_not_handed_on() -> None:
    shelf = stocked(*(arrival(number, lane=5) for number in range(1, 4)))
    course = DeliveryQueue(QueueTerms(), ConsumerProgress(watermark=0))
    taken(course, shelf)
    course.settled(shelf.settle([2]))
    course.over(1)
    assert numbers(taken(course, shelf)) == [3]


def test_what_the_store_said_a_while_ago_takes_nothing_back() -> None:
    shelf = stocked(*(arrival(number, lane=number) for number in (1, 2, 3, 4)))
    course = DeliveryQueue(QueueTerms(at_once=2), ConsumerProgress(watermark=0))
    assert numbers(taken(course, shelf)) == [1, 2]
    course.over(1)
    course.settled(shelf.settle([1]))
    course.learned(
        ConsumerProgress(watermark=0, spans=((3, 3),))
    )  # read before 1 was settled, and after another settled 3
    assert numbers(taken(course, shelf)) == [4]


def test_what_was_not_handed_on_after_all_stands_where_it_stood() -> None:
    shelf = stocked(*(arrival(number, lane=5) for number in (1, 2)))
    course = DeliveryQueue(QueueTerms(), ConsumerProgress(watermark=0))
    (handing,) = taken(course, shelf)
    course.give_back(handing.arrival)
    assert [(one.arrival.number, one.tries) for one in taken(course, shelf)] == [(1, 0)]


def test_news_while_a_page_is_read_are_not_missed() -> None:
    shelf = Shelf()
    course = DeliveryQueue(QueueTerms(), ConsumerProgress(watermark=0))
    read = course.next_read()
    assert read is not None
    course.look()  # another process wrote just after our read
    course.took(read, [])
    shelf.add(arrival(1))
    assert numbers(taken(course, shelf)) == [1]


class World:
    """Arrivals, failures, crashes and time by chance. It checks every promise at every step."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.terms = QueueTerms(
            at_once=self.chance.randint(1, 6),
            allowed=self.chance.choice([None, frozenset({"message"})]),
            user_rate=self.chance.choice([0.0, 0.0, 2.0]),
            catch_up_rate=self.chance.choice([0.0, 3.0]),
            late_ms=2_000,
            late_ahead=self.chance.randint(1, 3),
            lane_window=self.chance.randint(1, 4),
            held_max=self.chance.randint(4, 30),
            lanes_max=self.chance.choice([4, 8, 1000]),
            lanes_extra=2,
        )
        self.shelf = Shelf()
        self.now = 0.0
        self.deferred: dict[int, tuple[int, float]] = {}
        self.first_handed: dict[int, list[int]] = defaultdict(list)
        self.handled: set[int] = set()
        self.in_hand: dict[int, InHand] = {}
        self.unstored: list[int] = []
        self.reads: deque[tuple[QueueRead, list[Arrival]]] = deque()
        self.begin()

    def begin(self) -> None:
        put_off = [
            PutOff(number=number, lane=self.shelf.arrivals[number - 1].lane, tries=tries, until=until)
            for number, (tries, until) in sorted(self.deferred.items())
            if not self.shelf.progress.is_over(number)
        ]
        self.course = DeliveryQueue(
            self.terms, self.shelf.progress, put_off=put_off, resumed_at_ms=int(self.now * 1000)
        )
        self.course.news(len(self.shelf.arrivals))

    def crash(self) -> None:
        self.in_hand.clear()
        self.unstored.clear()
        self.reads.clear()
        self.begin()

    def arrive(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            lane = int(self.chance.paretovariate(0.7)) % 40
            self.shelf.add(
                arrival(
                    len(self.shelf.arrivals) + 1,
                    lane=lane,
                    user_id=lane % 3 or None,
                    at_ms=int(self.now * 1000),
                    type="message" if self.chance.random() < 0.9 else "poll",
                )
            )
        if self.chance.random() < 0.5:
            self.course.look()
        else:
            self.course.news(len(self.shelf.arrivals))

    def read(self) -> None:
        """A read may be under way while other things happen."""
        if self.reads:
            self.unstored += self.course.took(*self.reads.popleft())
        elif (read := self.course.next_read()) is not None:
            self.reads.append((read, self.shelf.page(read)))
        # A page may overshoot, and so may each lane that is read because its turn or its time has come.
        assert self.course.held <= 2 * self.terms.held_max + self.terms.lane_window * (self.terms.at_once + 12)

    def hand_on(self) -> None:
        handing = self.course.take(self.now)
        if handing is None:
            return
        one = handing.arrival
        assert len(self.in_hand) < self.terms.at_once
        assert all(other.arrival.lane != one.lane for other in self.in_hand.values()), "two of a lane at once"
        assert not self.shelf.progress.is_over(one.number), "it was over"
        tries, until = self.deferred.get(one.number, (0, 0.0))
        assert handing.tries == tries
        assert until <= self.now
        elders = [other.number for other in self.shelf.arrivals[: one.number - 1] if other.lane == one.lane]
        open_elders = [n for n in elders if n not in self.handled and self.is_wanted(n)]
        assert not open_elders, f"{one.number} before {open_elders}"
        self.in_hand[one.number] = handing

    def is_wanted(self, number: int) -> bool:
        return self.terms.allowed is None or self.shelf.arrivals[number - 1].type in self.terms.allowed

    def end_one(self) -> None:
        if not self.in_hand:
            return
        number = self.chance.choice(list(self.in_hand))
        handing = self.in_hand.pop(number)
        what = self.chance.random()
        if what < 0.15:
            until = self.now + self.chance.uniform(0, 5)
            self.deferred[number] = (handing.tries + 1, until)
            self.course.put_off(handing.arrival, tries=handing.tries + 1, until=until)
        elif what < 0.25:
            self.course.give_back(handing.arrival)
        else:
            self.handled.add(number)
            self.unstored.append(number)
            self.course.over(number)

    def store(self) -> None:
        self.course.settled(self.shelf.settle(self.unstored))
        self.unstored.clear()

    def pass_time(self) -> None:
        self.now += self.chance.uniform(0, 2)

    def is_all_over(self) -> bool:
        return self.shelf.progress.watermark >= len(self.shelf.arrivals)

    def finish(self) -> None:
        """With nothing going wrong any more, everything ends."""
        for _ in range(20_000):
            if self.is_all_over():
                return
            self.read()
            self.hand_on()
            for number in list(self.in_hand):
                del self.in_hand[number]
                self.handled.add(number)
                self.unstored.append(number)
                self.course.over(number)
            self.store()
            if self.chance.random() < 0.2:
                self.now += 0.3
        raise AssertionError(f"stuck at {self.shelf.progress} of {len(self.shelf.arrivals)}")


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_nothing_is_lost_doubled_or_out_of_order(seed: int) -> None:
    world = World(seed)
    acts = [world.arrive, world.read, world.read, world.read, world.hand_on, world.hand_on, world.end_one]
    for _ in range(1000):
        world.chance.choice([*acts, world.pass_time])()
        if world.chance.random() < 0.02:
            world.store()
        if world.chance.random() < 0.005:
            # What was handled and not stored is handed on again after a crash: it is open again.
            world.handled -= set(world.unstored)
            world.crash()
    world.finish()
    wanted = {one.number for one in world.shelf.arrivals if world.is_wanted(one.number)}
    assert world.handled == wanted
    assert world.course.held == 0
    assert world.course.in_hand == frozenset()
