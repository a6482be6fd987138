"""The pages about bot libraries: what they show can be run, and what they name is there."""

import ast
import asyncio
import re
import subprocess
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from telegram.ext import ExtBot
from typer.main import get_command

from peik.app.commands import app
from peik.settings.table import SETTINGS
from peik.testing import Limits, Options, SimServer
from tests.clients import node
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN as PEIKS_TOKEN
from tests.processes.programs import served

FOLDER = Path(__file__).parents[2] / "docs" / "integrations"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
TOKEN = "42000:AA-page"


def blocks(language: str) -> list[Any]:
    found = [
        (page, block)
        for page, text in PAGES.items()
        for block in re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]
    return [pytest.param(block, id=f"{page}-{number}") for number, (page, block) in enumerate(found)]


PYTHON, NODE = blocks("python"), blocks("js")
PROGRAMS = [block for block in PYTHON if "async def main" in block.values[0]]


def test_every_library_has_its_page_and_its_example() -> None:
    shown = {str(block.id).rpartition("-")[0] for block in PYTHON + NODE}
    assert shown == set(PAGES) - {"README"}
    assert len(shown) == 6
    assert len(PROGRAMS) == 2
    assert all(f"({page}.md)" in PAGES["README"] for page in shown)


@pytest.mark.parametrize("block", PYTHON)
def test_python_can_be_read_and_finds_what_it_imports(block: str) -> None:
    tree = ast.parse("async def example():\n" + textwrap.indent(block, "    "))
    imports = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(body=imports, type_ignores=[]), "the page", "exec"), {})


@pytest.mark.parametrize("block", PROGRAMS)
def test_a_whole_program_answers_people(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim:
            sim.telegram.bot(TOKEN)
            for name, value in {"BOT_TOKEN": TOKEN, "PEIK_API_ROOT": sim.url, "PEIK_PACE": "off"}.items():
                monkeypatch.setenv(name, value)
            names: dict[str, Any] = {"__name__": "page"}
            exec(compile(block, "the page", "exec"), names)
            running = asyncio.create_task(names["main"]())
            try:
                sim.telegram.write(42000, 5, "hello")
                await sim.until(lambda: sim.telegram.sent.texts(5) == ["You wrote: hello"], timeout=PATIENCE_S)
            finally:
                running.cancel()
                await asyncio.wait([running])

    asyncio.run(run())


class Breaking:
    """Between a bot and Peik: the first send is cut off before Peik has it, the answer of the second one is lost."""

    def __init__(self, url: str) -> None:
        self._peik = urlsplit(url)
        self.sends = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peik_reader, peik_writer = await asyncio.open_connection(self._peik.hostname, self._peik.port)
        try:
            while asked := await reader.read(65536):
                is_send = b"/sendMessage " in asked
                self.sends += is_send
                if is_send and self.sends == 1:
                    return
                peik_writer.write(asked)
                answer = b""
                while b'"ok":' not in answer:
                    answer += await peik_reader.read(65536)
                if is_send and self.sends == 2:
                    return
                writer.write(answer)
        finally:
            peik_writer.close()
            writer.close()


def through_what_breaks(send: Callable[[str], Awaitable[None]], folder: Path) -> None:
    """Raises AssertionError unless the one message that it sends is there once, after three tries."""

    async def run() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim,
            aiohttp.ClientSession() as http,
            served(folder, sim.url, http) as server,
        ):
            breaking = Breaking(server.url)
            async with breaking as url:
                await send(url)
            await server.quiet()
            assert sim.telegram.sent.texts(5) == ["Paid."]
            assert breaking.sends == 3

    asyncio.run(run())


def test_aiogram_repeats_what_no_peik_answered(tmp_path: Path) -> None:
    async def send(url: str) -> None:
        async with Bot(PEIKS_TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(url))) as bot:
            exec(compile(repeating("aiogram"), "the page", "exec"), {"bot": bot})
            await bot.send_message(5, "Paid.")

    through_what_breaks(send, tmp_path)


def test_python_telegram_bot_repeats_what_no_peik_answered(tmp_path: Path) -> None:
    async def send(url: str) -> None:
        names: dict[str, Any] = {}
        exec(compile(repeating("python-telegram-bot"), "the page", "exec"), names)
        async with ExtBot(PEIKS_TOKEN, base_url=f"{url}/bot", rate_limiter=names["Repeats"]()) as bot:
            await bot.send_message(5, "Paid.")

    through_what_breaks(send, tmp_path)


def repeating(page: str) -> str:
    [block] = [
        one.values[0] for one in PYTHON if str(one.id).startswith(f"{page}-") and "asyncio.sleep" in one.values[0]
    ]
    return str(block)


@pytest.mark.parametrize("block", NODE)
def test_node_can_read_it(block: str, tmp_path: Path) -> None:
    program = node.wanted()
    (tmp_path / "page.mjs").write_text(block)
    said = subprocess.run([program, "--check", "page.mjs"], cwd=tmp_path, capture_output=True, check=False)
    assert said.returncode == 0, said.stderr.decode()


def test_node_finds_what_the_pages_import() -> None:
    found = node.wanted(has_packages=True)
    lines = {
        line
        for block in NODE
        for line in re.findall(
            r'^import \{.*\} from "(?:grammy|telegraf|node-telegram)[^"]*";$', block.values[0], re.MULTILINE
        )
    }
    assert len(lines) > 5
    # Each in a scope of its own: two libraries call their bot Bot.
    program = "".join(re.sub(r"\{.*\}", _renamed(str(number)), line) + "\n" for number, line in enumerate(lines))
    command = [str(found), "--input-type=module", "-e", program]
    said = subprocess.run(command, cwd=node.FOLDER, capture_output=True, check=False)
    assert said.returncode == 0, said.stderr.decode()


def _renamed(suffix: str) -> Any:
    return lambda found: re.sub(r"(\w+)", rf"\1 as \1_{suffix}", found[0])


def test_every_link_leads_somewhere() -> None:
    for page, text in PAGES.items():
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (FOLDER / link).exists(), f"{page}: {link}"


def test_every_anchor_is_a_heading() -> None:
    for page, text in PAGES.items():
        for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", text):
            target = (FOLDER / (link or f"{page}.md")).read_text(encoding="utf-8")
            headings = {
                re.sub(r"[^\w -]", "", line).strip().replace(" ", "-").lower()
                for line in re.findall(r"^#+ (.*)$", target, re.MULTILINE)
            }
            assert anchor in headings, f"{page}: {link}#{anchor}"


def test_every_setting_and_command_is_one() -> None:
    text = "\n".join(PAGES.values())
    settings = {setting.name for setting in SETTINGS}
    named = {name.lower() for name in re.findall(r"PEIK_([A-Z_]+)", text)}
    assert named
    assert named | {"handler_timeout", "handlers"} <= settings
    for command in re.findall(r"^peik ([a-z]+)", text, re.MULTILINE):
        assert command in get_command(app).commands  # type: ignore[attr-defined]
