"""A Pyrogram bot (kurigram's real client, not connected): Bot API updates reach its own handlers as its own types, what it
handled live is noted, and after a stop it gets what it missed and nothing else."""

import asyncio
import json
import logging
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Self

import aiohttp
import pyrogram
import pytest
from pyrogram import Client, enums, filters, raw
from pyrogram.file_id import FileId, FileType

from peik import Peik
from peik.errors import BadInput, NotFound, StartError, Unavailable
from peik.inbox.delivery import Absent
from peik.integrations.mtproto import HandledWatch, Item, Notes
from peik.integrations.pyrogram import (
    _SCHEMA,
    _Dispatching,
    get_last_update_id,
    get_pending_messages,
    mark_message_processed,
    note_handled,
    recover_missed_messages,
    save_last_update_id,
    save_pending_message,
)
from peik.integrations.tl import translate
from peik.testing import SimServer
from tests.client.counters import opened, telegram
from tests.integrations.updates import BOT, CHANNEL, GROUP, ME, PRIVATE, SARA, SUPERGROUP, message, until
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, Program, served
from tests.storage.sqlite.test_inbox_sqlite import ask

TOKEN = f"{BOT}:AAtest"
ROOT = Path(__file__).parents[2]


class Bot:
    """A client whose dispatcher runs as after `client.start()`, with Peik's hooks in it."""

    def __init__(self) -> None:
        self.client = Client("courier", api_id=1, api_hash="x", bot_token=TOKEN, in_memory=True, workers=4)
        self.noted: list[tuple[int, int]] = []
        self.ends = 0
        watch = HandledWatch(Notes(self._note))
        self.hooks = _Dispatching(self.client, watch, self._stopped)
        self._watch = watch

    async def _note(self, messages: Sequence[tuple[int, int]]) -> None:
        self.noted.extend(messages)

    async def _stopped(self) -> None:
        await self._watch.flush()
        self.ends += 1

    async def live(self, body: dict[str, Any], kind: str = "message") -> None:
        """An update over MTProto, taken as the client takes what comes from its session."""
        await take_live(self.client, body, kind)

    async def hand(self, body: dict[str, Any], kind: str = "message") -> bool:
        return await self.hooks.hand(kind, body, BOT)


async def take_live(client: Client, body: dict[str, Any], kind: str = "message") -> None:
    parcel = translate(_SCHEMA, kind, body, bot_id=BOT)
    await client.handle_updates(
        raw.types.Updates(
            updates=[parcel.update],
            users=list(parcel.users.values()),
            chats=list(parcel.chats.values()),
            date=body["date"],
            seq=0,
        )
    )


@asynccontextmanager
async def running() -> AsyncIterator[Bot]:
    bot = Bot()
    await bot.client.storage.open()
    await bot.client.dispatcher.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield bot
    finally:
        if bot.client.dispatcher.handler_worker_tasks:
            await bot.client.dispatcher.stop()
        await bot.client.storage.close()


