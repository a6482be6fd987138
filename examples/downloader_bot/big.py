"""Files beyond 50 MB without a Bot API server of your own: the same downloads, sent over MTProto by Pyrogram (kurigram).

    API_ID=… API_HASH=… BOT_TOKEN=… SUPPORT_CONTACT=@you FILE_MAX=2000M python -m examples.downloader_bot.big

It is thin: links to plain files only, no gate, no panel. What it shows besides: messages that came while it was away are
recovered through Peik, and a job that was being done is done again.
"""

import asyncio
import os
from typing import Any

from pyrogram import Client, filters, idle
from pyrogram.handlers import MessageHandler

from examples.downloader_bot.fetching import Fetcher, PageInstead
from examples.downloader_bot.links import link_in, sent_as
from examples.downloader_bot.settings import Settings, settings_of
from examples.downloader_bot.words import language_of, megabytes, words_of
from peik import Job, JobHopeless, JobLater, Peik
from peik.integrations.pyrogram import note_handled, recover_missed_messages

CONNECT_S = 5.0


class BigBot:
    def __init__(self, client: Client, peik: Peik, settings: Settings, fetcher: Fetcher) -> None:
        self._client = client
        self._peik = peik
        self._settings = settings
        self._fetcher = fetcher

    def add(self) -> None:
        """Register its handler and its kind of jobs, before anything is opened."""
        self._client.add_handler(MessageHandler(self.got_text, filters.private & filters.text))
        self._peik.job(
            "big_download",
            concurrency=self._settings.downloads,
            per_user=self._settings.downloads_per_user,
            timeout=self._settings.timeout_s,
            folder=self._settings.file_bytes_max,
            jobs_a_day=self._settings.downloads_a_day,
        )(self.download)

    async def got_text(self, _: Client, message: Any) -> None:
        """A message may come twice (it was recovered, and had been handled): by its key it is one job."""
        words = words_of(language_of(message.from_user.language_code))
        url = link_in(message.text)
        if url is None:
            await message.reply(words("no_link"))
            return
        await self._peik.queue_job(
            "big_download",
            user=message.from_user.id,
            chat_id=message.chat.id,
            bot_id=self._settings.bot_id,
            language=words.language,
            label=words("download"),
            on_done="delete",
            key=f"{message.chat.id}:{message.id}",
            params={"url": url, "chat": message.chat.id, "language": words.language},
        )

    async def download(self, job: Job) -> dict[str, int]:
        """The file goes over MTProto in chunks, straight from the job's folder. It is no letter: if the worker dies between
        Telegram's answer and ours, it is sent once more."""
        if not self._client.is_connected:
            raise JobLater(CONNECT_S, "The bot is not connected to Telegram yet.")
        words = words_of(job.params["language"])
        try:
            file = await self._fetcher.fetch(job, job.params["url"], words)
        except PageInstead:
            raise JobHopeless(words("nothing_found")) from None

        async def on_chunk(sent: int, whole: int) -> None:
            await job.progress(sent / whole, f"↑ {megabytes(sent)}")

        send = getattr(self._client, f"send_{sent_as(file.name)}")
        await send(job.params["chat"], str(file), caption=file.name, progress=on_chunk)
        return {"bytes": file.stat().st_size}


async def main() -> None:
    settings = settings_of()
    client = Client(
        "downloader_bot", api_id=int(os.environ["API_ID"]), api_hash=os.environ["API_HASH"], bot_token=settings.token
    )
    peik = Peik.open(settings.store, token=settings.token)
    fetcher = Fetcher(bytes_max=settings.file_bytes_max, may_be_private=settings.may_be_private)
    BigBot(client, peik, settings, fetcher).add()
    async with fetcher, peik:
        note_handled(client, peik)
        await client.start()
        await recover_missed_messages(client, settings.token, peik=peik, policy="both")
        await idle()
        await client.stop()


if __name__ == "__main__":
    asyncio.run(main())
