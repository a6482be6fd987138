"""The bot in a nutshell, on this machine alone: python -m examples.downloader_bot.demo

A simulated Telegram, a small web with three films and a file, the bot with Peik inside it, and four people who all want
something. No token, no network. It ends by itself; Ctrl-C ends it sooner, with exit code 130.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from examples.downloader_bot.__main__ import in_process
from examples.downloader_bot.settings import settings_of
from peik.demo.stage import plain_environment
from peik.testing import Delivery, SimServer

TOKEN = "7000002:AA-demo"  # noqa: S105  of a bot that there is not
BOT = 7000002
PEOPLE = {11: ("Sara", "fa"), 12: ("Omid", "en"), 13: ("Lena", "ru"), 14: ("Aziz", "uz")}
ADMIN = 12
CHUNKS, CHUNK_BYTES = 12, 100_000
PAUSE_S = 0.25  # between chunks: so that there is something to watch
PATIENCE_S = 60.0

OPENING = """\
A bot that fetches films, and Peik inside it
Four people in four languages each send it a link. The bot is real, Telegram and the web are simulated: no token, no network.
"""
FETCH = "Everybody asks at once. Each sees one message that follows the download, and then has the film."
AGAIN = "Aziz wants what Sara had. Telegram has that film already, so nothing is fetched twice."
MISSING = (
    "Lena's link leads nowhere. She is told so in her language, Peik's log has the dead job, and nobody else waits."
)
PANEL = "Omid runs the bot, and looks at his panel."


async def slow_file(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(CHUNKS * CHUNK_BYTES)})
    await response.prepare(request)
    for _ in range(CHUNKS):
        await response.write(bytes(CHUNK_BYTES))
        await asyncio.sleep(PAUSE_S)
    return response


class Demo:
    def __init__(self, sim: SimServer, site: str) -> None:
        self._sim = sim
        self._site = site
        self._shown: set[tuple[str, int]] = set()
        self.asked = self.answered = 0

    async def play(self) -> None:
        self._tell(OPENING)
        self._tell(FETCH)
        for user, (name, language) in PEOPLE.items():
            self._sim.telegram.user(user, name, language)
            self._says(user, f"{self._site}/film-{user}.mp4")
        for user in PEOPLE:
            await self._gets(user, lambda row: row.method == "sendVideo")
            self.answered += 1
        self._tell(f"\n{AGAIN}")
        self._says(14, f"{self._site}/film-11.mp4")
        await self._gets(14, lambda row: row.method == "sendVideo", count=2)
        self.answered += 1
        self._tell(f"\n{MISSING}")
        self._says(13, f"{self._site}/nothing.pdf")
        await self._until(lambda: any("404" in row.text for row in self._sim.telegram.applied.where(chat_id=13)))
        self.answered += 1
        self._tell(f"\n{PANEL}")
        self._says(ADMIN, "/admin")
        panel = await self._gets(ADMIN, lambda row: row.text == "Admin panel")
        self._sim.telegram.press(BOT, ADMIN, panel.message_id, "admin:statistics")
        await self._gets(ADMIN, lambda row: row.text.startswith("People:"))
        self.answered += 1

    def _says(self, user: int, text: str) -> None:
        self._tell(f"{PEOPLE[user][0]:>5} -> {text}")
        self.asked += 1
        self._sim.telegram.write(BOT, user, text)

    async def _gets(self, user: int, is_it: Callable[[Delivery], bool], count: int = 1) -> Delivery:
        def found() -> list[Delivery]:
            return [row for row in self._sim.telegram.sent.where(chat_id=user) if is_it(row)]

        await self._until(lambda: len(found()) >= count)
        return found()[count - 1]

    async def _until(self, is_so: Callable[[], bool]) -> None:
        def looked() -> bool:
            self._show()
            return is_so()

        await self._sim.until(looked, timeout=PATIENCE_S)

    def _show(self) -> None:
        """Whatever people have got since the last look."""
        telegram = self._sim.telegram
        for ledger, rows in (("sent", telegram.sent), ("applied", telegram.applied)):
            for row in rows:
                if (ledger, row.number) not in self._shown and (row.text or row.method == "sendVideo"):
                    self._shown.add((ledger, row.number))
                    name = PEOPLE[row.chat_id][0]
                    words = " | ".join(row.text.splitlines()) or "the film"
                    self._tell(f"{name:>5} <- {row.method}: {words}")

    def _tell(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201


async def main() -> int:
    """The exit code."""
    app = web.Application()
    for user in PEOPLE:
        app.router.add_get(f"/film-{user}.mp4", slow_file)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with tempfile.TemporaryDirectory(prefix="peik-downloader-") as folder:
        async with SimServer() as sim:
            sim.telegram.bot(TOKEN)
            _leave_settings_behind(folder)
            os.environ |= {"PEIK_API_ROOT": sim.url, "PEIK_LOG_LEVEL": "error", "BOT_TOKEN": TOKEN}
            given = {
                "PEIK_STORE": f"sqlite:///{folder}/peik.db",
                "BOT_BOOK": f"{folder}/bot.db",
                "ADMIN_IDS": str(ADMIN),
            }
            given |= {"BOT_TOKEN": TOKEN, "SUPPORT_CONTACT": "@nobody", "ALLOW_PRIVATE_LINKS": "yes"}
            bot = asyncio.create_task(in_process(settings_of(given)))
            host, port = runner.addresses[0][:2]
            demo = Demo(sim, f"http://{host}:{port}")
            playing = asyncio.create_task(demo.play())
            stopped = asyncio.ensure_future(_stopped())
            await asyncio.wait([bot, playing, stopped], return_when=asyncio.FIRST_COMPLETED)
            is_stopped = stopped.done()
            for task in (playing, bot, stopped):
                task.cancel()
            await asyncio.wait([bot, playing])
            left = list(Path(folder).glob("*.work/*/*"))  # noqa: ASYNC240  it is empty
    await runner.cleanup()
    if is_stopped:
        sys.stdout.write(f"\nStopped. Asked: {demo.asked}, answered: {demo.answered}.\n")
        return 128 + signal.SIGINT
    playing.result()
    sys.stdout.write(f"\nEverybody has what they asked for. Files left in work folders: {len(left)}.\n")
    return 0


async def _stopped() -> None:
    """Returns when somebody presses Ctrl-C."""
    said = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, said.set)
    await said.wait()


def _leave_settings_behind(folder: str) -> None:
    """Neither a setting of the shell nor a .env where the demo was started is for this bot: there may be a real token in it."""
    kept = plain_environment()
    os.environ.clear()
    os.environ.update(kept)
    os.chdir(folder)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
