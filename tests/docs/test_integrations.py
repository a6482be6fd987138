"""The pages about bot libraries: what they show can be run, and what they name is there."""

import ast
import asyncio
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from peik.app.commands import app
from peik.settings.table import SETTINGS
from peik.testing import Limits, Options, SimServer
from tests.clients import node
from tests.patience import PATIENCE_S

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
