"""One point of a growth line: a store that is filled, and in fresh processes what the next letters cost on it.

`python -m bench.growth_point fill|measure|drain <point>`. Costs are CPU time of the whole process, all threads: on a machine that
others use as well the clock on the wall tells of them.
"""

import asyncio
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from bench.figures import Figures
from bench.loop import run
from bench.payload import params
from bench.updates_stub import CHATS, FIRST_ID, updates
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.clock import SystemClock
from peik.core.arrival import Update, read_update
from peik.core.call import read_call
from peik.core.documents import Contact
from peik.core.events import Event, Events, Settled
from peik.core.letter import Draft, LetterCall, State
from peik.core.token import Token
from peik.outbox.store import BotRecord, LetterFilter, Store
from peik.settings.config import Config, load
from peik.storage.sqlite.store import SqliteStore
from peik.web.server import let_the_collector_rest

FILE = "peik.db"
FIRST_BOT = 7_000_001
SPREAD, SPREAD_MOST = 7_919, 10**8  # a prime; so many numbers have eight digits
PAGE = 50
PAGES = 40
UPDATE_PAGE = 100
FILL_BATCH = 10_000
BATCH = 100
PATIENCE_S = 600.0
STARTERS = 8  # letters of each bot, on average, that go before the measured ones: its sender reads beside the first
QUIET_S = 0.25
QUIET_LOOKS = 2
QUIET_S_MAX = 20.0
QUIET_SHARE = 0.05  # of a core


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the store before anything is measured, and how many letters are measured then."""

    folder: str
    stub_port: int
    letters: int = 0
    chats: int = 400
    bots: int = 1
    arrivals: int = 0
    measured: int = 5_000


def config(point: Point) -> Config:
    flags = {
        "store": f"sqlite:///{point.folder}/{FILE}",
        "api_root": f"http://127.0.0.1:{point.stub_port}",
        "bot_tokens": ",".join(map(_token, _bots(point))),
        "pace": "off",
        "inbound": "off",
    }
    return load(flags, environment={}, folder=Path(point.folder))


def _bots(point: Point) -> range:
    return range(FIRST_BOT, FIRST_BOT + point.bots)


def _token(bot_id: int) -> str:
    return f"{bot_id}:AAE-bench-bench-bench-bench-bench-0"


def fill(point: Point) -> None:
    run(_fill(point))


async def _fill(point: Point) -> None:
    """Straight into the store, as a courier would have left it: its bots are paused until a measurement begins."""
    store = SqliteStore(Path(point.folder, FILE), clock=SystemClock())
    await store.open()
    try:
        bots = [
            BotRecord(bot_id=bot_id, token=Token.stored(_token(bot_id)), username="bench_bot", paused="nobody measures")
            for bot_id in _bots(point)
        ]
        await asyncio.gather(*(store.save_bot(bot) for bot in bots))
        at_ms = int(time.time() * 1000)  # what is old would be tidied away meanwhile
        for first in range(0, point.letters, FILL_BATCH):
            numbers = range(first, min(first + FILL_BATCH, point.letters))
            await store.accept([_draft(point, number) for number in numbers], at_ms=at_ms)
        if point.arrivals:
            await store.inbox.open_inbox(FIRST_BOT, server="bench", at_ms=at_ms)
            await _take_in(store, _updates(0, point.arrivals, page=FILL_BATCH))
            # Whose they are is noted already: the census would go through all of them beside the first measurement.
            last = FIRST_ID + point.arrivals - 1
            await store.contacts.save_contacts(
                FIRST_BOT, [_contact(place, at_ms) for place in range(CHATS)], place=last
            )
    finally:
        await store.close()


def _contact(place: int, at_ms: int) -> Contact:
    """Who writes the updates of `bench.updates_stub`."""
    chat_id = 1_000_000 + place
    return Contact(
        bot_id=FIRST_BOT,
        chat_id=chat_id,
        type="private",
        name="Reader",
        username=f"reader{chat_id}",
        language="fa",
        first_seen_ms=at_ms,
        last_seen_ms=at_ms,
    )


def _draft(point: Point, number: int) -> Draft:
    """What a service makes of the call with this number."""
    call = _call(point, number)
    reading = read_call(call.method, call.params)
    return Draft(
        bot_id=call.bot_id or FIRST_BOT,
        method=reading.method,
        params=call.params.decode(),
        chat=reading.chat,
        weight=reading.weight,
    )


def measure(point: Point) -> Figures:
    return run(_measure(point))


async def _measure(point: Point) -> Figures:
    if point.arrivals:
        async with running(config(point)) as peik:
            figures = await _arrivals(peik, point)
            return figures | {"memory_mb": _memory_mb()}
    async with running(config(point)) as peik:
        return await _accepting(peik, point)


async def _accepting(peik: Runtime, point: Point) -> dict[str, float]:
    # Senders read what waits when they begin, and once more with their first letter: what that costs is a start's, and no
    # letter's. Quiet in between as well, or a late one would read beside the measurement.
    await _quiet()
    first = point.letters + max(BATCH, point.bots)
    for start in range(point.letters, first, BATCH):
        await peik.outbox.service.accept(_calls(point, range(start, min(start + BATCH, first))))
    await _quiet()
    calls = _calls(point, range(first, first + point.measured))
    began = time.process_time()
    for first in range(0, point.measured, BATCH):
        await peik.outbox.service.accept(calls[first : first + BATCH])
    accept_us = (time.process_time() - began) / point.measured * 1e6
    await _quiet()
    began = time.process_time()
    for _ in range(PAGES):
        page = await peik.store.page(LetterFilter(state=State.WAITING), before=None, limit=PAGE)
        assert len(page.letters) == PAGE
    return {"accept_us": accept_us, "page_us": (time.process_time() - began) / PAGES * 1e6}


async def _quiet() -> None:
    """Until this process has nothing more to do, since its CPU time is what is measured next. One look could fall between two
    pieces of its work."""
    deadline = time.monotonic() + QUIET_S_MAX
    quiet = 0
    while quiet < QUIET_LOOKS and time.monotonic() < deadline:
        before = time.process_time()
        await asyncio.sleep(QUIET_S)
        quiet = quiet + 1 if time.process_time() - before < QUIET_S * QUIET_SHARE else 0


async def _keep_paused(peik: Runtime, point: Point, reason: str | None) -> None:
    """For whoever opens the file next. Nobody is told here: what a pause costs is no letter's cost."""
    bots = [peik.outbox.service.bot(bot) for bot in _bots(point)]
    await asyncio.gather(*(peik.store.save_bot(msgspec.structs.replace(bot, paused=reason)) for bot in bots))


