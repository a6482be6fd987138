"""A carrier to a simulated Telegram in the same process: no sockets, so that it runs in virtual time and repeats exactly."""

import asyncio
import contextvars
from collections.abc import Callable

import msgspec

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.port import Request
from peik.testing.answer import Answer, Pending, UploadedFile
from peik.testing.faults import Exchange, How, Kind
from peik.testing.telegram import Telegram


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
