"""One line of time from what a person wrote to what Telegram calls the answer, for real bots: in one process with Peik, polling
through the gateway, and behind a webhook. Told at every door."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import structlog
from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.methods import SendMessage
from aiogram.types import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web

from peik import Peik
from peik.core.events import Answered, Settled
from peik.integrations.aiogram import PeikSession, feed
from peik.monitoring.log import EventLog
from peik.testing import SimServer
from tests.dashboard.visiting import BOT, KEY, House, visit
from tests.integrations.inside import BOT as INSIDE
from tests.integrations.inside import TOKEN as INSIDE_TOKEN
from tests.integrations.inside import beside, letters, opened, play, telegram
from tests.integrations.inside import until as until_so
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN

SARA = 5


def outside(home: House, token: str = TOKEN) -> Bot:
    """A bot that knows nothing of Peik but its address."""
    return Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(home.url)))


async def rest(home: House, path: str, **asked: str) -> Any:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(home.url, headers=headers) as http, http.get(path, params=asked) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def post(home: House, path: str, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
    key = {"Authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(home.url, headers=key | headers) as http,
        http.post(path, json=body) as response,
    ):
        return response.status, await response.json()


async def settled(home: House, count: int) -> None:
    """So many letters have ended, and everybody was told."""
    await until_so(lambda: _so(len([one for one in home.events if _is_end(one)]) >= count))


async def _so(fact: bool) -> bool:
    return fact


def _is_end(event: object) -> bool:
    return isinstance(event, Settled) and event.state.is_final


async def answers(home: House) -> dict[str, list[tuple[str, str, list[str]]]]:
    """What each arrival was answered: method, how sure that is, and the messages, by what the person wrote or pressed."""
    found = {}
    for arrival in (await rest(home, "/v1/arrivals"))["arrivals"]:
        whole = await rest(home, f"/v1/arrivals/{arrival['id']}")
        found[str(arrival["text"])] = [
            (one["method"], one["trace_certainty"], one["message_ids"]) for one in whole["answers"]
        ]
    return found


# ---- in one process ----


class Lines(list[dict[str, Any]]):
    """Log lines as they are written."""

    def log(self) -> Any:
        def keep(_: object, __: str, fields: structlog.typing.EventDict) -> str:
            self.append(dict(fields))
            raise structlog.DropEvent

        return structlog.wrap_logger(structlog.PrintLogger(), processors=[keep])


def test_a_handler_its_tasks_and_its_jobs_answer_the_update_that_they_are_for(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        lines = Lines()
        peik = opened(tmp_path, sim)

        async def later(update: Any) -> None:
            await peik.send_text(update.chat_id, f"task of {update.text}")

        @peik.on_update("message")
        async def handle(update: Any) -> None:
            await update.answer(f"answer to {update.text}")
            await asyncio.create_task(later(update))
            await peik.queue_job("report", chat_id=update.chat_id, key=update.text, of=update.text)

        @peik.job("report")
        async def report(job: Any) -> None:
            await job.send_text(f"job of {job.params['of']}")
            await peik.send_text(SARA, f"by the job of {job.params['of']}")

        @peik.job("count", where="thread")
        def count(job: Any) -> None:
            job.send_text("from a thread of one")

        async with peik:
            peik._transport.runtime.events.listen(EventLog(level="debug", log=lines.log()))  # type: ignore[attr-defined]
            for text in ("one", "two"):
                sim.telegram.write(INSIDE, SARA, text)
            await sim.until(
                lambda: {"by the job of one", "by the job of two"} <= set(sim.telegram.sent.texts(SARA)),
                timeout=PATIENCE_S,
            )
            await peik.send_text(SARA, "of itself", wait=PATIENCE_S)
            told = {str(one.params.get("text")): one for one in await letters(peik)}
            first = told["answer to one"].trace
            assert first is not None
            assert first.startswith(f"u{INSIDE}.")
            assert told["of itself"].trace is None
            await peik.queue_job("count", chat_id=SARA, metadata={"peik_trace": first})
            await sim.until(lambda: "from a thread of one" in sim.telegram.sent.texts(SARA), timeout=PATIENCE_S)
            told = {str(one.params.get("text")): one for one in await letters(peik)}
        for text in ("answer to", "task of", "job of", "by the job of"):
            for whom in ("one", "two"):
                one = told[f"{text} {whom}"]
                assert (one.trace, one.trace_certainty) == (told[f"answer to {whom}"].trace, "exact"), one
        assert told["from a thread of one"].trace == first != told["answer to two"].trace
        _is_one_story(lines, first)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            await story(sim)

    asyncio.run(main())


def _is_one_story(lines: Lines, trace: str) -> None:
    """Every step has its line under the same word, and the last has the id of the message."""
    own = [line for line in lines if trace in str(line.get("trace", "")).split()]
    steps = {line["event"] for line in own}
    assert {"+ arrived", "-> handed on", "+ accepted 1", "<- handled", "<- deliver"} <= steps, steps
    assert all(isinstance(line["message"], int) for line in own if line["event"] == "<- deliver")


def test_an_aiogram_bot_in_the_same_process_is_followed_for_certain(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        dispatcher = Dispatcher()

        @dispatcher.message()
        async def echo(message: Message) -> None:
            await message.answer(f"echo: {message.text}")

        bot = Bot(INSIDE_TOKEN, session=PeikSession(peik))
        async with beside(feed(peik, dispatcher, bot, handle_signals=False)):
            for text in ("one", "two"):
                sim.telegram.write(INSIDE, SARA, text)
            await sim.until(lambda: len(sim.telegram.sent) == 2, timeout=PATIENCE_S)
        told = await letters(peik)
        assert [one.trace_certainty for one in told] == ["exact", "exact"]
        assert len({one.trace for one in told}) == 2

    play(story, tmp_path)


# ---- polling through the gateway ----


def buttons() -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="more", callback_data="more")]])


def test_a_bot_that_polls_is_followed_for_certain_where_it_replies_and_likely_else(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        dispatcher = Dispatcher()

        @dispatcher.message()
        async def echo(message: Message) -> None:
            if message.text == "reply":
                await message.reply("a reply", reply_markup=buttons())
            else:
                await message.answer("an answer")
                await message.answer("and another")

        @dispatcher.callback_query()
        async def pressed(query: CallbackQuery) -> None:
            await query.answer("seen")
            await query.bot.send_message(SARA, "more")  # type: ignore[union-attr]

        bot = outside(home)
        try:
            async with beside(dispatcher.start_polling(bot, handle_signals=False, polling_timeout=1)):
                home.sim.telegram.write(BOT, SARA, "hello")
                await settled(home, 2)
                home.sim.telegram.write(BOT, SARA, "reply")
                await settled(home, 3)
                (asked,) = [one for one in home.sim.telegram.sent if one.text == "a reply"]
                home.sim.telegram.press(BOT, SARA, asked.message_id, "more")
                await settled(home, 4)
                found = await answers(home)
        finally:
            await bot.session.close()
        ids = {one.text: [str(one.message_id)] for one in home.sim.telegram.sent}
        assert found == {
            "hello": [("sendMessage", "likely", ids["an answer"]), ("sendMessage", "likely", ids["and another"])],
            "reply": [("sendMessage", "exact", ids["a reply"])],
            "more": [("sendMessage", "likely", ids["more"])],
        }
        (answered,) = [one for one in home.events if isinstance(one, Answered)]
        arrival = next(one for one in (await rest(home, "/v1/arrivals"))["arrivals"] if one["text"] == "more")
        assert (answered.method, answered.trace, answered.is_taken) == ("answerCallbackQuery", arrival["trace"], True)

    visit(tmp_path, story, pace="off")


# ---- behind a webhook ----


def test_a_bot_behind_a_webhook_is_followed_by_its_answer_and_by_the_header(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        gateway = f"{home.url}/bot{TOKEN}/sendMessage"

        async def pushed(request: web.Request) -> web.Response:
            update = await request.json()
            trace, text = request.headers["X-Peik-Trace"], update["message"]["text"]
            assert trace == f"u{BOT}.{update['update_id']}"
            if text == "in the answer":
                return web.json_response({"method": "sendMessage", "chat_id": SARA, "text": text})
            body = {"chat_id": 6, "text": text}  # another chat than the one that wrote
            headers = {"X-Peik-Trace": trace} if text == "by the header" else {}
            async with aiohttp.ClientSession() as http, http.post(gateway, json=body, headers=headers) as response:
                assert response.status == 200
            return web.Response()

        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(_bot_at(pushed))
            bot = outside(home)
            stack.push_async_callback(bot.session.close)
            home.sim.telegram.write(BOT, 6, "so that it may be written to")
            assert await bot.set_webhook(url)
            for text in ("in the answer", "by the header"):
                home.sim.telegram.write(BOT, SARA, text)
            await settled(home, 3)
            found = await answers(home)
        ids = {one.text: [str(one.message_id)] for one in home.sim.telegram.sent}
        for text in ("in the answer", "by the header"):
            assert found[text] == [("sendMessage", "exact", ids[text])]

    visit(tmp_path, story, pace="off")


class _bot_at:  # noqa: N801  it is used as a function
    """A bot on a port of its own; its address."""

    def __init__(self, handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        app = web.Application()
        app.router.add_post("/hook", handle)
        self._runner = web.AppRunner(app)

    async def __aenter__(self) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/hook"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def test_an_aiogram_webhook_is_followed_for_certain_in_its_answer_and_likely_in_other_calls(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        dispatcher = Dispatcher()

        @dispatcher.message()
        async def echo(message: Message) -> SendMessage | None:
            if message.text == "later":
                await message.answer("a call of its own")
                return None
            return SendMessage(chat_id=message.chat.id, text="in the answer")

        bot = outside(home)
        handler = SimpleRequestHandler(dispatcher, bot, handle_in_background=False)
        async with _bot_at(handler.handle) as url:
            assert await bot.set_webhook(url)
            for text in ("now", "later"):
                home.sim.telegram.write(BOT, SARA, text)
            await settled(home, 2)
            found = await answers(home)
        await bot.session.close()
        ids = {one.text: [str(one.message_id)] for one in home.sim.telegram.sent}
        assert found == {
            "now": [("sendMessage", "exact", ids["in the answer"])],
            "later": [("sendMessage", "likely", ids["a call of its own"])],
        }

    visit(tmp_path, story, pace="off")


# ---- over REST, and at the other doors ----

PARENT = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_rest_takes_a_trace_in_the_body_or_a_header_and_finds_by_it(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        call = {"method": "sendMessage", "params": {"chat_id": SARA, "text": "hi"}}
        parent = f"00-{PARENT}-00f067aa0ba902b7-01"
        ids = []
        for body, headers in (
            (call | {"trace": "order-17"}, {"X-Peik-Trace": "other"}),
            (call, {"X-Peik-Trace": "order-17", "traceparent": parent}),
            (call, {"traceparent": parent}),
            (call, {"traceparent": "00-nonsense"}),
        ):
            status, accepted = await post(home, "/v1/letters", body, **headers)
            assert status == 202, accepted
            ids.append(accepted["id"])
        assert await _found(home, trace="order-17") == [ids[1], ids[0]]
        assert await _found(home, trace=PARENT) == [ids[2]]
        last = await rest(home, f"/v1/letters/{ids[3]}")
        assert (last["trace"], last["trace_certainty"]) == (None, None)
        for body, headers in ((call | {"trace": "~u7.5"}, {}), (call, {"X-Peik-Trace": "a b"})):
            status, problem = await post(home, "/v1/letters", body, **headers)
            assert (status, problem["code"]) == (422, "bad_trace")

    visit(tmp_path, story, pace="off")


async def _found(home: House, **asked: str) -> list[str]:
    return [one["id"] for one in (await rest(home, "/v1/letters", **asked))["letters"]]


def test_the_pages_of_an_arrival_and_of_its_answers_lead_to_each_other(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        bot = outside(home)
        try:
            home.sim.telegram.write(BOT, SARA, "where is my order?")
            (update,) = await bot.get_updates(timeout=50)
            sent = await bot(SendMessage(chat_id=SARA, text="on its way"))
        finally:
            await bot.session.close()
        aside = {"method": "sendMessage", "params": {"chat_id": SARA, "text": "of a back-end that answers nothing"}}
        assert (await post(home, "/v1/letters", aside))[0] == 202
        await settled(home, 2)
        (arrival,) = (await rest(home, "/v1/arrivals"))["arrivals"]
        assert arrival["trace"] == f"u{BOT}.{update.update_id}"
        (letter_id,) = await _found(home, arrival_id=arrival["id"])
        assert await _found(home, trace=arrival["trace"]) == [letter_id]
        async with home.visitor() as browser:
            page = await browser.get(f"/admin/arrivals/{arrival['id']}")
            assert f"/admin/letters/{letter_id}" in page.links
            assert str(sent.message_id) in page.text
            assert "likely" in page.text
            page = await browser.get(f"/admin/letters/{letter_id}")
            assert f"/admin/arrivals/{arrival['id']}" in page.links
            assert "where is my order?" in page.text
            page = await browser.get(f"/admin/letters?trace={arrival['trace']}")
            assert f"/admin/letters/{letter_id}" in page.links
        other = await home.peik.keyring.make("another bot's", ("read",), bot_ids=frozenset({9}))
        headers = {"Authorization": f"Bearer {other.text}"}
        async with aiohttp.ClientSession(home.url, headers=headers) as http:
            async with http.get("/v1/letters", params={"arrival_id": arrival["id"]}) as response:
                assert response.status == 404
            async with http.get("/v1/letters", params={"trace": arrival["trace"]}) as response:
                assert (await response.json())["letters"] == []

    visit(tmp_path, story, pace="off")
