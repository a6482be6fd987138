"""Many callers, few commits: what is handed in while one commit is under way goes into the next one together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from peik.errors import StoreUnavailable

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

AT_ONCE_MAX = 2000  # a bound on how long one commit keeps the others waiting


class ArchiveBatcher(Generic[Item, Outcome]):
    """`keep` writes items durably and tells what became of each. If it fails for several callers together, each is tried
    alone, so that one bad item never fails its neighbours."""

    def __init__(
        self, keep: Callable[[Sequence[Item]], Awaitable[list[Outcome]]], *, at_once_max: int = AT_ONCE_MAX
    ) -> None:
        self._keep = keep
        self._at_once_max = at_once_max
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[list[Outcome]]]] = []
        self._running: asyncio.Task[None] | None = None

    async def add(self, items: Sequence[Item]) -> list[Outcome]:
        """What became of each, after the commit. More than fit into one commit are committed in parts."""
        outcomes: list[Outcome] = []
        for start in range(0, len(items), self._at_once_max):
            part = items[start : start + self._at_once_max]
            future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
            self._waiting.append((part, future))
            if self._running is None:
                self._running = asyncio.create_task(self._run())
            outcomes += await future
        return outcomes

    async def drained(self) -> None:
        while self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._cut())
        finally:
            self._running = None

    def _cut(self) -> list[tuple[Sequence[Item], "asyncio.Future[list[Outcome]]"]]:
        weight, count = 0, 0
        for items, _ in self._waiting:
            if count and weight + len(items) > self._at_once_max:
                break
            weight, count = weight + len(items), count + 1
        parts, self._waiting = self._waiting[:count], self._waiting[count:]
        return parts

    async def _commit(self, parts: "list[tuple[Sequence[Item], asyncio.Future[list[Outcome]]]]") -> None:
        try:
            outcomes = await self._keep([item for items, _ in parts for item in items])
        except asyncio.CancelledError:  # the loop ends: nobody waits any more
            for _, future in parts:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  it is reported to the caller
            if len(parts) == 1 or isinstance(error, StoreUnavailable):
                for _, future in parts:
                    if not future.done():
                        future.set_exception(error)
                return
            for part in parts:
                await self._commit([part])
            return
        start = 0
        for items, future in parts:
            if not future.done():
                future.set_result(outcomes[start : start + len(items)])
            start += len(items)
