"""Routes to Telegram: each with its breaker, which getMe probes and never a letter, and which of them is in use."""

import asyncio
import enum
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from peik.clock import Clock
from peik.core.events import Events, RouteChosen, RouteClosed, RouteOpened
from peik.core.methods import MethodClass
from peik.core.outcome import Delivered, Limited, Moved, NetworkFault, Outcome, Refused, Reply, Uncertain, Unsent, judge
from peik.core.token import Token
from peik.telegram.client import HttpDownload, HttpDownloader
from peik.telegram.port import Carrier, Enclosure, Request
from peik.wakeup import Wakeup

# The breaker of one route: opens when the route fails, and closes only when a probe has come back. Pure; time comes
# in.


PROBE_S_FIRST = 0.5
PROBE_S_MAX = 15.0  # an outage that ends is noticed within this many seconds


class RouteState(enum.StrEnum):
    CLOSED = "closed"
    OPEN = "open"


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """How a route stands. `failing` holds the letters of the current row of failures, to tell a bad route from a bad letter."""

    state: RouteState = RouteState.CLOSED
    failures: int = 0
    failing: frozenset[int] = frozenset()
    probes: int = 0
    probe_at: float = 0.0
    opened_at: float = 0.0
    why: str = ""

    @property
    def is_open(self) -> bool:
        return self.state is RouteState.OPEN


FAILURES_TO_OPEN = 4  # in a row, over more than one letter: one letter that breaks the server must not close the route
CLOSED = Breaker()  # so it is after each answer of Telegram itself, whatever it was: the route works


def after_unsent(breaker: Breaker, *, now: float, chance: float, why: str) -> Breaker:
    """A connection could not even be made. That says nothing about the letter and all about the route: open at once."""
    return breaker if breaker.is_open else _open(now, chance, why)


def after_doubt(breaker: Breaker, *, letter_id: int, now: float, chance: float, why: str) -> Breaker:
    """Bytes left and no verdict came. A row of these over several letters opens the breaker."""
    if breaker.is_open:
        return breaker
    failing = breaker.failing | {letter_id}
    if breaker.failures + 1 >= FAILURES_TO_OPEN and len(failing) > 1:
        return _open(now, chance, why)
    return msgspec.structs.replace(breaker, failures=breaker.failures + 1, failing=failing, why=why)


def after_failed_probe(breaker: Breaker, *, now: float, chance: float, why: str) -> Breaker:
    probes = breaker.probes + 1
    return msgspec.structs.replace(breaker, probes=probes, probe_at=now + _wait(probes, chance), why=why)


def _open(now: float, chance: float, why: str) -> Breaker:
    return Breaker(state=RouteState.OPEN, probe_at=now + _wait(0, chance), opened_at=now, why=why)


def _wait(probes: int, chance: float) -> float:
    """0.5, 1, 2 … 15 s, each shortened by up to a half, so that many nodes do not probe in step."""
    return min(PROBE_S_MAX, PROBE_S_FIRST * (1 << min(probes, 16))) * (1.0 - chance / 2)


PROBE_TIMEOUT_S = 10.0
SILENCE_S = 10.0  # with calls in flight and no answer to any of them for so long, the route itself is asked
WATCH_S = 15.0  # of several routes, one that has been quiet for so long is asked, so that its state is told rightly
CALM_S = 300.0  # a route that fails again sooner than this after it came back is flapping
TRIAL_DOUBLINGS_MAX = 5
TRIAL_PROBES = 4  # how often a route must have answered, at least, before letters return to it
TRIAL_PROBE_S = 2.0  # the longest pause between two of them: a route that is away longer than that is caught
_NOT_TRIED = Reply(fault=NetworkFault.NOT_TRIED, left=False, detail="the route is down")
_GIVEN_UP = Reply(fault=NetworkFault.TIMEOUT, detail="the route went silent")


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
        self._breaker = CLOSED
        self._bell = Wakeup()
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
        if self._breaker is not CLOSED and self._breaker.is_open:
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
        if self._breaker is CLOSED and type(outcome) is Delivered:
            return  # as nearly always
        match outcome:
            case Unsent() | Uncertain() if began_at < self._closed_at:
                pass  # it went into an outage that is over; the probe that ended it knows better
            case Delivered() | Limited() | Moved() | Refused():
                if self._breaker is not CLOSED and not self._breaker.is_open:
                    self._breaker = CLOSED
            case Unsent(why=why):
                if reply.fault is not NetworkFault.NOT_TRIED:
                    chance = self._chance.random()
                    self._change(after_unsent(self._breaker, now=self._clock.mono(), chance=chance, why=why))
            case Uncertain(why=why):
                chance = self._chance.random()
                now = self._clock.mono()
                self._change(after_doubt(self._breaker, letter_id=letter_id, now=now, chance=chance, why=why))

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
                    self._breaker = after_failed_probe(self._breaker, now=now, chance=chance, why=why)
                elif self._heard_at <= began_at:  # else others were answered meanwhile, and the probe had bad luck
                    self._change(after_unsent(self._breaker, now=now, chance=self._chance.random(), why=why))

    def _close(self) -> None:
        self._closed_at = self._clock.mono()
        self._since_ms = self._clock.wall_ms()
        after_s = self._closed_at - self._breaker.opened_at
        self._breaker = CLOSED
        self._events.tell(RouteClosed(route=self.name, after_s=after_s))
        self._on_change()


