"""Two carriers as one: long polls go by connections of their own. Parked polls of thousands of bots, or a thousand that
connect at once after an outage, never keep a letter waiting for a connection.
"""

import asyncio
from collections.abc import Callable

from peik.carrier_ports import Carrier, Request
from peik.core.reply import Reply

_POLL = "getUpdates"


class PartedCarrier:
    def __init__(self, *, letters: Carrier, polls: Carrier) -> None:
        self._letters = letters
        self._polls = polls

    def __repr__(self) -> str:
        return f"PartedCarrier({self._letters!r})"

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        (self._polls if request.method == _POLL else self._letters).start(request, done)

    async def carry(self, request: Request) -> Reply:
        return await self._of(request).carry(request)

    async def close(self) -> None:
        await asyncio.gather(self._letters.close(), self._polls.close())

    def _of(self, request: Request) -> Carrier:
        return self._polls if request.method == _POLL else self._letters
