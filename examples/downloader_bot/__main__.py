"""python -m examples.downloader_bot                through the gateway of a `peik serve` (PEIK_URL, PEIK_KEY)
python -m examples.downloader_bot --worker       beside it, on the same PEIK_STORE: does the jobs
python -m examples.downloader_bot --in-process   all in one process, Peik inside
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer

from examples.downloader_bot.admin import admin_router
from examples.downloader_bot.book import Book
from examples.downloader_bot.broadcast import broadcast_router
from examples.downloader_bot.fetching import Fetcher
from examples.downloader_bot.people import introduce, people_router
from examples.downloader_bot.polling import poll
from examples.downloader_bot.settings import Settings, settings_of
from examples.downloader_bot.steps import BookStorage
from examples.downloader_bot.work import Work
from peik import Peik
from peik.integrations.aiogram import PeikSession, feed

log = logging.getLogger("downloader_bot")


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
        log.info("The bot is ready.")
        await feed(peik, dispatcher_of(settings, book, peik), bot, handle_signals=False)


@contextlib.asynccontextmanager
async def working(settings: Settings, **more: str) -> AsyncIterator[tuple[Book, Peik]]:
    """Peik in this process, with all kinds of jobs. Its other settings come from the environment, as those of `peik serve`."""
    upload_max = str(settings.file_bytes_max)
    peik = Peik.open(settings.store, token=settings.token, upload_max=upload_max, **more)
    fetcher = Fetcher(bytes_max=settings.file_bytes_max, may_be_private=settings.may_be_private)
    async with Book(settings.book) as book, fetcher:
        Work(peik, settings, book, fetcher).add()
        async with peik:
            yield book, peik


async def until_ended(settings: Settings, arguments: list[str]) -> None:
    ways = {(): through_the_gateway, ("--worker",): worker, ("--in-process",): in_process}
    way = ways.get(tuple(arguments))
    if way is None:
        sys.exit(__doc__)
    task = asyncio.ensure_future(way(settings))
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(until_ended(settings_of(), sys.argv[1:]))
