"""For all tests: chance is allowed, clocks are not. A slow machine must never turn a test red, and a hanging one must."""

import gc
import os
import random
import shutil
import signal
import tempfile
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import settings

from tests import wanting
from tests.hanging import pytest_runtest_teardown, pytest_timeout_cancel_timer, pytest_timeout_set_timer
from tests.surroundings import raise_file_limit, scrubbed

__all__ = ["pytest_runtest_teardown", "pytest_timeout_cancel_timer", "pytest_timeout_set_timer"]  # hooks

# In CI Hypothesis would take another one by itself; the tests are the same everywhere.
settings.register_profile("peik", parent=settings.get_profile("default"), deadline=None)
settings.load_profile("peik")

# A shell that starts a job in the background lets it ignore Ctrl-C, and so would every program that a test starts and ends
# with it. What is caught here is back at its default in them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# As the Makefile does it, for whoever starts pytest directly. Which tree it is about, how wide pytest writes, and how many
# stores, seeds and examples there are is theirs to say.
_SAID = ("PYTEST_", "PYTHONPATH", "COLUMNS", "TEST_")
_left = scrubbed(os.environ, but=_SAID)
os.environ.clear()
os.environ.update(_left)
tempfile.tempdir = None

# Thousands of commits wait for their sync. In memory that costs nothing, and nothing here is about real disks: what a power cut
# leaves is played by the seeded world, and what a full disk does has a file system of its own.
_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

raise_file_limit()
if "PYTEST_XDIST_WORKER" in os.environ:
    gc.disable()  # until all is loaded: of that nothing is garbage, and every collection looks through more of it
_running: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="Run files, and tests within a file, in another order."
    )


# Their tests start programs and wait for them. One after the other, as they stand in the tree, they would leave all workers
# waiting at the same time, and the cores with nothing to do.
_NAMES = ("alerts", "broadcasts", "cli", "client", "examples", "gateway", "integrations", "load", "processes", "web")
WAITING = tuple(Path(__file__).parent / name for name in _NAMES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """No test may need another before it. Files stay together: what their tests share is made once."""
    seed = config.getoption("--shuffle")
    if seed is None:
        if "PYTEST_XDIST_WORKER" in os.environ:
            _spread(items)
    else:
        chance = random.Random(seed)
        files = sorted({item.path for item in items})
        place = dict(zip(files, chance.sample(range(len(files)), len(files)), strict=True))
        chance.shuffle(items)
        items.sort(key=lambda item: place[item.path])


def _spread(items: list[pytest.Item]) -> None:
    """Put files whose tests wait evenly between all others. Workers begin with equal parts of this list."""
    waiting, working = [], []
    for path, group in groupby(items, key=lambda item: item.path):
        is_waiting = any(path.is_relative_to(folder) for folder in WAITING)
        (waiting if is_waiting else working).append(list(group))
    placed: list[tuple[float, list[pytest.Item]]] = []
    for files in (waiting, working):
        total, so_far = sum(map(len, files)), 0
        for group in files:
            placed.append(((so_far + len(group) / 2) / total, group))
            so_far += len(group)
    placed.sort(key=lambda one: one[0])
    items[:] = [item for _, group in placed for item in group]


def pytest_collection_finish() -> None:
    """All that is loaded by now stays. Every full collection would walk over these half a million objects, for nothing."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A place that cannot be had skips its story before anything of it has begun."""
    for value in item.callspec.params.values() if hasattr(item, "callspec") else ():
        if hasattr(value, "skip_if_missing"):
            value.skip_if_missing()


def pytest_runtest_logstart(nodeid: str) -> None:
    _running.add(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    _running.discard(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """What could not be had here. And whoever ends a run that takes too long wants to know what it was at."""
    wanting.fold(terminalreporter.stats.get("skipped", []))
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        for name in sorted(_running):
            terminalreporter.write_line(f"STILL RUNNING {name}")
