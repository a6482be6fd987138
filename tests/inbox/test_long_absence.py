"""A consumer that is away for days: Telegram would have thrown its updates away after one."""

import asyncio

import msgspec

from peik.core.arrival import wire_id
from tests.outbox.story import BOT, TOKEN, Stage, play

HOUR_S = 3600.0
DAYS = 3


def test_a_bot_that_is_down_for_three_days_loses_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.write(TOKEN, 5, "before")
        assert await poll(stage) == ["before"]
        for hour in range(DAYS * 24):
            await asyncio.sleep(HOUR_S)
            stage.telegram.write(TOKEN, 5 + hour % 3, f"hour {hour}")
        await asyncio.sleep(HOUR_S)
        assert stage.telegram.counters.updates_expired == 0, "nothing was left at Telegram to expire"
        assert await poll(stage) == [f"hour {hour}" for hour in range(DAYS * 24)]
        assert await poll(stage) == []

    play(story, inbound="polling")


async def poll(stage: Stage) -> list[str]:
    """As a bot does through the gateway: ask until there is nothing more, each time confirming what it has, and end in good
    order."""
    found: list[str] = []
    offset: int | None = None
    while page := await stage.peik.inbox.service.updates(
        BOT, "default", offset=offset, limit=100, timeout_s=5, allowed=None
    ):
        found += [msgspec.json.decode(one.payload)["message"]["text"] for one in page]
        offset = wire_id(page[-1].number) + 1
    assert not await stage.peik.inbox.service.updates(BOT, "default", offset=offset, timeout_s=0)
    return found
