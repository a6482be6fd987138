"""The owner of a downloader bot, before he advertises it: a film, the panel, the gate, the logs, the checks."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.shell import Shell
from tests.examples.town import ADMIN, DEPUTY, OMID, SARA, Town, empty_town, until_known, until_tidy
from tests.first_hours.page import Said
from tests.integrations.test_pyrogram import ROOT
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, Program


async def hour(folder: Path, said: Said) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        empty_town(folder, LOG_DIR=str(folder / "logs"), PEIK_LOG_FILE="logs/peik.log") as town,
    ):
        said.did("BOT_TOKEN=wrong python -m examples.downloader_bot --in-process")
        said.saw((await _ended(folder, town, BOT_TOKEN="wrong")).strip())
        said.did("python -m examples.downloader_bot --in-process")
        program = Program(
            "-m", "examples.downloader_bot", "--in-process", folder=folder, PYTHONPATH=str(ROOT), **town.environment
        )
        await program.start(re.compile("The bot is ready"))
        try:
            await _people(town, said)
            await _panel(town, said)
            await until_tidy(town)
        finally:
            said.did("kill %1")
            said.saw(f"exit {await program.terminate()}")
    _afterwards(folder, said)


async def _ended(folder: Path, town: Town, **wrong: str) -> str:
    program = [sys.executable, "-m", "examples.downloader_bot", "--in-process"]
    environment = {**town.environment, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **wrong}
    process = await asyncio.create_subprocess_exec(
        *program, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, said = await process.communicate()
    return said.decode()


async def _people(town: Town, said: Said) -> None:
    town.says(SARA, "/start spring")
    await town.gets(SARA, "لینک را بفرستید")
    said.did("# Sara (Persian) sends a link, and chooses the best")
    town.says(SARA, f"{town.web.url}/page")
    menu = await town.gets(SARA, "با چه کیفیتی؟")
    said.saw("bot:", menu.text.splitlines()[-1], [one["text"] for one in town.buttons(menu)])
    town.presses(SARA, menu, town.buttons(menu)[0]["text"])
    film = await town.gets(SARA, method="sendVideo")
    said.saw("bot: a film of", len(town.content(film)), "bytes")
    await until_known(town, f"{town.web.url}/page", "best")
    said.did("# Omid (English) sends one that wants a sign-in")
    town.says(OMID, "/start spring")
    await town.gets(OMID, "Send me a link")
    town.says(OMID, f"{town.web.url}/members-only")
    seen = await town.sees(OMID, "This site wants a sign-in")
    said.saw("bot:", _plain(seen.text))


async def _panel(town: Town, said: Said) -> None:
    said.did("# two admins at once: one adds a sponsor, the other writes a broadcast")
    channel = town.telegram.chat("channel", "Ships", username="ships", bots=[BOT])
    town.telegram.kick(BOT, channel.id, status="administrator")
    panels = {}
    for admin in (ADMIN, DEPUTY):
        town.says(admin, "/admin")
        panels[admin] = await town.gets(admin, "Admin panel")
    town.presses(ADMIN, panels[ADMIN], "Sponsors")
    town.presses(ADMIN, await town.gets(ADMIN, "There are no sponsors"), "Add one")
    await town.gets(ADMIN, "Make the bot an administrator")
    town.presses(DEPUTY, panels[DEPUTY], "Broadcast")
    await town.gets(DEPUTY, "Send me the message that everybody shall get")
    town.says(ADMIN, "@ships")
    await town.gets(ADMIN, "Ships is a sponsor now")
    town.says(DEPUTY, "Good news")
    preview = await town.gets(DEPUTY, "So it will look")
    said.saw("bot to the one: Ships is a sponsor now.")
    said.saw("bot to the other:", preview.text)
    said.did("# Omid sends a link, and is not in the sponsor's channel")
    town.says(OMID, f"{town.web.url}/small.txt")
    gate = await town.gets(OMID, "Please join them")
    said.saw("bot:", gate.text)
    said.did("# the panel's figures")
    town.presses(ADMIN, panels[ADMIN], "Statistics")
    figures = await town.gets(ADMIN, "Starts by campaign")
    said.lines += [
        line for line in figures.text.splitlines() if line.startswith(("People", "Requests", "Starts", "Running"))
    ]


def _plain(text: str) -> str:
    return " · ".join(line for line in text.replace("\u2068", "").replace("\u2069", "").splitlines() if line)


def _afterwards(folder: Path, said: Said) -> None:
    said.did("ls logs")
    said.saw(*sorted(path.name for path in (folder / "logs").iterdir()))
    said.did("grep -c 401 logs/universal_downloader.log")
    said.saw("more than none:", "401" in (folder / "logs" / "universal_downloader.log").read_text())
    said.did("ls peik.db.work/*            # what downloads left")
    said.saw(*[path.name for path in folder.glob("peik.db.work/*/*")] or ["(nothing)"])
    shell = Shell(folder, PEIK_BACKUP_ALSO="bot.db")
    said.did("PEIK_BACKUP_ALSO=downloader.db peik backup create")
    ran = shell.peik("backup", "create")
    said.saw(f"exit {ran.code}")
