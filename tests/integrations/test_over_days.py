"""Recoveries in virtual time, with a Telethon client: tries again and gives up as any handlers do, and knows since when the
bot was really away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from telethon import TelegramClient, events
from telethon.sessions import MemorySession

from peik import Peik
from peik.app.runtime import Runtime
from peik.client.local import LocalTransport
from peik.core.letter import State
from peik.errors import Conflict
from peik.inbox.store import ArrivalFilter
from peik.integrations.telethon import recover_missed_messages
from tests.integrations.test_telethon import take_live
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed

HOUR_S = 3600.0


class StagedCounter(LocalTransport):
    """The counter of a Peik that a stage has opened."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__({})
        self._staged = runtime

    async def open(self) -> None:
        self._open_runtime = self._staged
        self._keeper = asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        self._keeper.set_result(None)


class Life:
    """One run of the bot. Handlers of texts in `failing` raise as often as they say."""

    def __init__(self, stage: Stage, peik: Peik) -> None:
        self.client = TelegramClient(MemorySession(), 1, "x")
        self.handled: list[str] = []
        self.failing: dict[str, int] = {}
        self._stage = stage
        self._peik = peik
        self.client.add_event_handler(self._handle, events.NewMessage(incoming=True))

    async def _handle(self, event: Any) -> None:
        left = self.failing.get(event.raw_text, 0)
        if left:
            self.failing[event.raw_text] = left - 1
            raise RuntimeError("the disk is full")
        self.handled.append(event.raw_text)

    async def recover(self, policy: str | None = None) -> int:
        return await recover_missed_messages(self.client, TOKEN, peik=self._peik, policy=policy)

    async def hear(self, user: int, text: str) -> None:
        await take_live(self.client, self._stage.telegram.write(TOKEN, user, text))


@asynccontextmanager
async def alive(stage: Stage) -> AsyncIterator[Life]:
    async with Peik(StagedCounter(stage.peik)) as peik:
        life = Life(stage, peik)
        yield life
        await life.client.disconnect()


def test_a_handler_that_fails_is_tried_again_while_the_bot_goes_on() -> None:
    async def story(stage: Stage) -> None:
        for text in ("one", "two"):
            stage.telegram.write(TOKEN, 5, text)
        stage.telegram.write(TOKEN, 6, "hello")
        async with alive(stage) as life:
            life.failing["one"] = 2
            assert await life.recover() == 1, "nobody waits at the start for a chat whose first message failed"
            assert life.handled == ["hello"]
            await asyncio.sleep(10)
            assert life.handled == ["hello", "one", "two"]
            assert await life.recover() == 0

    play(story)


def test_what_no_handler_can_do_becomes_a_dead_arrival() -> None:
    async def story(stage: Stage) -> None:
        for text in ("poison", "two"):
            stage.telegram.write(TOKEN, 5, text)
        async with alive(stage) as life:
            life.failing["poison"] = 100
            await life.recover()
            await asyncio.sleep(60)
            assert life.handled == ["two"]
            (dead,) = await stage.peik.inbox.service.arrivals(
                ArrivalFilter(bot_id=BOT, state=State.FAILED), before=None, limit=10
            )
            assert dead.deliveries[0].failed_reason == "RuntimeError: the disk is full"
            life.failing.clear()
            await stage.peik.inbox.service.retry(dead.arrival.id)
            await asyncio.sleep(5)
            assert life.handled == ["two", "poison"]

    play(story)


def test_a_client_that_was_stopped_costs_no_message_a_try() -> None:
    async def story(stage: Stage) -> None:
        async with alive(stage) as life:
            await life.recover()
            await life.client.disconnect()
            stage.telegram.write(TOKEN, 5, "hello")
            await stage.peik.inbox.service.recover(BOT)
            await asyncio.sleep(HOUR_S)
            (view,) = await stage.peik.inbox.service.arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=10)
            assert (view.deliveries[0].state, view.deliveries[0].tries) == (State.WAITING, 0)
            assert await life.recover() == 1
            assert life.handled == ["hello"]

    play(story)


def test_time_in_which_the_bot_was_online_over_mtproto_is_no_outage() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.user(5, language_code="en")
        async with stage.open(), alive(stage) as first:
            assert await first.recover() == 0
            await first.hear(5, "hello")
            assert await first.recover() == 0
            await asyncio.sleep(HOUR_S)
        stage.telegram.write(TOKEN, 5, "are you there?")
        await asyncio.sleep(2 * HOUR_S)
        async with stage.open(), alive(stage) as second:
            assert await second.recover(policy="both") == 1
            await stage.quiet()
            assert second.handled == ["are you there?"]
        (notice,) = stage.texts(5)
        assert "2 hours" in notice

    play_closed(story)


def test_kinds_that_are_not_translated_are_kept_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="peik")

    async def story(stage: Stage) -> None:
        stage.telegram.write(TOKEN, 5, "hello")
        stage.telegram.update(TOKEN, "poll_answer", {"poll_id": "7", "user": {"id": 5}, "option_ids": [1]})
        async with alive(stage) as life:
            assert await life.recover() == 1
            found = await stage.peik.inbox.service.arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=10)
            assert {view.arrival.type for view in found} == {"message", "poll_answer"}

    play(story)
    assert "left=poll_answer:1" in caplog.text


def test_two_programs_cannot_be_the_handlers_of_one_bot() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.write(TOKEN, 5, "hello")
        stage.is_alone = False
        async with stage.open():
            lock = f"handlers-{BOT}-default"
            assert await stage.peik.store.nodes.take_lock(lock)
            async with alive(stage) as life:
                with pytest.raises(Conflict, match="Another program"):
                    await life.recover()
            await stage.peik.store.nodes.drop_lock(lock)

    play_closed(story)
