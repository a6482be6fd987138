"""What people say to the bot, and what it does for them."""

import itertools
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiogram import Bot, F, Router
from aiogram.exceptions import TelegramAPIError
from aiogram.filters import Command, CommandObject, CommandStart
from aiogram.types import (
    CallbackQuery,
    ChatMemberUpdated,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    Message,
    TelegramObject,
)

from examples.downloader_bot import gate
from examples.downloader_bot.book import Book, Person
from examples.downloader_bot.links import FILE, QUALITIES, is_plain, link_in
from examples.downloader_bot.settings import Settings
from examples.downloader_bot.words import LANGUAGES, Words, language_of, megabytes, words_of
from examples.downloader_bot.work import asked_job, download_job
from peik import Conflict, Peik, Refused

SEND_WAIT_S = 10.0
_CAMPAIGN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPEN = ("waiting", "delayed", "active")


async def introduce(
    handler: Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]], event: TelegramObject, data: dict[str, Any]
) -> Any:
    """A middleware: handlers get the person and the words of their language. Those who are banned get no further."""
    user = data.get("event_from_user")
    if user is None or user.is_bot:
        return None
    book: Book = data["book"]
    person = await book.meet(user.id, language_of(user.language_code))
    words = words_of(person.language)
    if person.is_banned:
        if isinstance(event, Message):
            await event.answer(words("banned", support=data["settings"].support))
        return None
    return await handler(event, {**data, "person": person, "words": words})


def people_router() -> Router:
    router = Router(name="people")
    router.message.filter(F.chat.type == "private")
    router.my_chat_member.register(blocked, F.chat.type == "private")
    router.message.register(start, CommandStart())
    router.message.register(ask_language, Command("language"))
    router.message.register(help_out, Command("help"))
    router.message.register(cancel, Command("cancel"))
    router.callback_query.register(set_language, F.data.startswith("language:"))
    router.callback_query.register(pressed_quality, F.data.startswith("get:") | F.data.startswith("list:"))
    router.callback_query.register(pressed_joined, F.data.startswith("joined:"))
    router.message.register(got_link)
    return router


async def blocked(change: ChatMemberUpdated, book: Book) -> None:
    if change.new_chat_member.status == "kicked":
        await book.set_gone(change.from_user.id)


async def start(message: Message, command: CommandObject, book: Book, person: Person, words: Words) -> None:
    if command.args and _CAMPAIGN.fullmatch(command.args):
        await book.started(person.id, command.args)
    await message.answer(words("welcome"))
    if person.is_new:
        await ask_language(message, words)


async def help_out(message: Message, settings: Settings, words: Words) -> None:
    size = megabytes(settings.file_bytes_max)
    bounds = {"per_user": settings.downloads_per_user, "a_day": settings.downloads_a_day, "size": size}
    await message.answer(words("help", support=settings.support, **bounds))


# ---- language ----


async def ask_language(message: Message, words: Words) -> None:
    buttons = [InlineKeyboardButton(text=name, callback_data=f"language:{one}") for one, name in LANGUAGES.items()]
    keyboard = InlineKeyboardMarkup(inline_keyboard=[buttons[:2], buttons[2:]])
    await message.answer(words("choose_language"), reply_markup=keyboard)


async def set_language(press: CallbackQuery, bot: Bot, book: Book, person: Person) -> None:
    language = language_of((press.data or "").partition(":")[2])
    await book.set_language(person.id, language)
    await noticed(press)
    await bot.send_message(person.id, words_of(language)("language_set"))


async def noticed(press: CallbackQuery, text: str | None = None) -> None:
    """Takes the little clock off the button. After an outage Telegram does not want to hear it any more."""
    with suppress(TelegramAPIError):
        await press.answer(text)


# ---- a link, a quality, a download ----


async def got_link(
    message: Message, bot: Bot, book: Book, peik: Peik, settings: Settings, person: Person, words: Words
) -> None:
    url = link_in(message.text or message.caption or "")
    if url is None:
        await message.answer(words("no_link"))
        return
    link = await book.link(url)
    sponsors = await gate.missing(bot, book, settings, person.id)
    if sponsors:
        await message.answer(words("join_first"), reply_markup=gate.doors(sponsors, link, words))
        return
    asking = Asking(bot, book, peik, settings, person, words)
    await asking.offer(link, url, key=f"message:{message.message_id}")


