"""Alerts about updates that were received and are to be handed on, each by its real cause."""

import asyncio

import pytest

from peik.core.arrival import Arrival
from peik.inbox.store import PushAnswer
from tests.alerts.alarm import Alarm, Hearing, alarm, alarm_closed
from tests.inbox.bots import Bots, ok
from tests.inbox.handing import Program, written
from tests.inbox.test_outages import begin, fetch
from tests.inbox.test_redelivery import Bot, took
from tests.outbox.story import BOT, TOKEN

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours

HOUR_S = 3600.0


async def _fails(text: str, arrival: Arrival) -> None:
    raise KeyError(text)


@pytest.mark.raises_alert("dead-arrivals")
@pytest.mark.raises_alert("new-error")
@pytest.mark.raises_alert("rising-error")
def test_a_handler_with_a_bug_makes_dead_arrivals_and_an_error_that_is_new_and_then_rises() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        Program(stage, _fails).run()
        await asyncio.sleep(HOUR_S - stage.clock.wall_s() % HOUR_S + 1)  # errors are counted by the hour of the clock
        await written(stage, "one", chat=1)
        assert "could not be handled" in await hearing.begins("dead-arrivals", within_s=HOUR_S)
        assert "KeyError" in await hearing.begins("new-error", within_s=60)
        for number in range(12):
            await written(stage, f"{number}", chat=100 + number)
        assert "times within an hour" in await hearing.begins("rising-error", within_s=HOUR_S)
        await hearing.goes_on("dead-arrivals")
        await hearing.is_over("rising-error", within_s=2 * HOUR_S)
        await hearing.ends_in_silence("dead-arrivals")
        await hearing.ends_in_silence("new-error")

    alarm(story)


@pytest.mark.raises_alert("consumer-away")
def test_a_bot_whose_webhook_fails_is_away_until_it_answers() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        stage.pusher = bots = Bots(stage.clock, lambda got: PushAnswer(status=502))
        async with stage.open():
            await stage.peik.inbox.service.set_consumer(BOT, "default", url="http://127.0.0.1:9000/hook")
            await written(stage, "hello")
            assert "consumer default has not been reached" in await hearing.begins("consumer-away", within_s=900)
            await hearing.goes_on("consumer-away")
            bots.answer = ok
            await hearing.is_over("consumer-away", within_s=2 * HOUR_S)

    alarm_closed(story)


@pytest.mark.raises_alert("consumer-expired")
def test_a_consumer_that_nobody_uses_is_forgotten() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        await begin(stage)
        inbox = stage.peik.store.inbox
        consumer = await inbox.ensure_consumer(BOT, "stats", at_ms=stage.clock.wall_ms())
        await inbox.touch_consumers({consumer.id: stage.clock.wall_ms()})
        assert "consumer stats was not used" in await hearing.begins("consumer-expired", within_s=4 * HOUR_S)
        await hearing.ends_in_silence("consumer-expired")

    alarm(story, consumer_idle="2h")


@pytest.mark.raises_alert("unread")
@pytest.mark.raises_alert("unread-dropped")
def test_updates_that_nobody_reads_are_told_of_before_they_go_and_when_they_went() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        await begin(stage)
        stage.telegram.write(TOKEN, 11, "is anybody there?")
        await fetch(stage)
        assert "raise PEIK_KEEP_UNREAD" in await hearing.begins("unread", within_s=42 * HOUR_S)
        assert "1 updates that nobody had read" in await hearing.begins("unread-dropped", within_s=12 * HOUR_S)
        await hearing.ends_in_silence("unread")
        await hearing.ends_in_silence("unread-dropped")

    alarm(story, keep_unread="49h")


@pytest.mark.raises_alert("slow")
def test_a_handler_that_does_not_keep_up_is_slow_until_it_does() -> None:
    """The other causes are a slow Telegram (test_bots.py) and a busy process (tests/alerts/test_watching.py)."""

    async def story(stage: Alarm, hearing: Hearing) -> None:
        async def dawdles(text: str, arrival: Arrival) -> None:
            await asyncio.sleep(100)

        Program(stage, dawdles).run()
        await written(stage, *(f"{number}" for number in range(5)))
        assert "consumer default does not keep up" in await hearing.begins("slow", within_s=200)
        await hearing.is_over("slow")

    alarm(story, looks=True, handler_timeout="5m")


@pytest.mark.raises_alert("dead-arrivals")
def test_an_update_that_kills_a_polling_bot_each_time_is_a_dead_arrival_and_told() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        await written(stage, "poison", chat=1)
        for _ in range(4):
            bot = await took(stage)
            await bot.die()
        assert await Bot(stage).poll() == []
        said = await hearing.begins("dead-arrivals", within_s=HOUR_S)
        assert "its poller died 3 times in a row with only this update in hand" in said
        await hearing.ends_in_silence("dead-arrivals")

    alarm(story)
