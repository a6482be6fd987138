"""Over MTProto, by Pyrogram (kurigram), with API_ID and API_HASH: files beyond the Bot API's 50 MB, and the bot itself for who
has it there already (`--pyrogram`).

The Pyrogram bot is the same bot. What comes over MTProto is handed to the same handlers (the gate, the panel, broadcasts, links),
and what they say goes out through Peik. What came while it was away is recovered by Peik, into the same handlers.
"""

import itertools
from pathlib import Path
from typing import Any

from aiogram import Bot, Dispatcher
from aiogram.types import Update
from pyrogram import Client, errors, filters
from pyrogram.handlers import CallbackQueryHandler, MessageHandler

from examples.downloader_bot.book import Stored
from examples.downloader_bot.settings import CLOUD_BYTES_MAX, Settings
from examples.downloader_bot.words import megabytes
from peik import Job, JobLater

CONNECT_S = 5.0


def client_of(settings: Settings, name: str, *, is_deaf: bool) -> Client:
    """Its session file lies beside the bot's book. `is_deaf`: it only sends."""
    folder = settings.book.absolute().parent
    return Client(
        name,
        api_id=settings.api_id,
        api_hash=settings.api_hash,
        bot_token=settings.token,
        workdir=str(folder),
        no_updates=is_deaf,
    )


class MtprotoUploads:
    def __init__(self, client: Client, *, over_bytes: int = CLOUD_BYTES_MAX) -> None:
        self._client = client
        self.over_bytes = over_bytes

    async def send(self, job: Job, file: Path, kind: str) -> Stored:
        """The file goes in chunks, straight from the job's folder, and its id is the Bot API's as well. It is no letter: if the
        worker dies between Telegram's answer and ours, it is sent once more."""
        if not self._client.is_connected:
            raise JobLater(CONNECT_S, "The bot is not connected to Telegram yet.")

        async def on_chunk(sent: int, whole: int) -> None:
            await job.progress(sent / whole, f"↑ {megabytes(sent)}")

        try:
            send = getattr(self._client, f"send_{kind}")
            message = await send(job.params["person"], str(file), caption=file.name, progress=on_chunk)
        except errors.FloodWait as wait:
            raise JobLater(float(wait.value), "Telegram asks the bot to wait.") from None
        for found in ("video", "audio", "document"):  # Telegram may have made another kind of it
            if getattr(message, found, None) is not None:
                return Stored(kind=found, file_id=getattr(message, found).file_id)
        raise AssertionError("a file that was sent is in the message")


class PyrogramBot:
    """A client whose updates go into aiogram's handlers. One that raises is tried again if it came by a recovery."""

    def __init__(self, client: Client, dispatcher: Dispatcher, bot: Bot) -> None:
        self._dispatcher = dispatcher
        self._bot = bot
        self._numbers = itertools.count(1)
        client.add_handler(MessageHandler(self.message, filters.private))
        client.add_handler(CallbackQueryHandler(self.press))

    async def message(self, _: Client, message: Any) -> None:
        await self._feed(message=_message(message))

    async def press(self, _: Client, press: Any) -> None:
        data = press.data if isinstance(press.data, str) else press.data.decode(errors="replace")
        facts = {"id": str(press.id), "from": _person(press.from_user), "chat_instance": "0", "data": data}
        await self._feed(callback_query={**facts, "message": _message(press.message)} if press.message else facts)

    async def _feed(self, **update: Any) -> None:
        body = {"update_id": next(self._numbers), **update}
        await self._dispatcher.feed_update(self._bot, Update.model_validate(body, context={"bot": self._bot}))


def _message(message: Any) -> dict[str, Any]:
    """As the Bot API has it: what the handlers of this bot read."""
    chat, sender = message.chat, message.from_user
    kind = {"BOT": "private"}.get(chat.type.name, chat.type.name.lower())
    found = {
        "message_id": message.id,
        "date": int(message.date.timestamp()),
        "chat": {"id": chat.id, "type": kind, "title": chat.title, "first_name": chat.first_name},
        "text": None if message.text is None else str(message.text),
        "caption": None if message.caption is None else str(message.caption),
    }
    return {**found, "from": _person(sender)} if sender is not None else found


def _person(user: Any) -> dict[str, Any]:
    names = {"first_name": user.first_name or "", "last_name": user.last_name, "username": user.username}
    return {"id": user.id, "is_bot": bool(user.is_bot), "language_code": user.language_code, **names}
