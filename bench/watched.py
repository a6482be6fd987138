"""Whether the sender pays for somebody who looks: `python -m bench.watched`.

The real `peik serve` and a Telegram that says yes to everything. Letters are accepted while the bot is paused; then it is
resumed, and the time and the CPU time of the server until the last call are taken: by turns with nobody there and with the
overview open, as a browser has it (told by `/admin/live`, it asks for the page again, every two seconds). Pairs go in both
orders, so that what gets slower by itself falls on both. On a machine that others use as well, the CPU time says more.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import msgspec
import psutil

from bench.load import BOT_ID, TOKEN, batch_bodies
from bench.loop import run
from bench.pages import RESULTS, sign_in
from bench.server import serving
from bench.stub import Stub, running_stub

PAIRS = 7
LETTERS = 60_000
BATCH = 500
LOOK_S = 0.02
PATIENCE_S = 300.0
DRAWS = 4_000


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    cpu_seconds: float  # of the server
    pages: int  # that were asked for meanwhile


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Watched by unwatched, over all pairs: the median, and where 95 of 100 medians of such pairs would be."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> "Ratio":
        chance = random.Random(len(ratios))
        medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
        return cls(median=statistics.median(ratios), low=medians[DRAWS // 40], high=medians[-DRAWS // 40])


def main() -> int:
    options = _options()
    RESULTS.mkdir(exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="peik-watched-", dir=os.environ.get("TMPDIR") or RESULTS)
    with folder as name, running_stub() as stub:
        settings = {"PEIK_PACE": "off", "PEIK_BOT_TOKENS": TOKEN}
        with serving(Path(name), stub.root, **settings) as (process, url, key):
            pairs = run(_measure(url, key, psutil.Process(process.pid), stub, options))
    for number, (alone, watched) in enumerate(pairs, start=1):
        print(
            f"{number:>3}  alone {alone.seconds:6.2f} s, CPU {alone.cpu_seconds:6.2f} s"
            f"   watched {watched.seconds:6.2f} s, CPU {watched.cpu_seconds:6.2f} s, {watched.pages} pages"
        )
    time_ratio = Ratio.of([watched.seconds / alone.seconds for alone, watched in pairs])
    cpu_ratio = Ratio.of([watched.cpu_seconds / alone.cpu_seconds for alone, watched in pairs])
    for label, ratio in (("time", time_ratio), ("CPU of the server", cpu_ratio)):
        print(f"{label}: watched / alone {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
    result = {"letters": options.letters, "pairs": pairs, "time": time_ratio, "cpu": cpu_ratio}
    result |= {"load_average": os.getloadavg(), "cores": os.cpu_count()}
    (RESULTS / "watched.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.watched", description="Drains with the overview open, and without.")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--letters", type=int, default=LETTERS)
    return parser.parse_args()


async def _measure(
    url: str, key: str, server: psutil.Process, stub: Stub, options: argparse.Namespace
) -> list[tuple[Drained, Drained]]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as rest,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
    ):
        await sign_in(browser, url, key)

        async def one(*, is_watched: bool) -> Drained:
            return await _drained(rest, browser if is_watched else None, url, server, stub, options.letters)

        await one(is_watched=True)  # warm
        pairs = []
        for number in range(options.pairs):
            if number % 2:
                watched = await one(is_watched=True)
                alone = await one(is_watched=False)
            else:
                alone = await one(is_watched=False)
                watched = await one(is_watched=True)
            pairs.append((alone, watched))
        return pairs


async def _drained(
    rest: aiohttp.ClientSession,
    browser: aiohttp.ClientSession | None,
    url: str,
    server: psutil.Process,
    stub: Stub,
    letters: int,
) -> Drained:
    await _pause(rest, url, is_paused=True)
    for body in batch_bodies(letters, per_batch=BATCH):
        headers = {"Content-Type": "application/json"}
        async with rest.post(f"{url}/v1/letters/batch", data=body, headers=headers) as answer:
            assert answer.status == 202, await answer.text()
    last = stub.posts() + letters
    async with _watching(browser, url) as looks:
        cpu_began, began = _cpu_s(server), time.monotonic()
        await _pause(rest, url, is_paused=False)
        async with asyncio.timeout(PATIENCE_S):
            while await asyncio.to_thread(stub.posts) < last:  # noqa: ASYNC110  it is another process
                await asyncio.sleep(LOOK_S)
        return Drained(seconds=time.monotonic() - began, cpu_seconds=_cpu_s(server) - cpu_began, pages=len(looks))


async def _pause(rest: aiohttp.ClientSession, url: str, *, is_paused: bool) -> None:
    async with rest.patch(f"{url}/v1/bots/{BOT_ID}", json={"paused": is_paused}) as answer:
        assert answer.status == 200, await answer.text()


@contextlib.asynccontextmanager
async def _watching(browser: aiohttp.ClientSession | None, url: str) -> AsyncIterator[list[float]]:
    """Meanwhile the overview is open; how long each look at it took."""
    looks: list[float] = []
    if browser is None:
        yield looks
        return
    watcher = asyncio.create_task(_watch(browser, url, looks))
    try:
        yield looks
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


async def _watch(browser: aiohttp.ClientSession, url: str, looks: list[float]) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with browser.get(f"{url}/admin/live", timeout=timeout) as stream:
        async for line in stream.content:
            if line.startswith(b"event: tick"):
                began = time.monotonic()
                async with browser.get(f"{url}/admin", headers={"x-peik-live": "1"}) as answer:
                    await answer.read()
                    assert answer.status == 200
                looks.append(time.monotonic() - began)


def _cpu_s(server: psutil.Process) -> float:
    times = server.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    sys.exit(main())
