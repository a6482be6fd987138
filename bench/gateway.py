"""A send through the gateway beside a direct call to the same stub: what it costs more. Reads are in `bench.relay`.

And a progress bar: a hundred edits of one message, straight to the simulated Telegram and through Peik with its pace on.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from bench.figures import Figures, percentiles
from bench.ground import Ground
from bench.loop import run
from bench.payload import TOKEN, params
from bench.server import serving

SENDS = 400
EDITS = 100
LATENCY_S = 0.05  # Telegram's, from a server in Europe


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


def gateway_edits(ground: Ground) -> Figures:
    """One client that waits for each answer; the simulated Telegram behind both takes its time as the real one does."""
    with _telegram() as (telegram, control), serving(ground.path, telegram) as (_, url, _):
        return run(_edit(url, telegram, control, ground.share(EDITS)))


@contextmanager
def _telegram() -> Iterator[tuple[str, str]]:
    """A simulated Telegram, with its limits on: its address, and that of its controls."""
    command = [sys.executable, "-m", "peik.testing", "--port", "0", "--seed", "7"]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        try:
            yield told["url"], told["control_url"]
        finally:
            process.terminate()


async def _edit(url: str, telegram: str, control: str, edits: int) -> Figures:
    async with aiohttp.ClientSession() as session:

        async def call(address: str, **fields: object) -> dict[str, object]:
            async with session.post(address, json=fields) as answer:
                body = await answer.json()
                assert answer.status == 200, body
                result = body["result"]
                return result if isinstance(result, dict) else {}

        await call(f"{control}/sim/faults", kind="slow", least_s=LATENCY_S, most_s=LATENCY_S)
        took: dict[str, float] = {}
        for chat, root in ((1, telegram), (2, url)):
            shown = await call(f"{root}/bot{TOKEN}/sendMessage", chat_id=chat, text="0 %")
            message = {"chat_id": chat, "message_id": shown["message_id"]}
            began = time.monotonic()
            for number in range(edits):
                await call(f"{root}/bot{TOKEN}/editMessageText", **message, text=f"{number + 1} %")
            took[root] = time.monotonic() - began
    return {"direct_edits_s": took[telegram], "gateway_edits_ratio": took[url] / took[telegram]}
