"""The test bot as python-telegram-bot's examples teach it; only the API root is ours."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, InputMediaPhoto, Update
from telegram.error import BadRequest, NetworkError, TimedOut
from telegram.ext import (
    Application,
    CallbackQueryHandler,
    CommandHandler,
    ContextTypes,
    MessageHandler,
    TypeHandler,
    filters,
)

API_ROOT = os.environ["API_ROOT"]
TOKEN = os.environ["BOT_TOKEN"]
PORT = int(os.environ.get("WEBHOOK_PORT", "0"))
SECRET = os.environ.get("WEBHOOK_SECRET", "")
TRIES_MAX = 60
SLOW_S = 0.4

Context = ContextTypes.DEFAULT_TYPE
Result = TypeVar("Result")


def tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """The call, made again while nobody answers: the library repeats its polls by itself, but nothing else.

    A time-out is no reason to repeat: the other side has the request.
    """
    for _ in range(TRIES_MAX):
        try:
            return await call()
        except (BadRequest, TimedOut):
            raise
        except NetworkError as error:
            tell(unanswered="a call", why=str(error))
            await asyncio.sleep(0.5)
    return await call()


async def photo(update: Update, context: Context) -> None:
    content = bytes(range(256)) * 64
    await patiently(lambda: update.message.reply_photo(content, caption="a photo", filename="tea.jpg"))


async def document(update: Update, context: Context) -> None:
    content = bytes(range(256)) * 1024
    await patiently(lambda: update.message.reply_document(content, caption="a document", filename="tea.bin"))


async def album(update: Update, context: Context) -> None:
    one, two = InputMediaPhoto(b"one" * 1000, caption="one"), InputMediaPhoto(b"two" * 1000, caption="two")
    await patiently(lambda: update.message.reply_media_group([one, two]))


async def edit(update: Update, context: Context) -> None:
    sent = await patiently(lambda: update.message.reply_text("first"))
    await patiently(lambda: sent.edit_text("second"))


async def keyboard(update: Update, context: Context) -> None:
    markup = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="tea:yes")]])
    await patiently(lambda: update.message.reply_text("Tea?", reply_markup=markup))


async def pressed(update: Update, context: Context) -> None:
    query = update.callback_query
    await patiently(lambda: query.answer("noted"))
    await patiently(lambda: query.edit_message_text("Tea: yes"))


async def keep(update: Update, context: Context) -> None:
    context.chat_data["document"] = update.message.document.file_id


async def download(update: Update, context: Context) -> None:
    file = await patiently(lambda: context.bot.get_file(context.chat_data["document"]))
    content = await file.download_as_bytearray()
    answer = f"{len(content)} {hashlib.sha256(content).hexdigest()}"
    await patiently(lambda: update.message.reply_text(answer))


async def slow(update: Update, context: Context) -> None:
    tell(began=update.message.text)
    await asyncio.sleep(SLOW_S)
    await patiently(lambda: update.message.reply_text(f"echo: {update.message.text}"))


async def echo(update: Update, context: Context) -> None:
    await patiently(lambda: update.message.reply_text(f"echo: {update.message.text}"))


async def told(update: Update, context: Context) -> None:
    kinds = (kind for kind in Update.ALL_TYPES if getattr(update, kind))
    tell(handled=next(kinds), user=update.effective_user.id)


async def started(application: Application) -> None:
    tell(ready=True)


def main() -> None:
    builder = Application.builder().token(TOKEN).base_url(f"{API_ROOT}/bot").base_file_url(f"{API_ROOT}/file/bot")
    application = builder.post_init(started).build()
    for command in (photo, document, album, edit, keyboard, download, slow):
        application.add_handler(CommandHandler(command.__name__, command))
    application.add_handler(CallbackQueryHandler(pressed, pattern="^tea:yes$"))
    application.add_handler(MessageHandler(filters.Document.ALL, keep))
    application.add_handler(MessageHandler(filters.TEXT & ~filters.COMMAND, echo))
    application.add_handler(TypeHandler(Update, told), group=1)  # after the others
    if PORT:
        application.run_webhook(
            listen="127.0.0.1",
            port=PORT,
            url_path="hook",
            secret_token=SECRET,
            webhook_url=f"http://127.0.0.1:{PORT}/hook",
        )
    else:
        application.run_polling()


if __name__ == "__main__":
    main()
