"""What each node alone knows, told to the others: its routes, its hosts, its troubles. One small paper per node.

Where one process holds the whole store nothing is filed, and nothing is read.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

import msgspec

from peik.clock import Clock
from peik.errors import Conflict, StoreUnavailable
from peik.ops.overview_values import HostLine, Ongoing, RouteLine
from peik.paper_ports import KEY_CHARS_MAX, Filing, PaperStore

SHELF = "standings"
LOOK_S = 10.0  # so late, at most, do others see what changed here
LEFT_MS = 10 * 60_000  # a paper of a node that is gone is taken away after so long
AGAIN_S = 300.0  # filed anew, changed or not: another node may have taken us for gone
NODES_MAX = 1000
LAST_S = 1.0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    at_ms: int = 0
    routes: tuple[RouteLine, ...] = ()
    hosts: tuple[HostLine, ...] = ()
    alerts: tuple[Ongoing, ...] = ()


_decode = msgspec.json.Decoder(Standing).decode


class Standings:
    def __init__(
        self, *, papers: PaperStore, node: str, own: Callable[[], Standing], is_shared: bool, clock: Clock
    ) -> None:
        self._papers = papers
        self._node = node
        self._own = own
        self._is_shared = is_shared
        self._clock = clock
        self._filed: Standing | None = None
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
                    await self._papers.file([Filing(shelf=SHELF, key=_key(self._node), body=None)])

    async def others(self, nodes: Collection[str]) -> Sequence[Standing]:
        """Of these nodes, without this one. Raises StoreUnavailable."""
        if not self._is_shared:
            return ()
        living = set(nodes)
        found, gone = [], []
        now_ms = self._clock.wall_ms()
        for paper in await self._papers.papers(SHELF, limit=NODES_MAX):
            try:
                standing = _decode(paper.body)
            except msgspec.DecodeError:
                continue  # of a version that is not known here
            if standing.node in living:
                if standing.node != self._node:
                    found.append(standing)
            elif now_ms - standing.at_ms > LEFT_MS:
                gone.append(Filing(shelf=SHELF, key=paper.key, body=None, version=paper.version))
        if gone:
            with contextlib.suppress(Conflict):  # it is back
                await self._papers.file(gone)
        return found

    async def _file(self, standing: Standing) -> None:
        stamped = msgspec.structs.replace(standing, at_ms=self._clock.wall_ms())
        body = msgspec.json.encode(stamped).decode()
        await self._papers.file([Filing(shelf=SHELF, key=_key(self._node), body=body)])
        self._filed, self._filed_at = standing, self._clock.mono()


def _key(node: str) -> str:
    return node.encode("ascii", "replace").decode()[:KEY_CHARS_MAX]