# All ways to Telegram, in the order in which they are liked. It says by which one letters go now, and never resends
# one.


class Routes:
    """Senders ask for the route in use, start their tries there and report to the route that carried each.

    Letters leave a route as soon as it opens. They return to a better one only when its trial is over, so that a route
    that comes and goes does not take letters with it each time.
    """

    def __init__(self, routes: Sequence[Route], *, clock: Clock, events: Events) -> None:
        assert routes, "there is always a way to try"
        self._routes = tuple(routes)
        self._clock = clock
        self._events = events
        self._in_use = self._routes[0]
        self._is_open = False
        self._bell = Wakeup()
        self._rung_when_back: list[Callable[[], None]] = []
        self._calls = 0
        for route in self._routes:
            route.when_changed(self._reconsider)

    @property
    def in_use(self) -> Route:
        """The route for the next try. While all are open it is one of them, which tries nothing and says so."""
        return self._in_use

    @property
    def is_open(self) -> bool:
        """Open as a breaker is open: there is no way to Telegram."""
        return self._is_open

    def when_back(self, ring: Callable[[], None]) -> None:
        """`ring` is called when there is a way again after there was none."""
        self._rung_when_back.append(ring)

    def statuses(self) -> list[tuple[RouteStatus, bool]]:
        """Every route in the order of the settings, and whether letters go by it."""
        return [(route.status(), route is self._in_use and not self._is_open) for route in self._routes]

    async def carry(self, request: Request) -> Reply:
        """One try of what is not a letter, by the route in use, which learns from it as from any other."""
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        route, began_at = self._in_use, self._clock.mono()
        route.start(request, lambda reply: None if answered.done() else answered.set_result(reply))
        reply = await answered
        self._calls += 1
        # Letters have positive ids. Each of these counts as another one: a row of them says as much as a row of letters.
        route.observe(-self._calls, judge(reply, method=request.method), reply, began_at=began_at)
        return reply

    def probe_now(self) -> None:
        """A way that was shut may be free again: see at once."""
        for route in self._routes:
            route.probe_now()

    async def run(self) -> None:
        """Watch over all routes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for route in self._routes:
                group.create_task(route.run())
            while True:
                await self._bell.wait(self._reconsider_at())
                self._choose()

    def _reconsider(self) -> None:
        was_open = self._is_open
        self._choose()
        if not self._is_open:
            for route in self._routes:
                route.give_up()
            if was_open:
                for ring in self._rung_when_back:
                    ring()
        self._bell.ring()

    def _reconsider_at(self) -> float | None:
        """When the next better route ends its trial."""
        times = [route.steady_at for route in self._better() if not route.is_open]
        return min(times, default=None)

    def _choose(self) -> None:
        chosen = choose(self._routes, self._in_use, now=self._clock.mono())
        is_open = chosen.is_open
        if chosen is not self._in_use or is_open is not self._is_open:
            self._in_use, self._is_open = chosen, is_open
            self._events.tell(RouteChosen(route=None if is_open else chosen.name))

    def _better(self) -> Sequence[Route]:
        return self._routes[: self._routes.index(self._in_use)]


def choose(routes: Sequence[Route], in_use: Route, *, now: float) -> Route:
    """The best steady route; failing that, the one in use if it works; failing that, any that works."""
    closed = [route for route in routes if not route.is_open]
    steady = [route for route in closed if route.steady_at <= now]
    if in_use.is_open:
        return next(iter(steady or closed), in_use)
    better = routes[: routes.index(in_use)]
    return next((route for route in steady if route in better), in_use)


# Calls that never wait in a lane: answers, signals, reads and files go straight through, by the route that letters
# take.
#
# What certainly did not leave is tried again for a moment; what may have arrived only if a second time does no harm.


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
        downloaders: Mapping[str, HttpDownloader],
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

    async def download(self, token: Token, path: str, *, headers: Mapping[str, str]) -> HttpDownload | Reply:
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
