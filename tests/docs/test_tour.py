"""ARCHITECTURE.md is true: what it tells of the way of a letter is what a real one does, and its how-tos work.

The how-tos are followed on a copy of the repository (`tests.docs.toys`): a field, a setting, an operation, an alert, a page and a
store, each a toy. Then the tests that guard such things run in the copy, and so do tests of the toys themselves.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import aiohttp
import pytest

from proofs.house import WALKS, walk
from tests.client.counters import opened, telegram
from tests.dashboard.visiting import KEY, house
from tests.docs.pages import ROOT, read
from tests.docs.toys.edits import EDITS, END, IMPORTS, Edit
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN

PAGE = "ARCHITECTURE.md"
WORDS_MAX = 1300
STEPS_MAX = 6
NEW = Path(__file__).parent / "toys" / "new"
HOW_TOS = ("field", "setting", "operation", "alert", "page", "store")
# What says no if a step is missing, and what the toys have to do.
GUARDS = (
    "tests/docs/test_reference.py",
    "tests/docs/test_alerts.py",
    "tests/deploy/test_env_files.py",
    "tests/alerts/test_every_rule.py",
    "tests/alerts/test_toys.py",
    "tests/cli/test_examples.py::test_every_command_has_an_example_and_every_example_a_command",
    "tests/dashboard/test_texts.py",
    "tests/storage/conformance/test_accepting.py",
    *(f"tests/docs/toys/toy_{name}.py" for name in HOW_TOS),
)


def steps(how_to: str) -> list[str]:
    """The numbered steps of a how-to of the page."""
    article = "an" if how_to[0] in "aeiou" else "a"
    _, _, rest = read(PAGE).partition(f"## How to add {article} {how_to}\n")
    assert rest, f"there is no how-to for {how_to}"
    return re.findall(r"^\d+\. (.+?)(?=^\d+\. |\Z)", rest.partition("\n## ")[0], re.MULTILINE | re.DOTALL)


def named(how_to: str) -> set[str]:
    """The files and folders that its steps link to."""
    return {target for step in steps(how_to) for target in re.findall(r"\]\(([^)]+)\)", step)}


# ---- the page ----


def test_it_is_read_in_five_minutes() -> None:
    assert len(read(PAGE).split()) <= WORDS_MAX


def test_every_folder_of_the_package_is_in_the_tree_and_nothing_else() -> None:
    tree = read(PAGE).partition("```\n")[2].partition("```")[0]
    folders = {path.name for path in (ROOT / "peik").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert sorted(re.findall(r"^([a-z]+)/  ", tree, re.MULTILINE)) == sorted(folders)
    assert len(tree.splitlines()) == len(folders)


@pytest.mark.parametrize("how_to", HOW_TOS)
def test_a_how_to_has_few_steps_and_names_every_file_that_the_toy_needs(how_to: str) -> None:
    assert 0 < len(steps(how_to)) <= STEPS_MAX
    changed = {edit.path for edit in EDITS if edit.how_to == how_to}
    missing = {path for path in changed if not any(path.startswith(name) for name in named(how_to))}
    assert not missing
    assert all((ROOT / name).exists() for name in named(how_to))


# ---- the three ways ----


@contextmanager
def footprints() -> Iterator[set[str]]:
    """Every file of the package that code runs in meanwhile, on any thread that was started within."""
    package = f"{ROOT / 'peik'}{os.sep}"
    seen: set[str] = set()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            seen.add(Path(frame.f_code.co_filename).relative_to(ROOT).as_posix())

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


async def _letter(folder: Path) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with house(folder) as home, aiohttp.ClientSession(home.url, headers=headers) as http:
        letter = {"method": "sendMessage", "params": {"chat_id": 5, "text": "hello"}}
        answer = await (await http.post("/v1/letters?wait=200s", json=letter)).json()
        assert answer["state"] == "completed"


async def _update(folder: Path) -> None:
    async with telegram() as sim:
        peik = opened(folder, sim)
        handled = asyncio.Event()

        @peik.on_update("message")
        async def handle(update: object) -> None:
            handled.set()

        async with peik:
            sim.telegram.write(TOKEN, 5, "hello")
            await handled.wait()


async def _failed_send(folder: Path) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with house(folder) as home, aiohttp.ClientSession(home.url, headers=headers) as http:
        home.sim.telegram.faults.add("error", method="sendMessage", status=400, words="Bad Request: odd", count=1)
        letter = {"method": "sendMessage", "params": {"chat_id": 5, "text": "hello"}}
        answer = await (await http.post("/v1/letters?wait=200s", json=letter)).json()
        assert answer["state"] == "failed"
        assert (await http.post(f"/v1/letters/{answer['id']}/retry")).status == 202


@pytest.mark.parametrize(
    ("title", "story"),
    [("The way of a letter", _letter), ("The way of an update", _update), ("The way of a failed send", _failed_send)],
)
def test_a_real_one_goes_through_every_file_of_its_way(
    title: str, story: Callable[[Path], object], tmp_path: Path
) -> None:
    files = walk(title)
    assert 5 < len(files) <= WALKS[title]
    assert len(set(files)) == len(files)

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story(tmp_path)  # type: ignore[misc]

    with footprints() as seen:
        asyncio.run(whole())
    assert [path for path in files if path not in seen] == []


# ---- the how-tos, followed ----


def copied(folder: Path) -> Path:
    """The repository with every toy in it."""
    shutil.copytree(
        ROOT,
        folder,
        ignore=shutil.ignore_patterns(".*_cache", ".git", ".venv", "__pycache__", "node_modules", "screens"),
    )
    shutil.copytree(NEW, folder, dirs_exist_ok=True)
    for edit in EDITS:
        path = folder / edit.path
        text = path.read_text(encoding="utf-8")
        path.write_text(edited(text, edit), encoding="utf-8")
    return folder


def edited(text: str, edit: Edit) -> str:
    if edit.after == END:
        return text + edit.added
    if edit.after == IMPORTS:
        return re.sub(r"^(?=from peik)", edit.added, text, count=1, flags=re.MULTILINE)
    assert text.count(edit.after) == 1, f"{edit.path} has {text.count(edit.after)} times: {edit.after}"
    return text.replace(edit.after, edit.after + edit.added)


def run(folder: Path, *command: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = kept | {"PYTHONPATH": str(folder), "TEST_STORES": "sqlite", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ran.returncode == 0, f"{ran.stdout[-8000:]}\n{ran.stderr[-4000:]}"


@pytest.mark.gate  # the docs are made and a dozen test files run, in a copy
def test_every_how_to_works_as_it_is_written(tmp_path: Path) -> None:
    folder = copied(tmp_path / "peik")
    run(folder, "docs/generate.py")
    run(folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *GUARDS)