def play(story: Callable[[Bot], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running() as bot:
            await story(bot)

    asyncio.run(main())


async def registered(client: Client, *functions: Any) -> None:
    """Pyrogram adds handlers in a task of its own."""

    def known() -> set[Any]:
        return {handler.callback for group in client.dispatcher.groups.values() for handler in group}

    await until(lambda: known() >= set(functions))


async def parsed(bot: Bot, body: dict[str, Any], kind: str = "message") -> Any:
    """What a handler gets."""
    got: list[Any] = []

    async def take(_: Client, update: Any) -> None:
        got.append(update)

    handler = {
        "message": pyrogram.handlers.MessageHandler,
        "channel_post": pyrogram.handlers.MessageHandler,
        "edited_message": pyrogram.handlers.EditedMessageHandler,
        "callback_query": pyrogram.handlers.CallbackQueryHandler,
    }[kind](take)
    bot.client.add_handler(handler)
    await registered(bot.client, take)
    assert await bot.hand(body, kind)
    (one,) = got
    return one


# ---- its own types ----


def test_a_command_in_a_private_chat_passes_the_filters_for_it() -> None:
    async def story(bot: Bot) -> None:
        entities = [{"type": "bot_command", "offset": 0, "length": 6}, {"type": "bold", "offset": 7, "length": 4}]
        got = await parsed(bot, message(5, "/start deep", entities=entities))
        assert isinstance(got, pyrogram.types.Message)
        assert (got.id, got.text, got.chat.id, got.date.timestamp()) == (5, "/start deep", 42, 1_790_000_005)
        assert (got.from_user.id, got.from_user.first_name, got.from_user.language_code) == (42, "Sara", "fa")
        assert got.text.html == "/start <b>deep</b>"
        assert not got.outgoing
        bot.client.me = got.from_user
        command = filters.command("start")
        assert await (filters.private & filters.text & filters.incoming & command)(bot.client, got)
        assert got.command == ["start", "deep"]
        assert not await filters.group(bot.client, got)

    play(story)


@pytest.mark.parametrize(
    ("chat", "kind"),
    [(GROUP, enums.ChatType.GROUP), (SUPERGROUP, enums.ChatType.SUPERGROUP), (PRIVATE, enums.ChatType.PRIVATE)],
)
def test_every_kind_of_chat_keeps_its_id_and_its_sender(chat: dict[str, Any], kind: enums.ChatType) -> None:
    async def story(bot: Bot) -> None:
        got = await parsed(bot, message(5, "hello", chat=chat))
        assert (got.chat.id, got.chat.type, got.chat.title) == (chat["id"], kind, chat.get("title"))
        assert got.from_user.id == 42

    play(story)


def test_a_post_of_a_channel_has_no_sender_but_the_channel() -> None:
    async def story(bot: Bot) -> None:
        body = {"message_id": 9, "date": 1_790_000_000, "chat": CHANNEL, "sender_chat": CHANNEL, "text": "news"}
        got = await parsed(bot, body, "channel_post")
        assert (got.chat.id, got.chat.type, got.from_user) == (CHANNEL["id"], enums.ChatType.CHANNEL, None)
        assert got.sender_chat.id == CHANNEL["id"]

    play(story)


def test_a_reply_brings_what_it_answers_without_asking_telegram() -> None:
    async def story(bot: Bot) -> None:
        asked = {**message(3, "Your name?"), "from": ME}
        got = await parsed(bot, message(5, "Sara", reply_to_message=asked))
        assert got.reply_to_message_id == 3
        assert got.reply_to_message.text == "Your name?"
        assert got.reply_to_message.from_user.id == BOT
        assert got.reply_to_message.outgoing
        assert await filters.reply(bot.client, got)

    play(story)


def file_id(kind: FileType) -> str:
    text: str = FileId(
        file_type=kind, dc_id=2, media_id=11, access_hash=-5, file_reference=b"ref", volume_id=0, local_id=0
    ).encode()
    return text


def test_files_keep_their_ids_and_their_captions() -> None:
    video = {"file_id": file_id(FileType.VIDEO), "file_unique_id": "u", "width": 640, "height": 480, "duration": 7}
    video |= {"mime_type": "video/mp4", "file_size": 1000, "file_name": "cat.mp4"}

    async def story(bot: Bot) -> None:
        got = await parsed(bot, message(5, video=video, caption="my cat", media_group_id="77"))
        assert await filters.video(bot.client, got)
        assert (got.caption, got.text, got.media_group_id) == ("my cat", None, 77)
        assert (got.video.file_id, got.video.file_name, got.video.duration) == (video["file_id"], "cat.mp4", 7)

    play(story)


@pytest.mark.parametrize(
    ("name", "content", "passes"),
    [
        ("voice", {"file_id": "?", "duration": 3}, filters.voice),
        ("audio", {"file_id": "?", "duration": 3, "title": "Song"}, filters.audio),
        ("document", {"file_id": "?", "file_name": "a.pdf"}, filters.document),
        ("animation", {"file_id": "?", "width": 1, "height": 1, "duration": 1}, filters.animation),
        ("video_note", {"file_id": "?", "length": 240, "duration": 1}, filters.video_note),
        ("sticker", {"file_id": "?", "width": 512, "height": 512, "emoji": "x", "set_name": "s"}, filters.sticker),
        ("photo", [{"file_id": "?", "width": 90, "height": 60}, {"file_id": "?", "width": 800, "height": 600}], filters.photo),
        ("location", {"latitude": 35.7, "longitude": 51.4}, filters.location),
        ("location", {"latitude": 35.7, "longitude": 51.4, "live_period": 60}, filters.live_location),
        ("venue", {"location": {"latitude": 1.0, "longitude": 2.0}, "title": "T", "address": "A"}, filters.venue),
        ("contact", {"phone_number": "+98", "first_name": "Ali"}, filters.contact),
        ("dice", {"emoji": "🎲", "value": 6}, filters.dice),
        ("new_chat_members", [SARA], filters.new_chat_members),
        ("left_chat_member", SARA, filters.left_chat_member),
        ("new_chat_title", "Readers", filters.new_chat_title),
        ("web_app_data", {"button_text": "Go", "data": "{}"}, filters.service),
        (
            "successful_payment",
            {
                "currency": "XTR",
                "total_amount": 5,
                "invoice_payload": "order-1",
                "telegram_payment_charge_id": "c",
                "provider_payment_charge_id": "p",
            },
            filters.successful_payment,
        ),
    ],
)  # fmt: skip
def test_what_is_sent_passes_its_own_filter(name: str, content: Any, passes: Any) -> None:
    async def story(bot: Bot) -> None:
        got = await parsed(bot, message(5, chat=SUPERGROUP, **{name: content}))
        assert await passes(bot.client, got)
        assert not await filters.text(bot.client, got)

    play(story)


def test_content_that_is_not_translated_still_reaches_the_handlers() -> None:
    async def story(bot: Bot) -> None:
        got = await parsed(bot, message(5, gift_of_2030={"stars": 5}))
        assert (got.id, got.text, got.media) == (5, None, enums.MessageMediaType.UNSUPPORTED)

    play(story)


def test_an_edit_goes_to_the_handlers_of_edits() -> None:
    async def story(bot: Bot) -> None:
        got = await parsed(bot, message(5, "better", edit_date=1_790_000_500), "edited_message")
        assert (got.text, got.edit_date.timestamp()) == ("better", 1_790_000_500)

    play(story)


def test_a_press_comes_with_its_message() -> None:
    keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes"}]]}
    menu = {**message(3, "Sure?"), "from": ME, "reply_markup": keyboard}
    press = {"id": "4382bfdwdsb", "from": SARA, "message": menu, "chat_instance": "-5", "data": "yes"}

    async def story(bot: Bot) -> None:
        got = await parsed(bot, {**press, "id": "123456789"}, "callback_query")
        assert (got.id, got.data, got.from_user.id, got.message.id) == ("123456789", "yes", 42, 3)
        assert got.message.reply_markup.inline_keyboard[0][0].callback_data == "yes"
        assert await filters.regex("^yes$")(bot.client, got)
        with pytest.raises(BadInput):  # an id that no MTProto client could answer
            await bot.hand(press, "callback_query")

    play(story)


# ---- noting ----


def test_what_was_handled_is_noted_and_what_failed_is_not() -> None:
    async def story(bot: Bot) -> None:
        @bot.client.on_message(filters.regex("stop"))
        async def stops(_: Client, got: Any) -> None:
            got.stop_propagation()

        @bot.client.on_message(filters.regex("bad"))
        async def fails(_: Client, got: Any) -> None:
            raise RuntimeError("the disk is full")

        @bot.client.on_message(filters.regex("sync"))
        def runs_in_a_thread(_: Client, got: Any) -> None:
            if "worse" in got.text:
                raise RuntimeError("the disk is still full")

        await registered(bot.client, stops, fails, runs_in_a_thread)
        for number, text in enumerate(["stop", "bad", "sync", "sync, worse", "nobody wants this"], start=1):
            await bot.live(message(number, text))
        await bot.live({**message(6, "my own"), "from": ME})
        await bot.live(message(1, "stop", edit_date=1_790_000_500), "edited_message")
        await bot.client.dispatcher.stop()
        assert sorted(bot.noted) == [(42, 1), (42, 1), (42, 3), (42, 5)]
        assert bot.ends == 1

    play(story)


def test_notes_are_written_while_the_bot_runs() -> None:
    async def story(bot: Bot) -> None:
        await bot.live(message(1, "hello", chat=SUPERGROUP))
        await until(lambda: bot.noted == [(SUPERGROUP["id"], 1)])

    play(story)


# ---- handing over ----


def test_a_failing_handler_is_heard_of_by_who_hands_over() -> None:
    async def story(bot: Bot) -> None:
        tries: list[int] = []

        @bot.client.on_message()
        async def fails_once(_: Client, got: Any) -> None:
            tries.append(got.id)
            if len(tries) == 1:
                raise RuntimeError("the disk is full")

        await registered(bot.client, fails_once)
        with pytest.raises(RuntimeError, match="the disk is full"):
            await bot.hand(message(1, "hello"))
        assert await bot.hand(message(1, "hello"))
        assert tries == [1, 1]
        assert not bot.noted, "who hands over settles it"

    play(story)


def test_one_message_by_both_ways_is_handled_once() -> None:
    async def story(bot: Bot) -> None:
        got: list[int] = []
        slow = asyncio.Event()

        @bot.client.on_message()
        async def handle(_: Client, one: Any) -> None:
            if one.id == 1:
                await slow.wait()
            got.append(one.id)

        await registered(bot.client, handle)
        await bot.live(message(1, "live first, still at work"))
        await bot.live(message(2, "live first"))
        await until(lambda: got == [2])
        waiting = asyncio.create_task(bot.hand(message(1, "live first, still at work")))
        assert not await bot.hand(message(2, "live first"))
        assert await bot.hand(message(3, "recovered first"))
        await bot.live(message(3, "recovered first"))
        slow.set()
        assert not await waiting
        await bot.client.dispatcher.stop()
        assert got == [2, 3, 1]
        assert sorted(bot.noted) == [(42, 1), (42, 2)]

    play(story)


def test_a_client_that_was_stopped_is_away_and_no_message_is_to_blame() -> None:
    async def story(bot: Bot) -> None:
        await bot.client.dispatcher.stop()
        with pytest.raises(Absent):
            await bot.hand(message(1, "hello"))

    play(story)


# ---- the whole story ----


class Life:
    """One run of the bot, from start to stop, on the same store as the run before."""

    def __init__(self, folder: Path, sim: SimServer, **settings: Any) -> None:
        self.client = Client("courier", api_id=1, api_hash="x", bot_token=TOKEN, in_memory=True, workers=4)
        self.handled: list[str] = []
        self.failing: set[str] = set()
        self._sim = sim
        self._settings = {"pace": False, "api_root": sim.url, "store": f"sqlite:///{folder}/peik.db", **settings}

    async def __aenter__(self) -> Self:
        @self.client.on_message(filters.private & filters.text)
        async def answer(_: Client, got: Any) -> None:
            if got.text in self.failing:
                self.failing.remove(got.text)
                raise RuntimeError("the disk is full")
            self.handled.append(got.text)

        await registered(self.client, answer)
        await self.client.storage.open()
        await self.client.dispatcher.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.dispatcher.stop()
        await self.client.storage.close()

    async def recover(self, **more: Any) -> int:
        return await recover_missed_messages(self.client, TOKEN, **{**self._settings, **more})

    async def send(self, *texts: str, user: int = 42) -> None:
        """Somebody writes, and the bot is there to hear it over MTProto. The Bot API keeps it all the same."""
        before = len(self.handled)
        for text in texts:
            await take_live(self.client, self._sim.telegram.write(TOKEN, user, text))
        await until(lambda: len(self.handled) == before + len(texts))


def tell(story: Callable[[SimServer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            await story(sim)

    asyncio.run(main())


def numbered(first: int, last: int) -> list[str]:
    return [f"message {number}" for number in range(first, last + 1)]


def test_after_a_stop_the_bot_gets_the_second_five_and_not_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="peik")

    async def story(sim: SimServer) -> None:
        async with Life(tmp_path, sim) as first:
            assert await first.recover() == 0
            await first.send(*numbered(1, 5))
        for text in numbered(6, 10):
            sim.telegram.write(TOKEN, 42, text)
        assert sim.telegram.bots[BOT].queue.size == 10, "the Bot API does not know what was handled"
        caplog.clear()
        async with Life(tmp_path, sim) as second:
            assert await second.recover() == 5
            assert second.handled == numbered(6, 10)
            assert sim.telegram.bots[BOT].queue.size == 0
            await until(lambda: len(sim.telegram.sent) == 1)
        (notice,) = sim.telegram.sent
        assert (notice.method, notice.chat_id) == ("sendMessage", 42)
        assert "message 6" in notice.text

    tell(story)
    (line,) = [record.getMessage() for record in caplog.records if "missed messages recovered" in record.getMessage()]
    assert "found=5 processed=5 failed=0" in line
    assert "fetched=10" in line


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_run_send_five_end_send_five_run_as_the_document_says(tmp_path: Path, end: signal.Signals) -> None:
    async def story(sim: SimServer) -> None:
        wire = tmp_path / "wire"
        wire.touch()

        async def run() -> Program:
            program = Program(
                "-m", "tests.integrations.pyrogram_bot", sim.url, str(wire), folder=tmp_path, PYTHONPATH=str(ROOT)
            )
            await program.start(re.compile("^recovered"))
            return program

        def handled(program: Program) -> list[str]:
            return [line.split(" ", 1)[1].strip() for line in program.output if line.startswith("handled")]

        first = await run()
        for text in numbered(1, 5):
            body = sim.telegram.write(TOKEN, 42, text)
            with wire.open("a") as lines:
                lines.write(json.dumps(body) + "\n")
        await until(lambda: len(handled(first)) == 5)
        await until(lambda: noted(tmp_path) == 5)
        first.process.send_signal(end)
        await first.process.wait()
        wire.write_text("")
        for text in numbered(6, 10):
            sim.telegram.write(TOKEN, 42, text)
        second = await run()
        assert handled(second) == numbered(6, 10)
        assert "recovered 5\n" in second.output
        assert any("found=5 processed=5" in line for line in second.output)
        await until(lambda: len(sim.telegram.sent) == 1)
        second.process.send_signal(signal.SIGINT)
        assert await second.process.wait() == 0

    tell(story)


def noted(folder: Path) -> int:
    """How many notes are durable. A process that is killed before that has handled without being able to say so."""
    with closing(sqlite3.connect(folder / "peik.db")) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM handled")
    return int(count)


def test_what_failed_live_is_handed_over_after_the_next_start(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with Life(tmp_path, sim) as first:
            await first.recover()
            first.failing.add("message 1")
            await take_live(first.client, sim.telegram.write(TOKEN, 42, "message 1"))
            await first.send("message 2")
        async with Life(tmp_path, sim) as second:
            assert await second.recover() == 1
            assert second.handled == ["message 1"]

    tell(story)


def test_a_recovery_while_the_bot_is_online_hands_over_nothing_that_it_had(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with Life(tmp_path, sim) as life:
            await life.recover()
            await life.send(*numbered(1, 3))
            assert await life.recover() == 0
            assert sim.telegram.bots[BOT].queue.size == 0
            await life.send(*numbered(4, 5))
            sim.telegram.write(TOKEN, 42, "lost on the way to us")
            assert await life.recover() == 1
            assert life.handled == [*numbered(1, 5), "lost on the way to us"]

    tell(story)


def test_by_policy_people_are_told_instead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="peik")

    async def story(sim: SimServer) -> None:
        async with Life(tmp_path, sim) as first:
            await first.recover()
        sim.telegram.write(TOKEN, 42, "are you there?")
        async with Life(tmp_path, sim, missed_after="0s") as second:
            assert await second.recover(policy="notify") == 1, "told, not handled"
            await until(lambda: len(sim.telegram.sent) == 1)
            assert second.handled == []

    tell(story)
    assert "found=1 processed=0 failed=0 settled_by_policy=1" in caplog.text


def test_any_absence_counts_and_what_the_settings_say_wins(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with opened(tmp_path, sim) as peik, Life(tmp_path, sim) as life:
            assert await recover_missed_messages(life.client, TOKEN, peik=peik) == 0
        sim.telegram.write(TOKEN, 42, "message 1")
        async with opened(tmp_path, sim) as peik, Life(tmp_path, sim) as life:
            assert await recover_missed_messages(life.client, TOKEN, peik=peik) == 1
            await until(lambda: len(sim.telegram.sent) == 1)
        sim.telegram.write(TOKEN, 42, "message 2")
        async with opened(tmp_path, sim, missed="process") as peik, Life(tmp_path, sim) as life:
            assert await recover_missed_messages(life.client, TOKEN, peik=peik) == 1
        sim.telegram.write(TOKEN, 42, "message 3")
        async with Life(tmp_path, sim, missed_after="1h") as life:
            assert await life.recover() == 1
        assert [one.text for one in sim.telegram.sent if "message" in one.text] == [sim.telegram.sent[0].text]
        assert len(sim.telegram.sent) == 1

    tell(story)


def test_a_press_that_was_handled_before_a_quick_restart_is_neither_handled_again_nor_told_of(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes"}]]}
        sim.telegram.write(TOKEN, 42, "/start")
        menu: Any = sim.telegram.call(TOKEN, "sendMessage", {"chat_id": 42, "text": "Sure?", "reply_markup": keyboard})
        pressed: list[str] = []

        async def press(_: Client, query: Any) -> None:
            pressed.append(query.data)

        async with Life(tmp_path, sim) as first:
            await first.recover()
            query_id = sim.telegram.press(TOKEN, 42, menu.result["message_id"], "yes")
            watch = vars(first.client)["_peik_bridge"].watch  # a press over MTProto would ask Telegram for its message
            hold = watch.begin(Item(query_id=int(query_id)))
            watch.end(hold, is_handled=True)
        said = len(sim.telegram.sent)
        async with Life(tmp_path, sim) as second:
            second.client.add_handler(pyrogram.handlers.CallbackQueryHandler(press))
            await registered(second.client, press)
            assert await second.recover() == 0
            assert pressed == []
            sim.telegram.press(TOKEN, 42, menu.result["message_id"], "yes")
            assert await second.recover() == 1
            assert pressed == ["yes"]
        assert len(sim.telegram.sent) == said

    tell(story)


def test_the_document_s_own_helpers_work_on_what_is_durable(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        sim.telegram.write(TOKEN, 42, "before")
        async with Life(tmp_path, sim) as life:
            await life.recover()
            last = await get_last_update_id()
            assert last > 0
            await save_last_update_id(last + 100)
            assert await get_last_update_id() == last, "Peik keeps its own place"
            assert await get_pending_messages() == []
            first = await save_pending_message(42, "سلام", "text")
            second = await save_pending_message(43, "later", "callback")
            rows = ask(
                tmp_path / "peik.db", "SELECT * FROM pending_messages WHERE status = 'pending' ORDER BY created_at"
            )
            told = [(row["id"], row["user_id"], row["message_text"], row["message_type"]) for row in rows]
            assert told == [(first, 42, "سلام", "text"), (second, 43, "later", "callback")]
            pending = await get_pending_messages()
            assert [(one["id"], one["user_id"], one["message_text"], one["status"]) for one in pending] == [
                (first, 42, "سلام", "pending"),
                (second, 43, "later", "pending"),
            ]
            await mark_message_processed(first)
            with pytest.raises(NotFound):
                await mark_message_processed(first)
            assert [one["id"] for one in await get_pending_messages()] == [second]
            life.failing.add("it fails")
            sim.telegram.write(TOKEN, 42, "it fails")
            await life.recover()
            waiting = next(one for one in await get_pending_messages() if one["id"] > 0)
            assert (waiting["message_text"], waiting["message_type"]) == ("it fails", "message")
            await mark_message_processed(waiting["id"])
            assert [one["id"] for one in await get_pending_messages()] == [second]
            (state,) = ask(tmp_path / "peik.db", "SELECT last_update_id FROM bot_state WHERE id = 1")
            assert state == {"last_update_id": last + 1}

    tell(story)


def test_an_open_peik_may_be_given_and_stays_open(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        sim.telegram.write(TOKEN, 42, "message 1")
        async with opened(tmp_path, sim) as peik:
            async with Life(tmp_path, sim) as life:
                note_handled(life.client, peik)
                await life.send("message 2")
                assert await recover_missed_messages(life.client, TOKEN, peik=peik) == 1
                assert life.handled == ["message 2", "message 1"]
            assert (await peik.get_queue_stats()).waiting == 0

    tell(story)


def test_notes_go_to_a_server_too_but_a_recovery_needs_peik_here(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with (
            aiohttp.ClientSession() as http,
            served(tmp_path, sim.url, http, inbound="polling") as server,
            Peik.connect(server.url, key=KEY) as peik,
            Life(tmp_path, sim) as life,
        ):
            note_handled(life.client, peik)
            await life.send("message 1")
            sim.telegram.write(TOKEN, 42, "message 2")

            async def pending() -> list[str]:
                page = await server.get("/v1/arrivals?state=waiting")
                return [one["text"] for one in page["arrivals"]]

            async with asyncio.timeout(PATIENCE_S):
                while await pending() != ["message 2"]:  # noqa: ASYNC110  it is in another process
                    await asyncio.sleep(0.02)
            with pytest.raises(BadInput, match="in this process"):
                await recover_missed_messages(life.client, TOKEN, peik=peik)

    tell(story)


def test_without_a_way_to_the_bot_api_that_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with Life(tmp_path, sim) as life:
            await life.recover()
            sim.telegram.revoke(TOKEN)
            with pytest.raises(Unavailable):
                await life.recover()

    tell(story)


def test_a_client_that_is_not_started_is_told_so(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        life = Life(tmp_path, sim)
        with pytest.raises(StartError, match=r"client\.start"):
            await life.recover()
        await life.client.dispatcher.stop()

    tell(story)
