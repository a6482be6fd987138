"""Calls that never wait in a lane: answers, signals, reads and files go straight through, by the route that letters take.

What certainly did not leave is tried again for a moment; what may have arrived only if a second time does no harm.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from peik.clock import Clock
from peik.core.methods import MethodClass
from peik.core.outcome import Delivered, Limited, Moved, NetworkFault, Outcome, Refused, Reply, Uncertain, Unsent, judge
from peik.core.token import Token
from peik.telegram.port import Download, Downloader, Enclosure, Request
from peik.telegram.routes import Routes

_AWAY = Reply(fault=NetworkFault.NOT_TRIED, left=False, detail="Telegram cannot be reached")


class CallPatience(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call is tried: after each of these pauses, unless its time is over by then."""

    pauses_s: tuple[float, ...] = ()
    window_s: float = 0.0
    timeout_s: float | None = None  # of one try; None: as for letters
    may_double: bool = False  # a try that may have arrived can be followed by another


_READ = CallPatience(pauses_s=(0.2, 0.8), window_s=5.0, may_double=True)
_SIGNAL = CallPatience(timeout_s=10.0)
_UNKNOWN = CallPatience(pauses_s=(0.2, 0.8), window_s=5.0)
_QUICK = (0.2, 0.5, 1.0, 2.0)
_ANSWER = CallPatience(pauses_s=_QUICK, window_s=8.0, timeout_s=30.0)

# What comes later than this is not heard any more (docs/telegram.md, Answers in time). The same answer twice changes nothing
# for the first two; a checkout must not be answered twice.
_ANSWERS = {
    "answerCallbackQuery": CallPatience(pauses_s=_QUICK, window_s=15.0, timeout_s=30.0, may_double=True),
    "answerInlineQuery": CallPatience(pauses_s=_QUICK, window_s=10.0, timeout_s=30.0, may_double=True),
}


def patience_with(method: str, kind: MethodClass | None) -> CallPatience:
    match kind:
        case MethodClass.READ:
            return _READ
        case MethodClass.ANSWER:
            return _ANSWERS.get(method, _ANSWER)
        case MethodClass.SIGNAL:
            return _SIGNAL
        case _:
            return _UNKNOWN


class Passthrough:
    """`downloaders` are the same ways as the routes, by their names."""

    def __init__(
        self,
        *,
        routes: Routes,
        downloaders: Mapping[str, Downloader],
        clock: Clock,
        timeout_s: float,
        upload_timeout_s: float,
    ) -> None:
        self._routes = routes
        self._downloaders = downloaders
        self._clock = clock
        self._timeout_s = timeout_s
        self._upload_timeout_s = upload_timeout_s

    @property
    def is_away(self) -> bool:
        """There is no way to Telegram just now."""
        return self._routes.is_open

    async def carry(
        self,
        token: Token,
        method: str,
        params: bytes,
        *,
        patience: CallPatience,
        enclosures: Sequence[Enclosure] = (),
    ) -> Reply:
        """What Telegram said, at once if there is no way to it."""
        if self._routes.is_open:
            return _AWAY
        usual_s = self._upload_timeout_s if enclosures else self._timeout_s
        request = Request(
            token=token,
            method=method,
            params=params,
            enclosures=enclosures,
            timeout_s=patience.timeout_s or usual_s,
        )
        deadline = self._clock.mono() + patience.window_s
        reply = await self._routes.carry(request)
        for pause_s in () if reply.status == 200 else patience.pauses_s:
            outcome = judge(reply, method=method)
            if not _may_try_again(outcome, patience) or self._clock.mono() + pause_s > deadline:
                break
            await asyncio.sleep(pause_s)
            again = await self._routes.carry(request)
            # A way that has closed in between says less than what came before.
            reply = reply if again.fault is NetworkFault.NOT_TRIED else again
        return reply

    async def download(self, token: Token, path: str, *, headers: Mapping[str, str]) -> Download | Reply:
        if self._routes.is_open:
            return _AWAY
        return await self._downloaders[self._routes.in_use.name].open(token, path, headers=headers)


def _may_try_again(outcome: Outcome, patience: CallPatience) -> bool:
    match outcome:
        case Unsent():
            return True
        case Uncertain():
            return patience.may_double
        case Delivered() | Limited() | Moved() | Refused():
            return False
