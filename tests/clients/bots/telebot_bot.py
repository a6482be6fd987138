"""The test bot as pyTelegramBotAPI's README teaches it; only the API root is ours."""

import hashlib
import json
import os
import sys
import time
from typing import Any

import requests
import telebot
from telebot import apihelper
from telebot.handler_backends import BaseMiddleware
from telebot.types import (
    CallbackQuery,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    Message,
)

API_ROOT = os.environ["API_ROOT"]
TOKEN = os.environ["BOT_TOKEN"]
PORT = int(os.environ.get("WEBHOOK_PORT", "0"))
SECRET = os.environ.get("WEBHOOK_SECRET", "")

apihelper.API_URL = API_ROOT + "/bot{0}/{1}"
apihelper.FILE_URL = API_ROOT + "/file/bot{0}/{1}"
TRIES_MAX = 60
SLOW_S = 0.4

bot = telebot.TeleBot(TOKEN, use_class_middlewares=True)
documents: dict[int, str] = {}


def tell(**facts: Any) -> None:
    # In one piece: handlers run on several threads.
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def patiently(verb: str, url: str, **more: Any) -> requests.Response:
    """A call that got no answer, or half of one, is made again: the library repeats its polls by itself, but nothing else.

    Its own RETRY_ON_ERROR knows only broken connections; a 5xx would be lost.
    """
    name = url.rpartition("/")[2]
    if name == "getUpdates":
        return requests.request(verb, url, **more)
    for _ in range(TRIES_MAX):
        try:
            answer = requests.request(verb, url, **more)
            answer.json()
        except requests.Timeout:
            raise  # the other side has the request
        except requests.RequestException as error:
            tell(unanswered=name, why=type(error).__name__)
        else:
            if answer.status_code < 500:
                return answer
            tell(unanswered=name, why=answer.text)
        time.sleep(0.5)
    return requests.request(verb, url, **more)


apihelper.CUSTOM_REQUEST_SENDER = patiently


class Told(BaseMiddleware):
    def __init__(self) -> None:
        super().__init__()
        self.update_types = ["message", "callback_query"]

    def pre_process(self, update: Message | CallbackQuery, data: dict[str, Any]) -> None:
        pass

    def post_process(self, update: Message | CallbackQuery, data: dict[str, Any], error: Exception | None) -> None:
        if error is None:
            kind = "message" if isinstance(update, Message) else "callback_query"
            tell(handled=kind, user=update.from_user.id)


bot.setup_middleware(Told())


@bot.message_handler(commands=["photo"])
def photo(message: Message) -> None:
    bot.send_photo(message.chat.id, bytes(range(256)) * 64, caption="a photo")


@bot.message_handler(commands=["document"])
def document(message: Message) -> None:
    content = bytes(range(256)) * 1024
    bot.send_document(message.chat.id, content, caption="a document", visible_file_name="tea.bin")


@bot.message_handler(commands=["album"])
def album(message: Message) -> None:
    one, two = InputMediaPhoto(b"one" * 1000, caption="one"), InputMediaPhoto(b"two" * 1000, caption="two")
    bot.send_media_group(message.chat.id, [one, two])


@bot.message_handler(commands=["edit"])
def edit(message: Message) -> None:
    sent = bot.send_message(message.chat.id, "first")
    bot.edit_message_text("second", message.chat.id, sent.message_id)


@bot.message_handler(commands=["keyboard"])
def keyboard(message: Message) -> None:
    markup = InlineKeyboardMarkup().add(InlineKeyboardButton("Yes", callback_data="tea:yes"))
    bot.send_message(message.chat.id, "Tea?", reply_markup=markup)


@bot.callback_query_handler(func=lambda query: query.data == "tea:yes")
def pressed(query: CallbackQuery) -> None:
    bot.answer_callback_query(query.id, "noted")
    bot.edit_message_text("Tea: yes", query.message.chat.id, query.message.message_id)


@bot.message_handler(content_types=["document"])
def keep(message: Message) -> None:
    documents[message.chat.id] = message.document.file_id


@bot.message_handler(commands=["download"])
def download(message: Message) -> None:
    content = bot.download_file(bot.get_file(documents[message.chat.id]).file_path)
    bot.send_message(message.chat.id, f"{len(content)} {hashlib.sha256(content).hexdigest()}")


@bot.message_handler(commands=["slow"])
def slow(message: Message) -> None:
    tell(began=message.text)
    time.sleep(SLOW_S)
    bot.send_message(message.chat.id, f"echo: {message.text}")


@bot.message_handler(content_types=["text"])
def echo(message: Message) -> None:
    bot.reply_to(message, f"echo: {message.text}")


def main() -> None:
    tell(ready=True)
    if PORT:
        bot.run_webhooks(
            listen="127.0.0.1",
            port=PORT,
            url_path="hook",
            webhook_url=f"http://127.0.0.1:{PORT}/hook/",
            secret_token=SECRET,
        )
    else:
        bot.infinity_polling()


if __name__ == "__main__":
    main()
