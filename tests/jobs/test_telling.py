"""How people hear of their jobs: one message, edited at leisure, whose end is always told."""

# ruff: noqa: RUF001 - Persian is written with its own letters

import asyncio
from itertools import pairwise
from typing import Any, cast

from peik.core.letter import State
from peik.jobs.outcome import JobHopeless, JobLater
from tests.jobs.telling_story import ANN, JobStage, play
from tests.outbox.story import BOT


async def ten_steps(job: Any) -> str:
    for step in range(10):
        await job.progress(step / 10, "downloading")
        await asyncio.sleep(1.0)
    return "well"


def test_one_message_goes_from_queued_over_percents_to_done() -> None:
    async def story(stage: JobStage) -> None:
        stage.kind("work", ten_steps)
        async with stage.open():
            job_id = await stage.queue(notice={"label": "film.mp4"})
            await stage.done(job_id)
            assert stage.sends() == ["\u2068film.mp4\u2069\n⏳ Queued."]
            edits = stage.edits()
            assert edits[-1].text == stage.now() == "\u2068film.mp4\u2069\n✅ Done."
            assert "\n⚙️ ▰▰▰▰" in edits[-2].text
            assert edits[-2].text.endswith("%\n\u2068downloading\u2069")
            assert 3 <= len(edits) <= 5
            assert all(later.at - earlier.at > 2.5 for earlier, later in pairwise(edits[:-1]))
            assert len({one.message_id for one in stage.said()}) == 1
            assert await stage.dead() == []

    play(story)


def test_only_what_shows_is_told() -> None:
    async def slow(job: Any) -> None:
        for step in range(3000):
            await job.progress(step / 300_001)  # not quite 1 % in the end
            await asyncio.sleep(0.1)

    async def story(stage: JobStage) -> None:
        stage.kind("work", slow)
        async with stage.open():
            await stage.done(await stage.queue())
            texts = [one.text for one in stage.said()]
            assert texts == ["⏳ Queued.", "⚙️ ▱▱▱▱▱▱▱▱▱▱ 0%", "✅ Done."]
            assert len(await stage.letters()) == 3

    play(story)


def test_who_waits_hears_how_many_are_before_him_and_how_long_it_may_take() -> None:
    async def story(stage: JobStage) -> None:
        stage.kind("work", lambda job: asyncio.sleep(120.0), concurrency=1)
        async with stage.open():
            first = await stage.queue(user="a", notice={"chat_id": 1})
            await stage.queue(user="b", notice={"chat_id": 2})
            last = await stage.queue(user="c", notice={"language": "fa"})
            await asyncio.sleep(5.0)
            assert stage.now(2) == "⏳ Queued: yours is next."
            assert stage.now() == "\u200f⏳ در صف: ۱ کار جلوتر از شماست."
            await stage.peik.jobs.service.wait(first, 1000.0)
            more = await stage.queue(user="d", notice={"chat_id": 4})
            await asyncio.sleep(60.0)
            assert stage.now(4) == "⏳ Queued: 1 job before yours. It begins in about 2 minutes."
            assert stage.now() == "\u200f⏳ در صف: نوبت بعدی با شماست."
            await stage.done(last)
            await stage.done(more)
            assert (stage.now(), stage.now(4)) == ("\u200f✅ انجام شد.", "✅ Done.")

    play(story)


def test_the_message_of_a_job_that_is_done_can_be_deleted_or_left() -> None:
    async def story(stage: JobStage) -> None:
        async def work(job: Any) -> None:
            await job.send_text("Here it is.")
            await asyncio.sleep(5.0)

        stage.kind("work", work)
        async with stage.open():
            deleted = await stage.queue(notice={"chat_id": 1, "on_done": "delete"})
            left = await stage.queue(notice={"chat_id": 2, "on_done": "leave"})
            await stage.done(deleted)
            await stage.done(left)
            assert (stage.now(1), stage.now(2)) == (None, "⚙️ Working on it.")
            assert stage.sends(1) == stage.sends(2) == ["⏳ Queued.", "Here it is."]
            assert await stage.dead() == []

    play(story)


def test_who_wants_no_progress_hears_the_beginning_and_the_end() -> None:
    async def story(stage: JobStage) -> None:
        stage.kind("work", ten_steps)
        async with stage.open():
            await stage.done(await stage.queue(notice={"has_progress": False, "language": "ru"}))
            assert [one.text for one in stage.said()] == ["⏳ В очереди.", "✅ Готово."]

    play(story)


