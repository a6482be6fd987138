"""The bot over MTProto: kurigram's real client, not connected; only the sending itself is not its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiogram import Bot
from pyrogram import Client

from examples.downloader_bot.__main__ import dispatcher_of
from examples.downloader_bot.big import MtprotoUploads, PyrogramBot
from examples.downloader_bot.book import Book
from examples.downloader_bot.fetching import Fetcher
from examples.downloader_bot.work import Work
from peik import Peik
from peik.integrations.aiogram import PeikSession
from peik.integrations.pyrogram import recover_missed_messages
from peik.testing import Delivery
from tests.examples.town import ADMIN, OMID, SARA, Town, empty_town, until_known
from tests.examples.web import SMALL
from tests.integrations.test_pyrogram import registered
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, TOKEN


class Offline(Client):
    """Telegram's own network is not to be had in tests."""

    def __init__(self) -> None:
        super().__init__("big", api_id=1, api_hash="x", bot_token=TOKEN, in_memory=True)
        self.sent: list[tuple[int, str, bytes]] = []

    async def send_document(self, chat: int, document: str, *, caption: str, progress: Any) -> Any:
        content = Path(document).read_bytes()  # noqa: ASYNC240  a few bytes
        await progress(len(content), len(content))
        self.sent.append((chat, caption, content))
        return SimpleNamespace(document=SimpleNamespace(file_id="BQAD-big"))


@contextlib.asynccontextmanager
async def pyrogram_town(folder: Path) -> AsyncIterator[tuple[Town, Offline, Peik]]:
    """The bot with Peik inside, whose client is online as far as it knows."""
    async with asyncio.timeout(PATIENCE_S), empty_town(folder, API_ID="1", API_HASH="x", FILE_MAX="2M") as town:
        client, settings = Offline(), town.settings
        peik = Peik.open(settings.store, token=TOKEN, api_root=town.sim.url, pace=False)
        async with Book(settings.book) as book, Fetcher(settings) as fetcher:
            Work(peik, settings, book, fetcher, MtprotoUploads(client, over_bytes=1000)).add()
            async with peik:
                bot = PyrogramBot(client, dispatcher_of(settings, book, peik), Bot(TOKEN, session=PeikSession(peik)))
                await registered(client, bot.message, bot.press)
                await client.storage.open()
                await client.dispatcher.start()
                client.is_connected = True
                try:
                    yield town, client, peik
                finally:
                    await client.dispatcher.stop()
                    await client.storage.close()


def test_what_it_missed_is_recovered_downloaded_and_sent_by_mtproto_if_it_is_large(tmp_path: Path) -> None:
    async def main() -> None:
        async with pyrogram_town(tmp_path) as (town, client, peik):
            town.says(OMID, f"{town.web.url}/small.txt")
            assert await recover_missed_messages(client, TOKEN, peik=peik, policy="both") == 1
            (job,) = [job async for job in peik.find_jobs(kind="download")]
            assert (await peik.wait_job(job)).result == {"bytes": len(SMALL)}
            assert client.sent == [(OMID, "small.txt", SMALL)]
            await until_known(town, f"{town.web.url}/small.txt")

    asyncio.run(main())


def test_gate_panel_and_broadcasts_are_those_of_the_other_variants(tmp_path: Path) -> None:
    """One body: what comes over MTProto is answered by the same handlers, through Peik."""

    async def main() -> None:
        async with pyrogram_town(tmp_path) as (town, client, peik):
            channel = town.telegram.chat("channel", "Ships and more", username="ships", bots=[BOT])
            town.telegram.kick(BOT, channel.id, status="administrator")
            await _says(town, client, peik, ADMIN, "/admin")
            panel = await town.gets(ADMIN, "Admin panel")
            await _presses(town, client, peik, ADMIN, panel, "Sponsors")
            await _presses(town, client, peik, ADMIN, await town.gets(ADMIN, "There are no sponsors"), "Add one")
            await town.gets(ADMIN, "Make the bot an administrator")
            await _says(town, client, peik, ADMIN, "@ships")
            await town.gets(ADMIN, "Ships and more is a sponsor now")
            await _says(town, client, peik, SARA, f"{town.web.url}/small.txt")
            gate = await town.gets(SARA, "لطفاً عضو شوید")
            assert [one.get("url") for one in town.buttons(gate)] == ["https://t.me/ships", None]
            await _presses(town, client, peik, ADMIN, panel, "Broadcast")
            await town.gets(ADMIN, "Send me the message")
            await _says(town, client, peik, ADMIN, "Something new")
            preview = await town.gets(ADMIN, "So it will look")
            await _presses(town, client, peik, ADMIN, preview, "Send it")
            await town.gets(ADMIN, "Broadcast: 2 have it")
            await town.until(lambda: bool(town.got(SARA, method="copyMessage")), "she got the broadcast")

    asyncio.run(main())


async def _says(town: Town, client: Offline, peik: Peik, user: int, text: str) -> None:
    town.says(user, text)
    await recover_missed_messages(client, TOKEN, peik=peik, policy="process")


async def _presses(town: Town, client: Offline, peik: Peik, user: int, delivery: Delivery, label: str) -> None:
    town.presses(user, delivery, label)
    await recover_missed_messages(client, TOKEN, peik=peik, policy="process")
