"""python -m examples.downloader_bot                through the gateway of a `peik serve` (PEIK_URL, PEIK_KEY)
python -m examples.downloader_bot --worker       beside it, on the same PEIK_STORE: does the jobs
python -m examples.downloader_bot --in-process   all in one process, Peik inside
python -m examples.downloader_bot --pyrogram     the same, with updates over MTProto (API_ID, API_HASH)
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator
from logging.handlers import RotatingFileHandler

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramAPIError, TelegramUnauthorizedError

from examples.downloader_bot.admin import admin_router
from examples.downloader_bot.book import Book
from examples.downloader_bot.broadcast import broadcast_router
from examples.downloader_bot.fetching import Fetcher
from examples.downloader_bot.people import introduce, people_router
from examples.downloader_bot.polling import poll
from examples.downloader_bot.settings import Settings, settings_of
from examples.downloader_bot.sites import log as downloads_log
from examples.downloader_bot.steps import BookStorage
from examples.downloader_bot.work import Uploads, Work
from peik import Peik
from peik.errors import Problem, StartError
from peik.integrations.aiogram import PeikSession, feed

log = logging.getLogger("downloader_bot")
LOG_BYTES, LOG_FILES = 10_000_000, 5
ASK_S = 15


def dispatcher_of(settings: Settings, book: Book, peik: Peik) -> Dispatcher:
    """All that the bot can do, wherever its updates come from."""
    dispatcher = Dispatcher(storage=BookStorage(book), settings=settings, book=book, peik=peik)
    for observer in (dispatcher.message, dispatcher.callback_query):
        observer.outer_middleware(introduce)
    dispatcher.include_routers(admin_router(), broadcast_router(), people_router())
    return dispatcher


async def through_the_gateway(settings: Settings) -> None:
    api = TelegramAPIServer.from_base(settings.peik_url)
    async with (
        Book(settings.book) as book,
        Peik.connect(settings.peik_url, key=settings.peik_key) as peik,
        Bot(settings.token, session=AiohttpSession(api=api)) as bot,
    ):
        log.info("The bot is ready.")
        await poll(bot, dispatcher_of(settings, book, peik))


async def worker(settings: Settings) -> None:
    async with working(settings) as (_, peik):
        log.info("The worker is ready.")
        await peik.run()


async def in_process(settings: Settings) -> None:
    async with working(settings, missed="both") as (book, peik):
        bot = Bot(settings.token, session=PeikSession(peik))
        await check_token(bot)
        log.info("The bot is ready.")
        await feed(peik, dispatcher_of(settings, book, peik), bot, handle_signals=False)


async def over_mtproto(settings: Settings) -> None:
    from examples.downloader_bot.big import MtprotoUploads, PyrogramBot, client_of
    from peik.integrations.pyrogram import note_handled, recover_missed_messages

    if settings.api_id is None:
        sys.exit(
            "Set API_ID and API_HASH (from my.telegram.org) in the environment. See examples/downloader_bot/README.md."
        )
    client = client_of(settings, "downloader_bot", is_deaf=False)
    async with working(settings, uploads=MtprotoUploads(client)) as (book, peik):
        PyrogramBot(client, dispatcher_of(settings, book, peik), Bot(settings.token, session=PeikSession(peik)))
        note_handled(client, peik)
        async with client:
            await recover_missed_messages(client, settings.token, peik=peik, policy="both")
            log.info("The bot is ready.")
            await peik.run()


async def check_token(bot: Bot) -> None:
    """Raises TelegramUnauthorizedError. If Telegram cannot be asked now, the bot begins all the same."""
    try:
        await bot.get_me(request_timeout=ASK_S)
    except TelegramUnauthorizedError:
        raise
    except TelegramAPIError as error:
        log.warning("Telegram cannot be asked about the token now: %s", error)


@contextlib.asynccontextmanager
async def working(
    settings: Settings, *, uploads: Uploads | None = None, **more: str
) -> AsyncIterator[tuple[Book, Peik]]:
    """Peik in this process, with all kinds of jobs. Its other settings come from the environment, as those of `peik serve`."""
    upload_max = str(settings.file_bytes_max)
    peik = Peik.open(settings.store, token=settings.token, upload_max=upload_max, **more)
    async with contextlib.AsyncExitStack() as stack:
        book = await stack.enter_async_context(Book(settings.book))
        fetcher = await stack.enter_async_context(Fetcher(settings))
        if uploads is None and settings.api_id is not None:
            from examples.downloader_bot.big import MtprotoUploads, client_of

            uploads = MtprotoUploads(
                await stack.enter_async_context(client_of(settings, "downloader_uploads", is_deaf=True))
            )
        Work(peik, settings, book, fetcher, uploads).add()
        await stack.enter_async_context(peik)
        yield book, peik


async def until_ended(settings: Settings, arguments: list[str]) -> None:
    ways = {
        (): through_the_gateway,
        ("--worker",): worker,
        ("--in-process",): in_process,
        ("--pyrogram",): over_mtproto,
    }
    way = ways.get(tuple(arguments))
    if way is None:
        sys.exit(__doc__)
    task = asyncio.ensure_future(way(settings))
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        sys.exit(sentence)


def sentence_of(error: BaseException) -> str | None:
    """What is wrong with the settings, if that is what ended the bot."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(sentence_of, error.exceptions)), None)
    if isinstance(error, TelegramUnauthorizedError):
        return "Telegram does not know this BOT_TOKEN (or `peik serve` does not). Ask @BotFather for the right one."
    return str(error) if isinstance(error, Problem | StartError) else None


def keep_logs(settings: Settings) -> None:
    """Everything in bot.log, what downloads say in a file of their own as well; both are rotated."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    form = logging.Formatter("%(asctime)s %(name)s %(message)s")
    for logger, name in ((logging.getLogger(), "bot.log"), (downloads_log, "universal_downloader.log")):
        file = RotatingFileHandler(
            settings.logs / name, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1, encoding="utf-8"
        )
        file.setFormatter(form)
        logger.addHandler(file)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    read = settings_of()
    keep_logs(read)
    asyncio.run(until_ended(read, sys.argv[1:]))
