"""The event loop of every measurement in this process: a new uvloop each, with the settings of `peik serve`."""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

# `peik serve` sets this (peik/app/serve.py), so a bench in this process must, or it would measure something else.
SWITCH_INTERVAL_S = 0.0005


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, with the garbage of what ran before out of the way."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
