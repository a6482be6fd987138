"""Virtual time: an event loop whose clock jumps to the next timer. An hour of waiting takes a moment and repeats exactly.

And a carrier for it, to a simulated Telegram in the same process: without sockets.
"""

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.port import Request
from peik.testing.answer import Answer, Pending, UploadedFile
from peik.testing.faults import Exchange, How, Kind
from peik.testing.telegram import Telegram

T = TypeVar("T")

_EPOCH_S = 1_794_700_000.0  # an arbitrary morning in November 2026
_REAL_WAIT_S = 10.0
_TURNS_MAX = 300_000  # of the loop at one instant


class Standstill(RuntimeError):
    """Time cannot go on: somebody wakes himself again and again, or everybody waits for ever."""


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the clock. Real I/O, where there is any, is still seen first."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            self._turns += 1
            if self._turns > _TURNS_MAX:
                raise Standstill("time stands still: something wakes itself again and again")
            return ready
        self._turns = 0
        if timeout is None:
            # No timer at all: only another thread or a socket can go on from here.
            ready = super().select(_REAL_WAIT_S)
            if not ready:
                raise Standstill("every task waits, and nothing is left that could wake one of them")
            return ready
        self._jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """What would go to a thread is done in the loop itself: time must not run ahead of it, and runs must repeat."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  it is raised again where the work was asked for
                future.set_exception(error)

        self.call_soon(work)
        return future

    def _jump(self, seconds: float) -> None:
        self._now += seconds


class VirtualClock:
    """A `peik.clock.Clock` that follows a virtual loop. The wall can be made to jump by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wall_offset_s = 0.0

    def mono(self) -> float:
        return self._loop.time()

    steady = mono  # nothing sleeps here

    def wall_ms(self) -> int:
        return int((_EPOCH_S + self.wall_offset_s + self._loop.time()) * 1000)

    def wall_s(self) -> float:
        return self.wall_ms() / 1000


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in virtual time, from zero."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(VirtualClock(runner.get_loop())))


# A carrier to a simulated Telegram, where there are no sockets.


class SimCarrier:
    """Obeys the same port as the real one, and the faults of the simulated Telegram."""

    def __init__(
        self, telegram: Telegram, *, latency_s: float = 0.05, context: contextvars.Context | None = None
    ) -> None:
        self._telegram = telegram
        self._latency_s = latency_s
        self._context = context  # where what is under way goes on, whatever becomes of the sender
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Handle] = set()
        self._parked: dict[Pending, tuple[Callable[[Reply], None], asyncio.Handle]] = {}
        self.uploads = 0
        self._heed_faults(telegram.faults.changed)

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        self._later(self._latency_s / 2, lambda: self._arrive(request, done))

    async def carry(self, request: Request) -> Reply:
        answered: asyncio.Future[Reply] = self._loop.create_future()
        self.start(request, lambda reply: None if answered.done() else answered.set_result(reply))
        return await answered

    async def close(self) -> None:
        for handle in self._open:
            handle.cancel()
        for parked in self._parked:
            parked.moved = None
        self._parked.clear()

    def _heed_faults(self, others: Callable[[], None]) -> None:
        """When it gets dark, open connections are reset: those on which a poll is parked, too."""

        def changed() -> None:
            others()
            if self._telegram.faults.is_live(Kind.DARK):
                for parked in list(self._parked):
                    self._unpark(parked, Reply(fault=NetworkFault.RESET, detail="closed by the peer"))

        self._telegram.faults.changed = changed

    def _later(self, delay_s: float, act: Callable[[], None]) -> asyncio.Handle:
        def now() -> None:
            self._open.discard(handle)
            act()

        handle = self._loop.call_later(delay_s, now, context=self._context)
        self._open.add(handle)
        return handle

    def _arrive(self, request: Request, done: Callable[[Reply], None]) -> None:
        if self._telegram.faults.is_live(Kind.DARK, Kind.REFUSE):
            done(Reply(fault=NetworkFault.REFUSED, left=False, detail="connection refused"))
            return
        params = msgspec.json.decode(request.params, type=dict[str, object])
        exchange = self._telegram.exchange(request.token.reveal(), request.method, params)
        self._later(exchange.late_s, lambda: self._process(request, params, exchange, done))

    def _process(
        self, request: Request, params: dict[str, object], exchange: Exchange, done: Callable[[Reply], None]
    ) -> None:
        answer = exchange.answer
        self.uploads += len(request.enclosures)
        if exchange.processes:
            files = {
                one.field: UploadedFile(
                    filename=one.filename, content=one.path.read_bytes(), content_type=one.content_type
                )
                for one in request.enclosures
            }
            processed = self._telegram.call(request.token.reveal(), request.method, params, files)
            if isinstance(processed, Pending):
                if answer is None and exchange.how is How.ANSWER:
                    self._park(processed, request, done)
                    return
            else:
                answer = answer or processed
        if exchange.how is How.HANG:
            hung = Reply(fault=NetworkFault.TIMEOUT, detail="no answer in time")
            self._later(request.timeout_s, lambda: done(hung))
            return
        self._later(exchange.slow_s + self._latency_s / 2, lambda: done(_reply(exchange.how, answer)))

    def _park(self, parked: Pending, request: Request, done: Callable[[Reply], None]) -> None:
        """Wait until the answer falls due, or the caller's patience ends; the poll stays parked then, as at Telegram."""
        timer: asyncio.Handle

        def look() -> None:
            answer = self._telegram.ripe(parked)
            if answer is None:
                wait()
            else:
                reply = Reply(status=answer.status, body=answer.body)
                self._later(self._latency_s / 2, lambda: self._unpark(parked, reply))
                parked.moved = None

        def wait() -> None:
            nonlocal timer
            timer = self._later(max(0.0, parked.due_at - self._telegram.now()), look)

        def moved() -> None:
            timer.cancel()
            self._open.discard(timer)
            wait()

        gone = Reply(fault=NetworkFault.TIMEOUT, detail="no answer in time")
        self._parked[parked] = (done, self._later(request.timeout_s, lambda: self._unpark(parked, gone)))
        parked.moved = moved
        wait()

    def _unpark(self, parked: Pending, reply: Reply) -> None:
        done, patience = self._parked.pop(parked, (None, None))
        if done is not None and patience is not None:
            patience.cancel()
            self._open.discard(patience)
            parked.moved = None
            done(reply)


def _reply(how: How, answer: Answer | None) -> Reply:
    if how is How.ANSWER and answer is not None:
        return Reply(status=answer.status, body=answer.body)
    if how is How.GARBAGE:
        return Reply(fault=NetworkFault.GARBLED, detail="not HTTP")
    return Reply(fault=NetworkFault.RESET, detail="closed by the peer")
