"""A send through the gateway beside a direct call to the same stub: what it costs more. Reads are in `bench.relay`."""

import time

import aiohttp

from bench.figures import Figures, percentiles
from bench.ground import Ground
from bench.loop import run
from bench.payload import TOKEN, params
from bench.server import serving

SENDS = 400


def gateway(ground: Ground) -> Figures:
    """One client, one process of `peik serve` with durable defaults but for the pace, the stub behind both."""
    with serving(ground.path, ground.stub, PEIK_PACE="off") as (_, url, _):
        return run(_compare(url, ground.stub, ground.share(SENDS)))


async def _compare(url: str, direct: str, sends: int) -> Figures:
    async with aiohttp.ClientSession() as session:
        await _send(session, url, 0)  # the token is checked once, and is known from then on
        through: list[float] = []
        straight: list[float] = []
        for number in range(sends):
            # By turns, so that both meet the same weather.
            straight.append(await _send(session, direct, number))
            through.append(await _send(session, url, number))
    (direct_p50, direct_p99), (gateway_p50, gateway_p99) = percentiles(straight), percentiles(through)
    return {
        "direct_send_p50_ms": direct_p50 * 1000,
        "gateway_added_p50_ms": (gateway_p50 - direct_p50) * 1000,
        "gateway_added_p99_ms": (gateway_p99 - direct_p99) * 1000,
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
