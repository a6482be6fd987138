"""Whatever happens to arrivals, in whatever order: what consumers see and where they stand is as a model in plain Python says."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from peik.core.letter import State
from peik.inbox.store import ArrivalFilter, ArrivalRetention, Burial, Consumer, Deferral
from tests.storage.all_places import LIVES_ON_SERVERS, PLACES
from tests.storage.inbox_acts import DAY, HOUR, message, open_inbox, states, take
from tests.storage.places import BOT, SqlitePlace

KEEP = ArrivalRetention(read_ms=3 * DAY, unread_ms=8 * DAY, idle_ms=1000 * DAY, handled_ms=1000 * DAY)
NAMES = ("default", "a", "b")


class Known:
    """An arrival as the model knows it."""

    def __init__(self, number: int, update_id: int, received_at: int, only_for: str | None) -> None:
        self.number = number
        self.update_id = update_id
        self.received_at = received_at
        self.only_for = only_for

    def is_seen_by(self, name: str) -> bool:
        return self.only_for in (None, name)


class Reader:
    """A consumer as the model knows it: what is over, what is put off until when, what died when."""

    def __init__(self) -> None:
        self.over: set[int] = set()
        self.put_off: dict[int, int] = {}
        self.dead: dict[int, int] = {}

    def state(self, number: int, now: int) -> State:
        if number in self.dead:
            return State.FAILED
        if number in self.over:
            return State.COMPLETED
        return State.DELAYED if self.put_off.get(number, 0) > now else State.WAITING


class Life(RuleBasedStateMachine):
    place_type: type[Any]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = self.place_type(Path(self.folder.name))
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.arrivals: dict[int, Known] = {}
        self.last = 0
        self.handled: set[int] = set()  # over MTProto
        self.readers = {"default": Reader()}
        self.do(self._open())

    def do(self, story: Any) -> Any:
        return self.runner.run(story)

    async def _open(self) -> None:
        store = await self.stack.enter_async_context(self.place.open())
        self.inbox = store.inbox
        await open_inbox(self.inbox)

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    @property
    def now(self) -> int:
        return self.place.clock.now_ms

    def consumer(self, name: str) -> Consumer:
        return next(one for one in self.do(self.inbox.consumers(BOT)) if one.name == name)

    def seen_by(self, name: str) -> list[int]:
        return [one.number for one in self.arrivals.values() if one.is_seen_by(name)]

    def add(self, update_id: int, only_for: str | None = None) -> None:
        self.last += 1
        self.arrivals[self.last] = Known(self.last, update_id, self.now, only_for)

    # ---- what may happen ----

    @rule(ids=st.lists(st.integers(1, 30), min_size=1, max_size=6))
    def take_in(self, ids: list[int]) -> None:
        here = {one.update_id for one in self.arrivals.values() if one.only_for is None}
        taken = self.do(take(self.inbox, *(message(one, chat=one % 3) for one in ids), at_ms=self.now))
        fresh = [one for one in dict.fromkeys(ids) if one not in here]
        if fresh and not self.last:
            self.last = fresh[0] - 1
        for update_id in fresh:
            self.add(update_id)
            if update_id in self.handled:
                self.readers["default"].over.add(self.last)
        assert (taken.stored, taken.duplicates, taken.last_number) == (len(fresh), len(ids) - len(fresh), self.last)

    @rule(name=st.sampled_from(NAMES[1:]))
    def come(self, name: str) -> None:
        self.do(self.inbox.ensure_consumer(BOT, name, at_ms=self.now))
        self.readers.setdefault(name, Reader())

    @rule(name=st.sampled_from(NAMES[1:]))
    def leave(self, name: str) -> None:
        if name in self.readers:
            self.do(self.inbox.remove_consumer(self.consumer(name).id))
            del self.readers[name]
            for one in self.arrivals.values():
                if one.only_for == name:
                    one.only_for = "nobody"

    @precondition(lambda self: self.arrivals)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def settle(self, data: st.DataObject, name: str) -> None:
        if name not in self.readers:
            return
        reader = self.readers[name]
        numbers = st.integers(1, self.last + 3)
        spans = data.draw(st.lists(st.tuples(numbers, numbers), max_size=3), label="over")
        deferred = data.draw(st.lists(st.sampled_from(self.seen_by(name) or [1]), max_size=2, unique=True), label="off")
        dead = data.draw(st.lists(st.sampled_from(self.seen_by(name) or [1]), max_size=2, unique=True), label="dead")
        until = self.now + HOUR
        self.do(
            self.inbox.settle_arrivals(
                self.consumer(name).id,
                over=spans,
                deferred=[Deferral(number=one, tries=1, due_at_ms=until) for one in deferred],
                dead=[Burial(number=one, tries=1, reason="x", entry="{}") for one in dead],
                at_ms=self.now,
            )
        )
        before = set(reader.over)
        seen = self.seen_by(name)
        reader.put_off |= {one: until for one in deferred if one in seen and one not in before}
        reader.dead |= {one: self.now for one in dead if one in seen and one not in before}
        reader.over |= {one for one in seen if any(first <= one <= last for first, last in spans)} | set(reader.dead)
        reader.put_off = {one: due for one, due in reader.put_off.items() if one not in reader.over}

    @precondition(lambda self: self.arrivals)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def replay(self, data: st.DataObject, name: str) -> None:
        if name not in self.readers:
            return
        first, last = sorted(data.draw(st.tuples(*[st.integers(1, self.last)] * 2), label="range"))
        made, _ = self.do(
            self.inbox.replay(
                ArrivalFilter(first_number=first, last_number=last),
                self.consumer(name).id,
                after=0,
                up_to=self.do(self.inbox.last_arrival_id()),
                limit=100,
                at_ms=self.now,
            )
        )
        again = [one for one in self.arrivals.values() if one.only_for is None and first <= one.number <= last]
        for one in again:
            self.add(one.update_id, only_for=name)
        assert made == len(again)

    @rule(name=st.sampled_from(NAMES), limit=st.integers(1, 3), is_retry=st.booleans())
    def deal_with_the_dead(self, name: str, limit: int, is_retry: bool) -> None:
        dead = sorted(self.readers[name].dead)[:limit] if name in self.readers else []
        if is_retry:
            made = self.do(self.inbox.retry_dead_arrivals(ArrivalFilter(consumer=name), at_ms=self.now, limit=limit))
            assert len(made) == len(dead)
        else:
            assert self.do(self.inbox.clear_dead_arrivals(ArrivalFilter(consumer=name), limit=limit)) == len(dead)
        for number in dead:
            del self.readers[name].dead[number]
            if is_retry:
                self.add(self.arrivals[number].update_id, only_for=name)

    @rule(update_id=st.integers(1, 30))
    def handle_over_mtproto(self, update_id: int) -> None:
        default = self.readers["default"]
        here = {one.number for one in self.arrivals.values() if one.update_id == update_id and one.only_for is None}
        noted = self.do(self.inbox.note_handled(BOT, [(update_id % 3, update_id * 10)], at_ms=self.now))
        assert noted == len(here - default.over)
        self.handled.add(update_id)
        default.over |= here
        default.put_off = {one: due for one, due in default.put_off.items() if one not in here}

    @rule(ms=st.sampled_from([HOUR, DAY, 3 * DAY]))
    def time_passes(self, ms: int) -> None:
        self.place.clock.pass_ms(ms)

    @rule(limit=st.sampled_from([2, 1000]))
    def clean(self, limit: int) -> None:
        cleaned = self.do(self.inbox.clean_arrivals(KEEP, at_ms=self.now, limit=limit))
        views = self.do(self.inbox.find_arrivals(ArrivalFilter(), before=None, limit=1000))
        left = {view.arrival.number for view in views}
        gone = [one for one in self.arrivals.values() if one.number not in left]
        assert cleaned.gone == len(gone) <= limit
        unread = [one for one in gone if self.is_open_for_somebody(one)]
        assert sum(cleaned.unread.values()) == len(unread)
        assert all(one.received_at < self.now - KEEP.unread_ms for one in unread)
        assert all(one.only_for == "nobody" or one.received_at < self.now - 2 * DAY for one in gone)
        assert not any(self.is_lately_dead(one) for one in gone)
        if cleaned.gone < limit:
            kept = [self.arrivals[number] for number in left]
            assert all(self.is_lately_dead(one) for one in kept if one.received_at < self.now - KEEP.unread_ms)
        for one in gone:
            del self.arrivals[one.number]
            for reader in self.readers.values():
                reader.over.discard(one.number)
                reader.put_off.pop(one.number, None)
                reader.dead.pop(one.number, None)

    def is_open_for_somebody(self, one: Known) -> bool:
        return any(one.is_seen_by(name) and one.number not in reader.over for name, reader in self.readers.items())

    def is_lately_dead(self, one: Known) -> bool:
        died = [reader.dead[one.number] for reader in self.readers.values() if one.number in reader.dead]
        return any(at >= self.now - KEEP.unread_ms for at in died)

    # ---- what must be so ----

    @invariant()
    def is_as_the_model_says(self) -> None:
        for tally in self.do(self.inbox.inbox_tallies(BOT)):
            consumer, name = tally.consumer, tally.consumer.name
            reader = self.readers[name]
            expected = {number: reader.state(number, self.now) for number in sorted(self.seen_by(name))}
            assert self.do(states(self.inbox, name)) == expected
            page = self.do(self.inbox.arrivals_after(consumer.id, 0, limit=1000))
            assert [one.number for one in page] == list(expected)
            assert {one for one in expected if consumer.progress.is_over(one)} == reader.over
            still_open = [one for one in expected if one not in reader.over]
            # Nothing but an open arrival keeps the watermark back.
            above = [one for one in expected if one > consumer.progress.watermark]
            assert above[:1] == still_open[:1]
            counts = [list(expected.values()).count(state) for state in (State.WAITING, State.DELAYED, State.FAILED)]
            assert [tally.open, tally.delayed, tally.failed] == counts
            oldest = self.arrivals[still_open[0]].received_at if still_open else None
            assert tally.oldest_open_at_ms == oldest
            later = self.do(self.inbox.deferrals(consumer.id))
            assert {one.number: one.due_at_ms for one in later} == reader.put_off


@pytest.mark.parametrize("place_type", PLACES, ids=lambda place: place.__name__)
def test_any_life_of_arrivals_is_as_the_model_says(place_type: type[Any]) -> None:
    life = type("Life", (Life,), {"place_type": place_type})
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=40 if place_type is SqlitePlace else LIVES_ON_SERVERS,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
