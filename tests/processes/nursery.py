"""Where the `peik …` of a test comes from: a process that has loaded all of Peik once, and is copied for each program.

A program is a process of its own, with its own folder, environment and files, as if Python had been started for it. Only the
second that every start would spend on imports is spent once. What the nursery itself does is in `nursery_inside.py`.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

MODULES = ("peik", "peik.testing")  # what it can become
_OWN = ("PYTHON", "LANG", "LC_", "LD_")  # what Python and the linker read at the start of a process
_starting = threading.Lock()
_nursery: tuple[int, socket.socket, "subprocess.Popen[bytes]"] | None = None  # and whose it is: a fork of ours has none


def can_run(environment: Mapping[str, str]) -> bool:
    """Whether a copy is as good as a start."""
    return all(os.environ.get(name) == value for name, value in environment.items() if name.startswith(_OWN))


class Child:
    """A program that runs. Its signals go to it alone, even if its number is somebody else's by then."""

    def __init__(self, pid: int, handle: int, ending: socket.socket) -> None:
        self.pid = pid
        self._handle = handle
        self.ending = ending  # its status comes here, and then nothing more

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError if it has ended, and that was seen."""
        signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def wait(self, timeout_s: float) -> int:
        """Its exit code; negative: the signal that ended it. Raises TimeoutExpired, as a Popen does."""
        self.ending.settimeout(timeout_s)
        try:
            return code_of(self.ending.recv(64))
        except TimeoutError:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
        self.ending.close()


def code_of(status: bytes) -> int:
    assert status, "the nursery of programs has ended"
    return os.waitstatus_to_exitcode(int(status))


def start(
    module: str, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], streams: Sequence[int]
) -> Child:
    """As `python -m <module> <arguments>` with these three streams, which stay the caller's to close."""
    assert module in MODULES
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    order = {"module": module, "argv": list(arguments), "env": dict(environment), "cwd": str(folder)}
    with theirs:
        socket.send_fds(_running(), [json.dumps(order).encode()], [theirs.fileno(), *streams])
    said, handles, _, _ = socket.recv_fds(ours, 64, 1)
    assert said, "the nursery of programs has ended"
    return Child(int(said), handles[0], ours)


def run(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], stdin: str, timeout_s: float
) -> tuple[int, str, str]:
    """`peik …` to its end: the exit code, and what it wrote. Raises TimeoutExpired, and then it is dead."""
    with contextlib.ExitStack() as stack:
        given, out, err = (
            stack.enter_context(os.fdopen(os.memfd_create(name), "wb+")) for name in ("in", "out", "err")
        )
        given.write(stdin.encode())
        given.seek(0)
        streams = [given.fileno(), out.fileno(), err.fileno()]
        child = start("peik", arguments, folder=folder, environment=environment, streams=streams)
        stack.enter_context(child)
        stack.callback(child.kill)
        code = child.wait(timeout_s)
        for stream in (out, err):
            stream.seek(0)
        return code, out.read().decode(), err.read().decode()


def _running() -> socket.socket:
    global _nursery
    with _starting:
        if _nursery is None or _nursery[0] != os.getpid():
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", "tests.processes.nursery_inside", str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
            theirs.close()
            _nursery = (os.getpid(), ours, process)
            atexit.register(_end, *_nursery)
        return _nursery[1]


def _end(owner: int, ours: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    if owner == os.getpid():
        ours.close()  # it hears that nobody will ask any more
        process.wait()
