"""A real python-telegram-bot with Peik in its own process: all it does goes through the gateway's rules with no socket
between, and what it is fed is acknowledged when it is processed."""

import asyncio
import io
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from telegram import File, InputFile, Message, Update
from telegram.error import BadRequest, Forbidden, InvalidToken, NetworkError, RetryAfter, TimedOut
from telegram.ext import (
    Application,
    ApplicationBuilder,
    ApplicationHandlerStop,
    CallbackQueryHandler,
    CommandHandler,
    ContextTypes,
    MessageHandler,
    TypeHandler,
    filters,
)

from peik import Peik
from peik.core.provisional import FIRST_ID
from peik.integrations.ptb import PeikRequest, feed
from peik.testing import SimServer
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

PTB = LIBRARIES[1]
SARA, OMID = 5, 6

App = Application[Any, Any, Any, Any, Any, Any]
Context = ContextTypes.DEFAULT_TYPE


def build(peik: Peik, token: str = TOKEN, **more: Any) -> App:
    request = PeikRequest(peik)
    builder = ApplicationBuilder().token(token).request(request).get_updates_request(request)
    for name, value in more.items():
        builder = getattr(builder, name)(value)
    return builder.build()


async def poll(peik: Peik, application: App) -> None:
    async with application:
        await application.start()
        assert application.updater is not None
        await application.updater.start_polling()
        try:
            await asyncio.Event().wait()
        finally:
            await application.updater.stop()
            await application.stop()


async def fed(peik: Peik, application: App) -> None:
    await feed(peik, application, handle_signals=False)


def on_text(application: App, callback: Callable[[Update, Context], Awaitable[None]], **more: Any) -> App:
    application.add_handler(MessageHandler(filters.TEXT, callback, **more))
    return application


async def echo(update: Update, context: Context) -> None:
    assert update.message is not None
    await update.message.reply_text(f"echo: {update.message.text}")


