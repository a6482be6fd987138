"""How the store stands, for those who ask often: whether it answers, whether this node drains, what its settings break."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

import msgspec

from peik.clock import Clock
from peik.core.documents import KEY_CHARS_MAX, DocumentStore, Filing
from peik.core.events import Events, StoreWeak
from peik.core.nodes import NodeStore
from peik.errors import Conflict, StoreUnavailable
from peik.monitoring.values import HostLine, Ongoing, RouteLine

FRESH_S = 1.0  # anybody may ask /health, and not every question is to reach the store
WEAK_FRESH_S = 60.0
ANSWER_S = 1.0  # a balancer, and the command line, wait for two


class ProcessesState(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent of several processes tells each of them."""

    processes: int
    serving: int
    deaths: int  # since the parent began
    is_ending: bool = False  # this one is to end
    is_followed: bool = False  # others go on at the same socket


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
        self.processes: Callable[[], ProcessesState | None] = lambda: None  # None: this one serves alone
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


# What each node alone knows, told to the others: its routes, its hosts, its troubles. One small document per node.
#
# Where one process holds the whole store nothing is filed, and nothing is read.


COLLECTION = "standings"
LOOK_S = 10.0  # so late, at most, do others see what changed here
LEFT_MS = 10 * 60_000  # a document of a node that is gone is taken away after so long
AGAIN_S = 300.0  # filed again, changed or not: another node may have taken us for gone
NODES_MAX = 1000
LAST_S = 1.0


class NodeStanding(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    at_ms: int = 0
    routes: tuple[RouteLine, ...] = ()
    hosts: tuple[HostLine, ...] = ()
    alerts: tuple[Ongoing, ...] = ()


_decode = msgspec.json.Decoder(NodeStanding).decode


class NodeStandings:
    def __init__(
        self, *, documents: DocumentStore, node: str, own: Callable[[], NodeStanding], is_shared: bool, clock: Clock
    ) -> None:
        self._documents = documents
        self._node = node
        self._own = own
        self._is_shared = is_shared
        self._clock = clock
        self._filed: NodeStanding | None = None
        self._filed_at = 0.0

    async def run(self) -> None:
        """File it when it has changed, until cancelled. A store that fails is asked again at the next look."""
        task = asyncio.current_task()
        assert task is not None
        while self._is_shared and not task.cancelling():  # asked: a library can swallow a cancellation on Python 3.11
            standing = self._own()
            if standing != self._filed or self._clock.mono() - self._filed_at >= AGAIN_S:
                with contextlib.suppress(StoreUnavailable):
                    await self._file(standing)
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Nothing is known of this node any more."""
        if self._filed is not None:
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._documents.file([Filing(collection=COLLECTION, key=_key(self._node), body=None)])

    async def others(self, nodes: Collection[str]) -> Sequence[NodeStanding]:
        """Of these nodes, without this one. Raises StoreUnavailable."""
        if not self._is_shared:
            return ()
        living = set(nodes)
        found, gone = [], []
        now_ms = self._clock.wall_ms()
        for document in await self._documents.documents(COLLECTION, limit=NODES_MAX):
            try:
                standing = _decode(document.body)
            except msgspec.DecodeError:
                continue  # of a version that is not known here
            if standing.node in living:
                if standing.node != self._node:
                    found.append(standing)
            elif now_ms - standing.at_ms > LEFT_MS:
                gone.append(Filing(collection=COLLECTION, key=document.key, body=None, version=document.version))
        if gone:
            with contextlib.suppress(Conflict):  # it is back
                await self._documents.file(gone)
        return found

    async def _file(self, standing: NodeStanding) -> None:
        stamped = msgspec.structs.replace(standing, at_ms=self._clock.wall_ms())
        body = msgspec.json.encode(stamped).decode()
        await self._documents.file([Filing(collection=COLLECTION, key=_key(self._node), body=body)])
        self._filed, self._filed_at = standing, self._clock.mono()


def _key(node: str) -> str:
    return node.encode("ascii", "replace").decode()[:KEY_CHARS_MAX]
