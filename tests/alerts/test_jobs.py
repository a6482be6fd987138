"""Alerts about jobs, broadcasts, recurring work and what they need, each by its real cause."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peik.broadcasts.model import Canary, Phase
from peik.core.letter import State
from peik.jobs.hosts import HostDown
from peik.jobs.model import JobRequest
from peik.jobs.store import JobKind, JobKinds, KindTerms, Quota
from peik.schedules.model import JobWork, LetterWork, Terms
from tests.alerts.alarm import Alarm, Hearing, alarm, alarm_closed
from tests.broadcasts.story import Campaign, people
from tests.faults.disks import SmallDisk, can_mount, mounted
from tests.outbox.story import BOT

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours

HOUR_S = 3600.0
MB = 1024**2


def _kinds(work: Callable[..., Any], **terms: Any) -> JobKinds:
    kinds = JobKinds()
    kinds.add(JobKind(name="film", work=work, terms=KindTerms(concurrency=4, per_user=9), attempts=1, **terms))
    return kinds


async def _queue(stage: Alarm, count: int = 1) -> list[int]:
    return [one.job_id for one in await stage.peik.jobs.service.queue([JobRequest(kind="film")] * count)]


@pytest.mark.raises_alert("jobs-failing")
def test_ten_jobs_that_fail_are_told_and_fade() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async def fails(job: Any) -> None:
            raise KeyError("x")

        stage.kinds = _kinds(fails)
        async with stage.open():
            await _queue(stage, 10)
            assert "10 jobs of the kind film failed" in await hearing.begins("jobs-failing", within_s=60)

            async def more() -> None:
                await _queue(stage)

            await hearing.goes_on("jobs-failing", cause=more, every_s=600.0)
            await hearing.is_over("jobs-failing", within_s=2 * HOUR_S)

    alarm_closed(story)


@pytest.mark.raises_alert("jobs-stuck")
def test_jobs_that_no_process_does_are_stuck_until_one_does_them() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async with stage.open():
            await _queue(stage, 4)
            assert "4 jobs of the kind film wait" in await hearing.begins("jobs-stuck", within_s=700)
            await hearing.goes_on("jobs-stuck")

        async def works(job: Any) -> None: ...

        stage.kinds = _kinds(works)
        async with stage.open():
            await hearing.is_over("jobs-stuck")

    alarm_closed(story, looks=True)


@pytest.mark.raises_alert("host")
def test_an_outside_host_that_is_down_is_told_until_it_is_back() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        is_down = True

        async def asks(job: Any) -> None:
            async with job.host("videos.example"):
                if is_down:
                    raise HostDown("it answers 503")

        stage.kinds = _kinds(asks)
        async with stage.open():
            await _queue(stage, 12)
            assert "videos.example has failed" in await hearing.begins("host", within_s=900)
            await hearing.goes_on("host")
            is_down = False
            await _queue(stage)
            await hearing.is_over("host", within_s=2 * HOUR_S)

    alarm_closed(story)


@pytest.mark.skipif(not can_mount(), reason="a small disk has to be mounted")
@pytest.mark.raises_alert("no-room")
@pytest.mark.raises_alert("disk")
def test_a_full_disk_is_told_and_jobs_wait_for_room(tmp_path: Path) -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        done = []

        async def works(job: Any) -> None:
            done.append(job.id)

        stage.kinds = _kinds(works, folder_bytes=MB)
        disk = SmallDisk(tmp_path / "work")
        async with stage.open():
            await disk.fill()
            (job_id,) = await _queue(stage)
            assert f"0.0 % of the disk under {tmp_path / 'work'}" in await hearing.begins("disk", within_s=60)
            await hearing.begins("no-room", within_s=120)
            await hearing.goes_on("disk")
            await hearing.goes_on("no-room")
            assert not done
            await disk.make_room()
            await hearing.is_over("disk")
            await hearing.is_over("no-room")
            assert (await stage.peik.jobs.service.wait(job_id, 60.0)).state is State.COMPLETED

    with mounted(tmp_path / "work"):
        alarm_closed(story, looks=True, alert_disk="0.1%", work=str(tmp_path / "work"), work_max="3M", work_free="500K")


@pytest.mark.skipif(not can_mount(), reason="something has to be mounted")
@pytest.mark.raises_alert("folder-left")
def test_a_work_folder_that_is_busy_is_told_after_ten_tries(tmp_path: Path) -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        with contextlib.ExitStack() as mounts:

            async def mount(job: Any) -> None:
                mounts.enter_context(mounted(job.folder / "busy"))

            stage.kinds = _kinds(mount)
            async with stage.open():
                (job_id,) = await _queue(stage)
                assert f"folder of job {job_id}" in await hearing.begins("folder-left", within_s=HOUR_S)
                mounts.close()
                await hearing.ends_in_silence("folder-left")

    alarm_closed(story)


@pytest.mark.raises_alert("broadcast-stopped")
def test_a_broadcast_whose_first_letters_fail_stops_until_somebody_resumes_it() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        campaign = Campaign(stage)
        campaign.service = stage.peik.broadcasts.service
        for chat in people(4):
            stage.telegram.user(chat)
            stage.telegram.write(BOT, chat, "/start")
            stage.telegram.block(BOT, chat)
        made = await campaign.create(people(40), start=True, canary=Canary(percent=25, limit=0.3))
        await campaign.until(made.id, Phase.STOPPED)
        assert "stopped by itself" in await hearing.begins("broadcast-stopped", within_s=60)
        await hearing.goes_on("broadcast-stopped")
        await campaign.service.resume(made.id)
        await hearing.is_over("broadcast-stopped")

    alarm(story)


@pytest.mark.raises_alert("schedule-missed")
def test_a_schedule_that_was_due_while_peik_was_away_is_told() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async with stage.open():
            letter = LetterWork(params={"chat_id": 5, "text": "hourly"})
            await stage.peik.schedules.service.put("news", Terms(cron="@hourly", letter=letter, bot_id=BOT), by=None)
        await asyncio.sleep(3 * HOUR_S)
        async with stage.open():
            text = await hearing.begins("schedule-missed", within_s=60)
            assert "schedule news missed 2 of its due times" in text
            await hearing.ends_in_silence("schedule-missed")

    alarm_closed(story)


@pytest.mark.raises_alert("schedule-refused")
def test_a_schedule_whose_job_is_refused_is_told_until_one_goes_well() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        async def works(job: Any) -> None:
            pass

        stage.kinds = _kinds(works, quota=Quota(jobs=1))
        async with stage.open():
            await stage.peik.schedules.service.put("film", Terms(cron="@hourly", job=JobWork(kind="film")), by=None)
            assert "schedule film could not run" in await hearing.begins("schedule-refused", within_s=4 * HOUR_S)
            await hearing.is_over("schedule-refused", within_s=25 * HOUR_S)

    alarm_closed(story)
