"""A carrier to a simulated Telegram in the same process: no sockets, so that it runs in virtual time and repeats exactly."""

import asyncio
from collections.abc import Callable

import msgspec

from peik.core.reply import Fault, Reply
from peik.ports import Request
from peik.testing.answer import Answer, UploadedFile
from peik.testing.exchange import Exchange, How
from peik.testing.faults import Kind
from peik.testing.telegram import Telegram


class SimCarrier:
    """Obeys the same port as the real one, and the faults of the simulated Telegram."""

    def __init__(self, telegram: Telegram, *, latency_s: float = 0.05) -> None:
        self._telegram = telegram
        self._latency_s = latency_s
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Handle] = set()
        self.uploads = 0

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        self._later(self._latency_s / 2, lambda: self._arrive(request, done))

    async def carry(self, request: Request) -> Reply:
        answered: asyncio.Future[Reply] = self._loop.create_future()
        self.start(request, lambda reply: None if answered.done() else answered.set_result(reply))
        return await answered

    async def close(self) -> None:
        for handle in self._open:
            handle.cancel()

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        def now() -> None:
            self._open.discard(handle)
            act()

        handle = self._loop.call_later(delay_s, now)
        self._open.add(handle)

    def _arrive(self, request: Request, done: Callable[[Reply], None]) -> None:
        if self._telegram.faults.is_live(Kind.DARK, Kind.REFUSE):
            done(Reply(fault=Fault.REFUSED, left=False, detail="connection refused"))
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
            assert isinstance(processed, Answer), "a sender never polls"
            answer = answer or processed
        if exchange.how is How.HANG:
            hung = Reply(fault=Fault.TIMEOUT, detail="no answer in time")
            self._later(request.timeout_s, lambda: done(hung))
            return
        self._later(exchange.slow_s + self._latency_s / 2, lambda: done(_reply(exchange.how, answer)))


def _reply(how: How, answer: Answer | None) -> Reply:
    if how is How.ANSWER and answer is not None:
        return Reply(status=answer.status, body=answer.body)
    if how is How.GARBAGE:
        return Reply(fault=Fault.GARBLED, detail="not HTTP")
    return Reply(fault=Fault.RESET, detail="closed by the peer")
