"""A test that hangs is one red test that says where it stood, and the others run: whatever it hangs in."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.gate  # it waits for what hangs

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120

HANGING = """
import asyncio, subprocess, sys, time
import pytest, uvloop

async def forever():
    await asyncio.Event().wait()

def test_in_asyncio():
    asyncio.run(forever())

def test_in_uvloop():
    uvloop.run(forever())

def test_in_a_child():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as child:
        try:
            child.wait()
        finally:
            child.kill()

@pytest.fixture
def stubborn():
    yield
    time.sleep(3600)

def test_that_fails_and_hangs_then(stubborn):
    assert False, "on purpose"

def test_that_is_well():
    pass
"""
SLEEPING = """
import time
from pathlib import Path

def test_that_takes_its_time():
    Path("begun").touch()
    time.sleep(3600)
"""


def command(folder: Path, text: str, *options: str) -> list[str]:
    (folder / "test_planted.py").write_text(text)
    config = (
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
    )
    return [sys.executable, "-m", "pytest", *config, "-n", "2", *options, str(folder)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_each_that_hangs_fails_and_says_where_it_stood(tmp_path: Path) -> None:
    words = command(tmp_path, HANGING, "-o", "timeout=2")
    ran = subprocess.run(
        words, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path, check=False
    )
    said = ran.stdout + ran.stderr
    ends = set(re.findall(r"^(FAILED|ERROR) .*::(\w+)", said, re.MULTILINE))
    assert ends == {
        ("FAILED", "test_in_asyncio"),
        ("FAILED", "test_in_uvloop"),
        ("FAILED", "test_in_a_child"),
        ("FAILED", "test_that_fails_and_hangs_then"),
        ("ERROR", "test_that_fails_and_hangs_then"),
    }, said
    assert "4 failed, 1 passed, 1 error" in said
    assert said.count("has not ended within 2 s") >= 4
    assert "await asyncio.Event().wait()" in said, "the place in the test, not only that of the loop"


def test_who_ends_a_run_is_told_what_it_was_at(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, SLEEPING),
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    ) as run:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (tmp_path / "begun").exists():
                assert time.monotonic() < deadline, "no test has begun"
                time.sleep(0.05)
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does it, and `timeout`
            said, _ = run.communicate(timeout=PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert "STILL RUNNING test_planted.py::test_that_takes_its_time" in said
