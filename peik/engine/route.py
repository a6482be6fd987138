"""One way to Telegram with its breaker. While it is open nothing is tried; getMe probes it, never a letter."""

import asyncio
import random
from collections.abc import Callable

import msgspec

from peik.bell import Bell
from peik.carrier_ports import Carrier, Request
from peik.clock import Clock
from peik.core import breaker as rules
from peik.core.breaker import Breaker, RouteState
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent, judge
from peik.core.reply import Fault, Reply
from peik.core.token import Token
from peik.events import Events, RouteClosed, RouteOpened

PROBE_TIMEOUT_S = 10.0
SILENCE_S = 10.0  # with calls in flight and no answer to any of them for so long, the route itself is asked
WATCH_S = 15.0  # of several routes, one that has been quiet for so long is asked, so that its state is told rightly
CALM_S = 300.0  # a route that fails again sooner than this after it came back is flapping
TRIAL_DOUBLINGS_MAX = 5
TRIAL_PROBES = 4  # how often a route must have answered, at least, before letters return to it
TRIAL_PROBE_S = 2.0  # the longest pause between two of them: a route that is away longer than that is caught
_NOT_TRIED = Reply(fault=Fault.NOT_TRIED, left=False, detail="the route is down")
_GIVEN_UP = Reply(fault=Fault.TIMEOUT, detail="the route went silent")


class RouteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A route as people see it. `probe_at_ms` is set while it is open."""

    name: str
    kind: str
    state: RouteState
    failures: int
    why: str
    since_ms: int
    probe_at_ms: int | None


class Route:
    """Tries start here, and what came of them is reported here.

    `is_watched`: it is one of several, so that it is asked with getMe now and then even when nothing goes by it, and
    after an outage it is on trial for `trial_s`, or longer the more often it fails.
    """

    def __init__(
        self,
        name: str,
        carrier: Carrier,
        *,
        kind: str = "direct",
        clock: Clock,
        chance: random.Random,
        events: Events,
        probe_token: Callable[[], Token | None],
        trial_s: float = 5.0,
        is_watched: bool = False,
    ) -> None:
        self.name = name
        self._kind = kind
        self._carrier = carrier
        self._clock = clock
        self._chance = chance
        self._events = events
        self._probe_token = probe_token
        self._trial_s = trial_s
        self._is_watched = is_watched
        self._breaker = rules.CLOSED
        self._bell = Bell()
        self._on_change: Callable[[], None] = lambda: None
        # By number: what should be answered soon, and what is parked at Telegram until something comes.
        self._due: dict[int, Callable[[Reply], None]] = {}
        self._parked: dict[int, Callable[[Reply], None]] = {}
        self._started = 0
        self._heard_at = clock.mono() - WATCH_S  # at the start nothing is known, so ask at once
        self._closed_at = float("-inf")
        self._relapses = 0
        self._since_ms = clock.wall_ms()

    @property
    def is_open(self) -> bool:
        """Open as a breaker is open: nothing passes."""
        return self._breaker.is_open

    @property
    def steady_at(self) -> float:
        """When its trial is over, if it goes on answering. Always past for a route that never failed."""
        return self._closed_at + self._trial_s * (1 << min(self._relapses, TRIAL_DOUBLINGS_MAX))

    def status(self) -> RouteStatus:
        breaker = self._breaker
        to_probe_s = breaker.probe_at - self._clock.mono()
        return RouteStatus(
            name=self.name,
            kind=self._kind,
            state=breaker.state,
            failures=breaker.probes + 1 if breaker.is_open else breaker.failures,
            why=breaker.why,
            since_ms=self._since_ms,
            probe_at_ms=self._clock.wall_ms() + int(max(0.0, to_probe_s) * 1000) if breaker.is_open else None,
        )

    def when_changed(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called after the route has opened or closed."""
        self._on_change = on_change

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        if self._breaker is not rules.CLOSED and self._breaker.is_open:
            asyncio.get_running_loop().call_soon(done, _NOT_TRIED)
            return
        # A poll is parked at Telegram until something comes: its silence says nothing, and it has its own time to end.
        in_flight = self._parked if request.method == "getUpdates" else self._due
        if not self._due and in_flight is self._due:
            self._heard_at = self._clock.mono()
            self._bell.ring()  # from now on silence counts
        self._started = number = self._started + 1
        in_flight[number] = done

        def answered(reply: Reply) -> None:
            if reply.status:
                self._heard_at = self._clock.mono()
            waiting = in_flight.pop(number, None)
            if waiting is not None:
                waiting(reply)

        self._carrier.start(request, answered)

    def give_up(self) -> None:
        """End what is in flight on a route that is open and silent: uncertain now instead of when its time is over.

        For when there is another way. Otherwise a path that swallows everything would hold a bot's places in flight, and
        its lanes, for over a minute. Whatever answer still comes is not heard any more.
        """
        if self._breaker.is_open and self._clock.mono() >= self._heard_at + SILENCE_S:
            for _, done in sorted((self._due | self._parked).items()):
                asyncio.get_running_loop().call_soon(done, _GIVEN_UP)
            self._due.clear()
            self._parked.clear()

    def observe(self, letter_id: int, outcome: Outcome, reply: Reply, *, began_at: float) -> None:
        """What a try that this route carried says about it."""
        if self._breaker is rules.CLOSED and type(outcome) is Delivered:
            return  # as nearly always
        match outcome:
            case Unsent() | Uncertain() if began_at < self._closed_at:
                pass  # it went into an outage that is over; the probe that ended it knows better
            case Delivered() | Limited() | Moved() | Refused():
                if self._breaker is not rules.CLOSED and not self._breaker.is_open:
                    self._breaker = rules.CLOSED
            case Unsent(why=why):
                if reply.fault is not Fault.NOT_TRIED:
                    chance = self._chance.random()
                    self._change(rules.after_unsent(self._breaker, now=self._clock.mono(), chance=chance, why=why))
            case Uncertain(why=why):
                chance = self._chance.random()
                now = self._clock.mono()
                self._change(rules.after_doubt(self._breaker, letter_id=letter_id, now=now, chance=chance, why=why))

    def _change(self, breaker: Breaker) -> None:
        has_opened = breaker.is_open and not self._breaker.is_open
        self._breaker = breaker
        if has_opened:
            is_relapse = self._clock.mono() < self._closed_at + CALM_S
            self._relapses = self._relapses + 1 if is_relapse else 0
            self._since_ms = self._clock.wall_ms()
            self._events.tell(RouteOpened(route=self.name, why=breaker.why))
            self._bell.ring()
            self._on_change()

    def probe_now(self) -> None:
        """Somebody knows that the way may be free again."""
        if self._breaker.is_open:
            self._breaker = msgspec.structs.replace(self._breaker, probe_at=self._clock.mono())
            self._bell.ring()

    async def run(self) -> None:
        """Probe the route while it is open, on trial, or quiet for too long, until cancelled."""
        while True:
            await self._bell.wait(self._probe_at())
            due = self._probe_at()
            if due is None or self._clock.mono() < due:
                continue
            token = self._probe_token()
            if token is None:
                # Without a bot there is nothing to send and nobody to ask as; the next try will tell.
                self._heard_at = self._clock.mono()
                if self._breaker.is_open:
                    self._close()
                continue
            await self._probe(token)

    def _probe_at(self) -> float | None:
        if self._breaker.is_open:
            return self._breaker.probe_at
        if self._due:
            return self._heard_at + SILENCE_S
        if not self._is_watched:
            return None
        if self._clock.mono() < self.steady_at:
            return self._heard_at + min(TRIAL_PROBE_S, (self.steady_at - self._closed_at) / TRIAL_PROBES)
        return self._heard_at + WATCH_S

    async def _probe(self, token: Token) -> None:
        request = Request(token=token, method="getMe", params=b"{}", timeout_s=PROBE_TIMEOUT_S)
        began_at = self._clock.mono()
        reply = await self._carrier.carry(request)
        outcome = judge(reply, method="getMe")
        now = self._clock.mono()
        match outcome:
            case Delivered() | Limited() | Moved() | Refused():
                # Any answer of Telegram's own will do, even a no: the way is free.
                self._heard_at = now
                if self._breaker.is_open:
                    self._close()
            case Unsent(why=why) | Uncertain(why=why):
                if self._breaker.is_open:
                    chance = self._chance.random()
                    self._breaker = rules.after_failed_probe(self._breaker, now=now, chance=chance, why=why)
                elif self._heard_at <= began_at:  # else others were answered meanwhile, and the probe had bad luck
                    self._change(rules.after_unsent(self._breaker, now=now, chance=self._chance.random(), why=why))

    def _close(self) -> None:
        self._closed_at = self._clock.mono()
        self._since_ms = self._clock.wall_ms()
        after_s = self._closed_at - self._breaker.opened_at
        self._breaker = rules.CLOSED
        self._events.tell(RouteClosed(route=self.name, after_s=after_s))
        self._on_change()
