"""Other processes on the same store: notices what they wrote, and takes over when the owner is gone.

It sends nothing itself. What is to be read anew, and what an owner must start, is its maker's to say.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from peik.clock import Clock
from peik.errors import StoreUnavailable
from peik.events import Events, StoreFailed

OWNER_LOOK_S = 0.5  # DESIGN.md: the owner notices within a second
GUEST_LOOK_S = 0.2  # somebody may wait for what the owner is about to settle
CLAIM_S = 1.0
RETRY_S = 2.0


class SharedStore(Protocol):
    """A store that several processes open, one of them as its owner."""

    @property
    def is_owner(self) -> bool: ...

    async def claim(self) -> bool:
        """Become the owner unless another process is. Whether this one is now."""

    async def has_foreign_writes(self) -> bool:
        """Whether another process has written since this was last asked."""


class Neighbours:
    def __init__(
        self,
        *,
        store: SharedStore,
        clock: Clock,
        events: Events,
        reread: Callable[[], Awaitable[None]],
        take_over: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._reread = reread
        self._take_over = take_over

    async def run(self) -> None:
        claim_at = self._clock.mono() + CLAIM_S
        while True:
            await asyncio.sleep(OWNER_LOOK_S if self._store.is_owner else GUEST_LOOK_S)
            try:
                if await self._store.has_foreign_writes():
                    await self._surely(self._reread)
                if not self._store.is_owner and self._clock.mono() >= claim_at:
                    claim_at = self._clock.mono() + CLAIM_S
                    if await self._store.claim():
                        await self._surely(self._take_over)
            except StoreUnavailable as error:
                await self._failed(error)

    async def _surely(self, act: Callable[[], Awaitable[None]]) -> None:
        """Neither may be lost to a store that fails for a moment: a change is noticed once, and a claim is won once."""
        while True:
            try:
                await act()
            except StoreUnavailable as error:
                await self._failed(error)
            else:
                return

    async def _failed(self, error: StoreUnavailable) -> None:
        self._events.tell(StoreFailed(what="a look at other processes", why=error.detail))
        await asyncio.sleep(RETRY_S)
