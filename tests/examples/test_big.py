"""The variant over MTProto: kurigram's real client, not connected; only the sending itself is not its own."""

import asyncio
from pathlib import Path
from typing import Any

from pyrogram import Client

from examples.downloader_bot.big import BigBot
from examples.downloader_bot.fetching import Fetcher
from peik import Peik
from peik.integrations.pyrogram import recover_missed_messages
from tests.examples.town import OMID, empty_town
from tests.examples.web import SMALL
from tests.integrations.test_pyrogram import registered
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN


class Offline(Client):
    """Telegram's own network is not to be had in tests."""

    def __init__(self) -> None:
        super().__init__("big", api_id=1, api_hash="x", bot_token=TOKEN, in_memory=True)
        self.sent: list[tuple[int, str, bytes]] = []

    async def send_document(self, chat: int, document: str, *, caption: str, progress: Any) -> None:
        content = Path(document).read_bytes()  # noqa: ASYNC240  a few bytes
        await progress(len(content), len(content))
        self.sent.append((chat, caption, content))


def test_what_it_missed_is_recovered_downloaded_and_sent(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), empty_town(tmp_path) as town:
            town.says(OMID, f"{town.web.url}/small.txt")
            client = Offline()
            peik = Peik.open(f"sqlite:///{tmp_path}/peik.db", token=TOKEN, api_root=town.sim.url, pace=False)
            fetcher = Fetcher(bytes_max=2_000_000, may_be_private=True)
            bot = BigBot(client, peik, town.settings, fetcher)
            bot.add()
            async with fetcher, peik:
                await registered(client, bot.got_text)
                await client.storage.open()
                await client.dispatcher.start()
                client.is_connected = True
                assert await recover_missed_messages(client, TOKEN, peik=peik, policy="both") == 1
                (job,) = [job async for job in peik.find_jobs(kind="big_download")]
                assert (await peik.wait_job(job)).result == {"bytes": len(SMALL)}
                assert client.sent == [(OMID, "small.txt", SMALL)]
                await client.dispatcher.stop()
                await client.storage.close()

    asyncio.run(main())
