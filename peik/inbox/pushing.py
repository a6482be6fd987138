"""Arrivals for bots behind an address: one POST each, as Telegram makes it. A call in the answer goes to the outbox.

It is accepted there before the arrival is settled, under a key of its own: a crash neither loses it nor sends it twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from peik.core.address import Reach
from peik.core.answered import read_answer
from peik.core.arrival import Arrival
from peik.core.problem import Problem
from peik.core.trace import HEADER, trace_of
from peik.errors import Conflict, StoreUnavailable
from peik.events import AnswerIgnored, Events, StoreFailed
from peik.inbox.delivery import Away, Done, Failed, Patience, Verdict
from peik.inbox_ports import Consumer, Pushed, Pusher
from peik.tracing import under

TRY_S = 60.0  # as Telegram waits (docs/telegram.md, Webhook delivery)
PATIENCE = Patience(attempts=30, first_ms=1000)
RETRY_S = 2.0
# Somebody answers in the bot's place that it is not there, or that it wants to be left alone for a while.
AWAY_STATUS = frozenset({429, 502, 503, 504})
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of a header


class Accept(Protocol):
    """Where calls go. Raises BadInput if it cannot be one, and Conflict if the key was used for another."""

    async def __call__(self, bot_id: int, method: str, params: bytes, *, idempotency_key: str) -> None: ...


class Push:
    """A taker of arrivals."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        pusher: Pusher,
        reach_of: Callable[[int], Awaitable[Reach]],
        accept: Accept,
        events: Events,
    ) -> None:
        assert consumer.url is not None
        self._consumer = consumer
        self._url = consumer.url
        self._headers = {} if consumer.secret is None else {SECRET_HEADER: consumer.secret}
        self._pusher = pusher
        self._reach_of = reach_of
        self._accept = accept
        self._events = events

    async def deliver(self, arrival: Arrival, *, tries: int) -> Verdict:
        trace = trace_of(arrival.bot_id, arrival.number)
        headers = {**self._headers, HEADER: trace}
        try:
            reach = await self._reach_of(
                arrival.bot_id
            )  # now: it may have become the owner's, or have come anew by itself
        except StoreUnavailable as error:
            return Away(why=error.detail, wait_s=RETRY_S)
        pushed = await self._pusher.push(self._url, headers, arrival.wire(), timeout_s=TRY_S, reach=reach)
        verdict = _judge(pushed)
        if isinstance(verdict, Done) and pushed.body:
            with under(trace):
                await self._take_call(arrival, pushed.body)
        return verdict

    async def _take_call(self, arrival: Arrival, body: bytes) -> None:
        try:
            call = read_answer(body)
            if call is not None:
                await self._surely_accept(arrival, *call)
        except Conflict:
            return  # it had answered once before, with other words, and those were taken
        except Problem as problem:
            self._events.tell(
                AnswerIgnored(
                    bot_id=arrival.bot_id, consumer=self._consumer.name, arrival_id=arrival.id, why=problem.detail
                )
            )

    async def _surely_accept(self, arrival: Arrival, method: str, params: bytes) -> None:
        """Until the store takes it: the bot said it once, and will not say it again."""
        key = f"push:{self._consumer.id}:{arrival.number}"
        while True:
            try:
                return await self._accept(arrival.bot_id, method, params, idempotency_key=key)
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="a call in the answer to a push", why=error.detail))
                await asyncio.sleep(RETRY_S)


def _judge(pushed: Pushed) -> Verdict:
    if 200 <= pushed.status < 300:
        return Done()
    why = f"it answered {pushed.status}" if pushed.status else pushed.why
    if not pushed.status or pushed.status in AWAY_STATUS:
        return Away(why=why, wait_s=pushed.retry_after_s)
    return Failed(words=why, code=pushed.status)
