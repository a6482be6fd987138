"""For all tests: chance is allowed, clocks are not. A slow machine must never turn a test red, and a hanging one must."""

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests.hanging import pytest_runtest_teardown, pytest_timeout_cancel_timer, pytest_timeout_set_timer

__all__ = ["pytest_runtest_teardown", "pytest_timeout_cancel_timer", "pytest_timeout_set_timer"]  # hooks

settings.register_profile("peik", deadline=None)
settings.load_profile("peik")

# A shell that starts a job in the background lets it ignore Ctrl-C, and so would every program that a test starts and ends
# with it. What is caught here is back at its default in them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of programs are started by the tests. Without byte code each of them would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Thousands of commits wait for their sync. In memory that costs nothing, and nothing here is about real disks: what a power cut
# leaves is played by the seeded world, and what a full disk does has a file system of its own.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

if "PYTEST_XDIST_WORKER" in os.environ:
    gc.disable()  # until all is loaded: of that nothing is garbage, and every collection looks through more of it
_running: set[str] = set()


def pytest_collection_finish() -> None:
    """All that is loaded by now stays. Every full collection would walk over these half a million objects, for nothing."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_logstart(nodeid: str) -> None:
    _running.add(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    _running.discard(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Whoever ends a run that takes too long wants to know what it was at."""
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        for name in sorted(_running):
            terminalreporter.write_line(f"STILL RUNNING {name}")
