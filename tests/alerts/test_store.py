"""Alerts about the store, the machine and backups, each by its real cause."""

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from peik.errors import StoreUnavailable
from tests.alerts.alarm import Alarm, Hearing, alarm_closed
from tests.faults.disks import SmallDisk, can_mount, mounted

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours

HOUR_S = 3600.0


@pytest.mark.skipif(not can_mount(), reason="a small disk has to be mounted")
@pytest.mark.raises_alert("store")
def test_a_store_on_a_full_disk_is_told_by_the_pager_at_once_and_in_the_chat_when_there_is_room(tmp_path: Path) -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        disk = SmallDisk(tmp_path / "disk")
        async with stage.open():
            stage.telegram.faults.add("error", method="sendMessage", status=500, count=3)
            letters = [await stage.text(5, f"{number}") for number in range(3)]
            await disk.fill()
            await _use_up(stage)
            assert "disk" in await hearing.begins("store", within_s=600)
            assert not stage.texts(99)
            await asyncio.sleep(HOUR_S)
            await disk.make_room()
            for letter in letters:
                await stage.ended(letter)
            await hearing.is_over("store")

    with mounted(tmp_path / "disk"):
        alarm_closed(story, home=tmp_path / "disk")


async def _use_up(stage: Alarm) -> None:
    """The log has some room of its own on a disk that is full. Until that is gone small commits still fit, that of an alert's
    letter among them."""
    for text in ("x" * 4000, "x"):
        refused = 0
        while refused < 3:
            try:
                await stage.text(6, text)
                refused = 0
            except StoreUnavailable:
                refused += 1


@pytest.mark.raises_alert("store-locked")
def test_a_stranger_who_locks_the_database_is_told_of() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        stage.patience_ms = 1
        async with stage.open():
            stranger = apsw.Connection(str(stage._folder / "peik.db"))
            stranger.execute("BEGIN EXCLUSIVE")
            with pytest.raises(Exception, match="locked"):
                await stage.text(5, "refused")
            assert "the database was locked" in await hearing.begins("store-locked", within_s=900)
            stranger.execute("ROLLBACK")
            stranger.close()
            await hearing.is_over("store-locked", within_s=HOUR_S)

    alarm_closed(story)


@pytest.mark.raises_alert("backup")
def test_backups_that_cannot_be_written_grow_old_until_they_can(tmp_path: Path) -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async with stage.open():
            await asyncio.sleep(60)
            assert list(folder.iterdir())
            shutil.rmtree(folder)
            folder.write_text("somebody put a file in its place")
            assert "the last good backup is" in await hearing.begins("backup", within_s=4 * HOUR_S)
            folder.unlink()
            await hearing.is_over("backup", within_s=2 * HOUR_S)
            assert list(folder.iterdir())

    folder = tmp_path / "backups"
    alarm_closed(story, looks=True, backups=str(folder), backup_every="2h")


@pytest.mark.raises_alert("clock")
def test_a_clock_that_is_set_a_month_ahead_is_told_of_until_it_has_held() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async with stage.open():
            watching = asyncio.create_task(stage.peik.watch.clock.run())
            await asyncio.sleep(60)
            stage.clock.wall_offset_s += 31 * 24 * HOUR_S
            assert "744 hours ahead" in await hearing.begins("clock", within_s=60)
            await hearing.is_over("clock", within_s=2 * HOUR_S)
            watching.cancel()

    alarm_closed(story)


@pytest.mark.raises_alert("memory")
def test_memory_in_use_is_told_until_there_is_more_of_it() -> None:
    """The real memory of this machine, with a bound that it is above, and then one that it is not."""

    async def story(stage: Alarm, hearing: Hearing) -> None:
        async with stage.open():
            assert "% of the memory of the " in await hearing.begins("memory", within_s=120)
            await hearing.goes_on("memory")
        stage._settings["alert_memory"] = "100%"
        async with stage.open():
            await hearing.is_over("memory")

    alarm_closed(story, looks=True, alert_memory="0.1%")
