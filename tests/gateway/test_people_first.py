"""People go first by themselves: a bot's own news wait for its answers, and neither is answered 429."""

import asyncio
import json
from statistics import quantiles
from typing import Any

from peik.gateway.app import Gateway
from peik.gateway.params import given_of
from peik.testing import Options
from peik.testing.faults import Limits
from tests.outbox.story import BOT, TOKEN, Stage, play

CHATS = range(10_001, 11_201)
AT_ONCE = 40  # calls of the news loop
PEOPLE = 60
STRICT = Limits(bot_burst=1, chat_burst=3, flood_lengthens_s=1.0)


class Bot:
    """A bot that calls the gateway: it answers whoever writes, and sends its news."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.gateway = Gateway(stage.peik, self._nowhere, keeps_files=False)

    async def _nowhere(self, *_: Any) -> None:
        raise AssertionError

    async def call(self, method: str, **fields: Any) -> dict[str, Any]:
        """Telegram's answer, or what stands for it."""
        written = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
        answer = await self.gateway.call(TOKEN, method, given_of(written, ()))
        body = json.loads(answer.body)
        assert body["ok"], body
        assert isinstance(body, dict)
        return body

    async def answers(self) -> None:
        offset = 0
        while True:
            updates = (await self.call("getUpdates", offset=offset, timeout=50))["result"]
            for update in updates:
                offset = update["update_id"] + 1
                chat = update["message"]["chat"]["id"]
                await self.call("sendMessage", chat_id=chat, text=f"answer to {update['message']['text']}")

    async def tells_news(self) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def tell(chat: int) -> None:
            async with places:
                await self.call("sendMessage", chat_id=chat, text="news")

        async with asyncio.TaskGroup() as group:
            for chat in CHATS:
                group.create_task(tell(chat))


async def people_write(stage: Stage) -> list[float]:
    """How long each of them waited. Every third is one whom the news are for as well."""
    wrote_at: dict[str, float] = {}
    for number in range(PEOPLE):
        await asyncio.sleep(0.6)
        user = CHATS[number * 17] if number % 3 == 0 else 500 + number
        wrote_at[f"answer to {number}"] = stage.telegram.now()
        stage.telegram.write(BOT, user, str(number))
    await asyncio.sleep(60.0)
    got = {one.text: one.at for one in stage.telegram.sent}
    return [got[text] - at for text, at in wrote_at.items()]


def waits_of(*, has_news: bool) -> list[float]:
    waited: list[float] = []

    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        answering = asyncio.create_task(bot.answers())
        news = asyncio.create_task(bot.tells_news() if has_news else asyncio.sleep(0))
        waited.extend(await people_write(stage))
        await news
        answering.cancel()
        await stage.quiet()
        assert stage.telegram.counters.limited == 0
        if has_news:
            told = {one.chat_id: one.at for one in stage.telegram.sent if one.text == "news"}
            assert told.keys() == set(CHATS)
            assert max(told.values()) - min(told.values()) < 1.2 * len(CHATS) / 30  # they are not starved either

    play(story, options=Options(limits=STRICT), inbound="polling")
    return waited


def test_a_person_does_not_wait_for_the_news() -> None:
    alone, amid = waits_of(has_news=False), waits_of(has_news=True)
    p95_alone, p95_amid = (quantiles(waits, n=20)[-1] for waits in (alone, amid))
    assert p95_amid <= p95_alone + 0.1
    assert max(amid) <= max(alone) + 1.0
