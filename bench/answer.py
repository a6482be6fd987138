"""A person writes and a bot of aiogram answers: through Peik and straight, by turns.

This process is Telegram for both bots, so it knows when a message could be fetched and when its answer had come. The bots are
the same program (`python -m bench.answer TOKEN ROOT`) in processes of their own: one polls this Telegram, one polls Peik.
"""

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
from aiohttp import web

from bench.figures import Figures, percentiles
from bench.ground import Ground
from bench.loop import run
from bench.server import serving

ANSWERS = 300
PATIENCE_S = 120.0  # to import aiogram takes a while on a busy machine
STRAIGHT = "123456788:bench-token-of-the-bot-that-polls-itself"
THROUGH = "123456789:bench-token-of-the-bot-that-polls-peiks"
_OFFSET = re.compile(rb'offset"?[=:] ?(\d+)')
_AT_ONCE = re.compile(rb'timeout"?[=:] ?0')


class Telegram:
    """One message at a time to each bot; its answer is waited for before the next."""

    def __init__(self) -> None:
        self._written: dict[str, list[int]] = {STRAIGHT: [], THROUGH: []}
        self._polls: dict[str, asyncio.Event] = {}
        self._answered: dict[int, asyncio.Future[float]] = {}
        self._numbers = 0

    async def answered_in(self, token: str) -> float:
        """How long a person waits for what the bot says."""
        self._numbers += 1
        answer = self._answered[self._numbers] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        self._written[token].append(self._numbers)
        if token in self._polls:
            self._polls[token].set()
        return await asyncio.wait_for(answer, PATIENCE_S) - began

    async def _fetched(self, token: str, body: bytes) -> list[object]:
        """What is not confirmed by the offset. A poll ends the one before it."""
        written, offset = self._written[token], _OFFSET.search(body)
        if offset:
            written[:] = [number for number in written if number >= int(offset[1])]
        if token in self._polls:
            self._polls[token].set()
        poll = self._polls[token] = asyncio.Event()
        if not written and not _AT_ONCE.search(body):
            await poll.wait()
        return [{"update_id": number, "message": _message(number, f"/ask {number}")} for number in written]

    def end(self) -> None:
        for poll in self._polls.values():
            poll.set()

    async def called(self, request: web.Request) -> web.Response:
        token, method = request.match_info["token"], request.match_info["method"]
        body = await request.read()
        result: object = True
        if method.lower() == "getupdates":
            result = await self._fetched(token, body)
        elif method.lower() == "sendmessage":
            number = int(body.rpartition(b"answer-")[2].partition(b"-")[0])
            self._answered.pop(number).set_result(time.monotonic())
            result = _message(number, "answered")
        elif method.lower() == "getme":
            result = {
                "id": int(token.partition(":")[0]),
                "is_bot": True,
                "first_name": "Bench",
                "username": "peik_bench_bot",
            }
        elif method.lower() == "getwebhookinfo":
            result = {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
        return web.Response(body=msgspec.json.encode({"ok": True, "result": result}), content_type="application/json")


def _message(number: int, text: str) -> object:
    person = {"id": 1_000_000 + number, "first_name": "Reader"}  # one each: chats have a pace
    chat = person | {"type": "private"}
    return {
        "message_id": number,
        "date": int(time.time()),
        "from": person | {"is_bot": False},
        "chat": chat,
        "text": text,
    }


def answers(ground: Ground) -> Figures:
    return run(_answers(ground))


async def _answers(ground: Ground) -> Figures:
    telegram = Telegram()
    app = web.Application()
    app.router.add_route("*", "/bot{token}/{method}", telegram.called)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    root = f"http://127.0.0.1:{runner.addresses[0][1]}"
    waits: dict[str, list[float]] = {STRAIGHT: [], THROUGH: []}
    settings = {"PEIK_BOT_TOKENS": THROUGH, "PEIK_INBOUND": "polling"}
    try:
        # Peik starts in a thread, since it asks this Telegram who the bot is.
        with contextlib.ExitStack() as stack:
            _, peik, _ = await asyncio.to_thread(stack.enter_context, serving(ground.path, root, **settings))
            stack.enter_context(_bot(STRAIGHT, root))
            stack.enter_context(_bot(THROUGH, peik))
            for token in waits:
                await telegram.answered_in(token)
            for _ in range(ground.share(ANSWERS)):
                for token, took in waits.items():
                    took.append(await telegram.answered_in(token))
            await asyncio.to_thread(stack.close)
    finally:
        telegram.end()
        await runner.cleanup()
    figures: dict[str, float] = {}
    for name, token in (("direct_answer", STRAIGHT), ("answer", THROUGH)):
        p50_s, p99_s = percentiles(waits[token])
        figures |= {f"{name}_p50_ms": p50_s * 1000, f"{name}_p99_ms": p99_s * 1000}
    return figures


@contextlib.contextmanager
def _bot(token: str, root: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-m", "bench.answer", token, root]) as process:
        try:
            yield
        finally:
            process.kill()


async def _poll(token: str, root: str) -> None:
    """What the README of aiogram shows, at another address."""
    from aiogram import Bot, Dispatcher
    from aiogram.client.session.aiohttp import AiohttpSession
    from aiogram.client.telegram import TelegramAPIServer
    from aiogram.types import Message

    dispatcher = Dispatcher()

    @dispatcher.message()
    async def answer(message: Message) -> None:
        await message.answer(f"answer-{(message.text or '').removeprefix('/ask ')}-")

    bot = Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(root)))
    await dispatcher.start_polling(bot, handle_signals=False)


if __name__ == "__main__":
    run(_poll(*sys.argv[1:]))
