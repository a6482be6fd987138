"""The proof of the spine: a bad day at Telegram, with the real pace, in virtual time."""

import asyncio
import random

import pytest

from peik.core.letter import State
from tests.outbox.story import BOT, Stage, call, play

CHATS = 400
LETTERS = 5000
BLOCKED = range(1, 11)


@pytest.mark.gate  # a whole day
def test_5000_letters_through_outages_losses_and_blocked_chats_all_arrive_in_order() -> None:
    async def story(stage: Stage) -> None:
        chance = random.Random(20261115)
        for chat in BLOCKED:
            stage.telegram.user(chat, "Gone", "en", None)
            stage.telegram.block(BOT, chat)
        stage.telegram.faults.add("lose_before", method="sendMessage", probability=0.05)
        stage.telegram.faults.add("lose_after", method="sendMessage", probability=0.02)
        wanted = [(chance.randint(1, CHATS), number) for number in range(LETTERS)]
        outages = asyncio.create_task(three_outages(stage))
        ids: list[int] = []
        for start in range(0, LETTERS, 100):
            part = [call(params={"chat_id": c, "text": str(n)}) for c, n in wanted[start : start + 100]]
            ids += await stage.accept_all(part)
            await asyncio.sleep(chance.uniform(0, 3))
        await stage.quiet()
        await outages
        await judge(stage, wanted, ids)

    play(story)


async def three_outages(stage: Stage) -> None:
    for pause_s, outage_s in ((20, 30), (40, 120), (30, 600)):
        await asyncio.sleep(pause_s)
        stage.telegram.outage(outage_s)
        await asyncio.sleep(outage_s)


async def judge(stage: Stage, wanted: list[tuple[int, int]], ids: list[int]) -> None:
    letters = [await stage.letter(letter_id) for letter_id in ids]
    for (chat, _), letter in zip(wanted, letters, strict=True):
        assert letter.state is (State.FAILED if chat in BLOCKED else State.COMPLETED), letter
    repeats = 0
    for chat in range(1, CHATS + 1):
        arrived = stage.texts(chat)
        first_seen = list(dict.fromkeys(arrived))
        assert first_seen == [str(n) for c, n in wanted if c == chat and chat not in BLOCKED]
        repeats += len(arrived) - len(first_seen)
    uncertain = sum(letter.uncertain_tries for letter in letters)
    counters = stage.telegram.counters
    requests = sum(counters.requests.values())
    assert 0 < repeats <= uncertain
    assert counters.limited < requests * 0.01, (counters.limited, requests)
