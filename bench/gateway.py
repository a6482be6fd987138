"""The gateway beside a direct call to the same stub: what a send costs more, and how many reads pass in a second."""

import asyncio
import time
from pathlib import Path

import aiohttp

from bench.figures import Figures, percentiles
from bench.load import TOKEN, params
from bench.loop import run
from bench.server import serving
from bench.stub import Stub

SENDS = 400
READS = 4_000
READERS = 32


def gateway(folder: Path, stub: Stub) -> Figures:
    """One client, one process of `peik serve` with durable defaults but for the pace, the stub behind both."""
    with serving(folder, stub.root, PEIK_PACE="off") as (_, url, _):
        return run(_compare(url, stub.root))


async def _compare(url: str, direct: str) -> Figures:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=READERS)) as session:
        await _send(session, url, 0)  # the token is checked once, and is known from then on
        through: list[float] = []
        straight: list[float] = []
        for number in range(SENDS):
            # By turns, so that both meet the same weather.
            straight.append(await _send(session, direct, number))
            through.append(await _send(session, url, number))
        reads = {name: await _reads(session, root) for name, root in (("direct_reads", direct), ("gateway_reads", url))}
    (direct_p50, direct_p99), (gateway_p50, gateway_p99) = percentiles(straight), percentiles(through)
    return {
        "direct_send_p50_ms": direct_p50 * 1000,
        "gateway_added_p50_ms": (gateway_p50 - direct_p50) * 1000,
        "gateway_added_p99_ms": (gateway_p99 - direct_p99) * 1000,
        **reads,
    }


async def _send(session: aiohttp.ClientSession, root: str, number: int) -> float:
    began = time.monotonic()
    url, headers = f"{root}/bot{TOKEN}/sendMessage", {"Content-Type": "application/json"}
    async with session.post(url, data=params(number), headers=headers) as answer:
        body = await answer.read()
    taken_s = time.monotonic() - began
    assert answer.status == 200, body
    assert b'"message_id":0' not in body, "it was not waited for"
    return taken_s


async def _reads(session: aiohttp.ClientSession, root: str) -> float:
    numbers = iter(range(READS))

    async def work() -> None:
        for _ in numbers:
            async with session.post(f"{root}/bot{TOKEN}/getChat", data={"chat_id": "1"}) as answer:
                body = await answer.read()
                assert answer.status == 200, body

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(READERS)))
    return READS / (time.monotonic() - began)
