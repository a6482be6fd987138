"""A program out of the nursery is one like any other: its own process, its words, its end; and none outlives the tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.shell import Shell
from tests.processes import nursery

# Starts a simulated Telegram, tells whose child it is, and waits to be killed.
TESTS = """
import os, sys, time
from pathlib import Path
from tests.processes import nursery
with open(os.devnull, "r+b") as nothing:
    streams = [nothing.fileno()] * 3
    child = nursery.start("peik.testing", ["--port", "0"], folder=Path.cwd(), environment=os.environ, streams=streams)
print(child.pid, flush=True)
time.sleep(3600)
"""


def test_it_says_and_returns_what_a_started_one_does(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    bound = {"folder": tmp_path, "environment": shell.environment, "timeout_s": 60.0}
    for arguments in (["--version"], ["letters", "show", "nothing"], ["stats", "--json"], ["serve", "--port", "x"]):
        started = subprocess.run(
            [sys.executable, "-m", "peik", *arguments],
            cwd=tmp_path,
            env=shell.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        copied = nursery.run(arguments, stdin="", **bound)  # type: ignore[arg-type]
        assert copied == (started.returncode, started.stdout, started.stderr), arguments


def test_a_signal_ends_it_and_its_number_is_told(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    arguments = ["--port", "0"]
    streams = [nothing, theirs, theirs]
    with nursery.start("peik.testing", arguments, folder=tmp_path, environment=os.environ, streams=streams) as child:
        os.close(theirs)
        os.close(nothing)
        with os.fdopen(ours) as said:
            assert "control_url" in said.readline()
            assert psutil.Process(child.pid).cwd() == str(tmp_path)
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.01)
            child.send_signal(signal.SIGKILL)
            assert said.read() == ""
        assert child.wait(60.0) == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            child.send_signal(signal.SIGTERM)


def test_what_the_linker_and_python_read_at_their_start_needs_a_start() -> None:
    own = dict(os.environ)
    assert nursery.can_run(own | {"PEIK_PORT": "1"})
    assert not nursery.can_run(own | {"LD_PRELOAD": "libfaketime.so"})
    assert not nursery.can_run(own | {"PYTHONHASHSEED": "3"})


def test_none_outlives_tests_that_are_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", TESTS], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        copied = psutil.Process(int(tests.stdout.readline()))
        tests.kill()
    deadline = time.monotonic() + 60.0
    while _lives(copied):
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    """One that is dead may stay in the list, where nobody buries orphans."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
