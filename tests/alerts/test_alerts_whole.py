"""The whole way, as Peik is put together: a look finds it, a letter tells it, a restart knows it, and it ends."""

import asyncio

import pytest

from peik.errors import StartError
from peik.outbox.store import LetterFilter
from tests.outbox.story import BOT, Stage, play_closed

ADMIN = 99


def test_dead_letters_are_told_through_a_restart_and_when_they_are_gone() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open():
            stage.telegram.user(5, "Sara", "fa", None)
            stage.telegram.block(BOT, 5)
            for _ in range(3):
                await stage.ended(await stage.text(5, "hello"))
            await asyncio.sleep(60)
            (text,) = stage.texts(ADMIN)
            assert text.startswith(f"Peik: there are 3 dead letters, 3 of them of bot {BOT}\nTo do: ")
        async with stage.open():
            await asyncio.sleep(120)
            assert [one.name for one in stage.peik.watch.alerts.ongoing()] == ["dead-letters"]
            assert len(stage.texts(ADMIN)) == 1
            await stage.peik.outbox.service.clear_dead(LetterFilter())
            await asyncio.sleep(120)
            assert stage.texts(ADMIN)[1].startswith("Peik: over, after ")
            assert stage.peik.watch.alerts.ongoing() == []

    play_closed(story, admin_chats=str(ADMIN), alert_dead="2", alert_disk="0%", alert_memory="100%")


def test_a_disk_is_told_of_by_its_folder() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open():
            await asyncio.sleep(30)
            (text,) = stage.texts(ADMIN)
            assert "of the disk under " in text
            assert "docs/runbook.md#disk" in text

    play_closed(story, admin_chats=str(ADMIN), alert_disk="100%", alert_memory="100%")


def test_a_rule_that_is_none_cannot_be_silenced() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(StartError, match=r"there is no rule disc\. Did you mean disk"):
            async with stage.open():
                pass

    play_closed(story, alerts_off="memory,disc")
