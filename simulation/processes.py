"""Simulated processes in one event loop. Each can die at any await, be frozen, and wake late; the others never notice how.

Which process a callback belongs to is in its context, as every task and timer inherits the context that made it.
"""

import asyncio
import contextlib
import contextvars
import fcntl
import gc
import os
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import apsw

from peik.testing.virtual import VirtualClock, VirtualLoop

T = TypeVar("T")

_process: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)

ENDINGS_MAX = 20

OUTSIDE = contextvars.Context()  # where nobody's death stops anything: the network, Telegram, the people


def current() -> "Process | None":
    """The process whose code runs now."""
    return _process.get()


class _Step:
    """One callback of a process: made if it lives, put off while it is frozen, dropped when it is dead."""

    __slots__ = ("_args", "_callback", "_process", "handle")

    def __init__(self, process: "Process", callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._process = process
        self._callback = callback
        self._args = args
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        process = self._process
        if process.is_dead or (self.handle is not None and self.handle.cancelled()):
            return
        if process.is_late:
            process.put_off(self)
        else:
            self._callback(*self._args)

    def make_up_for(self) -> None:
        """Made late, in the very context that it would have had."""
        if not self._process.is_dead and self.handle is not None and not self.handle.cancelled():
            context = self.handle._context  # type: ignore[attr-defined]  # noqa: SLF001  a task must go on in its own
            asyncio.Handle(self._callback, self._args, self._process.loop, context)._run()  # noqa: SLF001


def _owner_of(context: contextvars.Context | None) -> "Process | None":
    return current() if context is None else context.get(_process)


class WorldLoop(VirtualLoop):
    """Virtual time in which every callback knows its process."""

    def __init__(self) -> None:
        super().__init__()
        self.graveyard: list[asyncio.Task[Any]] = []  # what the dead had in hand: a collector would let it run on
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        process = _owner_of(context)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        step = _Step(process, callback, args)
        step.handle = super().call_soon(step, context=context)
        return step.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = _owner_of(context)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        step = _Step(process, callback, args)
        step.handle = handle = super().call_at(when, step, context=context)
        return handle


def _make_task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **details: Any) -> "asyncio.Task[T]":
    task = asyncio.Task(coro, loop=loop, **details)
    process = _owner_of(details.get("context"))
    if process is not None:
        process.own(task)
    return task


class Closable(Protocol):
    def close(self) -> None: ...


class Process:
    """One simulated process: its tasks and timers, its connections to SQLite, and its locks."""

    def __init__(self, name: str, loop: WorldLoop) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.connections: list[apsw.Connection] = []
        self.locks: list[Closable] = []
        self.loop = self._loop = loop
        self._context = OUTSIDE.copy()
        self._context.run(_process.set, self)
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._started: set[asyncio.Task[Any]] = set()
        self._put_off: deque[_Step] = deque()
        self._mourners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return self.name

    def own(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        if self.is_dead:
            self._lay_out(task)  # made by what was on the stack in the instant of death

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task of this process."""
        task = self._loop.create_task(work, context=self._context.copy())
        self._started.add(task)  # the loop itself holds tasks but weakly
        task.add_done_callback(self._started.discard, context=OUTSIDE)
        return task

    def tell(self, callback: Callable[..., object], *args: Any) -> None:
        """Call something in it, from outside."""
        if not self.is_dead:
            self._loop.call_soon(callback, *args, context=self._context.copy())

    def perform(self, work: Callable[[], T]) -> T:
        """Do something in it at once, from outside. It may die of it."""
        return self._context.copy().run(work)

    def put_off(self, step: _Step) -> None:
        self._put_off.append(step)

    def when_dead(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Tell when it dies; the answer takes that back."""
        self._mourners.append(tell)
        return lambda: self._mourners.remove(tell) if tell in self._mourners else None

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        """Wake it. All that fell due meanwhile happens now, in its order, and it may be much too late."""
        self.is_frozen = False
        self._loop.call_soon(self._catch_up, context=OUTSIDE)

    @property
    def is_late(self) -> bool:
        """Whether something is due before whatever comes now."""
        return self.is_frozen or bool(self._put_off)

    def _catch_up(self) -> None:
        while self._put_off and not self.is_frozen:
            self._put_off.popleft().make_up_for()

    def kill(self) -> None:
        """From this instant none of its code runs. Its connections and locks are taken from it by the next turn of the loop."""
        if self.is_dead:
            return
        self.is_dead = True
        for task in self._tasks:
            self._lay_out(task)
        mourners, self._mourners = self._mourners, []
        for tell in mourners:
            self._loop.call_soon(tell, context=OUTSIDE)

    def _lay_out(self, task: "asyncio.Task[Any]") -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  it is never finished, on purpose
        self._loop.graveyard.append(task)

    def bury(self) -> None:
        """What the system does after a process: close its files, give back its locks."""
        assert self.is_dead
        for connection in self.connections:
            connection.close(True)  # noqa: FBT003
        for lock in self.locks:
            lock.close()
        self.connections.clear()
        self.locks.clear()


def run_world(main: Callable[[WorldLoop, VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine outside of all processes, in virtual time from zero. What the dead left unfinished stays so."""
    loop = WorldLoop()
    collects = gc.isenabled()
    gc.disable()  # what a collector ends, it ends when it likes: the same seed would not be the same life
    try:
        return loop.run_until_complete(main(loop, VirtualClock(loop)))
    finally:
        if collects:
            gc.enable()
        left = [*loop.graveyard, *asyncio.all_tasks(loop)]
        loop.close()
        loop.graveyard.clear()
        bring_to_an_end(left)


def bring_to_an_end(left: "Sequence[asyncio.Task[Any]]" = ()) -> None:
    """Python ends what it collects, `finally` by `finally`. That must not happen in another world, nor be heard of."""
    said, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that died before their first step
            asyncio.set_event_loop(None)  # a `finally` that gathers would make a loop, and keep this world in it
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                _end(task.get_coro())
            gc.collect()
    finally:
        sys.unraisablehook = said


def _end(work: Any) -> None:
    """Close a coroutine for good: one whose `finally` awaits has to be told more than once."""
    for _ in range(ENDINGS_MAX):
        with contextlib.suppress(BaseException):
            work.close()
        if getattr(work, "cr_frame", None) is None:
            return


# What an operating system knows of simulated processes: whose a connection, a lock and a written file are.


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
