"""A Telethon bot (its real client, not connected): Bot API updates reach its own event handlers, what it handled live is
noted, and after a stop it gets what it missed and nothing else."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import telethon
from telethon import TelegramClient, events
from telethon.sessions import MemorySession
from telethon.tl import types

from peik.errors import BadInput, StartError
from peik.integrations.mtproto import HandledWatch, Notes
from peik.integrations.telethon import _SCHEMA, _attach, recover_missed_messages
from peik.integrations.tl import translate
from peik.testing import SimServer
from tests.client.counters import telegram
from tests.integrations.updates import BOT, CHANNEL, GROUP, ME, PRIVATE, SARA, SUPERGROUP, message, until
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN


class Bot:
    """A client with Peik's hooks in it."""

    def __init__(self) -> None:
        self.client = TelegramClient(MemorySession(), 1, "x")
        self.noted: list[tuple[int, int]] = []
        self.ends = 0
        self._watch = HandledWatch(Notes(self._note))
        self.hooks = _attach(self.client, self._watch, self._stopped)

    async def _note(self, messages: Sequence[tuple[int, int]]) -> None:
        self.noted.extend(messages)

    async def _stopped(self) -> None:
        await self._watch.flush()
        self.ends += 1

    async def live(self, body: dict[str, Any], kind: str = "message") -> None:
        await take_live(self.client, body, kind)

    async def hand(self, body: dict[str, Any], kind: str = "message") -> bool:
        return await self.hooks.hand(kind, body, BOT)


async def take_live(client: Any, body: dict[str, Any], kind: str = "message") -> None:
    """An update over MTProto, prepared and dispatched as the client's update loop does it."""
    parcel = translate(_SCHEMA, kind, body, bot_id=BOT)
    people = list(parcel.users.values()), list(parcel.chats.values())
    (update,) = await client._preprocess_updates([parcel.update], *people)
    await client._dispatch_update(update)


