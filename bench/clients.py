"""Direct senders: what people write today, and the fastest client there is here. None of them keeps anything."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec

from bench.figures import Figures
from bench.ground import Ground
from bench.loop import run
from bench.payload import TOKEN, fields, params
from peik.core.token import Token
from peik.telegram.client import BotApiCarrier
from peik.telegram.port import Request

WORKERS = 64  # as many as Peik has in flight per bot by default
PATIENCE_S = 60.0

Send = Callable[[int], Awaitable[None]]


def aiohttp_loop(ground: Ground) -> Figures:
    """Workers that post and forget, on the same event loop that Peik uses."""

    async def post_all() -> float:
        url = f"{ground.stub}/bot{TOKEN}/sendMessage"
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=WORKERS)) as session:

            async def send(number: int) -> None:
                async with session.post(url, data=params(number), headers=headers) as answer:
                    assert msgspec.json.decode(await answer.read())["ok"]

            return await _rate(send, ground.letters)

    return {"aiohttp_loop": run(post_all())}


def aiogram_loop(ground: Ground) -> Figures:
    """`bot.send_message` of aiogram, as many at once."""

    async def send_all() -> float:
        from aiogram import Bot
        from aiogram.client.session.aiohttp import AiohttpSession
        from aiogram.client.telegram import TelegramAPIServer

        session = AiohttpSession(api=TelegramAPIServer.from_base(ground.stub), limit=WORKERS)
        async with Bot(TOKEN, session=session) as bot:

            async def send(number: int) -> None:
                wanted = fields(number)
                assert (await bot.send_message(int(wanted["chat_id"]), str(wanted["text"]))).message_id

            return await _rate(send, ground.letters)

    return {"aiogram_loop": run(send_all())}


def carrier_loop(ground: Ground) -> Figures:
    """Peik's own HTTP client without anything of Peik around it: what keeping letters costs a drain, and nothing else."""

    async def carry_all() -> float:
        carrier = BotApiCarrier(ground.stub, connections_max=WORKERS)

        async def send(number: int) -> None:
            request = Request(token=Token(TOKEN), method="sendMessage", params=params(number), timeout_s=PATIENCE_S)
            reply = await carrier.carry(request)
            assert reply.status == 200, reply

        try:
            return await _rate(send, ground.letters)
        finally:
            await carrier.close()

    return {"carrier_loop": run(carry_all())}


async def _rate(send: Send, letters: int) -> float:
    numbers = iter(range(letters))

    async def work() -> None:
        for number in numbers:
            await send(number)

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return letters / (time.monotonic() - began)
