"""The right to send: a key that expires by the server's own clock, and an epoch that rises with every owner.

The scripts check both in the very write (advance.lua). Here the lease is kept alive, and known to be over in time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from peik.errors import StoreUnavailable

LEASE_S = 15.0  # a dead owner's letters wait so long at most; a living one may be out of reach for so long


class Lease:
    """At most one node has it. `epoch` is 0 for all others."""

    def __init__(self, write: Callable[..., Awaitable[Any]], *, node: str, lease_s: float = LEASE_S) -> None:
        self._write = write
        self._node = node
        self._lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self._ends_at = 0.0  # by our own clock, counted from before the server was asked
        self._keeper: asyncio.Task[None] | None = None
        self.epoch = 0

    @property
    def is_held(self) -> bool:
        return self.epoch > 0 and self._loop.time() < self._ends_at

    @property
    def text(self) -> str:
        """What stands in the key while it is ours."""
        return f"{self.epoch}:{self._node}"

    async def claim(self) -> bool:
        """Take it if it is free. Whether it is ours now."""
        if self.is_held:
            return True
        asked_at = self._loop.time()
        epoch = await self._write("claim", self._node, self._ms)
        if not epoch:
            return False
        self.epoch = epoch
        self._ends_at = asked_at + self._lease_s
        if self._keeper is None or self._keeper.done():
            self._keeper = self._loop.create_task(self._keep())
        return True

    async def give_up(self) -> None:
        """Let another have it at once."""
        await self.abandon()
        if self.epoch:
            with contextlib.suppress(StoreUnavailable):  # then it runs out by itself
                await self._write("give_up", self.text)
        self.epoch = 0

    async def abandon(self) -> None:
        """Keep it no longer alive."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    async def _keep(self) -> None:
        while self.epoch:
            await asyncio.sleep(self._lease_s / 3)
            asked_at = self._loop.time()
            try:
                is_ours = await self._write("renew", self.text, str(self.epoch), self._ms)
            except StoreUnavailable:
                continue  # `is_held` knows when it is over
            if is_ours:
                self._ends_at = asked_at + self._lease_s
            else:
                self.epoch = 0

    @property
    def _ms(self) -> int:
        return int(self._lease_s * 1000)