def play(story: Callable[[Bot], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story(Bot())

    asyncio.run(main())


async def built(bot: Bot, body: dict[str, Any], kind: str = "message") -> Any:
    """What a handler gets."""
    got: list[Any] = []

    async def take(event: Any) -> None:
        got.append(event)

    builder = {
        "message": events.NewMessage,
        "channel_post": events.NewMessage,
        "edited_message": events.MessageEdited,
        "callback_query": events.CallbackQuery,
    }[kind]
    bot.client.add_event_handler(take, builder)
    assert await bot.hand(body, kind)
    (event,) = got
    return event


# ---- its own types ----


def test_a_message_becomes_the_event_that_telethon_would_have_made() -> None:
    async def story(bot: Bot) -> None:
        entities = [{"type": "bold", "offset": 0, "length": 5}]
        event = await built(bot, message(5, "hello there", entities=entities))
        assert isinstance(event, events.NewMessage.Event)
        assert (event.id, event.raw_text, event.text) == (5, "hello there", "**hello** there")
        assert (event.chat_id, event.sender_id, event.is_private, event.out) == (42, 42, True, False)
        assert event.date.timestamp() == 1_790_000_005
        sender = await event.get_sender()
        assert (sender.first_name, sender.username) == ("Sara", "sara")

    play(story)


@pytest.mark.parametrize("chat", [GROUP, SUPERGROUP, PRIVATE])
def test_every_kind_of_chat_keeps_its_id(chat: dict[str, Any]) -> None:
    async def story(bot: Bot) -> None:
        event = await built(bot, message(5, "hello", chat=chat))
        assert (event.chat_id, event.sender_id) == (chat["id"], 42)
        assert event.is_group is (chat is not PRIVATE)

    play(story)


def test_a_post_of_a_channel_is_known_as_one() -> None:
    async def story(bot: Bot) -> None:
        body = {"message_id": 9, "date": 1_790_000_000, "chat": CHANNEL, "sender_chat": CHANNEL, "text": "news"}
        event = await built(bot, body, "channel_post")
        assert (event.chat_id, event.is_channel, event.is_group, event.post) == (CHANNEL["id"], True, False, True)

    play(story)


def test_a_reply_brings_what_it_answers() -> None:
    async def story(bot: Bot) -> None:
        event = await built(bot, message(5, "Sara", reply_to_message={**message(3, "Your name?"), "from": ME}))
        assert event.is_reply
        replied = await event.get_reply_message()
        assert (replied.id, replied.raw_text, replied.out) == (3, "Your name?", True)

    play(story)


def test_a_file_with_its_caption_is_media() -> None:
    async def story(bot: Bot) -> None:
        document = {"file_id": "?", "file_name": "report.pdf", "mime_type": "application/pdf", "file_size": 9}
        event = await built(bot, message(5, document=document, caption="the report"))
        assert (event.file.name, event.file.size, event.raw_text) == ("report.pdf", 9, "the report")

    play(story)


def test_an_edit_and_a_press_go_to_their_own_handlers() -> None:
    async def story(bot: Bot) -> None:
        edit = await built(bot, message(5, "better", edit_date=1_790_000_500), "edited_message")
        assert (edit.raw_text, edit.edit_date.timestamp()) == ("better", 1_790_000_500)
        keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes"}]]}
        menu = {**message(3, "Sure?"), "from": ME, "reply_markup": keyboard}
        press = {"id": "123456789", "from": SARA, "message": menu, "chat_instance": "-5", "data": "yes"}
        event = await built(bot, press, "callback_query")
        assert (event.id, event.data, event.sender_id, event.chat_id, event.message_id) == (
            123456789,
            b"yes",
            42,
            42,
            3,
        )
        with pytest.raises(BadInput):  # pressed under an inline message
            await bot.hand({"id": "1", "from": SARA, "inline_message_id": "x", "chat_instance": "1"}, "callback_query")

    play(story)


def test_patterns_and_filters_work() -> None:
    async def story(bot: Bot) -> None:
        got: list[str] = []

        @bot.client.on(events.NewMessage(pattern=r"/start (\w+)", incoming=True, from_users=[42]))
        async def start(event: Any) -> None:
            got.append(event.pattern_match[1])
            raise events.StopPropagation

        @bot.client.on(events.NewMessage(func=lambda event: event.is_private))
        async def anything(event: Any) -> None:
            got.append(event.raw_text)

        await bot.hand(message(1, "/start deep"))
        await bot.hand(message(2, "hello"))
        await bot.hand(message(3, "hello", chat=GROUP))
        assert got == ["deep", "hello"]

    play(story)


# ---- noting ----


def test_what_was_handled_is_noted_and_what_failed_is_not() -> None:
    async def story(bot: Bot) -> None:
        @bot.client.on(events.NewMessage(pattern="stop"))
        async def stops(event: Any) -> None:
            raise events.StopPropagation

        @bot.client.on(events.NewMessage(pattern="bad"))
        async def fails(event: Any) -> None:
            raise RuntimeError("the disk is full")

        for number, text in enumerate(["stop", "bad", "nobody wants this"], start=1):
            await bot.live(message(number, text))
        await bot.live({**message(4, "my own"), "from": ME})
        await bot.live(message(5, "hello", chat=SUPERGROUP))
        short = types.UpdateShortMessage(id=6, user_id=42, message="hello", pts=1, pts_count=1, date=None)
        (update,) = await bot.client._preprocess_updates([short], [], [])
        await bot.client._dispatch_update(update)
        await bot.client.disconnect()
        assert sorted(bot.noted) == [(SUPERGROUP["id"], 5), (42, 1), (42, 3), (42, 6)]
        assert bot.ends == 1

    play(story)


def test_a_handler_that_is_cancelled_has_handled_nothing() -> None:
    async def story(bot: Bot) -> None:
        begun = asyncio.Event()

        @bot.client.on(events.NewMessage)
        async def slow(event: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(bot.live(message(1, "hello")))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bot.client.disconnect()
        assert bot.noted == []

    play(story)


def test_handlers_can_be_listed_and_removed_as_before() -> None:
    async def story(bot: Bot) -> None:
        async def handle(event: Any) -> None: ...

        bot.client.add_event_handler(handle, events.NewMessage)
        ((listed, _),) = bot.client.list_event_handlers()
        assert listed == handle
        assert bot.client.remove_event_handler(listed) == 1
        assert bot.client.list_event_handlers() == []

    play(story)


# ---- handing over ----


def test_a_failing_handler_is_heard_of_by_who_hands_over() -> None:
    async def story(bot: Bot) -> None:
        tries: list[int] = []

        @bot.client.on(events.NewMessage)
        async def fails_once(event: Any) -> None:
            tries.append(event.id)
            if len(tries) == 1:
                raise RuntimeError("the disk is full")

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

        @bot.client.on(events.NewMessage)
        async def handle(event: Any) -> None:
            if event.id == 1:
                await slow.wait()
            got.append(event.id)

        first = asyncio.create_task(bot.live(message(1, "live first, still at work")))
        await bot.live(message(2, "live first"))
        waiting = asyncio.create_task(bot.hand(message(1, "live first, still at work")))
        assert not await bot.hand(message(2, "live first"))
        assert await bot.hand(message(3, "recovered first"))
        await bot.live(message(3, "recovered first"))
        slow.set()
        assert not await waiting
        await first
        await until(lambda: sorted(bot.noted) == [(42, 1), (42, 2)])
        assert got == [2, 3, 1]

    play(story)


def test_a_telethon_that_is_built_differently_is_refused_with_its_version() -> None:
    class Stranger:
        _dispatch_update = None

    with pytest.raises(StartError, match=f"{telethon.__version__}.*_catch_up"):
        _attach(Stranger(), HandledWatch(Notes(lambda _: asyncio.sleep(0))), lambda: asyncio.sleep(0))


# ---- the whole story ----


class Life:
    """One run of the bot, on the same store as the run before."""

    def __init__(self, folder: Path, sim: SimServer, **settings: Any) -> None:
        self.client = TelegramClient(MemorySession(), 1, "x")
        self.handled: list[str] = []
        self._sim = sim
        self._settings = {"pace": False, "api_root": sim.url, "store": f"sqlite:///{folder}/peik.db", **settings}

        @self.client.on(events.NewMessage(incoming=True, func=lambda event: event.is_private))
        async def answer(event: Any) -> None:
            self.handled.append(event.raw_text)

    async def recover(self, **more: Any) -> int:
        return await recover_missed_messages(self.client, TOKEN, **{**self._settings, **more})

    async def send(self, *texts: str, user: int = 42) -> None:
        """Somebody writes, and the bot is there to hear it over MTProto. The Bot API keeps it all the same."""
        for text in texts:
            await take_live(self.client, self._sim.telegram.write(TOKEN, user, text))


def test_after_a_disconnect_the_bot_gets_the_second_five_and_not_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="peik")
    texts = [f"message {number}" for number in range(1, 11)]

    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            first = Life(tmp_path, sim)
            assert await first.recover() == 0
            await first.send(*texts[:5])
            assert first.handled == texts[:5]
            await first.client.disconnect()
            for text in texts[5:]:
                sim.telegram.write(TOKEN, 42, text)
            caplog.clear()
            second = Life(tmp_path, sim, missed_after="0s")
            assert await second.recover(policy="both") == 5
            assert second.handled == texts[5:]
            await until(lambda: len(sim.telegram.sent) == 1)
            assert sim.telegram.bots[BOT].queue.size == 0
            await second.client.disconnect()

    asyncio.run(story())
    (line,) = [record.getMessage() for record in caplog.records if "missed messages recovered" in record.getMessage()]
    assert "found=5 processed=5 failed=0" in line
    assert "fetched=10" in line


def test_what_came_while_the_recovery_ran_is_handled_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            life = Life(tmp_path, sim)
            bodies = [sim.telegram.write(TOKEN, user, f"from {user}") for user in range(1, 41)]
            recovering = asyncio.create_task(life.recover())
            await asyncio.sleep(0)  # it has begun, and watches
            for body in bodies:
                await take_live(life.client, body)
                await asyncio.sleep(0.002)
            recovered = await recovering
            await life.client.disconnect()
            assert sorted(life.handled) == sorted(body["text"] for body in bodies)
            assert recovered < 40

    asyncio.run(story())