def drain(point: Point) -> Figures:
    """In a process of its own, since memory is one of its figures; the bots are paused before and after."""
    return run(_drain(point))


async def _drain(point: Point) -> Figures:
    """Counted once every bot has begun: what a sender reads first is a start's cost, and no letter's. Some letters are through by
    then, so half of the rest is enough."""
    async with running(config(point)) as peik:
        waiting = {
            bot_id: tally.waiting for bot_id, tally in (await peik.outbox.service.tallies()).items() if tally.waiting
        }
        await _keep_paused(peik, point, None)
    left = sum(waiting.values())
    told = Events()
    settled = _Settled()
    told.listen(settled)
    opening = time.process_time()
    async with running(config(point), events=told) as peik:
        let_the_collector_rest()  # as in `peik serve`: it would go through all that two thousand bots have, again and again
        starters = min(left // 4, STARTERS * point.bots)
        await asyncio.wait_for(settled.until(starters, each_of=waiting), PATIENCE_S)
        began, before = time.process_time(), settled.count
        wanted = min(point.measured // 2, (left - before) // 2)
        await asyncio.wait_for(settled.until(before + wanted), PATIENCE_S)
        # If all had gone before (there were too few), the opening is counted with them.
        since, letters = (began, wanted) if wanted else (opening, max(1, before))
        drain_us = (time.process_time() - since) / letters * 1e6
        memory_mb = _memory_mb()
        await _keep_paused(peik, point, "the measurement is over")
    return {"drain_us": drain_us, "memory_mb": memory_mb, "left": float(left - settled.count)}


def _memory_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


async def _arrivals(peik: Runtime, point: Point) -> dict[str, float]:
    pages = list(_updates(point.arrivals, point.measured, page=UPDATE_PAGE))
    await _quiet()
    began = time.process_time()
    await _take_in(peik.store, pages)
    take_in_us = (time.process_time() - began) / point.measured * 1e6
    (consumer,) = await peik.store.inbox.consumers(FIRST_BOT)
    await _quiet()
    began = time.process_time()
    for _ in range(PAGES):
        found = await peik.store.inbox.arrivals_after(
            consumer.id, FIRST_ID + point.arrivals - UPDATE_PAGE, limit=UPDATE_PAGE
        )
        assert len(found) == UPDATE_PAGE
    return {"take_in_us": take_in_us, "next_page_us": (time.process_time() - began) / PAGES * 1e6}


async def _take_in(store: Store, pages: Iterable[Sequence[Update]]) -> None:
    at_ms = int(time.time() * 1000)  # what is old would be tidied away meanwhile
    for page in pages:
        await store.inbox.take_in(FIRST_BOT, page, at_ms=at_ms, last_update_id=page[-1].update_id)


def _updates(start: int, many: int, *, page: int) -> Iterator[list[Update]]:
    every = [msgspec.json.decode(one) for one in updates(1_763_000_000, CHATS)]
    for first in range(start, start + many, page):
        yield [
            read_update(msgspec.json.encode(every[number * SPREAD % CHATS] | {"update_id": FIRST_ID + number}))
            for number in range(first, min(first + page, start + many))
        ]


def _calls(point: Point, numbers: range) -> list[LetterCall]:
    return [_call(point, number) for number in numbers]


def _call(point: Point, number: int) -> LetterCall:
    """Chats write in no order of theirs. One after the other, each letter would stand beside the one before it in every index."""
    spread = number * SPREAD % SPREAD_MOST
    return LetterCall(
        method="sendMessage", params=params(spread, chats=point.chats), bot_id=FIRST_BOT + number % point.bots
    )


class _Settled:
    """How many letters were settled, durably, and of which bots."""

    def __init__(self) -> None:
        self.count = 0
        self._bots: set[int] = set()
        self._news = asyncio.Event()

    def __call__(self, events: Sequence[Event]) -> None:
        settled = [event for event in events if isinstance(event, Settled)]
        self.count += len(settled)
        self._bots.update(event.bot_id for event in settled)
        self._news.set()

    async def until(self, wanted: int, *, each_of: Collection[int] = ()) -> None:
        """So many of them, and of each of these bots one."""
        while self.count < wanted or not self._bots.issuperset(each_of):
            self._news.clear()
            await self._news.wait()


def main() -> None:
    deed, text = sys.argv[1:]
    point = msgspec.json.decode(text, type=Point)
    if deed == "fill":
        fill(point)
    else:
        print(msgspec.json.encode({"measure": measure, "drain": drain}[deed](point)).decode())


if __name__ == "__main__":
    main()
