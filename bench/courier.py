"""Peik itself in this process, through `peik.app.lifetime.running` with default durable settings; only the pace is off.

The bot is paused while letters are only accepted, and while a backlog is made: its record is stored with a reason in
`paused` and handed to the courier, as a pause by a person would be. So accepting is measured without sending beside it,
and the drain begins from a real backlog: what the lanes hold in memory (16 letters each) is there, the rest must be read
from the file. `desk.save_bot` resumes the bot; that commit is within the measured time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from bench.figures import Figures, percentiles
from bench.ground import Ground
from bench.load import BOT_ID, TOKEN, call
from bench.loop import run
from bench.stub import Stub
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core.events import Event, Settled
from peik.core.letter import State
from peik.core.token import Token
from peik.settings.config import Config, load

SINGLE_LETTERS = 2_000
CALLERS = 50
BATCH = 500
IDLE_LETTERS = 300
IDLE_PAUSE_S = 0.004
PATIENCE_S = 300.0


def accept_one_caller(ground: Ground) -> Figures:
    async def work(peik: Runtime) -> float:
        letters = ground.share(SINGLE_LETTERS)
        for number in range(letters):
            await peik.outbox.service.accept([call(number)])
        return letters

    return {"accept_1": run(accepting(ground, work))}


def accept_many_callers(ground: Ground) -> Figures:
    async def work(peik: Runtime) -> float:
        await accept_by_callers(peik, ground.letters)
        return ground.letters

    return {"accept_50": run(accepting(ground, work))}


async def accept_by_callers(peik: Runtime, letters: int) -> None:
    """Callers at once, each with one letter at a time."""

    async def one_caller(first: int) -> None:
        for number in range(first, letters, CALLERS):
            await peik.outbox.service.accept([call(number)])

    await asyncio.gather(*(one_caller(first) for first in range(CALLERS)))


def accept_batches(ground: Ground) -> Figures:
    async def work(peik: Runtime) -> float:
        await accept_in_batches(peik, 2 * ground.letters)
        return 2 * ground.letters

    return {"accept_batch": run(accepting(ground, work))}


def drain(ground: Ground) -> Figures:
    """From the end of the pause until the last settlement is committed."""

    async def work() -> float:
        async with opened(ground, is_paused=True) as peik:
            await accept_in_batches(peik, ground.letters)
            return await drained(peik, ground.letters)

    stub = Stub(ground.stub_port)
    before = stub.posts()
    taken_s = run(work())
    _check_posts(stub, before, ground.letters)
    return {"drain": ground.letters / taken_s}


async def drained(peik: Runtime, letters: int) -> float:
    """Resume the bot; the seconds until all of its letters are settled."""
    ended = _Ended(letters)
    peik.events.listen(ended)
    began = time.monotonic()
    await peik.outbox.service.save_bot(Token(TOKEN))
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
    return ended.at - began


def deliver_as_accepted(ground: Ground) -> Figures:
    """The whole way at full load: 50 callers while the bot sends, until the last settlement is committed."""

    async def work() -> float:
        async with opened(ground, is_paused=False) as peik:
            ended = _Ended(ground.letters)
            peik.events.listen(ended)
            began = time.monotonic()
            await accept_by_callers(peik, ground.letters)
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
            return ended.at - began

    stub = Stub(ground.stub_port)
    before = stub.posts()
    taken_s = run(work())
    _check_posts(stub, before, ground.letters)
    return {"whole_way": ground.letters / taken_s}


def idle_latency(ground: Ground) -> Figures:
    """Nothing else to do: from the call of accept until the request is at the stub, by one monotonic clock."""

    async def work() -> list[float]:
        async with opened(ground, is_paused=False) as peik:
            taken: list[float] = []
            for number in range(ground.share(IDLE_LETTERS)):
                await asyncio.sleep(IDLE_PAUSE_S)
                began = time.monotonic()
                (accepted,) = await peik.outbox.service.accept([call(number)])
                view = await peik.outbox.service.wait(accepted.letter_id, PATIENCE_S)
                assert view.result is not None, view.state
                taken.append(msgspec.json.decode(view.result)["seen_at"] - began)
            return taken

    half, most = percentiles(run(work()))
    return {"idle_p50_ms": half * 1000, "idle_p99_ms": most * 1000}


# ---- opening ----


def config(ground: Ground, store: str | None = None) -> Config:
    """Default settings but for the place, the bot and the pace; nothing is taken from the environment."""
    flags = {
        "store": store or f"sqlite:///{ground.folder}/peik.db",
        "api_root": ground.stub,
        "bot_tokens": TOKEN,
    }
    flags |= {"pace": "off", "inbound": "off"}
    return load(flags, environment={}, folder=ground.path)


@asynccontextmanager
async def opened(ground: Ground, *, is_paused: bool, store: str | None = None) -> AsyncIterator[Runtime]:
    async with running(config(ground, store)) as peik:
        if is_paused:
            record = msgspec.structs.replace(peik.outbox.service.bot(BOT_ID), paused="a measurement begins")
            await peik.store.save_bot(record)
            peik.outbox.courier.add(record)
        yield peik


async def accepting(ground: Ground, work: Callable[[Runtime], Awaitable[float]], *, store: str | None = None) -> float:
    """Letters a second, each counted when its caller was told that it is durable."""
    async with opened(ground, is_paused=True, store=store) as peik:
        began = time.monotonic()
        letters = await work(peik)
        rate = letters / (time.monotonic() - began)
        assert (await peik.outbox.service.tallies())[BOT_ID].waiting == letters, "a letter is missing"
        return rate


async def accept_in_batches(peik: Runtime, letters: int) -> None:
    for first in range(0, letters, BATCH):
        await peik.outbox.service.accept([call(number) for number in range(first, min(first + BATCH, letters))])


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
