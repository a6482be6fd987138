"""How the store stands, for those who ask often: whether it answers, whether this node drains, what its settings break."""

import asyncio
from collections.abc import Callable, Sequence

from peik.clock import Clock
from peik.errors import StoreUnavailable
from peik.events import Events, StoreWeak
from peik.node_ports import NodeStore

FRESH_S = 1.0  # anybody may ask /health, and not every question is to reach the store
WEAK_FRESH_S = 60.0
ANSWER_S = 1.0  # a balancer, and the command line, wait for two


class Pulse:
    """A store on a server is asked; of a file, the last commit tells, and its one reader may be busy for a while."""

    def __init__(
        self,
        *,
        store: NodeStore,
        trouble: Callable[[], StoreUnavailable | None],
        clock: Clock,
        events: Events,
    ) -> None:
        self._store = store
        self._trouble = trouble
        self._clock = clock
        self._events = events
        self._turn = asyncio.Lock()
        self._asked_at: float | None = None
        self._failure: StoreUnavailable | None = None
        self._is_draining = False
        self._weak: Sequence[str] = ()
        self._weak_at: float | None = None

    async def trouble(self) -> StoreUnavailable | None:
        """Why the store cannot be used now, about a second ago at most."""
        return self._trouble() or await self._look()

    async def is_draining(self) -> bool:
        """Whether this node was asked to let its bots go."""
        await self._look()
        return self._is_draining

    async def weaknesses(self) -> Sequence[str]:
        """What of the store's settings breaks the promise, each told as an event when it is first seen. As it was known
        last, if the store does not answer."""
        async with self._turn:
            if self._failure is None and self._is_stale(self._weak_at, WEAK_FRESH_S):
                try:
                    async with asyncio.timeout(ANSWER_S):
                        found = await self._store.durability()
                except (TimeoutError, StoreUnavailable):
                    return self._weak
                fresh = [what for what in found if what not in self._weak]
                self._weak, self._weak_at = found, self._clock.mono()
                self._events.tell_all([StoreWeak(what=what) for what in fresh])
        return self._weak

    async def _look(self) -> StoreUnavailable | None:
        if self._store.lease_s is None:
            return None
        async with self._turn:
            if self._is_stale(self._asked_at, FRESH_S):
                try:
                    async with asyncio.timeout(ANSWER_S):
                        nodes = await self._store.nodes()
                except TimeoutError:
                    self._failure = StoreUnavailable(code="store_slow", detail="The store does not answer.")
                except StoreUnavailable as error:
                    self._failure = error
                else:
                    self._failure = None
                    self._is_draining = any(one.is_draining for one in nodes if one.name == self._store.node)
                self._asked_at = self._clock.mono()
        return self._failure

    def _is_stale(self, at: float | None, fresh_s: float) -> bool:
        return at is None or self._clock.mono() - at >= fresh_s
