"""`make dark-proof`: Telegram cannot be reached for two minutes, while a bot works on with what it has just sent.

An aiogram bot with its own defaults, in a private chat, a group and a channel at once: it sends texts, pictures and albums, edits
them, answers them, pins, forwards, copies, reacts and deletes. Peik is killed in the middle. In the end every chat must show what
it shows at a Telegram that was never away, without Peik. Prints what it found, and ends with 1 if a chat shows anything else.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup, InputMediaPhoto, Message, ReactionTypeEmoji

from peik.core.provisional import FIRST_ID
from peik.testing import Options, SimServer
from peik.testing.answer import UploadedFile
from proofs.restarts import a_store, keep
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, TOKEN, Server, served

DARK_S = 120.0
ROUNDS = 2  # before the kill and after it
PERSON, READER, GROUP, CHANNEL = 5, 6, -1001000000005, "@news"
KEYBOARD = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Yes", callback_data="yes")]])
PICTURE = UploadedFile(filename="a.jpg", content=b"picture", content_type="image/jpeg")
SEEN = ("text", "caption", "reply_markup", "reactions")


class Diary:
    """A bot that says things in a chat and thinks better of them. What it was told of each message."""

    def __init__(self, bot: Bot, picture: str) -> None:
        self._bot = bot
        self._picture = picture
        self.provisional = 0

    async def says(self, chat: int | str, text: str, **more: Any) -> Message:
        return self._heard(await self._bot.send_message(chat, text, **more))

    def _heard(self, message: Message) -> Message:
        self.provisional += message.message_id >= FIRST_ID
        return message

    async def lives(self, chat: int | str, round_: int) -> None:
        """Everything that bots do with messages of their own."""
        hello = await self.says(chat, f"hello {round_}")
        await hello.edit_text(f"hello, <b>you</b> {round_}", parse_mode="HTML")
        draft = await self.says(chat, "draft")
        await draft.delete()
        answer = self._heard(await hello.reply(f"an answer {round_}"))
        await answer.edit_text(f"a better answer {round_}")
        await answer.edit_reply_markup(reply_markup=KEYBOARD)
        await answer.pin()
        gone = await self.says(chat, "gone")
        await gone.reply(f"what was it? {round_}")
        await gone.delete()
        await hello.react([ReactionTypeEmoji(emoji="👍")])
        album = await self._album(chat, round_)
        await album[1].edit_caption(caption=f"the second {round_}")
        await album[0].reply(f"about the first {round_}")
        await album[2].delete()
        photo = self._heard(await self._bot.send_photo(chat, self._picture, caption="a photo"))
        await photo.edit_caption(caption=f"*my* photo {round_}", parse_mode="Markdown")
        await hello.forward(READER)
        await photo.copy_to(READER)
        await hello.edit_text(f"hello again {round_}")

    async def _album(self, chat: int | str, round_: int) -> list[Message]:
        pictures = [InputMediaPhoto(media=self._picture, caption=f"{n} of {round_}") for n in range(3)]
        return [self._heard(one) for one in await self._bot.send_media_group(chat, list(pictures))]

    async def round(self, number: int) -> None:
        await asyncio.gather(*(self.lives(chat, number) for chat in (PERSON, GROUP, CHANNEL)))


def shown(sim: SimServer) -> dict[str, list[Any]]:
    """What each chat shows, without what no reader sees. What is forwarded or copied comes from several chats at once."""
    telegram = sim.telegram
    found: dict[str, list[Any]] = {}
    for chat in (PERSON, READER, GROUP, CHANNEL):
        known = telegram._known(telegram.bot(TOKEN), chat)  # noqa: SLF001
        messages = [_plain(one, known) for _, one in sorted(known.messages.items())]
        found[str(chat)] = sorted(messages, key=json.dumps) if chat == READER else messages
    return found


def _plain(message: dict[str, Any], chat: Any) -> dict[str, Any]:
    kept = {name: message[name] for name in SEEN if name in message}
    kept["is_photo"] = "photo" in message
    kept["is_forward"] = "forward_origin" in message
    kept["is_pinned"] = message["message_id"] in chat.pinned
    if "reply_to_message" in message:
        replied = chat.messages.get(message["reply_to_message"]["message_id"], {"text": "what is gone"})
        kept["answers"] = replied.get("text") or replied.get("caption")  # as people see it there now
    return kept


@contextlib.asynccontextmanager
async def telegram_with_chats(**limits: Any) -> AsyncIterator[tuple[SimServer, str]]:
    async with SimServer(options=Options(), seed=7) as sim:
        sim.telegram.options.change({"limits": limits})
        sim.telegram.bot(TOKEN)
        for user in (PERSON, READER):
            sim.telegram.user(user)
        sim.telegram.chat("supergroup", "Group", chat_id=GROUP, bots=[BOT])
        sim.telegram.chat("channel", "News", username=CHANNEL.removeprefix("@"), bots=[BOT])
        yield sim, sim.telegram.upload(BOT, PERSON, "photo", PICTURE)["photo"][0]["file_id"]


@contextlib.asynccontextmanager
async def bot_at(url: str) -> AsyncIterator[Bot]:
    bot = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(url)))
    try:
        yield bot
    finally:
        await bot.session.close()


async def without_outage() -> dict[str, list[Any]]:
    async with telegram_with_chats(on=False) as (sim, picture), bot_at(sim.url) as bot:
        diary = Diary(bot, picture)
        for number in range(ROUNDS):
            await diary.round(number)
        return shown(sim)


async def with_outage(folder: Path, *, dark_s: float, **settings: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    timeout = aiohttp.ClientTimeout(total=2 * PATIENCE_S)
    async with (
        telegram_with_chats(on=True) as (sim, picture),
        aiohttp.ClientSession(timeout=timeout) as http,
        served(folder, sim.url, http, is_copy=False, **settings) as server,
        bot_at(server.url) as bot,
    ):
        diary = Diary(bot, picture)
        began = time.monotonic()
        sim.telegram.faults.add("dark", seconds=dark_s)
        await diary.round(0)
        await server.program.kill()
        await server.start()
        for number in range(1, ROUNDS):
            await diary.round(number)
        said_s = time.monotonic() - began
        stats = await server.quiet()
        return shown(sim), {
            "dark, s": dark_s,
            "the bot was done after, s": round(said_s, 1),
            "all was shown after, s": round(time.monotonic() - began, 1),
            "provisional ids": diary.provisional,
            "failed": stats["failed"],
            "why": await _causes(server),
        }


async def _causes(server: Server) -> list[str]:
    letters = (await server.get("/v1/letters?state=failed"))["letters"]
    return [f"{one['method']}: {one['failed_reason']}" for one in letters]


def differences(twin: dict[str, list[Any]], found: dict[str, list[Any]]) -> list[str]:
    return [
        f"{chat}: {one} where there should be {other}"
        for chat in twin
        for one, other in zip(_padded(found[chat], twin[chat]), _padded(twin[chat], found[chat]), strict=True)
        if one != other
    ]


def _padded(messages: list[Any], other: list[Any]) -> list[Any]:
    return messages + [None] * (len(other) - len(messages))


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres", "redis"), nargs="*", default=["sqlite"])
    parser.add_argument("--dark", type=float, default=DARK_S)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    twin, code = await without_outage(), 0
    for store in given.store:
        settings = {} if store == "sqlite" else {"store": a_store(store)}
        with tempfile.TemporaryDirectory(prefix="peik-dark-") as folder:
            found, figures = await with_outage(Path(folder), dark_s=given.dark, **settings)
        different = differences(twin, found)
        figures |= {"messages": sum(map(len, twin.values())), "different": len(different)}
        print(json.dumps({"store": store} | figures))
        for one in different:
            print(f"! {one}")
        keep(given.write, f"dark {store}", figures)
        code = max(code, int(bool(different or figures["failed"])))
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
