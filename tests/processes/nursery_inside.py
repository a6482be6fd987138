"""The process that `nursery.py` starts: it loads all of Peik, and then becomes a program whenever it is told to."""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from peik.telegram.connect import system_context
from peik.web.dashboard.render import load

_LARGEST = 1 << 20
_LIBC = ctypes.CDLL(None)
# Bot libraries, which no program of ours loads: with them every copy would be three times as large.
_ALIEN = "peik.integrations"
# What Typer loads only when a command runs, or shows its help.
_LATE = ("typer._adapters", "rich.markdown")


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in (*_modules("peik"), *_LATE):
        with contextlib.suppress(ImportError):  # of an extra that is not installed
            importlib.import_module(name)
    load()  # the largest of the files that every server reads
    system_context()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, fds, _, _ = socket.recv_fds(orders, _LARGEST, 4)
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            os._exit(_watch(json.loads(order), fds))
        for fd in fds:
            os.close(fd)


def _modules(package: str) -> Iterator[str]:
    """The package and all in it, but what is a program by itself."""
    yield package
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if module.ispkg and module.name != _ALIEN:
            yield from _modules(module.name)
        elif not module.ispkg and not module.name.endswith("__main__"):
            yield module.name


def _watch(order: dict[str, Any], fds: list[int]) -> int:
    """Start the program, tell how it ended."""
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    caller, *streams = fds
    pid = os.fork()
    if pid == 0:
        os.close(caller)
        os._exit(_act(order, streams))
    for stream in streams:
        os.close(stream)  # whoever reads what it writes must hear of its end
    with socket.socket(fileno=caller) as told, contextlib.suppress(OSError):  # if nobody waits any more
        socket.send_fds(told, [b"%d" % pid], [os.pidfd_open(pid)])
        told.send(b"%d" % os.waitpid(pid, 0)[1])
    return 0


def _act(order: dict[str, Any], streams: list[int]) -> int:
    """Be the program."""
    _end_with_parent()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")
    out = os.fdopen(1, "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", line_buffering=out.isatty())
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding="utf-8", line_buffering=True)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["cwd"])
    sys.argv = [order["module"], *order["argv"]]
    code = 0
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            sys.stderr.write(f"{ended.code}\n")
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  as Python does it
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # Python ends when the last thread does
    atexit._run_exitfuncs()
    for said in (sys.stdout, sys.stderr):
        said.flush()
    return code


def _end_with_parent() -> None:
    """Whoever kills the tests leaves no program behind: the nursery hears of it and ends, and with it all that came of it."""
    _LIBC.prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    main()
