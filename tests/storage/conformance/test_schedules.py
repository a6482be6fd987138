"""The same on every store: a due time is made once, whatever crashes in between and however many are at it."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from peik.clock import SettledClock
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Event, Events
from peik.erasure.model import ErasedPerson
from peik.errors import Conflict, NotFound, StoreUnavailable
from peik.schedules.engine import Scheduler
from peik.schedules.model import (
    BroadcastWork,
    Firing,
    LetterWork,
    MissedRuns,
    Schedule,
    ScheduleRan,
    ScheduleRunState,
    Terms,
    key_of,
)
from peik.schedules.service import KEPT, Maker, ScheduleBook, ScheduleService, SchedulesPart
from tests.storage.places import BOT, ManualClock, Place

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class KeyedMaker(Maker):
    """Makes one thing of a key, as letters, broadcasts and jobs do. It outlives the engines that die."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.asked = 0

    def bot_id(self, asked: int | None) -> int:
        return asked or BOT

    def check(self, terms: Terms, due_ms: int) -> None:
        pass

    async def make(self, schedule: Schedule, firing: Firing) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        self.made.setdefault(key_of(schedule, firing.due_at_ms), firing.terms.params)
        return str(len(self.made))

    async def goes_on(self, schedule: Schedule) -> bool:
        return False


class Died(Exception):
    """The process is gone."""


class Mortal:
    """Documents of a process that dies at the nth commit: before it, or right after it."""

    def __init__(self, documents: DocumentStore, *, dies_at: int, is_after: bool) -> None:
        self._documents = documents
        self._left = dies_at
        self._is_after = is_after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)

    async def file(self, filings: Sequence[Filing]) -> None:
        self._left -= 1
        if self._left == 0 and not self._is_after:
            raise Died
        await self._documents.file(filings)
        if self._left == 0:
            raise Died


class World:
    def __init__(self, documents: DocumentStore, clock: ManualClock) -> None:
        self.documents, self.clock = documents, clock
        self.maker = KeyedMaker()
        self.told: list[Event] = []
        self.events = Events()
        self.events.listen(self.told.extend)
        self.service = ScheduleService(ScheduleBook(documents), self.maker, clock=clock, events=self.events)

    def engine(self, documents: Any = None) -> Scheduler:
        return Scheduler(
            ScheduleBook(documents or self.documents),
            self.maker,
            time=SettledClock(self.clock, settles_s=3600),
            clock=self.clock,
            events=self.events,
            is_ours=lambda: True,
        )

    async def put(self, text: str = "%{time}", **more: Any) -> Schedule:
        terms = Terms(cron="@hourly", bot_id=BOT, letter=LetterWork(params={"chat_id": 7, "text": text}), **more)
        return (await self.service.put("one", terms, by="Sara"))[0]

    async def states(self) -> list[ScheduleRunState]:
        return [run.state for run in reversed(await self.service.runs("one"))]


async def turns(engine: Scheduler) -> None:
    """As the engine does it, until nothing is due. What it would only tell of is raised here."""
    while await engine._turn() <= 1.0:
        pass


async def test_wherever_a_process_dies_a_due_time_is_made_once(place: Place) -> None:
    async with place.open() as store:
        for is_after, dies_at in itertools.product((False, True), range(1, 5)):
            world = World(store.documents, place.clock)
            await world.put(missed=MissedRuns.ALL)
            place.clock.pass_ms(2 * HOUR_MS)
            try:
                dying = world.engine(Mortal(store.documents, dies_at=dies_at, is_after=is_after))
                for _ in range(9):
                    await dying._step("one")
            except Died:
                pass
            # Somebody edits it before the next process is there: what was in hand is made as it was.
            await world.service.put(
                "one", Terms(cron="@hourly", bot_id=BOT, letter=LetterWork(params={"text": "new"})), by=None
            )
            await turns(world.engine())
            states = await world.states()
            assert set(states) <= {ScheduleRunState.DONE, ScheduleRunState.MISSED}, (is_after, dies_at, states)
            assert len(world.maker.made) == states.count(ScheduleRunState.DONE)
            assert world.maker.asked <= len(world.maker.made) + 1, "twice at most, under one key"
            found = await world.service.get("one")
            assert (found.firing, found.fired) == (None, len(world.maker.made))
            await world.service.delete("one")


