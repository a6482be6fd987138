"""`peik …` once for each of many moments, all from one process: in each of them Ctrl-C comes at another line of ours.

It is run in a terminal as `interrupted.py FIRST LAST ARGUMENTS…`, and ends with a line that says which exit codes there were,
and the moments at which the command went on for ever.
"""

import os
import signal
import sys
import time
from collections import Counter
from types import FrameType
from typing import Any

import rich.live
import rich.table  # noqa: F401  else each child would load all of this for itself

import peik.cli.output
import peik.cli.remote  # noqa: F401
from peik.app.cli import main
from tests.patience import PATIENCE_S

WATCHED = ("outbox/cli.py", "threading.py")


def interrupted_at(moment: int) -> None:
    """Run the command. Moments are lines of ours, and of what we wait with, counted since something was shown."""
    lines = 0
    write = sys.stdout.write

    def written(text: str) -> int:
        if "completed" in text and sys.gettrace() is None:
            sys.settrace(trace)
            frame: FrameType | None = sys._getframe()
            while frame is not None:  # those that have begun before
                frame.f_trace = trace(frame, "call", None)
                frame = frame.f_back
        return write(text)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        if event == "line":
            lines += 1
            if lines == moment:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.stdout.write = written  # type: ignore[method-assign]
    main()


def in_child(moment: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        interrupted_at(moment)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(code)


def all_moments(first: int, last: int) -> None:
    waited = {in_child(moment): moment for moment in range(first, last + 1)}
    codes: Counter[int] = Counter()
    deadline = time.monotonic() + PATIENCE_S / 2  # whoever runs this waits for longer
    while waited and time.monotonic() < deadline:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            codes[os.waitstatus_to_exitcode(status)] += 1
            del waited[child]
        else:
            time.sleep(0.02)
    for child in waited:
        os.kill(child, signal.SIGKILL)
    sys.stdout.write(f"\ncodes {dict(codes)} hang at {sorted(waited.values())}\n")


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:3])
    sys.argv[1:3] = []
    all_moments(first, last)
