"""The way between one node and the store's server: a request can be late, or lost before it is done, or after."""

import asyncio
import random
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from peik.errors import InDoubt, StoreUnavailable
from peik.storage.executor import Finished
from simulation.processes import OUTSIDE, Process

T = TypeVar("T")

LATENCY_S = 0.001  # each way
PATIENCE_S = 4.0  # a server that is silent for so long is given up


class Link(msgspec.Struct):
    """How the way of one node to the server is now. Probabilities are of each message."""

    lost_before: float = 0.0  # it is never done
    lost_after: float = 0.0  # it is done, and nobody here hears of it
    lost_news: float = 0.0  # of what other nodes tell
    hangs: float = 0.0  # of what is lost: how often it is silence until patience ends, instead of a reset
    delay_s: float = 0.0  # at most so much more, each way
    is_cut: bool = False

    def clear(self) -> None:
        self.lost_before = self.lost_after = self.lost_news = self.hangs = self.delay_s = 0.0
        self.is_cut = False


class Host(Protocol):
    """Where the work is done."""

    @property
    def process(self) -> Process | None:
        """The server as it lives now. None: it is down."""


class Ticket:
    """What is known of one piece of work on its way. Work of one wire is done in the order in which it was given, also what
    is done late."""

    __slots__ = ("first_step", "marked")

    def __init__(self) -> None:
        self.first_step = 0  # the number of the first commit that it tries,
        self.marked: list[
            tuple[int, list[int], int]
        ] = []  # and of each that marked something: (number, letters, epoch)


class Wire:
    """A `peik.storage.executor.Executor` whose work is done in the server's process, over a network.

    `begin` is called there before each piece of work, `doubt` at the node when the end of one is not known.
    """

    def __init__(
        self,
        host: Host,
        node: Process,
        link: Link,
        chance: random.Random,
        *,
        begin: Callable[[Process, Ticket], None] = lambda process, ticket: None,
        doubt: Callable[[Ticket], None] = lambda ticket: None,
    ) -> None:
        self.host = host
        self.node = node
        self.link = link
        self.chance = chance
        self.begin = begin
        self.doubt = doubt
        self._loop = asyncio.get_running_loop()
        self._free_at = 0.0

    def run(self, work: Callable[[], T], done: Callable[[Finished[T]], None]) -> None:
        _Trip(self, work, done).start()

    def close(self) -> None:
        pass

    def now(self) -> float:
        return self._loop.time()

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """On the network: no process's death stops it."""
        self._loop.call_at(when, callback, context=OUTSIDE)

    def turn_at(self, late_s: float) -> float:
        """When what is sent now is done."""
        takes_s = 0.0002 if self.chance.random() < 0.8 else self.chance.uniform(0.001, 0.2)
        self._free_at = max(self._free_at, self.now() + late_s) + takes_s
        return self._free_at


class _Trip(Generic[T]):
    """One piece of work on its way to the server and back."""

    __slots__ = ("_began_at", "_done", "_is_over", "_process", "_ticket", "_wire", "_work")

    def __init__(self, wire: Wire, work: Callable[[], T], done: Callable[[Finished[T]], None]) -> None:
        self._wire = wire
        self._work = work
        self._done = done
        self._began_at = wire.now()
        self._process = wire.host.process
        self._ticket = Ticket()
        self._is_over = False  # its node was told something

    def start(self) -> None:
        wire, link = self._wire, self._wire.link
        if self._process is None or link.is_cut:
            wait_s = PATIENCE_S if link.is_cut else LATENCY_S
            wire.at(self._began_at + wait_s, lambda: self._tell(Finished(None, _refused())))
        elif wire.chance.random() < link.lost_before:
            self._vanish()
        else:
            turn_at = wire.turn_at(LATENCY_S + wire.chance.uniform(0.0, link.delay_s))
            wire.at(turn_at, self._arrive)
            if turn_at > self._began_at + PATIENCE_S:
                wire.at(self._began_at + PATIENCE_S, lambda: self._tell(Finished(None, _silent())))

    def _arrive(self) -> None:
        wire, link, process = self._wire, self._wire.link, self._process
        if process is None or process is not wire.host.process or link.is_cut:
            self._vanish()  # the connection was the dead server's
            return
        ended = process.perform(self._perform)
        if process.is_dead or link.is_cut or wire.chance.random() < link.lost_after:
            self._vanish()
        else:
            back_at = wire.now() + LATENCY_S + wire.chance.uniform(0.0, link.delay_s)
            wire.at(back_at, lambda: self._tell(ended))

    def _perform(self) -> Finished[T]:
        assert self._process is not None
        try:
            self._wire.begin(self._process, self._ticket)
            return Finished(self._work(), None)
        except BaseException as error:  # noqa: BLE001  it is raised again where the work was asked for
            return Finished(None, error)

    def _vanish(self) -> None:
        """A reset, or silence until patience ends."""
        wire = self._wire
        if wire.link.is_cut or wire.chance.random() < wire.link.hangs:
            wire.at(self._began_at + PATIENCE_S, lambda: self._tell(Finished(None, _silent())))
        else:
            wire.at(wire.now() + LATENCY_S, lambda: self._tell(Finished(None, _reset())))

    def _tell(self, ended: Finished[T]) -> None:
        if not self._is_over:
            self._is_over = True
            self._wire.node.tell(self._hear, ended)

    def _hear(self, ended: Finished[T]) -> None:
        if isinstance(ended.error, InDoubt):
            self._wire.doubt(self._ticket)
        self._done(ended)


def _refused() -> StoreUnavailable:
    return StoreUnavailable(code="store_gone", detail="The server cannot be reached. Nothing was stored.")


def _reset() -> InDoubt:
    return InDoubt(code="store_lost", detail="The connection was lost. Whether it was stored is not known.")


def _silent() -> InDoubt:
    return InDoubt(code="store_lost", detail="The server is silent. Whether it was stored is not known.")
