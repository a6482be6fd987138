"""Reading lanes from the store: when to look, and when to look again."""

import asyncio

from peik.core.lanes import Lanes, Room
from peik.outbox.window import Windows
from tests.outbox.story import BOT, Stage, play


def test_the_end_of_a_rest_that_passes_while_the_sender_thinks_is_not_lost() -> None:
    """A timer may fire a little early. What `read` found too early must still be waited for, even if its time has come since.

    Found with three processes on one file: 201 letters waited for ever behind 33 microseconds.
    """

    async def story(stage: Stage) -> None:
        room = Room()
        windows = Windows(BOT, Lanes(room), stage.peik.store, room, clock=stage.clock, ring=lambda: None)
        rest_over_at = stage.clock.mono()
        windows._not_before = [rest_over_at] * len(windows._not_before)
        early = rest_over_at - 0.000033
        async with asyncio.TaskGroup() as group:
            windows.read(early, group)
            assert windows.next_at(early) == rest_over_at

    play(story)
