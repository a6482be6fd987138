"""Alerts about letters, each by its real cause."""

import pytest

from peik.outbox.store import LetterFilter
from tests.alerts.alarm import Alarm, Hearing, alarm, alarm_closed
from tests.outbox.receivers import Receivers
from tests.outbox.story import BOT, call

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours

HOUR_S = 3600.0


async def _dead(stage: Alarm, count: int) -> None:
    stage.telegram.user(5, "Sara")
    stage.telegram.block(BOT, 5)
    for _ in range(count):
        await stage.ended(await stage.text(5, "hello"))


@pytest.mark.raises_alert("dead-letters")
def test_people_who_blocked_the_bot_make_dead_letters_until_somebody_clears_them() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        await _dead(stage, 51)
        assert "there are 51 dead letters" in await hearing.begins("dead-letters", within_s=60)
        await hearing.goes_on("dead-letters")
        await stage.peik.outbox.service.clear_dead(LetterFilter())
        await hearing.is_over("dead-letters")

    alarm(story, looks=True)


@pytest.mark.raises_alert("failures")
def test_many_letters_to_people_who_blocked_the_bot_are_a_high_share_of_failures() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async def more() -> None:
            await _dead(stage, 3)

        await _dead(stage, 25)
        assert "failed" in await hearing.begins("failures", within_s=180)
        await hearing.goes_on("failures", cause=more)
        await hearing.is_over("failures")

    alarm(story, looks=True)


@pytest.mark.raises_alert("stuck")
def test_a_chat_that_telegram_holds_for_hours_has_a_letter_that_is_stuck() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        fault = stage.telegram.faults.add("flood", method="sendMessage", chat=5, retry_after=1200)
        letter = await stage.text(5, "hello")
        assert f"the oldest letter of bot {BOT} has waited for" in await hearing.begins("stuck", within_s=900)
        await hearing.goes_on("stuck")
        stage.telegram.faults.clear(fault)
        await stage.ended(letter)
        await hearing.is_over("stuck")

    alarm(story, looks=True)


@pytest.mark.raises_alert("delays")
def test_letters_that_go_out_long_after_they_came_are_delayed() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        stage.telegram.chat("group", "Family", chat_id=-5, bots=[BOT])
        group = [call(params={"chat_id": -5, "text": "hello"})] * 200  # at 20 a minute, the last goes after 10 minutes
        await stage.accept_all(group)
        assert "had waited for more than" in await hearing.begins("delays", within_s=600)
        await stage.quiet()
        await hearing.is_over("delays")

    alarm(story, looks=True, alert_wait="2m")


@pytest.mark.raises_alert("webhook-dropped")
def test_an_endpoint_that_does_not_want_to_hear_is_dropped() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        stage.poster = Receivers(stage.clock, lambda heard: 410)
        async with stage.open():
            for _ in range(2):
                await stage.ended(await stage.text(5, "hello", hook="https://shop.example/hook"))
            assert "shop.example" in await hearing.begins("webhook-dropped", within_s=60)
            await hearing.ends_in_silence("webhook-dropped")

    alarm_closed(story)
