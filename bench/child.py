"""A server of the bench in a process of its own: it prints its port, and ends when nobody holds its stdin any more."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def listening(module: str, *arguments: str) -> Iterator[int]:
    """The port of `python -m module`, until the end of the block."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
