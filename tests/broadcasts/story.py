"""Broadcasts of a whole Peik in virtual time: production code, SQLite, the simulated Telegram."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from peik.broadcasts.audience import Audience, listed
from peik.broadcasts.engine import Broadcaster
from peik.broadcasts.model import Broadcast, Phase, Recipient, RecipientState
from peik.broadcasts.service import BroadcastRequest, BroadcastService
from peik.testing import Options
from tests.outbox.story import BOT, Stage, play_closed

FIRST = 1001  # the first chat's number


def people(count: int) -> list[int]:
    return list(range(FIRST, FIRST + count))


class Campaign:
    """A stage with broadcasts on it. `open` opens Peik, once or several times."""

    service: BroadcastService

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self.stage.open():
            self.service = self.stage.peik.broadcasts.service
            yield

    @asynccontextmanager
    async def beside(self, engine: Broadcaster) -> AsyncIterator[None]:
        """With another engine than the one of Peik itself."""
        async with asyncio.TaskGroup() as group:
            engine.start(group)
            try:
                yield
            finally:
                engine.stop()

    async def create(self, audience: Audience | list[int], text: str = "Hello", **terms: Any) -> Broadcast:
        if isinstance(audience, list):
            audience = listed(audience)
        return await self.service.create(
            BroadcastRequest(method="sendMessage", params={"text": text}, audience=audience, bot_id=BOT, **terms)
        )

    async def until(self, broadcast_id: str, *phases: Phase, timeout_s: float = 7 * 86_400.0) -> Broadcast:
        return await self.when(broadcast_id, lambda one: one.phase in phases, timeout_s=timeout_s)

    async def when(
        self, broadcast_id: str, is_so: Callable[[Broadcast], bool], *, timeout_s: float = 7 * 86_400.0
    ) -> Broadcast:
        deadline = self.stage.clock.mono() + timeout_s
        while True:
            found = await self.service.get(broadcast_id)
            if is_so(found):
                return found
            assert self.stage.clock.mono() < deadline, found
            await asyncio.sleep(0.25)

    async def ledger(self, broadcast_id: str) -> dict[int, Recipient]:
        return {number: line async for page in self.service.ledger(broadcast_id) for number, line in page}

    async def states(self, broadcast_id: str) -> Counter[RecipientState]:
        return Counter(line.state for line in (await self.ledger(broadcast_id)).values())

    def got(self) -> Counter[int]:
        """How many messages each chat was sent."""
        return Counter(one.chat_id for one in self.stage.telegram.sent.where(method="sendMessage"))


def tell(
    story: Callable[[Campaign], Coroutine[Any, Any, None]], *, options: Options | None = None, **settings: str
) -> None:
    """Tell a story with Peik open from its first line to its last."""

    async def opened(campaign: Campaign) -> None:
        async with campaign.open():
            await story(campaign)

    tell_closed(opened, options=options, **settings)


def tell_closed(
    story: Callable[[Campaign], Coroutine[Any, Any, None]], *, options: Options | None = None, **settings: str
) -> None:
    play_closed(lambda stage: story(Campaign(stage)), options=options, **settings)
