"""The test bot as aiogram's README teaches it; only the API root is ours."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiogram import Bot, Dispatcher, F
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.session.middlewares.base import BaseRequestMiddleware, NextRequestMiddlewareType
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramNetworkError, TelegramServerError
from aiogram.filters import Command
from aiogram.methods import GetUpdates, Response, TelegramMethod
from aiogram.methods.base import TelegramType
from aiogram.types import (
    BufferedInputFile,
    CallbackQuery,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    Message,
    Update,
)
from aiogram.webhook.aiohttp_server import SimpleRequestHandler, setup_application
from aiohttp import web

API_ROOT = os.environ["API_ROOT"]
TOKEN = os.environ["BOT_TOKEN"]
PORT = int(os.environ.get("WEBHOOK_PORT", "0"))
SECRET = os.environ.get("WEBHOOK_SECRET", "")
TRIES_MAX = 60
SLOW_S = 0.4

dispatcher = Dispatcher()
documents: dict[int, str] = {}


def tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


class Repeats(BaseRequestMiddleware):
    """A call that got no answer is made again: aiogram repeats its polls by itself, but nothing else."""

    async def __call__(
        self, make_request: NextRequestMiddlewareType[TelegramType], bot: Bot, method: TelegramMethod[TelegramType]
    ) -> Response[TelegramType]:
        tries_max = 1 if isinstance(method, GetUpdates) else TRIES_MAX
        for _ in range(tries_max - 1):
            try:
                return await make_request(bot, method)
            except (TelegramNetworkError, TelegramServerError) as error:
                tell(unanswered=method.__api_method__, why=str(error))
                await asyncio.sleep(0.5)
        return await make_request(bot, method)


@dispatcher.update.outer_middleware()
async def told(
    handler: Callable[[Update, dict[str, Any]], Awaitable[Any]], update: Update, data: dict[str, Any]
) -> Any:
    result = await handler(update, data)
    tell(handled=update.event_type, user=update.event.from_user.id)
    return result


@dispatcher.message(Command("photo"))
async def photo(message: Message) -> None:
    await message.answer_photo(BufferedInputFile(bytes(range(256)) * 64, "tea.jpg"), caption="a photo")


@dispatcher.message(Command("document"))
async def document(message: Message) -> None:
    await message.answer_document(BufferedInputFile(bytes(range(256)) * 1024, "tea.bin"), caption="a document")


@dispatcher.message(Command("album"))
async def album(message: Message) -> None:
    one = InputMediaPhoto(media=BufferedInputFile(b"one" * 1000, "one.jpg"), caption="one")
    two = InputMediaPhoto(media=BufferedInputFile(b"two" * 1000, "two.jpg"), caption="two")
    await message.answer_media_group([one, two])


@dispatcher.message(Command("edit"))
async def edit(message: Message) -> None:
    sent = await message.answer("first")
    await sent.edit_text("second")


@dispatcher.message(Command("keyboard"))
async def keyboard(message: Message) -> None:
    buttons = [[InlineKeyboardButton(text="Yes", callback_data="tea:yes")]]
    await message.answer("Tea?", reply_markup=InlineKeyboardMarkup(inline_keyboard=buttons))


@dispatcher.callback_query(F.data == "tea:yes")
async def pressed(query: CallbackQuery) -> None:
    await query.answer("noted")
    assert isinstance(query.message, Message)
    await query.message.edit_text("Tea: yes")


@dispatcher.message(F.document)
async def keep(message: Message) -> None:
    assert message.document is not None
    documents[message.chat.id] = message.document.file_id


@dispatcher.message(Command("download"))
async def download(message: Message, bot: Bot) -> None:
    file = await bot.download(documents[message.chat.id])
    assert file is not None
    content = file.read()
    await message.answer(f"{len(content)} {hashlib.sha256(content).hexdigest()}")


@dispatcher.message(Command("slow"))
async def slow(message: Message) -> None:
    tell(began=message.text)
    await asyncio.sleep(SLOW_S)
    await message.answer(f"echo: {message.text}")


@dispatcher.message(F.text)
async def echo(message: Message) -> None:
    await message.answer(f"echo: {message.text}")


@dispatcher.startup()
async def started(bot: Bot) -> None:
    if PORT:
        await bot.set_webhook(f"http://127.0.0.1:{PORT}/hook", secret_token=SECRET)
    tell(ready=True)


def main() -> None:
    bot = Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(API_ROOT)))
    bot.session.middleware(Repeats())
    if PORT:
        app = web.Application()
        SimpleRequestHandler(dispatcher, bot, secret_token=SECRET).register(app, path="/hook")
        setup_application(app, dispatcher, bot=bot)
        web.run_app(app, host="127.0.0.1", port=PORT, print=None)
    else:
        dispatcher.run_polling(bot)


if __name__ == "__main__":
    main()
