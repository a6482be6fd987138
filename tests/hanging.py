"""What becomes of a test that hangs: one red test that says where it stood. pytest-timeout says when, this says how.

pytest-timeout's own way is an exception of pytest, which uvloop hands to the loop's exception handler and then forgets; and it
leaves a test that has failed without any limit while its fixtures end.
"""

import asyncio
import faulthandler
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Any

import pytest

AGAIN_S = 30.0  # what a hanging test does to clear up may hang as well
TIMES_MAX = 4  # then the process ends: xdist calls the test failed, and starts another one

_ARMED = pytest.StashKey[float]()


class Hung(SystemExit):
    """Both asyncio and uvloop hand on what ends a program, and nothing else. At a KeyboardInterrupt pytest would end, too."""


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    item.stash[_ARMED] = settings.timeout
    _arm(item.nodeid, settings.timeout)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    if _ARMED not in item.stash:
        return None
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Once more from the beginning: when a test fails, pytest-timeout puts its timer away, and what is cleared up may hang."""
    if _ARMED in item.stash:
        _arm(item.nodeid, item.stash[_ARMED])
    return (yield)


def _arm(name: str, limit_s: float) -> None:
    times = 0

    def hung(number: int, frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        if times >= TIMES_MAX:
            faulthandler.dump_traceback(file=sys.__stderr__)
            os._exit(1)
        raise Hung(f"{name} has not ended within {limit_s:g} s.\n{_where_it_stands()}")

    signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)


def _where_it_stands() -> str:
    """The tasks of the loop, if one runs, and the other threads. This one's stack is the exception's own."""
    told = io.StringIO()
    loop = asyncio._get_running_loop()
    for task in () if loop is None else asyncio.all_tasks(loop):
        task.print_stack(file=told)
    here = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        if ident != here:
            told.write(f"Thread {ident}:\n{''.join(traceback.format_stack(frame))}")
    return told.getvalue()
