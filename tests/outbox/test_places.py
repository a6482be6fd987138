"""How many letters of one bot are in flight at once, whether or not it has a pace."""

import asyncio

import pytest

from peik.core.letter import Priority
from tests.outbox.story import BOT, Stage, call, play


@pytest.mark.parametrize("pace", ["on", "off"])
def test_bulk_leaves_an_eighth_of_the_places_to_what_people_wait_for(pace: str) -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("slow", least_s=60, most_s=60, method="sendMessage", count=64)
        bulk = [call(params={"chat_id": 100 + n, "text": "news"}, priority=Priority.BULK) for n in range(90)]
        await stage.accept_all(bulk)
        await asyncio.sleep(10)
        assert (await stage.peik.outbox.service.tallies())[BOT].active == 56

        people = [call(params={"chat_id": 1 + n, "text": "hello"}, priority=Priority.HIGH) for n in range(20)]
        await stage.accept_all(people)
        await asyncio.sleep(10)
        assert (await stage.peik.outbox.service.tallies())[BOT].active == 64

        await stage.quiet()
        assert stage.telegram.sent.total == 110

    play(story, pace=pace)


def test_people_may_have_all_places_of_a_bot_without_a_pace() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("slow", least_s=60, most_s=60, method="sendMessage", count=64)
        people = [call(params={"chat_id": 1 + n, "text": "hello"}, priority=Priority.HIGH) for n in range(90)]
        await stage.accept_all(people)
        await asyncio.sleep(10)
        assert (await stage.peik.outbox.service.tallies())[BOT].active == 64
        await stage.quiet()

    play(story, pace="off")
