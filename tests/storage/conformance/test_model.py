"""Whatever happens to letters, in whatever order: tallies, lanes and letters are those of a model in plain Python."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from peik.core.lifecycle import Move, end_unsent, settle
from peik.core.outcome import Outcome
from peik.outbox.store import LetterFilter, Retention
from tests.storage.acts import (
    BROKE_OFF,
    LATER,
    NEVER,
    NO_NETWORK,
    SENT,
    advance,
    all_lanes,
    draft,
    find,
    left_in_flight,
    tally,
)
from tests.storage.all_places import LIVES_ON_SERVERS, PLACES
from tests.storage.conformance.model import Known, Model
from tests.storage.places import BOT, SqlitePlace

KEEP = Retention(completed_ms=3000, dead_ms=6000, log_ms=10_000)
CHATS = (1, 2, "@a")
drafts = st.fixed_dictionaries(
    {
        "chat": st.sampled_from(CHATS),
        "rank": st.integers(0, 3),
        "target": st.sampled_from([None, None, "m1", "m2"]),
        "send_in": st.sampled_from([None, None, None, 500, 2500]),
        "expires_in": st.sampled_from([None, None, 1500]),
        "refers": st.sampled_from([False, False, True]),
    }
)


class Life(RuleBasedStateMachine):
    """One store and its model, step by step."""

    place_type: type[Any]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = self.place_type(Path(self.folder.name))
        self.model = Model(BOT)
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.do(self._open())

    def do(self, story: Any) -> Any:
        return self.runner.run(story)

    async def _open(self) -> None:
        self.store = await self.stack.enter_async_context(self.place.open())

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    @property
    def now(self) -> int:
        return self.place.clock.now_ms

    def pick(self, data: st.DataObject, *, marked: bool) -> Known:
        standing = [one for one in self.model.letters.values() if one.is_marked == marked and one.settled_at is None]
        return data.draw(st.sampled_from(standing), label="letter")

    def has(self, *, marked: bool) -> bool:
        return any(one.is_marked == marked and one.settled_at is None for one in self.model.letters.values())

    # ---- what may happen ----

    @rule(several=st.lists(drafts, min_size=1, max_size=3), data=st.data())
    def accept(self, several: list[dict[str, Any]], data: st.DataObject) -> None:
        made = []
        for terms in several:
            sends_at = _later(self.now, terms.pop("send_in"))
            expires_at = _later(self.now, terms.pop("expires_in"))
            refers = terms.pop("refers") and sorted(self.model.letters)
            awaits = data.draw(st.sampled_from(refers), label="awaits") if refers else None
            made.append(draft(send_at_ms=sends_at, expires_at_ms=expires_at, awaits=awaits, **terms))
        accepted = self.do(self.store.accept(made, at_ms=self.now))
        for given in made:
            self.model.lift(given.awaits, given.rank)
        for one, given in zip(accepted, made, strict=True):
            self.model.accept(one.letter_id, given, self.now)

    @precondition(lambda self: self.has(marked=False))
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        known = self.pick(data, marked=False)
        can = self.model.can_mark(known.id)
        if can:
            letter = self.do(find(self.store, known.id))
            assert self.do(advance(self.store, [], [letter], self.now)).taken is None
            known.is_marked = True

    @precondition(lambda self: self.has(marked=True))
    @rule(data=st.data(), outcome=st.sampled_from([SENT, NO_NETWORK, LATER, BROKE_OFF, NEVER]))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        known = self.pick(data, marked=True)
        letter = self.do(find(self.store, known.id))
        settlement = settle(letter, outcome, at_ms=self.now)
        assert self.do(advance(self.store, [settlement], [], self.now)).error is None
        self.model.settle(settlement)

    @precondition(lambda self: self.has(marked=False))
    @rule(data=st.data())
    def shut_out(self, data: st.DataObject) -> None:
        known = self.pick(data, marked=False)
        if self.model.can_mark(known.id):
            letter = self.do(find(self.store, known.id))
            self.do(advance(self.store, [end_unsent(letter, Move.SHUT_OUT, "shut", at_ms=self.now)], [], self.now))
            self.model.end(known, "failed", self.now)

    @precondition(lambda self: self.has(marked=False))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        known = self.pick(data, marked=False)
        self.do(self.store.cancel(known.id, at_ms=self.now))
        self.model.end(known, "cancelled", self.now)

    @rule(chat=st.sampled_from(CHATS))
    def cancel_many(self, chat: int | str) -> None:
        views = self.do(self.store.cancel_all(LetterFilter(bot_id=BOT, chat=chat), at_ms=self.now, limit=3))
        for view in sorted(views, key=lambda one: one.id):
            self.model.end(self.model.letters[view.id], "cancelled", self.now)

    @precondition(lambda self: self.has(marked=False))
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        known = self.pick(data, marked=False)
        if self.model.can_mark(known.id) and known.awaits is not None:
            self.do(self.store.park(self.do(find(self.store, known.id))))
            self.model.park(known)

    @rule(ms=st.sampled_from([400, 1000, 4000]))
    def time_passes(self, ms: int) -> None:
        self.place.clock.pass_ms(ms)

    @rule()
    def join(self) -> None:
        joined, _ = self.do(self.store.join_due(at_ms=self.now, limit=100))
        expected = self.model.join_due(self.now)
        assert joined == len(expected)
        assert [one.id for one in self.place.heard.accepted[-joined:] if joined] == expected

    @rule()
    def expire(self) -> None:
        views, _ = self.do(self.store.expire(at_ms=self.now, limit=100))
        assert sorted(view.id for view in views) == self.model.expire(self.now)

    @rule(old=st.sampled_from(CHATS), new=st.sampled_from([1, 2]))
    def readdress(self, old: int | str, new: int) -> None:
        if old != new:
            self.do(self.store.readdress(BOT, old, new))
            self.model.readdress(old, new)

    @rule()
    def clean(self) -> None:
        self.do(self.store.clean(KEEP, at_ms=self.now, limit=100))
        self.model.clean(KEEP, self.now)

    @rule()
    def crash_and_reopen(self) -> None:
        self.do(self.place.crash(self.store))
        self.do(self._open())
        left = self.do(left_in_flight(self.store))
        assert {one.id for one in left} == {one.id for one in self.model.letters.values() if one.is_marked}

    # ---- what must be so ----

    @invariant()
    def is_as_the_model_says(self) -> None:
        assert self.do(tally(self.store, self.now)) == self.model.tally(self.now)
        assert self.do(all_lanes(self.store)) == self.model.lanes()
        views = self.do(_views(self.store, list(self.model.letters)))
        for known, view in zip(self.model.letters.values(), views, strict=True):
            assert self.model.differences(known, view, self.now) == {}


def _later(now: int, ms: int | None) -> int | None:
    return None if ms is None else now + ms


async def _views(store: Any, letter_ids: list[int]) -> list[Any]:
    return [await store.letter(letter_id) for letter_id in letter_ids]


@pytest.mark.parametrize("place_type", PLACES, ids=lambda place: place.__name__)
def test_any_life_of_letters_is_as_the_model_says(place_type: type[Any]) -> None:
    life = type("Life", (Life,), {"place_type": place_type})
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=40 if place_type is SqlitePlace else LIVES_ON_SERVERS,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
