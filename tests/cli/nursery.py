"""Where the `peik …` of a test comes from: a process that has loaded all of Peik once, and is copied for each command.

A command is a process of its own, with its own folder, environment and files, as if Python had been started for it. Only the
half second that every start would spend on imports is spent once.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

_LARGEST = 1 << 20
_OWN = ("PYTHON", "LANG", "LC_")  # what Python reads at its own start
_starting = threading.Lock()
_nursery: tuple[int, socket.socket, "subprocess.Popen[bytes]"] | None = None  # and whose it is: a fork of ours has none


def can_run(environment: dict[str, str]) -> bool:
    """Whether a copy is as good as a start."""
    return all(os.environ.get(name) == value for name, value in environment.items() if name.startswith(_OWN))


def run(
    arguments: Sequence[str], *, folder: Path, environment: dict[str, str], stdin: str, timeout_s: float
) -> tuple[int, str, str]:
    """The exit code, and what it wrote. Raises TimeoutExpired, and then it is dead."""
    with contextlib.ExitStack() as stack:
        given, out, err = (
            stack.enter_context(os.fdopen(os.memfd_create(name), "wb+")) for name in ("in", "out", "err")
        )
        given.write(stdin.encode())
        given.seek(0)
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        with theirs:
            order = json.dumps({"argv": list(arguments), "env": environment, "cwd": str(folder)}).encode()
            socket.send_fds(_running(), [order], [theirs.fileno(), given.fileno(), out.fileno(), err.fileno()])
        ours.settimeout(timeout_s)
        pid = int(_line(ours))
        try:
            status = _line(ours)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None
        for stream in (out, err):
            stream.seek(0)
        return os.waitstatus_to_exitcode(int(status)), out.read().decode(), err.read().decode()


def _line(stream: socket.socket) -> bytes:
    heard = b""
    while not heard.endswith(b"\n"):
        piece = stream.recv(1)  # the pid and the end may have come together
        assert piece, "the nursery of commands has ended"
        heard += piece
    return heard


def _running() -> socket.socket:
    global _nursery
    with _starting:
        if _nursery is None or _nursery[0] != os.getpid():
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", "tests.cli.nursery", str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
            theirs.close()
            _nursery = (os.getpid(), ours, process)
            atexit.register(_end, *_nursery)
        return _nursery[1]


def _end(owner: int, ours: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    if owner == os.getpid():
        ours.close()  # it hears that nobody will ask any more
        process.wait()


# ---- in the nursery ----


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    package = importlib.import_module("peik.doors")
    for module in pkgutil.walk_packages(package.__path__, "peik.doors."):
        with contextlib.suppress(ImportError):  # of an extra that is not installed
            importlib.import_module(module.name)
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


def _watch(order: dict[str, object], fds: list[int]) -> int:
    """Start the command, tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    caller, *streams = fds
    pid = os.fork()
    if pid == 0:
        os.close(caller)
        os._exit(_act(order, streams))
    with contextlib.suppress(OSError):  # nobody waits any more
        os.write(caller, b"%d\n" % pid)
        os.write(caller, b"%d\n" % os.waitpid(pid, 0)[1])
    return 0


def _act(order: dict[str, object], streams: list[int]) -> int:
    """Be the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding="utf-8", line_buffering=True)
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]
    time.tzset()
    os.chdir(str(order["cwd"]))
    sys.argv = ["peik", *order["argv"]]  # type: ignore[misc]
    code = 0
    try:
        runpy.run_module("peik", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  as Python does it
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


if __name__ == "__main__":
    main()
