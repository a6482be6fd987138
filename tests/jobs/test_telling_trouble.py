"""Telling through trouble: restarts, crashes between any two lines, chats that are gone, and a Telegram that is away."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.core.events import Surprise
from peik.core.letter import State
from peik.errors import BadInput, Conflict, StoreUnavailable
from peik.jobs.job import JobChat
from peik.jobs.model import JobDraft, JobEnd, JobRecord, Ran, noted, read_told
from peik.jobs.store import KindTerms
from tests.jobs.telling_story import ANN, JobStage, play
from tests.outbox.story import BOT

TERMS = KindTerms(concurrency=1, per_user=1)


class Hand:
    """Does a job step by step on a store, as workers would, and says so to a teller."""

    def __init__(self, stage: JobStage) -> None:
        self.stage = stage
        self.store = stage.peik.store.jobs

    async def begin(self) -> JobRecord:
        at_ms = self.stage.clock.wall_ms()
        (job,) = await self.store.take("by hand", TERMS, limit=1, lease_ms=600_000, at_ms=at_ms)
        return job

    async def end(self, job: JobRecord, end: JobEnd = JobEnd.DONE, *, due_in_s: float = 0.0) -> JobRecord:
        at_ms = self.stage.clock.wall_ms()
        ran = Ran(job_id=job.id, run=job.run, end=end, due_at_ms=at_ms + int(due_in_s * 1000))
        (settled,) = await self.store.settle([ran], at_ms=at_ms)
        assert settled is not None
        return settled.job

    async def queue(self, **notice: Any) -> JobRecord:
        """Straight into the store, where nobody tells of it."""
        draft = JobDraft(kind="by hand", user="", notice=noted({"bot_id": BOT, "chat_id": ANN, **notice}))
        (queued,) = await self.store.queue([draft], quotas={}, at_ms=self.stage.clock.wall_ms())
        return await self.get(queued.job_id)

    async def get(self, job_id: int) -> JobRecord:
        job = await self.store.job(job_id)
        assert job is not None
        return job


class Cut:
    """Letters that go out, and a life that ends before it hears so: at the n-th letter."""

    def __init__(self, stage: JobStage, after: int) -> None:
        self._letters = stage.service_letters()
        self._left = after
        self.is_over = asyncio.Event()

    async def accept(
        self, bot_id: int | None, method: str, params: bytes, *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        letter = await self._letters.accept(bot_id, method, params, files=files, idempotency_key=idempotency_key)
        self._left -= 1
        if self._left <= 0:
            self.is_over.set()
            await asyncio.Event().wait()
        return letter

    async def state(self, letter_id: int) -> State | None:
        return await self._letters.state(letter_id)


class Away:
    """Letters that cannot be accepted for a while."""

    def __init__(self, stage: JobStage) -> None:
        self._letters = stage.service_letters()
        self.error: Exception | None = StoreUnavailable(code="store_full", detail="The disk is full.")
        self.asked = 0

    async def accept(
        self, bot_id: int | None, method: str, params: bytes, *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return await self._letters.accept(bot_id, method, params, files=files, idempotency_key=idempotency_key)

    async def state(self, letter_id: int) -> State | None:
        return await self._letters.state(letter_id)


def test_a_restart_in_the_middle_goes_on_with_the_same_message() -> None:
    async def story(stage: JobStage) -> None:
        async def minute(job: Any) -> None:
            for step in range(60):
                await job.progress(step / 60, f"attempt {job.attempt}")
                await asyncio.sleep(1.0)

        stage.kind("work", minute)
        async with stage.open():
            job_id = await stage.queue()
            await asyncio.sleep(20.0)
            assert "attempt 1" in (stage.now() or "")
        async with stage.open():
            await asyncio.sleep(20.0)
            assert "▰▰▰▱" in (stage.now() or "")
            job = await stage.done(job_id)
            assert (job.run, stage.now()) == (2, "✅ Done.")
            assert stage.sends() == ["⏳ Queued."]

    play(story, grace="1s")


@pytest.mark.parametrize("letters", [1, 2, 3])
def test_a_life_that_ends_between_a_letter_and_its_note_repeats_nothing(letters: int) -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand, cut = Hand(stage), Cut(stage, letters)
            await hand.queue()
            job = await hand.begin()
            async with stage.teller(cut) as first:
                first.changed(job)
                await asyncio.sleep(10.0)
                if not cut.is_over.is_set():
                    job = await hand.end(job)
                    first.changed(job)
                await cut.is_over.wait()
            if not job.state.is_final:
                job = await hand.end(job)
            async with stage.teller() as second:
                await second.recover()
                await asyncio.sleep(30.0)
                await second.recover()
                await asyncio.sleep(30.0)
                await stage.quiet()
            assert stage.sends() == ["⏳ Queued."]
            assert (stage.now(), stage.edits()[-1].text) == ("✅ Done.", "✅ Done.")
            assert len(await stage.letters()) == (2 if letters == 1 else 3)
            kept = await hand.get(job.id)
            assert read_told(kept.notice_state).over == kept.ended_at_ms

    play(story)


@pytest.mark.parametrize(
    ("end", "sign"),
    [(JobEnd.DONE, "✅"), (JobEnd.HOPELESS, "❌"), (JobEnd.CANCELLED, "🚫")],
    ids=lambda one: str(one)[:9],
)
def test_however_a_job_ended_while_nobody_told_of_it_the_next_life_does_if_the_store_answers(
    end: JobEnd, sign: str
) -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand = Hand(stage)
            await hand.queue()
            await hand.end(await hand.begin(), end)
            store = stage.peik.store.jobs
            jobs, failures = store.jobs, [StoreUnavailable(code="store_gone", detail="No way there.")] * 2

            async def stumbling(*wanted: Any, **more: Any) -> list[JobRecord]:
                if failures:
                    raise failures.pop()
                return await jobs(*wanted, **more)

            store.jobs = stumbling  # type: ignore[method-assign]
            async with stage.teller() as teller:
                await teller.recover()
                await asyncio.sleep(30.0)
                await stage.quiet()
            assert (stage.now() or "").startswith(sign)

    play(story)


def test_two_nodes_that_tell_of_one_job_at_once_tell_it_in_one_message() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand = Hand(stage)
            queued = await hand.queue()
            async with stage.teller() as one, stage.teller() as other:
                one.changed(queued)
                job = await hand.begin()
                other.changed(job)
                other.progressed(job, 0.3, None)
                await asyncio.sleep(40.0)
                assert stage.now() == "⚙️ ▰▰▰▱▱▱▱▱▱▱ 30%"
                other.changed(await hand.end(job))
                await asyncio.sleep(40.0)
            assert (stage.sends(), stage.now()) == (["⏳ Queued."], "✅ Done.")

    play(story)


def test_places_in_lines_are_told_again_after_a_start() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand = Hand(stage)
            await hand.queue(chat_id=1)
            await hand.queue()
            await hand.begin()
            async with stage.teller() as telling:
                await telling.recover()
                await asyncio.sleep(5.0)
            assert stage.now() == "⏳ Queued: yours is next."

    play(story)


def test_a_chat_that_is_gone_ends_the_telling_quietly_and_the_work_goes_on() -> None:
    async def story(stage: JobStage) -> None:
        async def minute(job: Any) -> str:
            for step in range(60):
                await job.progress(step / 60)
                await asyncio.sleep(1.0)
            return "done"

        stage.kind("work", minute)
        stage.telegram.write(BOT, ANN, "hello")
        stage.telegram.block(BOT, ANN)
        async with stage.open():
            job = await stage.done(await stage.queue())
            assert job.state is State.COMPLETED
            assert [one.method for one in await stage.letters()] == ["sendMessage"]
            assert read_told((await stage.peik.jobs.service.get(job.id)).notice_state).is_gone
            assert stage.events_of(Surprise) == []

    play(story)


def test_who_deletes_the_message_hears_nothing_more_of_that_job() -> None:
    async def story(stage: JobStage) -> None:
        async def minute(job: Any) -> None:
            for step in range(60):
                await job.progress(step / 60)
                await asyncio.sleep(1.0)

        stage.kind("work", minute)
        async with stage.open():
            job_id = await stage.queue()
            await asyncio.sleep(10.0)
            message_id = stage.telegram.sent.of_chat(ANN)[0].message_id
            await stage.accept("deleteMessage", params={"chat_id": ANN, "message_id": message_id})
            edits = len(stage.edits())
            await stage.done(job_id)
            assert len(stage.edits()) == edits
            assert len(await stage.dead()) == 1

    play(story)


def test_where_the_bot_is_not_known_there_is_nobody_to_tell() -> None:
    async def story(stage: JobStage) -> None:
        stage.kind("work", lambda job: asyncio.sleep(5.0))
        async with stage.open():
            job = await stage.done(await stage.queue(notice={"bot_id": 999}))
            assert (job.state, await stage.letters()) == (State.COMPLETED, [])
            assert read_told((await stage.peik.jobs.service.get(job.id)).notice_state).is_gone
            assert stage.events_of(Surprise) == []

    play(story)


def test_while_telegram_is_away_letters_do_not_pile_up_and_the_end_is_told_after() -> None:
    async def story(stage: JobStage) -> None:
        async def five_minutes(job: Any) -> None:
            for step in range(300):
                await job.progress(step / 300)
                await asyncio.sleep(1.0)

        stage.kind("work", five_minutes)
        async with stage.open():
            job_id = await stage.queue()
            await asyncio.sleep(5.0)
            stage.telegram.dark(True)
            job = await stage.peik.jobs.service.wait(job_id, 500.0)
            assert job.state is State.COMPLETED
            assert len(await stage.letters()) <= 5
            stage.telegram.dark(False)
            await stage.done(job_id)
            assert (stage.now(), stage.sends()) == ("✅ Done.", ["⏳ Queued."])

    play(story)


def test_letters_that_cannot_be_accepted_now_are_handed_in_later() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand, away = Hand(stage), Away(stage)
            await hand.queue()
            async with stage.teller(away) as telling:
                telling.changed(await hand.end(await hand.begin()))
                await asyncio.sleep(60.0)
                assert 10 <= away.asked <= 14
                away.error = None
                await asyncio.sleep(10.0)
            assert stage.now() == "✅ Done."

    play(story)


def test_at_its_end_it_tells_what_ended_and_does_not_wait_for_ever() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand, away = Hand(stage), Away(stage)
            await hand.queue(chat_id=1)
            await hand.queue(chat_id=2)
            async with stage.teller() as telling:
                telling.changed(await hand.end(await hand.begin()))
                await telling.stop(5.0)
            began = stage.clock.mono()
            async with stage.teller(away) as telling:
                telling.changed(await hand.end(await hand.begin()))
                await telling.stop(5.0)
            assert stage.clock.mono() - began == pytest.approx(5.0)
            await stage.quiet()
            assert (stage.now(1), stage.sends(2)) == ("✅ Done.", [])

    play(story)


def test_a_message_whose_letter_is_forgotten_is_sent_anew() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand = Hand(stage)
            queued = await hand.queue()
            await hand.store.note(queued.id, '{"letter":777}')
            async with stage.teller() as telling:
                telling.changed(await hand.begin())
                await asyncio.sleep(20.0)
                await stage.quiet()
            assert (stage.sends(), stage.now()) == (["⏳ Queued."], "⚙️ Working on it.")

    play(story)


def test_words_that_changed_between_two_lives_do_not_make_a_second_message() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand = Hand(stage)
            queued = await hand.queue(language="ru")
            key = f"job:{queued.id}:notice"
            params = b'{"chat_id":501,"text":"In other words."}'
            letter = await stage.service_letters().accept(BOT, "sendMessage", params, files={}, idempotency_key=key)
            await hand.store.note(queued.id, f'{{"letter":{letter}}}')
            async with stage.teller() as telling:
                telling.changed(queued_before := await hand.begin())
                assert queued_before.notice_state is not None
                await asyncio.sleep(20.0)
            async with stage.teller() as telling:
                telling.changed(msgspec.structs.replace(await hand.end(queued_before), notice_state=None))
                await asyncio.sleep(20.0)
                await stage.quiet()
            assert (stage.sends(), stage.now()) == (["In other words."], "✅ Готово.")

    play(story)


def test_progress_of_a_run_that_was_given_up_is_not_told() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand = Hand(stage)
            await hand.queue()
            async with stage.teller() as telling:
                first = await hand.begin()
                telling.changed(first)
                await hand.end(first, JobEnd.LOST)
                second = await hand.begin()
                telling.changed(second)
                telling.progressed(second, 0.5, None)
                telling.progressed(first, 0.9, "a ghost")
                await asyncio.sleep(10.0)
                telling.changed(await hand.end(second))
                await asyncio.sleep(10.0)
                telling.progressed(second, 0.9, "a ghost")
                await asyncio.sleep(10.0)
                await stage.quiet()
            assert [one.text for one in stage.said()] == ["⏳ Queued.", "⚙️ ▰▰▰▰▰▱▱▱▱▱ 50%", "✅ Done."]

    play(story)


def test_more_tales_than_it_can_keep_in_mind_are_told_in_the_end() -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand = Hand(stage)
            async with stage.teller(tales_max=10) as telling:
                for chat_id in range(1, 60):
                    telling.changed(await hand.queue(chat_id=chat_id))
                for _ in range(1, 60):
                    telling.changed(await hand.end(await hand.begin()))
                await asyncio.sleep(60.0)
                await stage.quiet()
            assert {stage.now(chat_id) for chat_id in range(1, 60)} == {"✅ Done."}

    play(story)


# ---- what a job itself sends ----


def test_a_job_sends_to_its_own_chat_to_another_that_it_names_and_never_what_is_not_there(tmp_path: Path) -> None:
    async def story(stage: JobStage) -> None:
        async with stage.open():
            hand, chat = Hand(stage), JobChat(stage.service_letters())
            job = await hand.queue()
            nobody = msgspec.structs.replace(job, notice=None)
            text = {"text": "Hello"}
            first = await chat.send(job, "sendMessage", text, files={}, idempotency_key="job:1:1")
            assert await chat.send(job, "sendMessage", text, files={}, idempotency_key="job:1:1") == first
            await chat.send(nobody, "sendMessage", {"chat_id": 7, **text}, files={}, idempotency_key="job:1:2")
            with pytest.raises(Conflict):
                await chat.send(job, "sendMessage", {"text": "Bye"}, files={}, idempotency_key="job:1:1")
            for params, files in (({"text": object()}, {}), ({}, {"document": tmp_path / "none"})):
                with pytest.raises(BadInput):
                    await chat.send(job, "sendDocument", params, files=files, idempotency_key="job:1:3")
            with pytest.raises(BadInput, match="without a chat"):
                await chat.send(nobody, "sendMessage", text, files={}, idempotency_key="job:1:4")
            await stage.quiet()
            assert (stage.sends(), stage.sends(7)) == (["Hello"], ["Hello"])

    play(story)
