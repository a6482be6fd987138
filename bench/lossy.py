"""A network that loses 40 of 100 requests, with outages: what arrives without a queue, and what arrives with Peik.

In virtual time, from one seed: production service, courier and SQLite store, the simulated Telegram, the real pace. Half of what
is lost was heard by Telegram, so that a second try doubles it: those tries are uncertain, and no other may double.
"""

import asyncio
import random

import msgspec

from bench.figures import Figures
from bench.ground import Ground
from peik.app.lifetime import running
from peik.core.letter import LetterCall
from peik.core.outcome import Reply
from peik.core.token import Token
from peik.settings.config import load
from peik.storage.executor import InlineExecutor
from peik.telegram.port import Request
from peik.testing import Telegram
from peik.testing.virtual import SimCarrier, VirtualClock, run_virtual

BOT_ID = 7_000_001
TOKEN = f"{BOT_ID}:AAtest"
CHATS = 100
LETTERS = 2_000
LOST_BEFORE = LOST_AFTER = 0.2
OUTAGES_S = ((20, 30), (40, 120), (30, 60))
LOOK_S = 1.0
LATENCY_S = 0.05


def lossy(ground: Ground) -> Figures:
    letters = ground.share(LETTERS)
    return {"lossy_bare_percent": _bare(letters), **_peik(ground, letters)}


def _telegram(clock: VirtualClock) -> Telegram:
    telegram = Telegram(now=clock.wall_s, chance=random.Random(7))
    telegram.bot(TOKEN)
    telegram.faults.add("lose_before", method="sendMessage", probability=LOST_BEFORE)
    telegram.faults.add("lose_after", method="sendMessage", probability=LOST_AFTER / (1 - LOST_BEFORE))
    return telegram


async def _outages(telegram: Telegram) -> None:
    for peace_s, dark_s in OUTAGES_S:
        await asyncio.sleep(peace_s)
        telegram.outage(dark_s)
        await asyncio.sleep(dark_s)


def _params(number: int) -> bytes:
    return msgspec.json.encode({"chat_id": 1 + number % CHATS, "text": str(number)})


def _bare(letters: int) -> float:
    """A loop that sends once and hopes, at the pace that a careful person would set: of 100, how many are known to arrive."""
    known = 0

    async def main(clock: VirtualClock) -> None:
        nonlocal known
        telegram = _telegram(clock)
        carrier = SimCarrier(telegram, latency_s=LATENCY_S)
        outages = asyncio.ensure_future(_outages(telegram))
        for number in range(letters):
            request = Request(token=Token.stored(TOKEN), method="sendMessage", params=_params(number), timeout_s=10.0)
            reply: Reply = await carrier.carry(request)
            known += reply.status == 200
            await asyncio.sleep(0.05)
        outages.cancel()
        await carrier.close()

    run_virtual(main)
    return 100 * known / letters


def _peik(ground: Ground, letters: int) -> Figures:
    figures: dict[str, float] = {}

    async def main(clock: VirtualClock) -> None:
        telegram = _telegram(clock)
        flags = {"store": f"sqlite:///{ground.folder}/lossy.db", "bot_tokens": TOKEN, "inbound": "off"}
        carrier = SimCarrier(telegram, latency_s=LATENCY_S)
        config = load(flags, environment={}, folder=ground.path)
        async with running(
            config,
            clock=clock,
            carrier=carrier,
            chance=random.Random(1),
            executor=lambda name: InlineExecutor(),
            is_alone=True,
        ) as peik:
            outages = asyncio.ensure_future(_outages(telegram))
            calls = [LetterCall(method="sendMessage", params=_params(number)) for number in range(letters)]
            ids = [one.letter_id for one in await peik.outbox.service.accept(calls)]
            while (await peik.outbox.service.tallies())[BOT_ID].completed < letters:
                tally = (await peik.outbox.service.tallies())[BOT_ID]
                if not (tally.waiting or tally.active or tally.delayed):
                    break
                await asyncio.sleep(LOOK_S)
            await outages
            views = [await peik.outbox.service.letter(letter_id) for letter_id in ids]
        arrived = [text for chat in range(1, CHATS + 1) for text in telegram.sent.texts(chat)]
        doubled, uncertain = len(arrived) - len(set(arrived)), sum(view.uncertain_tries for view in views)
        figures.update(
            lossy_percent=100 * len(set(arrived)) / letters,
            lossy_doubled=doubled,
            lossy_doubled_by_habit=max(0, doubled - uncertain),
            lossy_uncertain=uncertain,
        )

    run_virtual(main)
    return figures
