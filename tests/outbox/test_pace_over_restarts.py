"""A restart begins neither a minute nor a burst again: what was sent shortly before it still counts."""

import asyncio

from tests.outbox.story import Stage, play_closed

GROUP = -1_001_234_567_890


def test_a_group_gets_no_second_minutes_worth_because_peik_was_started_anew() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            for number in range(25):
                await stage.text(GROUP, f"n{number}")
            await asyncio.sleep(30)
            assert len(stage.texts(GROUP)) == 20
        async with stage.open():
            await stage.quiet()
        assert len(stage.texts(GROUP)) == 25
        assert stage.telegram.counters.limited == 0

    play_closed(story)


def test_a_chat_gets_no_second_burst_because_peik_was_started_anew() -> None:
    async def story(stage: Stage) -> None:
        for part in range(6):
            async with stage.open():
                for number in range(3):
                    await stage.text(5, f"n{part}.{number}")
                await asyncio.sleep(0.5)
        async with stage.open():
            await stage.quiet()
        assert len(stage.texts(5)) == 18
        assert stage.telegram.counters.limited == 0

    play_closed(story)
