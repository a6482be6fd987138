"""People go first by themselves: a bot's own news wait for its answers, and neither is answered 429."""

import asyncio
import json
from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import Any

import msgspec

from peik.gateway.app import Gateway
from peik.gateway.params import given_of
from peik.outbox.store import Marked
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

    async def tells_news(self, chats: Sequence[int] = CHATS) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def tell(chat: int) -> None:
            async with places:
                await self.call("sendMessage", chat_id=chat, text="news")

        async with asyncio.TaskGroup() as group:
            for chat in chats:
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


def test_news_that_a_slow_disk_told_of_together_do_not_leave_together() -> None:
    """Marks are stored in one commit, however long the disk takes for it: the pace is that of what leaves."""

    async def story(stage: Stage) -> None:
        store, loop = stage.peik.store, asyncio.get_running_loop()
        advance, accept = store.advance, store.accept

        def until_the_commit() -> float:
            return DISK_S - loop.time() % DISK_S

        def slow(*step: Any, done: Callable[[Marked], None], **terms: Any) -> None:
            advance(*step, done=lambda marked: loop.call_later(until_the_commit(), done, marked), **terms)

        async def slow_accept(*given: Any, express: Any = None, **terms: Any) -> Any:
            return await accept(*given, express=None, **terms)  # each is taken in a turn

        store.advance = slow  # type: ignore[method-assign]
        store.accept = slow_accept  # type: ignore[method-assign]
        bot = Bot(stage)
        news = asyncio.create_task(bot.tells_news(CHATS[:300]))
        await news
        await stage.quiet()
        assert stage.telegram.counters.limited == 0
        told = [one.at for one in stage.telegram.sent]
        assert len(told) == 300
        assert max(told) - min(told) < 1.2 * 300 / 30

    limits = msgspec.structs.replace(STRICT, bot_burst=3)
    play(story, options=Options(limits=limits), inbound="polling")


DISK_S = 0.3


# ---- edits go at their own pace ----

LATENCY_S = 0.05  # of the simulated Telegram's carrier: there and back
EDITS = 100


async def edited(bot: Bot, chat: int, *, at_once: bool = False, after_s: float = 0.0) -> tuple[float, list[float]]:
    """How long it takes to edit a message a hundred times, one after the other or all at once; and when each was answered."""
    shown = (await bot.call("sendMessage", chat_id=chat, text="0 %"))["result"]
    answered: list[float] = []
    await asyncio.sleep(after_s)

    async def edit(number: int) -> None:
        fields = {"chat_id": chat, "message_id": shown["message_id"], "text": f"{number} %"}
        await bot.call("editMessageText", **fields)
        answered.append(bot.stage.clock.mono())

    began = bot.stage.clock.mono()
    if at_once:
        await asyncio.gather(*[edit(number) for number in range(1, EDITS + 1)])
    else:
        for number in range(1, EDITS + 1):
            await edit(number)
    return bot.stage.clock.mono() - began, answered


def test_a_hundred_edits_in_a_private_chat_go_as_fast_as_they_are_answered_also_amid_the_news() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        alone_s, _ = await edited(bot, 5)
        # Four progress bars: together they are faster than the bot may send.
        progress = [asyncio.create_task(edited(bot, chat, after_s=5.0)) for chat in range(6, 10)]
        await asyncio.sleep(1.0)
        await bot.tells_news()
        amid_s = max([took_s for took_s, _ in await asyncio.gather(*progress)])
        await stage.quiet()
        assert alone_s <= 1.5 * EDITS * LATENCY_S
        assert amid_s <= 1.5 * EDITS * LATENCY_S
        assert stage.telegram.counters.limited == 0

    play(story, options=Options(limits=STRICT))


def test_edits_that_are_merged_are_answered_when_the_newest_is_done() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        took_s, answered = await edited(bot, 5, at_once=True)
        assert took_s <= 3 * LATENCY_S
        assert len(set(answered)) <= 2  # those that were merged, at one instant
        (message,) = [one.message_id for one in stage.telegram.sent if one.chat_id == 5]
        shown = stage.telegram.message(BOT, 5, message)
        assert shown is not None
        assert shown["text"] == f"{EDITS} %"
        assert len(list(stage.telegram.applied)) <= 2

    play(story, options=Options(limits=STRICT))


def test_edits_in_a_group_are_not_answered_429() -> None:
    async def story(stage: Stage) -> None:
        bot, group = Bot(stage), -1_000_500
        shown = [(await bot.call("sendMessage", chat_id=group, text=str(n)))["result"]["message_id"] for n in range(20)]
        edits = [
            bot.call("editMessageText", chat_id=group, message_id=message, text=f"edit {turn}")
            for turn in range(5)
            for message in shown
        ]
        await asyncio.gather(*edits)
        await stage.quiet()
        assert stage.telegram.counters.limited == 0
        for message in shown:
            last = stage.telegram.message(BOT, group, message)
            assert last is not None
            assert last["text"] == "edit 4"

    play(story, options=Options(limits=STRICT))