async def pressed_joined(
    press: CallbackQuery, bot: Bot, book: Book, peik: Peik, settings: Settings, person: Person, words: Words
) -> None:
    link = int((press.data or "").partition(":")[2])
    url = await book.url(link)
    if await gate.missing(bot, book, settings, person.id):
        await noticed(press, words("not_joined"))
        return
    await noticed(press)
    if url is None:
        await bot.send_message(person.id, words("link_gone"))
        return
    await Asking(bot, book, peik, settings, person, words).offer(link, url, key=f"press:{press.id}")


async def pressed_quality(
    press: CallbackQuery, bot: Bot, book: Book, peik: Peik, settings: Settings, person: Person, words: Words
) -> None:
    what, number, quality = (press.data or "").split(":")
    await noticed(press)
    link = int(number)
    url = await book.url(link)
    if url is None or quality not in QUALITIES:
        await bot.send_message(person.id, words("link_gone"))
        return
    sponsors = await gate.missing(bot, book, settings, person.id)
    if sponsors:  # they may have left since the buttons were shown
        await bot.send_message(person.id, words("join_first"), reply_markup=gate.doors(sponsors, link, words))
        return
    asking = Asking(bot, book, peik, settings, person, words)
    fetch = asking.fetch_list if what == "list" else asking.fetch
    await fetch(link, url, quality, key=f"press:{press.id}")


async def cancel(message: Message, peik: Peik, person: Person, words: Words) -> None:
    """All downloads of this person, those that run, too."""
    count = 0
    for kind, state in itertools.product(("list", "look", "download"), _OPEN):
        async for job in peik.find_jobs(kind=kind, user=person.id, state=state):
            with suppress(Conflict):  # it has ended meanwhile
                await peik.cancel_job(job)
                count += 1
    await message.answer(words("cancelled", count=count) if count else words("nothing_to_cancel"))


class Asking:
    """One person who wants one link."""

    def __init__(self, bot: Bot, book: Book, peik: Peik, settings: Settings, person: Person, words: Words) -> None:
        self._bot = bot
        self._book = book
        self._peik = peik
        self._settings = settings
        self._person = person
        self._words = words

    async def offer(self, link: int, url: str, *, key: str) -> None:
        """A plain file comes as it is. Of everything else a job looks what is there, and people choose the quality."""
        if is_plain(url):
            await self.fetch(link, url, FILE, key=key)
            return
        facts = {"link": link, "url": url}
        job = asked_job(self._settings, self._person.id, self._words, key=key, label="looking", **facts)
        await self._peik.queue_job("look", **job)

    async def fetch_list(self, link: int, url: str, quality: str, *, key: str) -> None:
        facts = {"link": link, "url": url, "quality": quality}
        job = asked_job(self._settings, self._person.id, self._words, key=key, label="looking", **facts)
        await self._peik.queue_job("list", **job)

    async def fetch(self, link: int, url: str, quality: str, *, key: str) -> None:
        """At once if Telegram has the file already, else as a job. A repeat with the same key is the same job: an update may
        come twice."""
        is_sent = await self._sent_again(link, quality, key)
        await self._book.asked(at_once=is_sent)
        if is_sent:
            return
        try:
            await self._check_day()
            job = download_job(
                self._settings, self._person.id, self._words, key=key, link=link, url=url, quality=quality
            )
            await self._peik.queue_job("download", **job)
        except Conflict as problem:
            if problem.code != "quota":
                raise
            await self._bot.send_message(self._person.id, self._words("quota", a_day=self._settings.downloads_a_day))

    async def _check_day(self) -> None:
        """A `peik serve` does not know the worker's kinds, and their quotas: so the bot asks."""
        used = await self._peik.jobs_used("download", self._person.id)
        if used.jobs >= self._settings.downloads_a_day:
            raise Conflict(code="quota", detail="The day is used up.")

    async def _sent_again(self, link: int, quality: str, key: str) -> bool:
        """One attempt: what Telegram does not take under its id is fetched anew."""
        stored = await self._book.stored(link, quality)
        if stored is None:
            return False
        file: dict[str, Any] = {stored.kind: stored.file_id}
        try:
            await self._peik.send(
                f"send{stored.kind.capitalize()}",
                chat_id=self._person.id,
                bot_id=self._settings.bot_id,
                attempts=1,
                idempotency_key=f"again:{self._person.id}:{key}",
                wait=SEND_WAIT_S,
                **file,
            )
        except Refused as refused:
            if refused.words.startswith("Forbidden"):  # nobody is there any more
                return True
            await self._book.drop(link, quality)
            return False
        return True
