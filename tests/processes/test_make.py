"""The Makefile as people use it: whatever their shell has, and how `make demo` ends."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.installing import Progress
from tests.web.test_demo import LAST_LINE, counts

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 120
# What a shell may have: each of these is read by something here.
SHELL = """
    PYTHONPATH=/nowhere PYTHONHOME=/nowhere PYTHONOPTIMIZE=2 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONHASHSEED=7
    PYTHONWARNINGS=error PYTEST_ADDOPTS=--strange PEIK_PORT=none PEIK_STORE=mysql://nowhere TEST_STORES=sqlite BOT_TOKEN=none
    REDIS_HOST=nowhere QUEUE_NAME=strange MAX_RETRIES=none TELEGRAM_API_ROOT=nowhere LC_ALL=tr_TR.ISO-8859-9 LANGUAGE=tr
    LANG=tr_TR.ISO-8859-9 TZ=Asia/Kolkata NO_COLOR=1 FORCE_COLOR=1 CLICOLOR_FORCE=1 COLUMNS=20 LINES=5 TERM=dumb
    HTTP_PROXY=http://127.0.0.1:1 https_proxy=http://127.0.0.1:1 ALL_PROXY=socks5://127.0.0.1:1 XDG_CONFIG_HOME=/nowhere
    XDG_RUNTIME_DIR=/nowhere TMPDIR=/nowhere GIT_DIR=/nowhere NODE_OPTIONS=--strange CDPATH=/nowhere
    ARGS=--strange WORKERS=none SEEDS=none
"""
HOSTILE = dict(pair.split("=", 1) for pair in SHELL.split())


def make(*words: str) -> list[str]:
    """With the environment that these tests run in: nothing is installed for it, whatever make thinks of its age."""
    programs = os.path.relpath(Path(sys.executable).parent, ROOT)
    stamps = [f"--old-file=.venv/.{kind}" for kind in ("peik", "demo", "ready")]
    return ["make", "--no-print-directory", *stamps, f"BIN={programs}", *words]


def test_no_test_sees_what_the_shell_has() -> None:
    told = ["--old-file=ready", "unit", "WORKERS=0", "ARGS=-p no:cacheprovider tests/processes/surroundings_probe.py"]
    ran = subprocess.run(
        make(*told),
        cwd=ROOT,
        env=os.environ | HOSTILE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_allow_few_files,
    )
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout


def _allow_few_files() -> None:
    """As a shell of many systems does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))


def test_every_step_of_tests_and_demo_gets_an_environment_of_our_own() -> None:
    """Or one to install something in; nothing that is run has the caller's."""
    said = subprocess.run(
        make("--dry-run", "test", "gate", "demo"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    starts = [line for line in said.stdout.splitlines() if "python" in line or "/bin/" in line]
    assert len(starts) > 10
    for line in starts:
        assert "tests/surroundings.py" in line or "-I -c 'import sys" in line, line


class Terminal:
    """What a person sees, and the key that ends it."""

    def __init__(self, screen: int, process: "subprocess.Popen[bytes]") -> None:
        self._screen = screen
        self._process = process
        self.shown = ""

    def read_until(self, words: str) -> None:
        while words not in self.shown:
            assert self._read(), f"it ended without saying {words!r}:\n{self.shown}"

    def press_ctrl_c(self) -> None:
        os.write(self._screen, b"\x03")

    def ended(self) -> int:
        """The exit code."""
        while self._read():
            pass
        return self._process.wait(ENDS_WITHIN_S)

    def _read(self) -> bool:
        try:
            piece = os.read(self._screen, 65536)
        except OSError:  # how a terminal says that nobody writes any more
            return False
        self.shown += piece.decode(errors="replace")
        return bool(piece)


@contextmanager
def terminal(*command: str) -> Iterator[Terminal]:
    screen, theirs = os.openpty()
    environment = os.environ | HOSTILE | {"TERM": "xterm"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, preexec_fn=lambda: os.login_tty(theirs)) as process:
        os.close(theirs)
        try:
            yield Terminal(screen, process)
        finally:
            os.close(screen)  # whoever is still there is told that the terminal is gone
            process.wait(ENDS_WITHIN_S)


@pytest.mark.gate
def test_without_a_terminal_the_demo_plays_once_and_tells_the_counts() -> None:
    ran = subprocess.run(
        make("demo", "ARGS=--quick"),
        cwd=ROOT,
        env=os.environ | HOSTILE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN_S,
    )
    assert ran.returncode == 0, ran.stdout
    assert "Everybody has what they asked for" in ran.stdout
    assert "goes on until" not in ran.stdout
    assert counts(ran.stdout)[2] == 0


@pytest.mark.gate
def test_in_a_terminal_the_demo_says_that_it_goes_on_and_ctrl_c_ends_it_with_the_counts_and_0() -> None:
    with terminal(*make("demo", "ARGS=--quick")) as seen:
        seen.read_until("1. Letters flow")
        assert "goes on until" in seen.shown
        seen.press_ctrl_c()
        assert seen.ended() == 0, seen.shown
    assert LAST_LINE.fullmatch(seen.shown.splitlines()[-1]), seen.shown  # and not a word of make's


@pytest.mark.gate
def test_ctrl_c_in_the_first_part_of_the_demo_ends_all_of_it() -> None:
    with terminal(*make("demo", "ARGS=--quick")) as seen:
        seen.read_until("Omid <-")
        seen.press_ctrl_c()
        assert seen.ended() == 0, seen.shown
    assert seen.shown.splitlines()[-1].startswith("Stopped. Asked: 4, answered: ")


def test_the_checks_that_land_a_change_are_all_tests_in_two_parts() -> None:
    def steps(*goals: str) -> str:
        return subprocess.run(make("--dry-run", *goals), cwd=ROOT, capture_output=True, text=True, check=True).stdout

    quick, long = steps("test"), steps("gate")
    for step in ("ruff check", "mypy", "lint-imports", '-m "not gate"'):
        assert step in quick
    assert "-m gate" in long
    assert "simulation --seeds 300" in long
    assert "simulation" not in quick
    assert "make test gate" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_an_installation_tells_how_far_it_is() -> None:
    progress = Progress()
    progress.before = 2
    told = []
    for line, packages in (
        ("Obtaining file:///peik", 2),
        ("Collecting apsw>=3.50 (from peik==1)", 2),
        ("  Downloading apsw-3.50-cp311.whl.metadata (20 kB)", 2),
        ("Collecting rich>=14 (from peik==1)", 2),
        ("Installing collected packages: apsw, rich, peik", 2),
        ("", 4),
    ):
        progress.heard(line.strip())
        told.append(progress.at(packages))
    assert told == [
        "making the virtual environment",
        "asking for apsw>=3.50 (1 so far)",
        "Downloading apsw-3.50-cp311.whl.metadata (20 kB)",
        "asking for rich>=14 (2 so far)",
        "unpacking, 0 of 3",
        "unpacking, 2 of 3",
    ]
