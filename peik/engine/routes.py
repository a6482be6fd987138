"""All ways to Telegram, in the order in which they are liked. It says by which one letters go now, and never resends one."""

import asyncio
from collections.abc import Callable, Sequence

from peik.bell import Bell
from peik.carrier_ports import Request
from peik.clock import Clock
from peik.core.outcome import judge
from peik.core.reply import Reply
from peik.engine.route import Route, RouteStatus
from peik.events import Events, RouteChosen


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
        self._bell = Bell()
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
