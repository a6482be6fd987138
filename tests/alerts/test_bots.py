"""Alerts about bots, routes and the updates that they fetch, each by its real cause."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from peik.core.token import Token
from tests.alerts.alarm import Alarm, Hearing, alarm, alarm_closed
from tests.inbox.sources import OtherProgram
from tests.outbox.story import BOT, TOKEN

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours

HOUR_S = 3600.0
MESSENGER = "7000002:AAalerts"  # another bot: the first one cannot tell that it is paused


@pytest.mark.raises_alert("bot-paused")
def test_a_token_that_was_revoked_pauses_its_bot_until_it_has_a_new_one() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        stage.telegram.bot(MESSENGER)
        async with stage.open():
            fresh = stage.telegram.revoke(BOT)
            await stage.text(5, "hello", bot_id=BOT)
            assert f"bot {BOT} is paused" in await hearing.begins("bot-paused", within_s=60)
            await hearing.goes_on("bot-paused")
            await stage.peik.outbox.service.save_bot(Token(fresh))
            await hearing.is_over("bot-paused")

    alarm_closed(story, bot_tokens=f"{MESSENGER},{TOKEN}")


@pytest.mark.raises_alert("intruder")
def test_a_second_program_that_polls_is_an_intruder_until_it_stops() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async def polls() -> None:
            other = OtherProgram(stage)
            while True:
                await other.poll(timeout=50)
                await asyncio.sleep(0.5)

        await asyncio.sleep(5)
        polling = asyncio.create_task(polls())
        assert "Another program polls" in await hearing.begins("intruder", within_s=600)
        await hearing.goes_on("intruder")
        polling.cancel()
        await hearing.is_over("intruder", within_s=3 * HOUR_S)

    alarm(story, inbound="polling")


@contextlib.asynccontextmanager
async def _dark(stage: Alarm) -> AsyncIterator[None]:
    """Telegram cannot be reached, and there are letters for it."""
    stage.telegram.dark(True)
    await stage.text(5, "hello")
    yield
    stage.telegram.dark(False)


@pytest.mark.raises_alert("no-way")
@pytest.mark.raises_alert("route")
@pytest.mark.raises_alert("source")
def test_a_telegram_that_is_gone_is_told_by_the_pager_at_once_and_in_the_chat_when_it_is_back() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        await asyncio.sleep(5)
        async with _dark(stage):
            await hearing.begins("no-way", within_s=120)
            await hearing.begins("route", within_s=120)
            await hearing.begins("source", within_s=600)
            for rule in ("no-way", "source", "route"):
                await hearing.goes_on(rule)
            assert stage.texts(5) == []
        for rule in ("no-way", "route", "source"):
            await hearing.is_over(rule, within_s=900)

    alarm(story, inbound="polling")


@pytest.mark.raises_alert("inbox-expiry")
@pytest.mark.raises_alert("offline")
def test_a_day_without_telegram_is_told_by_quarters_and_then_as_too_long() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        stage.telegram.write(TOKEN, 5, "hello")
        await asyncio.sleep(5)
        stage.telegram.dark(True)
        await asyncio.sleep(23 * HOUR_S)
        assert "10 % is left" in await hearing.begins("inbox-expiry", times=4)
        await asyncio.sleep(3 * HOUR_S)
        stage.telegram.dark(False)
        assert "offline for 26 hours" in await hearing.begins("offline", within_s=900)
        await hearing.is_over("inbox-expiry")
        await hearing.ends_in_silence("offline")

    alarm(story, inbound="polling")


@pytest.mark.raises_alert("updates-expired")
def test_updates_that_nobody_fetched_for_a_day_are_told_as_lost() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async with stage.open():
            stage.telegram.write(TOKEN, 5, "first")
            await asyncio.sleep(5)
        for number in range(3):
            stage.telegram.write(TOKEN, 5, f"{number}")
        await asyncio.sleep(25 * HOUR_S)
        stage.telegram.write(TOKEN, 5, "last")
        async with stage.open():
            assert "Telegram dropped 3 updates" in await hearing.begins("updates-expired", within_s=600)
            await hearing.ends_in_silence("updates-expired")

    alarm_closed(story, inbound="polling")


@pytest.mark.raises_alert("slow")
def test_a_telegram_that_takes_its_time_is_slow() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        fault = stage.telegram.faults.add("slow", method="sendMessage", least_s=40.0, most_s=45.0)

        async def more() -> None:
            await stage.text(5, "hello")

        for _ in range(5):
            await more()
            await asyncio.sleep(60)
        assert "Telegram answers slowly" in await hearing.begins("slow", within_s=60)
        await hearing.goes_on("slow", cause=more)
        stage.telegram.faults.clear(fault)
        await hearing.is_over("slow")

    alarm(story, looks=True)