async def test_two_nodes_at_once_make_one_thing(place: Place) -> None:
    async with place.open() as store:
        world = World(store.documents, place.clock)
        await world.put(missed=MissedRuns.ALL)
        place.clock.pass_ms(5 * HOUR_MS)
        engines = [world.engine(), world.engine(), world.engine()]
        # One had the chores and does not know yet that another has them.
        while any([await asyncio.gather(*(_quietly(engine) for engine in engines))][0]):
            pass
        assert len(world.maker.made) == 5
        assert await world.states() == [ScheduleRunState.DONE] * 5
        ran = [one.due_at_ms for one in world.told if isinstance(one, ScheduleRan)]
        assert sorted(set(ran)) == sorted(ran), "each is told once"


async def _quietly(engine: Scheduler) -> bool:
    try:
        return await engine._step("one")
    except Conflict:
        return True


async def test_what_cannot_be_made_now_is_made_when_it_can(place: Place) -> None:
    async with place.open() as store:
        world = World(store.documents, place.clock)
        await world.put()
        place.clock.pass_ms(HOUR_MS)
        make, world.maker.make = world.maker.make, _away  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await turns(world.engine())
        assert (await world.states(), world.maker.made) == ([ScheduleRunState.FIRING], {})
        world.maker.make = make  # type: ignore[method-assign]
        await turns(world.engine())
        assert (await world.states(), len(world.maker.made)) == ([ScheduleRunState.DONE], 1)


async def _away(schedule: Schedule, firing: Firing) -> str:
    raise StoreUnavailable(code="away", detail="The outbox is away.")


async def test_the_index_of_due_times_follows_every_change(place: Place) -> None:
    async with place.open() as store:
        world = World(store.documents, place.clock)
        book = ScheduleBook(store.documents)
        made = await world.put()
        assert made.next_at_ms is not None
        before = made.next_at_ms - 1
        assert await book.due(before, limit=9) == []
        assert await book.next_due_ms(before) == made.next_at_ms
        assert await book.due(made.next_at_ms, limit=9) == ["one"]
        await world.service.pause("one")
        assert await book.next_due_ms(0) is None
        await world.service.resume("one")
        assert await book.next_due_ms(0) == made.next_at_ms
        await world.service.run_now("one", by=None)
        assert await book.next_due_ms(0) == made.next_at_ms
        await world.service.delete("one")
        assert await book.next_due_ms(0) is None
        assert await store.documents.collections("schedules") == []


async def test_many_are_listed_by_name_and_old_runs_go(place: Place) -> None:
    async with place.open() as store:
        world = World(store.documents, place.clock)
        work = BroadcastWork(params={"text": "x"}, chat_ids=[1])
        for number in range(7):
            terms = Terms(cron="@daily", bot_id=BOT + number % 2, broadcast=work)
            await world.service.put(f"n{number}", terms, by=None)
        page, cursor = await world.service.find(bot_ids=frozenset({BOT}), limit=3)
        rest, end = await world.service.find(bot_ids=frozenset({BOT}), after=cursor, limit=3)
        assert ([one.name for one in (*page, *rest)], end) == (["n0", "n2", "n4", "n6"], None)
        for _ in range(KEPT + 20):
            place.clock.pass_ms(1)
            await world.service.run_now("n0", by=None)
        await ScheduleBook(store.documents).sweep()
        kept = await world.service.runs("n0", limit=1000)
        assert len(kept) == KEPT
        assert kept[0].due_at_ms == place.clock.now_ms


async def test_forgetting_somebody_takes_them_out_of_a_list_and_the_rest_goes_on(place: Place) -> None:
    async with place.open() as store:
        world = World(store.documents, place.clock)
        await world.put("to the person")
        several = Terms(
            cron="@daily", bot_id=BOT, broadcast=BroadcastWork(params={"text": "hi"}, chat_ids=["912345678", 4321])
        )
        await world.service.put("several", several, by=None)
        part = SchedulesPart(store.documents)
        person = ErasedPerson(user_id=912345678, names=frozenset())
        looked = (await part.forget(person, is_dry=True))["schedules"]
        gone = (await part.forget(person, is_dry=False))["schedules"]
        assert (looked.blanked, gone.blanked, gone.removed) == (1, 1, 0)
        found = await world.service.get("several")
        assert found.terms.broadcast is not None
        assert found.terms.broadcast.chat_ids == [4321]
        await part.forget(ErasedPerson(user_id=7, names=frozenset()), is_dry=False)
        with pytest.raises(NotFound):
            await world.service.get("one")
        place.clock.pass_ms(25 * HOUR_MS)
        await turns(world.engine())
        assert len(world.maker.made) == 1
