"""The processes on one SQLite file, as nodes: the one that holds the file's lock acts for all bots, until it ends."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from peik import __version__
from peik.clock import Clock
from peik.core.letter import Letter
from peik.core.nodes import Beat, News, NodeRecord
from peik.storage.sqlite.database import OwnerLock

OWNER_LOOK_S = 0.5  # the owner notices within a second
GUEST_LOOK_S = 0.2  # somebody may wait for what the owner is about to settle


class SqliteNodes:
    """See `peik.core.nodes.NodeStore`."""

    lease_s = None

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        claim: Callable[[], Awaitable[int]],
        has_news: Callable[[], Awaitable[bool]],
    ) -> None:
        self._path = path
        self._clock = clock
        self._claim = claim
        self._has_news = has_news
        self._epoch = 0
        self._started_at_ms = clock.wall_ms()
        self._locks: dict[str, OwnerLock] = {}
        self.node = f"{socket.gethostname()}-{os.getpid()}"

    async def beat(self, *, is_draining: bool = False) -> Beat:
        self._epoch = await self._claim()
        return Beat(leases={}, is_whole=self._epoch > 0, epoch=self._epoch)

    async def release(self, bot_ids: Sequence[int]) -> None:
        """They end with the process."""

    async def take_lock(self, name: str) -> bool:
        lock = self._lock(name)
        if not lock.try_acquire():
            return False
        self._locks[name] = lock
        return True

    async def drop_lock(self, name: str) -> None:
        lock = self._locks.pop(name, None)
        if lock is not None:
            lock.release()

    async def is_locked(self, name: str) -> bool:
        return self._lock(name).is_taken()

    def _lock(self, name: str) -> OwnerLock:
        return OwnerLock(self._path, suffix=f".{name}")

    async def nodes(self) -> list[NodeRecord]:
        """This process. Others on the file leave no sign of themselves."""
        now = self._clock.wall_ms()
        return [
            NodeRecord(
                name=self.node, version=__version__, address=None, started_at_ms=self._started_at_ms, seen_at_ms=now
            )
        ]

    async def drain_node(self, name: str, *, is_draining: bool) -> bool:
        return False

    async def news(self) -> News:
        while True:
            await asyncio.sleep(OWNER_LOOK_S if self._epoch else GUEST_LOOK_S)
            if await self._has_news():
                return News(is_all=True)

    async def new_letters(self, ranges: Sequence[tuple[int, int, int]]) -> list[Letter]:
        return []  # its news are never so exact

    async def last_numbers(self) -> dict[int, int]:
        return {}  # every look at the file sees what was written before

    async def durability(self) -> list[str]:
        return []  # `synchronous=FULL` is set by ourselves, on every connection
