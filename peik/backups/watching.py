"""How long work is watched, and how it is stopped: what blocks does its work on a thread, in steps, and asks at each."""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from peik.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for this work any more. It never leaves the thread's caller."""


class Watch:
    """Who looks on. `begin` a stage with so many steps, and `step` on; both may be called on any thread."""

    def __init__(
        self,
        begin: Callable[[str, int], None] = lambda words, total: None,
        step: Callable[[int], None] = lambda done: None,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.begin = begin
        self.warn = warn
        self._step = step
        self._is_stopped = threading.Event()

    def step(self, done: int) -> None:
        """Raises Stopped if the work is to end here."""
        if self._is_stopped.is_set():
            raise Stopped
        self._step(done)

    def stop(self) -> None:
        self._is_stopped.set()


async def on_thread(watch: Watch, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Like `asyncio.to_thread`; whoever is cancelled waits until the work has stopped, so that nothing writes any more where
    things are tidied up."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *given, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        watch.stop()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # its last words are for nobody
        raise


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """What the disk says, in words that help."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable(
                code="disk_full",
                detail=f"{doing} failed: the disk is full. Free some room, or name another folder in PEIK_BACKUPS.",
            ) from error
        where = f" ({error.filename})" if error.filename else ""
        raise Unavailable(code="backup_failed", detail=f"{doing} failed: {error.strerror or error}{where}.") from error
