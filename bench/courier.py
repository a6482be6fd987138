"""Peik itself in this process, through `peik.app.running` with default durable settings; only the pace is off.

The bot is paused while letters are only accepted, and while a backlog is made: its record is stored with a reason in
`paused` and handed to the courier, as a pause by a person would be. So accepting is measured without sending beside it,
and the drain begins from a real backlog: what the lanes hold in memory (16 letters each) is there, the rest must be read
from the file. `desk.save_bot` resumes the bot; that commit is within the measured time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.figures import Figures, percentiles
from bench.load import BOT_ID, TOKEN, call
from bench.loop import run
from bench.stub import Stub
from peik.app import Office, running
from peik.config import Config, load
from peik.core.letter import State
from peik.core.token import Token
from peik.events import Event, Settled

SINGLE_LETTERS = 2_000
LETTERS = 20_000
CALLERS = 50
BATCH = 500
BATCHED_LETTERS = 40_000
IDLE_LETTERS = 300
IDLE_PAUSE_S = 0.004
PATIENCE_S = 60.0


def accept_one_caller(folder: Path, stub: Stub) -> Figures:
    async def work(peik: Office) -> float:
        for number in range(SINGLE_LETTERS):
            await peik.desk.accept([call(number)])
        return SINGLE_LETTERS

    return {"accept_1": run(_accepting(folder, stub, work))}


def accept_many_callers(folder: Path, stub: Stub) -> Figures:
    async def work(peik: Office) -> float:
        await accept_by_callers(peik, LETTERS)
        return LETTERS

    return {"accept_50": run(_accepting(folder, stub, work))}


async def accept_by_callers(peik: Office, letters: int) -> None:
    """Callers at once, each with one letter at a time."""

    async def one_caller(first: int) -> None:
        for number in range(first, letters, CALLERS):
            await peik.desk.accept([call(number)])

    await asyncio.gather(*(one_caller(first) for first in range(CALLERS)))


def accept_batches(folder: Path, stub: Stub) -> Figures:
    async def work(peik: Office) -> float:
        await _accept_in_batches(peik, BATCHED_LETTERS)
        return BATCHED_LETTERS

    return {"accept_batch": run(_accepting(folder, stub, work))}


def drain(folder: Path, stub: Stub) -> Figures:
    """From the end of the pause until the last settlement is committed."""

    async def work() -> float:
        async with opened(folder, stub, is_paused=True) as peik:
            await _accept_in_batches(peik, LETTERS)
            return await drained(peik, LETTERS)

    before = stub.posts()
    taken_s = run(work())
    _check_posts(stub, before, LETTERS)
    return {"drain": LETTERS / taken_s}


async def drained(peik: Office, letters: int) -> float:
    """Resume the bot; the seconds until all of its letters are settled."""
    ended = _Ended(letters)
    peik.events.listen(ended)
    began = time.monotonic()
    await peik.desk.save_bot(Token(TOKEN))
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
    return ended.at - began


def deliver_as_accepted(folder: Path, stub: Stub) -> Figures:
    """The whole way at full load: 50 callers while the bot sends, until the last settlement is committed."""

    async def work() -> float:
        async with opened(folder, stub, is_paused=False) as peik:
            ended = _Ended(LETTERS)
            peik.events.listen(ended)
            began = time.monotonic()
            await accept_by_callers(peik, LETTERS)
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
            return ended.at - began

    before = stub.posts()
    taken_s = run(work())
    _check_posts(stub, before, LETTERS)
    return {"whole_way": LETTERS / taken_s}


def idle_latency(folder: Path, stub: Stub) -> Figures:
    """Nothing else to do: from the call of accept until the request is at the stub, by one monotonic clock."""

    async def work() -> list[float]:
        async with opened(folder, stub, is_paused=False) as peik:
            taken: list[float] = []
            for number in range(IDLE_LETTERS):
                await asyncio.sleep(IDLE_PAUSE_S)
                began = time.monotonic()
                (accepted,) = await peik.desk.accept([call(number)])
                view = await peik.desk.wait(accepted.letter_id, PATIENCE_S)
                assert view.result is not None, view.state
                taken.append(msgspec.json.decode(view.result)["seen_at"] - began)
            return taken

    half, most = percentiles(run(work()))
    return {"idle_p50_ms": half * 1000, "idle_p99_ms": most * 1000}


# ---- opening ----


def config(folder: Path, stub: Stub) -> Config:
    """Default settings but for the place, the bot and the pace; nothing is taken from the environment."""
    flags = {"store": f"sqlite:///{folder}/peik.db", "api_root": stub.root, "bot_tokens": TOKEN}
    flags |= {"pace": "off", "inbound": "off"}
    return load(flags, environment={}, folder=folder)


@asynccontextmanager
async def opened(folder: Path, stub: Stub, *, is_paused: bool) -> AsyncIterator[Office]:
    async with running(config(folder, stub)) as peik:
        if is_paused:
            record = msgspec.structs.replace(peik.desk.bot(BOT_ID), paused="a measurement begins")
            await peik.store.save_bot(record)
            peik.courier.add(record)
        yield peik


async def _accepting(folder: Path, stub: Stub, work: Callable[[Office], Awaitable[float]]) -> float:
    """Letters a second, each counted when its caller was told that it is durable."""
    async with opened(folder, stub, is_paused=True) as peik:
        began = time.monotonic()
        letters = await work(peik)
        rate = letters / (time.monotonic() - began)
        assert (await peik.desk.tallies())[BOT_ID].waiting == letters, "a letter is missing"
        return rate


async def _accept_in_batches(peik: Office, letters: int) -> None:
    for first in range(0, letters, BATCH):
        await peik.desk.accept([call(number) for number in range(first, first + BATCH)])


def _check_posts(stub: Stub, before: int, letters: int) -> None:
    posts = stub.posts() - before
    assert posts == letters, f"{letters} letters made {posts} calls"


class _Ended:
    """Counts the letters that are completed, durably: Settled is told after the commit."""

    def __init__(self, letters: int) -> None:
        self._left = letters
        self._all = asyncio.Event()
        self.at = 0.0

    def __call__(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Settled):
                assert event.state is State.COMPLETED, event
                self._left -= 1
        if self._left == 0 and not self._all.is_set():
            self.at = time.monotonic()
            self._all.set()

    async def wait(self) -> None:
        await self._all.wait()
