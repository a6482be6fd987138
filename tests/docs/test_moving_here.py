"""The guides for those who come from BullMQ, Celery or a table of their own: their code is run against a real Peik, twice, and
what is sent is there once."""

import asyncio
import re
import shlex
import sqlite3
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peik.importing.rows import ROLES
from peik.testing import Limits, Options, SimServer
from tests.cli.shell import TOKEN, Shell
from tests.clients import node
from tests.docs.pages import blocks, read
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, served

FROM_BULLMQ, _ = blocks("docs/from-bullmq.md", "js")
_, *FROM_CELERY = blocks("docs/from-celery.md", "python")
(FROM_A_TABLE,) = blocks("docs/from-your-own-table.md", "python")


async def run(block: str, url: str) -> None:
    names: dict[str, Any] = {"URL": url, "KEY": KEY}
    exec(compile("async def example():\n" + textwrap.indent(block, "    "), "the page", "exec"), names)
    # One that blocks, as code that is not async does, runs on a thread: the simulated Telegram lives on this one.
    await asyncio.to_thread(asyncio.run, names["example"]())


def pending(file: Path) -> None:
    with sqlite3.connect(file) as table:
        table.execute("CREATE TABLE pending_messages (id INTEGER PRIMARY KEY, chat_id INTEGER, text TEXT, status TEXT)")
        rows = [(5, "one", "pending"), (5, "sent before", "sent"), (6, "other", "pending"), (5, "two", "pending")]
        table.executemany("INSERT INTO pending_messages (chat_id, text, status) VALUES (?, ?, ?)", rows)
    table.close()


def test_each_way_here_sends_once_though_it_is_gone_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node.wanted()
    pending(tmp_path / "bot.db")

    async def main() -> None:
        options = Options(limits=Limits(on=False))
        async with (
            asyncio.timeout(PATIENCE_S),
            SimServer(options=options, seed=7) as sim,
            aiohttp.ClientSession() as http,
        ):
            async with served(tmp_path, sim.url, http) as server:
                for _ in range(2):
                    await run(FROM_A_TABLE, server.url)
                    for block in FROM_CELERY:
                        await run(block, server.url)
                    await from_bullmq(server.url)
                await sim.until(lambda: sim.telegram.sent.total >= 5, timeout=PATIENCE_S)
                letters = await everything(http, server.url)
            assert sim.telegram.sent.texts(5) == ["one", "two"]
            assert sim.telegram.sent.texts(6) == ["other"]
            assert sim.telegram.sent.texts(7) == ["Your order is on its way"]
            assert sim.telegram.sent.texts(8) == ["from Node"]
            assert letters == 5

    asyncio.run(main())


async def from_bullmq(url: str) -> None:
    program = FROM_BULLMQ.replace("http://127.0.0.1:8081", url)
    program += 'console.log(await sendText(8, "from Node", "job-1"));'
    command = [str(node.find()), "--input-type=module", "-e", program]
    said = await asyncio.to_thread(
        subprocess.run, command, env={"PEIK_KEY": KEY}, capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert said.returncode == 0, said.stderr.decode()
    assert re.fullmatch(rb"\d+\n", said.stdout)


async def everything(http: aiohttp.ClientSession, url: str) -> int:
    async with http.get(f"{url}/v1/letters", headers={"Authorization": f"Bearer {KEY}"}) as answer:
        return len((await answer.json())["letters"])


def test_the_one_command_of_the_page_brings_a_bots_file_whole(tmp_path: Path) -> None:
    pending(tmp_path / "bot.db")
    (first, *_) = blocks("docs/from-your-own-table.md", "sh")
    look, bring = (shlex.split(line, comments=True)[1:] for line in first.splitlines())
    shell = Shell(tmp_path, BOT_TOKEN=TOKEN)
    assert shell.asked(*look)["tables"][0]["ready"] == 3
    code, shown = shell.in_terminal(*bring, when="[y/N]", then=b"y\n")
    assert code == 0, shown
    assert "3 messages brought" in shown
    assert shell.asked("stats")["waiting"] == 3


def test_every_role_of_the_page_is_one_and_none_is_missing() -> None:
    (row,) = (line for line in read("docs/from-your-own-table.md").splitlines() if line.startswith("| `--map ROLE"))
    told = re.findall(r"`([a-z_ ]+)`", row.partition("|")[2].partition("|")[2])
    assert {role for roles in told for role in roles.split()} == ROLES


def test_the_views_of_the_old_tables_are_there() -> None:
    views = set(re.findall(r"CREATE VIEW (?:IF NOT EXISTS )?(\w+)", read("peik/storage/sqlite/sql/sqlite_003.sql")))
    assert {"bot_state", "pending_messages"} <= views
