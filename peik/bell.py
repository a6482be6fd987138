"""Wakes a sleeping engine: at once when something happens, or at an instant."""

import asyncio


class Bell:
    """One sleeper, any number of ringers. A ring while nobody sleeps is remembered, and many rings are one."""

    __slots__ = ("_is_rung", "_loop", "_sleeper")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sleeper: asyncio.Future[None] | None = None
        self._is_rung = False

    def ring(self) -> None:
        self._is_rung = True
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    async def wait(self, until: float | None = None) -> None:
        """Sleep until rung, or until the loop's time is `until`."""
        if not self._is_rung:
            self._sleeper = self._loop.create_future()
            timer = None if until is None else self._loop.call_at(until, self.ring)
            try:
                await self._sleeper
            finally:
                self._sleeper = None
                if timer is not None:
                    timer.cancel()
        self._is_rung = False
