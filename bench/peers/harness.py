"""What every peer of Python's is asked: accept by one and by 50 callers, in batches, drain, and be quick when idle.

`python -m bench.peers.<name> <work> <ground>` prints one line of JSON: figures by name. A drain begins with a filled queue and
ends when the last message is settled in the peer's own store, not when the last request was made.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import psutil
import uvloop

from bench.figures import percentiles
from bench.ground import Ground
from bench.payload import TOKEN

CALLERS = 50
BATCH = 500
IDLE = 300
IDLE_PAUSE_S = 0.004
PATIENCE_S = 600.0
CONCURRENCY = 50
_JSON = {"Content-Type": "application/json"}


class Peer:
    """One queue. `settled` is told of every message that its worker has done with."""

    has_batches = False

    def __init__(self, ground: Ground, store: str) -> None:
        self.ground = ground
        self.store = store  # the address of its server, or a file
        self.done = 0
        self.has_backlog = False  # its worker begins with much to do
        self.seen_at: dict[int, asyncio.Future[float]] = {}
        self._enough = asyncio.Event()
        self._wanted = -1
        self.session: aiohttp.ClientSession | None = None

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def add(self, number: int) -> None:
        raise NotImplementedError

    async def add_many(self, numbers: Sequence[int]) -> None:
        raise NotImplementedError

    def working(self) -> AbstractAsyncContextManager[None]:
        """Its worker, for as long as the block lasts."""
        raise NotImplementedError

    async def bytes_kept(self) -> float | None:
        """All that its store holds now."""
        return None

    # ---- for the tasks of the peer ----

    async def post(self, number: int, fields: Any) -> None:
        """What the task does: one sendMessage to the stub."""
        assert self.session is not None
        url = f"{self.ground.stub}/bot{TOKEN}/sendMessage"
        async with self.session.post(url, data=msgspec.json.encode(fields), headers=_JSON) as answer:
            said = msgspec.json.decode(await answer.read())
        assert said["ok"], said
        waiting = self.seen_at.pop(number, None)
        if waiting is not None:
            waiting.set_result(said["result"]["seen_at"])

    def settled(self, *_: object) -> None:
        self.done += 1
        if self.done == self._wanted:
            self._enough.set()

    async def settle(self, wanted: int) -> None:
        self._wanted = wanted
        if self.done < wanted:
            await asyncio.wait_for(self._enough.wait(), PATIENCE_S)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=CONCURRENCY)
        async with aiohttp.ClientSession(connector=connector) as self.session:
            await self.open()
            try:
                yield
            finally:
                await self.close()


async def measure(peer: Peer, work: str) -> dict[str, float]:
    letters = peer.ground.letters
    async with peer.opened():
        match work:
            case "accept_1":
                return {work: await _accept(peer, peer.ground.share(2_000), callers=1)}
            case "accept_50":
                empty = await peer.bytes_kept()
                rate = await _accept(peer, letters, callers=CALLERS)
                full = await peer.bytes_kept()
                kept = {"bytes_each": (full - empty) / letters} if full is not None and empty is not None else {}
                return {work: rate} | kept
            case "accept_batch":
                began = time.monotonic()
                await _fill(peer, 2 * letters)
                return {work: 2 * letters / (time.monotonic() - began)}
            case "drain":
                return await _drain(peer, letters)
            case "idle":
                return await _idle(peer, peer.ground.share(IDLE))
    raise ValueError(work)


async def _accept(peer: Peer, letters: int, *, callers: int) -> float:
    async def one_caller(first: int) -> None:
        for number in range(first, letters, callers):
            await peer.add(number)

    await peer.add(letters)  # connections are opened before
    began = time.monotonic()
    await asyncio.gather(*(one_caller(first) for first in range(callers)))
    return letters / (time.monotonic() - began)


async def _fill(peer: Peer, letters: int) -> None:
    if peer.has_batches:
        for first in range(0, letters, BATCH):
            await peer.add_many(range(first, min(first + BATCH, letters)))
        return

    async def one_caller(first: int) -> None:
        for number in range(first, letters, CALLERS):
            await peer.add(number)

    await asyncio.gather(*(one_caller(first) for first in range(CALLERS)))


async def _drain(peer: Peer, letters: int) -> dict[str, float]:
    await _fill(peer, letters)
    peer.has_backlog = True
    began = time.monotonic()
    async with peer.working():
        await peer.settle(letters)
        taken_s = time.monotonic() - began
    return {"drain": letters / taken_s, "rss_mb": psutil.Process().memory_info().rss / 1e6}


async def _idle(peer: Peer, letters: int) -> dict[str, float]:
    taken: list[float] = []
    async with peer.working():
        for number in range(letters + 1):
            await asyncio.sleep(IDLE_PAUSE_S)
            seen: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            peer.seen_at[number] = seen
            began = time.monotonic()
            await peer.add(number)
            taken.append(await asyncio.wait_for(seen, PATIENCE_S) - began)
    half, most = percentiles(taken[1:])  # the first one waits for the worker to come up
    return {"idle_p50_ms": half * 1000, "idle_p99_ms": most * 1000}


def main(make: Callable[[Ground, str], Peer]) -> None:
    """`make` gets the ground and the name of its store as it was given (`redis_always`, …)."""
    work, store, text = sys.argv[1:]
    ground = msgspec.json.decode(text, type=Ground)

    async def run() -> dict[str, float]:
        return await measure(make(ground, str(getattr(ground, store, None) or ground.folder)), work)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run())
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
