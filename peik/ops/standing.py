"""What each node alone knows, told to the others: its routes, its hosts, its troubles. One small paper per node.

Where one process holds the whole store nothing is filed, and nothing is read.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

import msgspec

from peik.clock import Clock
from peik.errors import StoreUnavailable
from peik.ops.overview_values import HostLine, Ongoing, RouteLine
from peik.paper_ports import KEY_CHARS_MAX, Filing, PaperStore

SHELF = "standings"
LOOK_S = 10.0  # so late, at most, do others see what changed here
LEFT_MS = 10 * 60_000  # a paper of a node that is gone is taken away after so long
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

    async def run(self) -> None:
        """File it when it has changed, until cancelled. A store that fails is asked again at the next look."""
        while self._is_shared:
            standing = self._own()
            if standing != self._filed:
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
                gone.append(Filing(shelf=SHELF, key=paper.key, body=None))
        if gone:
            await self._papers.file(gone)
        return found

    async def _file(self, standing: Standing) -> None:
        stamped = msgspec.structs.replace(standing, at_ms=self._clock.wall_ms())
        body = msgspec.json.encode(stamped).decode()
        await self._papers.file([Filing(shelf=SHELF, key=_key(self._node), body=body)])
        self._filed = standing


def _key(node: str) -> str:
    return node.encode("ascii", "replace").decode()[:KEY_CHARS_MAX]
