"""The downloader bot among people: a simulated Telegram, a real `peik serve`, the bot and its worker, and a web on loopback."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from examples.downloader_bot.__main__ import in_process, through_the_gateway, worker
from examples.downloader_bot.book import Book
from examples.downloader_bot.settings import Settings, settings_of
from peik import Peik
from peik.testing import Delivery, Limits, Options, SimServer
from tests.examples.web import Web
from tests.integrations.inside import beside
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, KEY, TOKEN, Server, served

ADMIN, DEPUTY = 900, 901
SARA, OMID, LENA = 5, 6, 7
PEIK = {"inbound": "polling", "pace": "off", "log_level": "info", "upload_max": "2M", "gateway_wait": "4s"}


def environment(folder: Path, sim: SimServer, url: str = "", **more: str) -> dict[str, str]:
    """As whoever deploys the bot would set it. The bot's own settings and those of Peik inside it."""
    given = {
        "BOT_TOKEN": TOKEN,
        "PEIK_URL": url,
        "PEIK_KEY": KEY,
        "PEIK_STORE": f"sqlite:///{folder}/peik.db",
        "BOT_BOOK": str(folder / "bot.db"),
        "ADMIN_IDS": f"{ADMIN}, {DEPUTY}",
        "SUPPORT_CONTACT": "@helpful",
        "FILE_MAX": "2M",
        "ALLOW_PRIVATE_LINKS": "yes",
    }
    return {**given, "PEIK_API_ROOT": sim.url, "PEIK_PACE": "off", "PEIK_LOG_LEVEL": "info", **more}


class Town:
    def __init__(self, sim: SimServer, web: Web, folder: Path, environment: dict[str, str]) -> None:
        self.sim = sim
        self.telegram = sim.telegram
        self.web = web
        self.folder = folder
        self.environment = environment
        self.server: Server | None = None

    @property
    def settings(self) -> Settings:
        return settings_of(self.environment)

    # ---- people ----

    def says(self, user: int, text: str) -> int:
        return int(self.telegram.write(BOT, user, text)["message_id"])

    def presses(self, user: int, delivery: Delivery, label: str) -> None:
        """The button with that label under a message."""
        (data,) = [one["callback_data"] for one in self.buttons(delivery) if one["text"] == label]
        self.telegram.press(BOT, user, delivery.message_id, data)

    def buttons(self, delivery: Delivery) -> list[dict[str, Any]]:
        message = self.telegram.message(BOT, delivery.chat_id, delivery.message_id)
        assert message is not None
        return [one for row in message["reply_markup"]["inline_keyboard"] for one in row]

    def got(self, user: int, words: str = "", method: str | None = None) -> list[Delivery]:
        return [row for row in self.telegram.sent.where(chat_id=user, method=method) if words in row.text]

    async def gets(self, user: int, words: str = "", *, method: str | None = None, count: int = 1) -> Delivery:
        """The count-th message of that kind, once it is there."""
        await self.until(lambda: len(self.got(user, words, method)) >= count, f"{user} gets {count} {method} {words!r}")
        return self.got(user, words, method)[count - 1]

    async def sees(self, user: int, words: str) -> Delivery:
        """An edit with these words."""

        def found() -> list[Delivery]:
            return [row for row in self.telegram.applied.where(chat_id=user) if words in row.text]

        await self.until(lambda: bool(found()), f"{user} sees {words!r}")
        return found()[0]

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            await self.sim.until(is_so, timeout=PATIENCE_S)
        except TimeoutError:
            seen = [(row.method, row.chat_id, row.text) for row in [*self.telegram.sent, *self.telegram.applied]]
            log = "" if self.server is None else "".join(self.server.output[-30:])
            raise AssertionError(f"In vain we waited until {what}. There were:\n{seen}\n{log}") from None

    # ---- the file that people get ----

    def content(self, delivery: Delivery) -> bytes:
        """Of the file in a message."""
        message = self.telegram.message(BOT, delivery.chat_id, delivery.message_id)
        assert message is not None
        (file,) = [message[kind] for kind in ("video", "audio", "document") if kind in message]
        answer: Any = self.telegram.call(TOKEN, "getFile", {"file_id": file["file_id"]})
        path = json.loads(answer.body)["result"]["file_path"]
        return bytes(self.telegram.download(TOKEN, path).body)


@contextlib.asynccontextmanager
async def empty_town(folder: Path, **more: str) -> AsyncIterator[Town]:
    """Telegram, a web, people. No bot, no Peik."""
    options = Options(limits=Limits(on=False), anti_busy_loop=False)
    async with SimServer(options=options, seed=7) as sim, Web().listening() as web:
        sim.telegram.bot(TOKEN)
        for user, name, language in ((SARA, "Sara", "fa"), (OMID, "Omid", "en"), (LENA, "Lena", "ru")):
            sim.telegram.user(user, name, language)
        for admin in (ADMIN, DEPUTY):
            sim.telegram.user(admin, "Admin", "en")
        yield Town(sim, web, folder, environment(folder, sim, **more))


@contextlib.asynccontextmanager
async def town(folder: Path, *, has_worker: bool = True, **more: str) -> AsyncIterator[Town]:
    """The same with a Peik of its own process, and the bot and its worker in ours."""
    async with empty_town(folder, **more) as place, aiohttp.ClientSession() as http:
        store = place.environment["PEIK_STORE"]
        async with served(folder, place.sim.url, http, store=store, **PEIK) as server:
            place.server = server
            place.environment["PEIK_URL"] = server.url
            async with contextlib.AsyncExitStack() as stack:
                stack.enter_context(surroundings(place.environment))
                await stack.enter_async_context(beside(through_the_gateway(place.settings)))
                if has_worker:
                    await stack.enter_async_context(beside(worker(place.settings)))
                yield place


@contextlib.contextmanager
def surroundings(given: dict[str, str]) -> Any:
    """The environment of Peik inside the bot or the worker."""
    kept = dict(os.environ)
    os.environ.update({name: value for name, value in given.items() if name.startswith("PEIK_") and name != "PEIK_URL"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def play(story: Callable[[Town], Awaitable[None]], folder: Path, **more: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), town(folder, **more) as place:
            await story(place)

    asyncio.run(main())


def play_inside(story: Callable[[Town], Awaitable[None]], folder: Path, **more: str) -> None:
    """The same with the bot and Peik in one process."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), empty_town(folder, **more) as place:
            with surroundings(place.environment):
                async with beside(in_process(place.settings)):
                    await story(place)

    asyncio.run(main())


async def until_known(place: Town, link: str, quality: str = "file") -> None:
    """The id of the file is in the bot's book."""
    async with asyncio.timeout(PATIENCE_S), Book(place.settings.book) as book:
        while await book.stored(await book.link(link), quality) is None:  # noqa: ASYNC110  another one's book has no bell
            await asyncio.sleep(0.02)


async def jobs(place: Town) -> dict[str, Any]:
    async with Peik.connect(place.environment["PEIK_URL"], key=KEY) as peik:
        return dict(await peik.job_counts())


async def until_tidy(place: Town) -> None:
    """No folder of a job is left."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while any(place.folder.glob("*.work/*/*")):  # noqa: ASYNC110  folders have no bell
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"It left {sorted(place.folder.glob('*.work/**/*'))}") from None
