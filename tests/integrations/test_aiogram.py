"""A real aiogram bot with Peik in its own process: all it does goes through the gateway's rules with no socket between, and
what it is fed is acknowledged when it is handled."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiogram import Bot, Dispatcher
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramForbiddenError,
    TelegramNetworkError,
    TelegramRetryAfter,
    TelegramServerError,
)
from aiogram.methods import SendMessage, SendPhoto
from aiogram.types import BufferedInputFile, FSInputFile, Message, Update, URLInputFile

from peik import BadInput, Peik
from peik.core.provisional import FIRST_ID
from peik.integrations.aiogram import PeikSession, feed
from peik.integrations.inprocess import gateway_of
from peik.testing import SimServer
from tests import wanting
from tests.clients.harness import LIBRARIES
from tests.integrations.inside import (
    BOT,
    TOKEN,
    BotInside,
    beside,
    letters,
    opened,
    play,
    program,
    shows_all_it_can,
    telegram,
    unread,
    until,
)
from tests.patience import PATIENCE_S

AIOGRAM = LIBRARIES[0]
SARA, OMID = 5, 6


async def poll(peik: Peik, dispatcher: Dispatcher, bot: Bot) -> None:
    await dispatcher.start_polling(bot, handle_signals=False)


async def fed(peik: Peik, dispatcher: Dispatcher, bot: Bot) -> None:
    await feed(peik, dispatcher, bot, handle_signals=False)


def bot_beside(peik: Peik, dispatcher: Dispatcher) -> AbstractAsyncContextManager[None]:
    return beside(fed(peik, dispatcher, Bot(TOKEN, session=PeikSession(peik))))


def echoing(dispatcher: Dispatcher) -> None:
    @dispatcher.message()
    async def echo(message: Message) -> None:
        await message.answer(f"echo: {message.text}")


@pytest.mark.parametrize("run", [poll, fed])
def test_it_does_all_that_it_does_over_http(
    run: Callable[[Peik, Dispatcher, Bot], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher: Dispatcher = program(AIOGRAM, monkeypatch).dispatcher

    async def story(peik: Peik, sim: SimServer) -> None:
        bot = BotInside(AIOGRAM)

        @dispatcher.update.outer_middleware()
        async def told(handler: Callable[..., Awaitable[Any]], update: Update, data: dict[str, Any]) -> Any:
            result = await handler(update, data)
            bot.note(update.event.from_user.id)
            return result

        async with beside(run(peik, dispatcher, Bot(TOKEN, session=PeikSession(peik)))):
            await shows_all_it_can(sim, bot)

    play(story, tmp_path)


def test_files_come_from_bytes_a_path_and_an_address(tmp_path: Path) -> None:
    (tmp_path / "tea.txt").write_bytes(b"leaves" * 50_000)

    async def story(peik: Peik, sim: SimServer) -> None:
        bot = Bot(TOKEN, session=PeikSession(peik))
        sent = await bot.send_document(SARA, FSInputFile(tmp_path / "tea.txt"))
        assert sent.document is not None
        file = await bot.get_file(sent.document.file_id)
        address = f"{sim.url}/file/bot{TOKEN}/{file.file_path}"
        again = await bot.send_document(SARA, URLInputFile(address, filename="again.txt"))
        assert again.document is not None
        assert (sent.document.file_name, again.document.file_name) == ("tea.txt", "again.txt")
        for document in (sent.document, again.document):
            content = await bot.download(document)
            assert content is not None
            assert content.read() == b"leaves" * 50_000
        await bot.session.close()

    play(story, tmp_path)


def test_refusals_are_aiograms_own(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        bot = Bot(TOKEN, session=PeikSession(peik))
        await bot.send_message(SARA, "hello")
        sim.telegram.block(BOT, SARA)
        with pytest.raises(TelegramForbiddenError, match="bot was blocked by the user"):
            await bot.send_message(SARA, "still there?")
        with pytest.raises(TelegramBadRequest, match="text is empty"):
            await bot.send_message(OMID, " ")
        sim.telegram.faults.add("flood", method="getChat", retry_after=7)
        with pytest.raises(TelegramRetryAfter) as limited:
            await bot.get_chat(SARA)
        assert limited.value.retry_after == 7
        with pytest.raises(FileNotFoundError):
            await bot.send_document(OMID, FSInputFile(tmp_path / "nothing.txt"))
        with pytest.raises(aiohttp.ClientResponseError) as missing:
            await bot.download_file("documents/none.txt")
        assert missing.value.status == 404
        assert "AA-inside" not in str(missing.value)
        assert not list((tmp_path / "peik.db.files").iterdir())

    play(story, tmp_path)


def test_while_telegram_is_dark_letters_wait_and_then_arrive_in_order(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        bot = Bot(TOKEN, session=PeikSession(peik))
        await bot.send_message(SARA, "one")
        sim.telegram.dark(True)
        waiting = [await bot.send_message(SARA, text) for text in ("two", "three")]
        waiting.append(await bot.send_photo(SARA, BufferedInputFile(b"picture", "four.jpg"), caption="four"))
        assert [message.message_id >= FIRST_ID for message in waiting] == [True, True, True]
        assert [message.text or message.caption for message in waiting] == ["two", "three", "four"]
        sim.telegram.dark(False)
        await sim.until(lambda: sim.telegram.sent.texts(SARA) == ["one", "two", "three", "four"], timeout=PATIENCE_S)

    play(story, tmp_path, gateway_wait="50ms")


def test_what_is_not_sent_yet_is_edited_answered_and_deleted_as_usual(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        bot = Bot(TOKEN, session=PeikSession(peik))
        await bot.send_message(SARA, "one")
        sim.telegram.dark(True)
        question = await bot.send_message(SARA, "two")
        edited = await question.edit_text("two, edited")
        assert isinstance(edited, Message)
        assert (edited.message_id, edited.text) == (question.message_id, "two, edited")
        answer = await question.reply("three")
        assert answer.reply_to_message is not None
        assert answer.reply_to_message.message_id == question.message_id
        assert await (await bot.send_message(SARA, "never")).delete() is True
        with pytest.raises(TelegramBadRequest, match="message to edit not found"):
            await bot.edit_message_text("x", chat_id=SARA, message_id=answer.message_id + 1)
        sim.telegram.dark(False)
        texts = ["one", "two, edited", "three"]
        await sim.until(lambda: sim.telegram.sent.texts(SARA) == texts, timeout=PATIENCE_S)
        assert await question.edit_text("two, edited again")
        last = sim.telegram.sent.texts(SARA)[-1]
        assert last in ("two, edited again", "three"), "an edit is no new message"

    play(story, tmp_path, gateway_wait="50ms")


def test_who_stops_waiting_does_not_stop_the_letter(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        bot = Bot(TOKEN, session=PeikSession(peik))
        await bot.send_message(SARA, "one")
        sim.telegram.dark(True)
        with pytest.raises(TelegramNetworkError, match="timeout"):
            await bot.send_message(SARA, "two", request_timeout=1)  # type: ignore[arg-type]
        sending = asyncio.create_task(bot.send_message(SARA, "three"))

        async def are_both_accepted() -> bool:
            return len(await letters(peik)) == 3

        await until(are_both_accepted)
        sending.cancel()
        await asyncio.wait([sending])
        sim.telegram.dark(False)
        await sim.until(lambda: sim.telegram.sent.texts(SARA) == ["one", "two", "three"], timeout=PATIENCE_S)

    play(story, tmp_path, gateway_wait="30s")


@pytest.mark.parametrize("way", ["aiogram", "library"])
def test_an_upload_that_is_cancelled_while_it_is_accepted_keeps_its_file(way: str, tmp_path: Path) -> None:
    """Somewhere in the middle of twenty uploads all are given up: each is accepted with its file, or not at all."""

    async def story(peik: Peik, sim: SimServer) -> None:
        bot = Bot(TOKEN, session=PeikSession(peik))

        async def send(chat: int) -> None:
            if way == "aiogram":
                await bot.send_photo(chat, BufferedInputFile(b"tea" * 100, "tea.jpg"))
            else:
                await peik.send_photo(chat, b"tea" * 100)

        for _ in range(10):
            before = len(await letters(peik))
            sending = [asyncio.create_task(send(chat)) for chat in range(1, 21)]

            async def has_begun(before: int = before) -> bool:
                return len(await letters(peik)) > before

            await until(has_begun)
            for task in sending:
                task.cancel()
            await asyncio.wait(sending)

        async def have_ended() -> bool:
            return all(receipt.state.is_final for receipt in await letters(peik))

        await until(have_ended)
        assert {receipt.state for receipt in await letters(peik)} == {"completed"}
        assert len(sim.telegram.sent) == len(await letters(peik))

    play(story, tmp_path)


def test_a_repeat_under_the_same_key_is_the_same_letter_also_with_a_file(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        bot = Bot(TOKEN, session=PeikSession(peik))
        for _ in range(2):  # aiogram calls the file by another name each time
            photo = BufferedInputFile(b"picture", "tea.jpg")
            await bot(SendPhoto(chat_id=SARA, photo=photo, peik_idempotency_key="tea-17"))
        assert len(sim.telegram.sent.where(chat_id=SARA)) == 1
        other = SendPhoto(chat_id=SARA, photo=BufferedInputFile(b"another", "tea.jpg"), peik_idempotency_key="tea-17")
        with pytest.raises(Exception, match="Conflict"):
            await bot(other)

    play(story, tmp_path)


def test_what_is_fed_is_acknowledged_when_it_is_handled(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        dispatcher = Dispatcher()
        begun, go_on = asyncio.Event(), asyncio.Event()

        @dispatcher.message()
        async def slow(message: Message) -> SendMessage:
            begun.set()
            await go_on.wait()
            return SendMessage(chat_id=message.chat.id, text="done")  # aiogram makes a call that is returned

        async with bot_beside(peik, dispatcher):
            sim.telegram.write(BOT, SARA, "hello")
            await begun.wait()
            assert await unread(peik) == 1
            go_on.set()
            await until(lambda: none_unread(peik))
            assert sim.telegram.sent.texts(SARA) == ["done"]

    play(story, tmp_path)


async def none_unread(peik: Peik) -> bool:
    return await unread(peik) == 0


def test_a_handler_that_fails_once_gets_its_update_again_before_the_next_of_the_chat(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        dispatcher = Dispatcher()
        tries: list[str] = []

        @dispatcher.message()
        async def moody(message: Message) -> None:
            tries.append(message.text or "")
            if len(tries) == 1:
                raise RuntimeError("the database is away")
            await message.answer(f"echo: {message.text}")

        async with bot_beside(peik, dispatcher):
            sim.telegram.write(BOT, SARA, "one")
            sim.telegram.write(BOT, SARA, "two")
            await sim.until(lambda: len(sim.telegram.sent) == 2, timeout=PATIENCE_S)
        assert sim.telegram.sent.texts(SARA) == ["echo: one", "echo: two"]
        assert tries == ["one", "one", "two"]

    play(story, tmp_path)


def test_what_was_in_hand_when_the_program_ended_comes_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            stuck, handled = Dispatcher(), Dispatcher()
            begun = asyncio.Event()

            @stuck.message()
            async def hang(message: Message) -> None:
                begun.set()
                await asyncio.Event().wait()

            echoing(handled)
            async with opened(tmp_path, sim, grace="0s") as peik, bot_beside(peik, stuck):
                sim.telegram.write(BOT, SARA, "hello")
                await begun.wait()
            async with opened(tmp_path, sim) as peik, bot_beside(peik, handled):
                await sim.until(lambda: sim.telegram.sent.texts(SARA) == ["echo: hello"], timeout=PATIENCE_S)

    asyncio.run(main())


def test_a_signal_ends_the_feed_after_what_is_in_hand(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        dispatcher = Dispatcher()
        diary: list[str] = []

        @dispatcher.message()
        async def end(message: Message) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await message.answer("the last word")
            diary.append("handled")

        @dispatcher.startup()
        async def started() -> None:
            diary.append("started")

        @dispatcher.shutdown()
        async def stopped() -> None:
            diary.append("stopped")

        sim.telegram.write(BOT, SARA, "hello")
        await feed(peik, dispatcher, Bot(TOKEN, session=PeikSession(peik)))
        assert diary == ["started", "handled", "stopped"]
        assert await unread(peik) == 0
        assert sim.telegram.sent.texts(SARA) == ["the last word"]

    play(story, tmp_path)


def test_who_polls_after_a_feed_goes_on_where_it_ended(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        dispatcher = Dispatcher()
        echoing(dispatcher)
        async with bot_beside(peik, dispatcher):
            sim.telegram.write(BOT, SARA, "one")
            await sim.until(lambda: len(sim.telegram.sent) == 1, timeout=PATIENCE_S)
        bot = Bot(TOKEN, session=PeikSession(peik))
        async with beside(poll(peik, dispatcher, bot)):
            sim.telegram.write(BOT, SARA, "two")
            await sim.until(lambda: len(sim.telegram.sent) == 2, timeout=PATIENCE_S)
        assert sim.telegram.sent.texts(SARA) == ["echo: one", "echo: two"]

    play(story, tmp_path)


def test_two_consumers_of_one_token_both_see_all(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        seen: dict[str, list[str]] = {"plain": [], "reports": []}

        def reading(name: str) -> Dispatcher:
            dispatcher = Dispatcher()

            @dispatcher.message()
            async def take(message: Message) -> None:
                seen[name].append(message.text or "")

            return dispatcher

        plain, reports = Bot(TOKEN, session=PeikSession(peik)), Bot(f"{TOKEN}@reports", session=PeikSession(peik))
        async with beside(fed(peik, reading("plain"), plain)), beside(poll(peik, reading("reports"), reports)):
            for text in ("one", "two"):
                sim.telegram.write(BOT, SARA, text)

            async def is_seen() -> bool:
                return seen == {"plain": ["one", "two"], "reports": ["one", "two"]}

            await until(is_seen)

    play(story, tmp_path)


def test_a_peik_that_is_closed_or_far_away_is_said_to_be(tmp_path: Path) -> None:
    async def main() -> None:
        async with telegram() as sim:
            async with opened(tmp_path, sim) as peik:
                bot = Bot(TOKEN, session=PeikSession(peik))
                assert (await bot.get_me()).id == BOT
            with pytest.raises(TelegramServerError, match="not open"):
                await bot.get_me()
            async with peik:  # and it may be opened again
                assert (await bot.get_me()).id == BOT
        with pytest.raises(BadInput, match="API root"):
            PeikSession(Peik.connect("http://127.0.0.1:1", key="k"))

    asyncio.run(main())


def test_a_feed_ends_when_its_peik_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            peik = await opened(tmp_path, sim).__aenter__()
            dispatcher = Dispatcher()
            echoing(dispatcher)
            sim.telegram.write(BOT, SARA, "hello")
            feeding = asyncio.create_task(fed(peik, dispatcher, Bot(TOKEN, session=PeikSession(peik))))
            await sim.until(lambda: len(sim.telegram.sent) == 1, timeout=PATIENCE_S)
            await peik.close()
            await feeding

    asyncio.run(main())


def test_the_gateway_of_an_open_peik_answers_as_an_application(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        httpx = wanting.imported("httpx", "pip install httpx")
        transport = httpx.ASGITransport(app=gateway_of(peik))
        async with httpx.AsyncClient(transport=transport, base_url="http://peik") as client:
            answer = await client.post(f"/bot{TOKEN}/sendMessage", json={"chat_id": SARA, "text": "hello"})
            assert answer.json()["result"]["text"] == "hello"
            assert (await client.get("/v1/letters")).status_code == 404

    play(story, tmp_path)