def test_a_failure_says_what_the_job_says_to_people_and_nothing_of_its_innards() -> None:
    async def story(stage: JobStage) -> None:
        async def hopeless(job: Any) -> None:
            raise JobHopeless("این ویدئو خصوصی است.")

        async def broken(job: Any) -> None:
            raise KeyError("/srv/secret")

        stage.kind("hopeless", hopeless)
        stage.kind("broken", broken, attempts=1)
        async with stage.open():
            await stage.done(await stage.queue("hopeless", notice={"chat_id": 1, "language": "fa"}))
            await stage.done(await stage.queue("broken", notice={"chat_id": 2, "language": "uz", "on_done": "delete"}))
            assert stage.now(1) == "\u200f❌ انجام نشد: \u2068این ویدئو خصوصی است.\u2069"
            assert stage.now(2) == "❌ Bajarib boʻlmadi."

    play(story)


def test_what_is_put_off_says_for_how_long_and_goes_on_in_the_same_message() -> None:
    async def story(stage: JobStage) -> None:
        async def later(job: Any) -> None:
            if job.metadata["until"] > stage.clock.mono():
                raise JobLater(600.0, "Its host rests.")
            await asyncio.sleep(4.0)

        stage.kind("work", later)
        async with stage.open():
            job_id = await stage.queue(metadata={"until": stage.clock.mono() + 300.0})
            await asyncio.sleep(60.0)
            assert stage.now() == "⏸ Waiting: about 10 minutes to go."
            await stage.done(job_id)
            assert stage.now() == "✅ Done."
            assert len(stage.sends()) == 1

    play(story)


def test_cancelled_in_its_line_and_cancelled_while_it_runs_are_both_told_and_a_retry_takes_the_message_up_again() -> (
    None
):
    async def story(stage: JobStage) -> None:
        stage.kind("work", lambda job: asyncio.sleep(30.0), concurrency=1)
        async with stage.open():
            runs = await stage.queue(notice={"chat_id": 1})
            waits = await stage.queue(notice={"chat_id": 2})
            await asyncio.sleep(5.0)
            await stage.peik.jobs.service.cancel(waits)
            await stage.peik.jobs.service.cancel(runs)
            await stage.done(runs)
            assert (stage.now(1), stage.now(2)) == ("🚫 Cancelled.", "🚫 Cancelled.")
            await stage.peik.jobs.service.retry(waits)
            await asyncio.sleep(5.0)
            assert stage.now(2) == "⚙️ Working on it."
            await stage.peik.jobs.service.cancel(waits)
            assert (await stage.done(waits)).state is State.CANCELLED
            assert stage.now(2) == "🚫 Cancelled."
            assert len(stage.sends(2)) == 1

    play(story)


def test_groups_are_told_more_seldom_under_the_question_and_in_its_thread() -> None:
    async def story(stage: JobStage) -> None:
        group = stage.telegram.chat("supergroup", is_forum=True, bots=[BOT])
        thread_id = stage.telegram.topic(group, "films").id
        asked = stage.telegram.write(BOT, ANN, "please", chat=group.id, thread_id=thread_id)["message_id"]
        stage.kind("work", ten_steps)
        async with stage.open():
            await stage.done(await stage.queue(notice={"chat_id": group.id, "reply_to": asked, "thread_id": thread_id}))
            (first,) = stage.telegram.sent.of_chat(group.id)
            message = stage.telegram.message(BOT, group.id, first.message_id)
            assert message is not None
            assert first.thread_id == thread_id
            assert cast(dict[str, Any], message["reply_to_message"])["message_id"] == asked
            assert len(stage.edits(group.id)) <= 2
            assert stage.now(group.id) == "✅ Done."

    play(story)


def test_many_jobs_together_leave_the_bot_time_for_other_things() -> None:
    async def minute(job: Any) -> None:
        for step in range(100):
            await job.progress(step / 100)
            await asyncio.sleep(0.6)

    async def story(stage: JobStage) -> None:
        stage.kind("work", minute, concurrency=80, per_user=200)
        async with stage.open():
            jobs = [await stage.queue(user=f"{chat_id}", notice={"chat_id": chat_id}) for chat_id in range(1, 161)]
            await asyncio.sleep(70.0)
            for job_id in jobs:
                await stage.peik.jobs.service.wait(job_id, 600.0)
            await stage.done(jobs[-1])
            assert {stage.now(chat_id) for chat_id in range(1, 161)} == {"✅ Done."}
            assert len(stage.telegram.sent) == 160
            began = stage.telegram.applied[0].at
            of_first_minute = [one for one in stage.telegram.applied if one.at < began + 60.0]
            assert len(of_first_minute) < 60 * 15
            assert len({one.chat_id for one in of_first_minute if "%" in one.text}) == 80

    play(story)


def test_what_the_job_sends_comes_before_its_done() -> None:
    async def story(stage: JobStage) -> None:
        async def work(job: Any) -> None:
            path = job.folder / "report.txt"
            path.write_text("all is well")
            await job.send_document(path, caption="The report")

        stage.kind("work", work)
        async with stage.open():
            await stage.done(await stage.queue())
            assert [one.text for one in stage.said()][-2:] == ["The report", "✅ Done."]

    play(story)