@pytest.mark.parametrize("run", [poll, fed])
def test_it_does_all_that_it_does_over_http(
    run: Callable[[Peik, App], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bots = program(PTB, monkeypatch)

    async def story(peik: Peik, sim: SimServer) -> None:
        bot = BotInside(PTB)

        async def told(update: Update, context: Context) -> None:
            assert update.effective_user is not None
            bot.note(update.effective_user.id)

        application = build(peik, concurrent_updates=True)
        for name in ("photo", "document", "album", "edit", "keyboard", "download"):
            application.add_handler(CommandHandler(name, getattr(bots, name)))
        application.add_handler(CallbackQueryHandler(bots.pressed, pattern="^tea:yes$"))
        application.add_handler(MessageHandler(filters.Document.ALL, bots.keep))
        application.add_handler(MessageHandler(filters.TEXT & ~filters.COMMAND, bots.echo))
        application.add_handler(TypeHandler(Update, told), group=1)
        async with beside(run(peik, application)):
            await shows_all_it_can(sim, bot)

    play(story, tmp_path)


def test_files_come_from_bytes_a_path_and_an_open_file(tmp_path: Path) -> None:
    content = b"leaves" * 50_000
    path = tmp_path / "tea.txt"
    path.write_bytes(content)

    async def story(peik: Peik, sim: SimServer) -> None:
        async with build(peik).bot as bot:
            with path.open("rb") as file, path.open("rb") as handle:
                ways = (content, path, file, io.BytesIO(content), InputFile(handle, read_file_handle=False))
                sent = [await bot.send_document(SARA, way) for way in ways]
            for message in sent:
                assert message.document is not None
                document = await message.document.get_file()
                assert bytes(await document.download_as_bytearray()) == content
            await document.download_to_drive(tmp_path / "again.txt")
            assert (tmp_path / "again.txt").read_bytes() == content

    play(story, tmp_path)


def test_refusals_are_the_librarys_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "true")  # it warns of a change that is to come, and warnings are errors here

    async def story(peik: Peik, sim: SimServer) -> None:
        async with build(peik).bot as bot:
            await bot.send_message(SARA, "hello")
            sim.telegram.block(BOT, SARA)
            with pytest.raises(Forbidden, match="bot was blocked by the user"):
                await bot.send_message(SARA, "still there?")
            with pytest.raises(BadRequest, match="text is empty"):
                await bot.send_message(OMID, " ")
            sim.telegram.faults.add("flood", method="getChat", retry_after=7)
            with pytest.raises(RetryAfter, match="7"):
                await bot.get_chat(SARA)
            address = f"https://api.telegram.org/file/bot{TOKEN}/documents/none.txt"
            file = File(file_id="f", file_unique_id="u", file_path=address)
            file.set_bot(bot)
            with pytest.raises(InvalidToken):  # so it calls each 404
                await file.download_as_bytearray()

    play(story, tmp_path)


def test_while_telegram_is_dark_letters_wait_and_then_arrive_in_order(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        async with build(peik).bot as bot:
            await bot.send_message(SARA, "one")
            sim.telegram.dark(True)
            waiting = [await bot.send_message(SARA, text) for text in ("two", "three")]
            waiting.append(
                await bot.send_photo(SARA, b"picture", caption="four", api_kwargs={"peik_idempotency_key": "4"})
            )
            waiting.append(
                await bot.send_photo(SARA, b"picture", caption="four", api_kwargs={"peik_idempotency_key": "4"})
            )
            first = waiting[0].message_id
            assert first >= FIRST_ID
            assert [message.message_id - first for message in waiting] == [0, 1, 2, 2]
            sim.telegram.dark(False)
            await sim.until(
                lambda: sim.telegram.sent.texts(SARA) == ["one", "two", "three", "four"], timeout=PATIENCE_S
            )

    play(story, tmp_path, gateway_wait="50ms")


def test_what_is_not_sent_yet_is_edited_answered_and_deleted_as_usual(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        async with build(peik).bot as bot:
            await bot.send_message(SARA, "one")
            sim.telegram.dark(True)
            question = await bot.send_message(SARA, "two")
            edited = await question.edit_text("two, edited")
            assert isinstance(edited, Message)
            assert (edited.message_id, edited.text) == (question.message_id, "two, edited")
            answer = await question.reply_text("three", do_quote=True)
            assert answer.reply_to_message is not None
            assert answer.reply_to_message.message_id == question.message_id
            never = await bot.send_message(SARA, "never")
            assert await never.delete() is True
            with pytest.raises(BadRequest, match=r"[Mm]essage to edit not found"):
                await never.edit_text("x")
            sim.telegram.dark(False)
            texts = ["one", "two, edited", "three"]
            await sim.until(lambda: sim.telegram.sent.texts(SARA) == texts, timeout=PATIENCE_S)

    play(story, tmp_path, gateway_wait="50ms")


def test_who_stops_waiting_does_not_stop_the_letter(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        async with build(peik).bot as bot:
            await bot.send_message(SARA, "one")
            sim.telegram.dark(True)
            with pytest.raises(TimedOut):
                await bot.send_message(SARA, "two", read_timeout=1)
            sending = asyncio.create_task(bot.send_message(SARA, "three"))

            async def are_both_accepted() -> bool:
                return len(await letters(peik)) == 3

            await until(are_both_accepted)
            sending.cancel()
            await asyncio.wait([sending])
            sim.telegram.dark(False)
            await sim.until(lambda: sim.telegram.sent.texts(SARA) == ["one", "two", "three"], timeout=PATIENCE_S)

    play(story, tmp_path, gateway_wait="30s")


def test_what_is_fed_is_acknowledged_when_it_is_processed(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(update: Update, context: Context) -> None:
            begun.set()
            await go_on.wait()

        async with beside(fed(peik, on_text(build(peik), slow))):
            sim.telegram.write(BOT, SARA, "hello")
            await begun.wait()
            assert await unread(peik) == 1
            go_on.set()

            async def is_read() -> bool:
                return await unread(peik) == 0

            await until(is_read)

    play(story, tmp_path)


def test_a_handler_that_fails_once_gets_its_update_again_before_the_next_of_the_chat(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        tries: list[str] = []
        errors: list[str] = []

        async def moody(update: Update, context: Context) -> None:
            assert update.message is not None
            tries.append(update.message.text or "")
            if len(tries) == 1:
                raise RuntimeError("the database is away")
            await echo(update, context)

        async def note(update: object, context: Context) -> None:
            errors.append(str(context.error))

        application = on_text(build(peik), moody)
        application.add_error_handler(note)
        async with beside(fed(peik, application)):
            sim.telegram.write(BOT, SARA, "one")
            sim.telegram.write(BOT, SARA, "two")
            await sim.until(lambda: len(sim.telegram.sent) == 2, timeout=PATIENCE_S)
        assert sim.telegram.sent.texts(SARA) == ["echo: one", "echo: two"]
        assert tries == ["one", "one", "two"]
        assert errors == ["the database is away"]  # the bot's own error handlers hear of it as ever
        assert list(application.error_handlers) == [note]

    play(story, tmp_path)


def test_an_error_that_was_dealt_with_is_not_tried_again(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        tries: list[str] = []

        async def broken(update: Update, context: Context) -> None:
            assert update.message is not None
            tries.append(update.message.text or "")
            raise RuntimeError("never mind")

        async def deal_with(update: object, context: Context) -> None:
            raise ApplicationHandlerStop

        application = on_text(build(peik), broken)
        application.add_error_handler(deal_with)
        async with beside(fed(peik, application)):
            for text in ("one", "two"):
                sim.telegram.write(BOT, SARA, text)

            async def are_read() -> bool:
                return len(tries) == 2 and await unread(peik) == 0

            await until(are_read)
        assert tries == ["one", "two"]

    play(story, tmp_path)


@pytest.mark.parametrize(("concurrent", "at_once"), [(False, 1), (2, 2), (True, 3)])
def test_so_many_chats_at_once_as_the_application_takes(concurrent: bool | int, at_once: int, tmp_path: Path) -> None:
    """No more are begun: the time of an update must not run while it waits for others."""

    async def story(peik: Peik, sim: SimServer) -> None:
        begun, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def work(update: Update, context: Context) -> None:
            begun.release()
            await go_on.wait()

        for user in (SARA, OMID, 7):
            sim.telegram.write(BOT, user, "hello")
        async with beside(fed(peik, on_text(build(peik, concurrent_updates=concurrent), work))):
            for _ in range(at_once):
                await begun.acquire()

            async def all_are_here() -> bool:
                return await unread(peik) == 3

            await until(all_are_here)
            assert len(peik._transport.runtime.inbox.consumers.in_hand(BOT, "default")) == at_once  # type: ignore[attr-defined]
            go_on.set()

    play(story, tmp_path)


def test_what_was_in_hand_when_the_program_ended_comes_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            begun = asyncio.Event()

            async def hang(update: Update, context: Context) -> None:
                begun.set()
                await asyncio.Event().wait()

            async with opened(tmp_path, sim, grace="0s") as peik, beside(fed(peik, on_text(build(peik), hang))):
                sim.telegram.write(BOT, SARA, "hello")
                await begun.wait()
            async with opened(tmp_path, sim) as peik, beside(fed(peik, on_text(build(peik), echo))):
                await sim.until(lambda: sim.telegram.sent.texts(SARA) == ["echo: hello"], timeout=PATIENCE_S)

    asyncio.run(main())


def test_a_signal_ends_the_feed_after_what_is_in_hand(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        diary: list[str] = []

        def writes(word: str) -> Callable[[App], Awaitable[None]]:
            async def write(application: App) -> None:
                diary.append(word)

            return write

        async def end(update: Update, context: Context) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await echo(update, context)
            diary.append("handled")

        steps = {name: writes(name) for name in ("post_init", "post_stop", "post_shutdown")}
        sim.telegram.write(BOT, SARA, "hello")
        await feed(peik, on_text(build(peik, **steps), end))
        assert diary == ["post_init", "handled", "post_stop", "post_shutdown"]
        assert await unread(peik) == 0
        assert sim.telegram.sent.texts(SARA) == ["echo: hello"]

    play(story, tmp_path)


def test_two_consumers_of_one_token_both_see_all(tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        seen: dict[str, list[str]] = {"plain": [], "reports": []}

        def reading(name: str, token: str) -> App:
            async def take(update: Update, context: Context) -> None:
                assert update.message is not None
                seen[name].append(update.message.text or "")

            return on_text(build(peik, token), take)

        plain, reports = reading("plain", TOKEN), reading("reports", f"{TOKEN}@reports")
        async with beside(poll(peik, plain)), beside(fed(peik, reports)):
            for text in ("one", "two"):
                sim.telegram.write(BOT, SARA, text)

            async def is_seen() -> bool:
                return seen == {"plain": ["one", "two"], "reports": ["one", "two"]}

            await until(is_seen)

    play(story, tmp_path)


def test_a_peik_that_is_closed_is_said_to_be(tmp_path: Path) -> None:
    async def main() -> None:
        async with telegram() as sim:
            async with opened(tmp_path, sim) as peik, build(peik).bot as bot:
                document = (await bot.send_document(SARA, b"tea")).document
                assert document is not None
                file = await document.get_file()
            with pytest.raises(NetworkError, match="not open"):
                await bot.send_message(SARA, "hello")
            with pytest.raises(NetworkError, match="not open"):
                await file.download_as_bytearray()

    asyncio.run(main())
