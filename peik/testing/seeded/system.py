"""What an operating system knows of simulated processes: whose a connection, a lock and a written file are."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Any

import apsw

from peik.testing.seeded.processes import current


def who() -> str | None:
    """The name of the process whose code runs now."""
    process = current()
    return None if process is None else process.name


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """From now on every connection to SQLite and every lock belongs to the process that made it."""
    real = fcntl.flock

    def flock(file: Any, operation: int) -> None:
        real(file, operation)
        process = current()
        if process is not None and operation & fcntl.LOCK_EX:
            process.locks.append(_Handle(file) if isinstance(file, int) else file)

    fcntl.flock = flock
    apsw.connection_hooks.append(_adopt)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(_adopt)
        fcntl.flock = real


def _adopt(connection: apsw.Connection) -> None:
    process = current()
    if process is not None:
        process.connections.append(connection)


class _Handle:
    """A file that was opened by number. Closed by that number only if it is still the same file."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._stat = os.fstat(handle)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(self._stat, os.fstat(self._handle)):
                os.close(self._handle)
