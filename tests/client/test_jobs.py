"""Jobs in the library: queued and looked at in the program that does them, and over REST, with the same words."""

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest

from peik import BadInput, Conflict, NotFound, Peik, Problem, State
from peik.client import jobs
from peik.jobs.model import JobEnd
from peik.testing import SimServer
from tests.client.job_ways import Doer, both, play
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN


@both
def test_a_job_is_done_and_all_of_it_can_be_seen(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        queued = await peik.queue_job("add", user=17, metadata={"order": 5}, priority=1, numbers=[1, 2, 3])
        assert queued.state is State.WAITING
        done = await peik.wait_job(queued)
        assert (done.id, done.state, done.is_done, done.kind, done.user) == (queued.id, "completed", True, "add", "17")
        assert done.result == {"sum": 6, "user": "17", "metadata": {"order": 5}}
        assert (done.params, done.metadata, done.priority) == ({"numbers": [1, 2, 3]}, {"order": 5}, 1)
        assert (done.attempts, done.attempts_made, done.position, done.notice) == (3, 1, None, None)
        assert [(run.end, run.run) for run in done.history] == [(JobEnd.DONE, 1)]
        assert done.bytes_used >= 100
        assert isinstance(done.created_at, datetime.datetime)
        assert done.started_at is not None
        assert done.ended_at is not None
        assert done.started_at <= done.ended_at  # another process queued it, and may have looked at the clock later
        assert await peik.get_job(queued.id) == await peik.get_job(int(queued.id)) == done
        assert not doer.folders[0].exists()

    play(way, tmp_path, story)


@both
def test_a_kind_is_paused_resumed_and_bound_to_a_rate(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        await peik.queue_job("add", numbers=[1])
        assert (await peik.pause_jobs("add", why="for now")).is_paused
        assert (await peik.set_job_rate("add", "2/s")).rate == "2/s burst 2"
        (kind,) = [one for one in await peik.job_kinds() if one.kind == "add"]
        assert (kind.is_paused, kind.why, kind.rate) == (True, "for now", "2/s burst 2")
        await peik.resume_jobs("add")
        assert (await peik.set_job_rate("add", None)).rate is None
        assert (await peik.wait_job(await peik.queue_job("add", numbers=[2]))).result["sum"] == 2
        with pytest.raises(NotFound):
            await peik.pause_jobs("nothing")

    play(way, tmp_path, story)


@both
def test_one_that_runs_is_watched_and_cancelled_and_one_that_waits_has_a_place(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        first, second, third = [await peik.queue_job("hold", user="sara") for _ in range(3)]
        assert str(await doer.began.get()) == first.id
        assert (await peik.wait_job(first, timeout=0.1)).state == "active"
        place = await peik.job_place(third)
        assert place is not None
        assert (place.position, place.eta_s) == (2, None)
        assert await peik.job_place(first) is None
        counts = (await peik.job_counts())["hold"]
        assert (counts.active, counts.waiting) == (1, 2)

        assert (await peik.cancel_job(second)).state == "cancelled"
        told = await peik.cancel_job(first)
        assert told.state == "cancelled" or told.is_cancelling
        assert (await peik.wait_job(first)).state == "cancelled"
        with pytest.raises(Conflict):
            await peik.cancel_job(first)
        assert str(await doer.began.get()) == third.id
        doer.held[int(third.id)].set()
        assert (await peik.wait_job(third)).result == "let go"

        assert (await peik.retry_job(second)).state == "waiting"
        assert str(await doer.began.get()) == second.id
        doer.held[int(second.id)].set()
        assert (await peik.wait_job(second)).is_done
        with pytest.raises(Conflict):
            await peik.retry_job(second)

    play(way, tmp_path, story)


@both
def test_people_hear_of_it_in_their_chat_and_a_run_that_comes_again_says_nothing_twice(
    way: str, tmp_path: Path
) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        queued = await peik.queue_job("flaky", user=5, chat_id=5, language="en", label="Words", word="hello")
        done = await peik.wait_job(queued)
        assert (done.result, done.attempts_made) == (2, 2)
        assert [run.end for run in done.history] == [JobEnd.FAILED, JobEnd.DONE]
        assert done.history[0].reason == "ValueError: not yet"
        assert done.notice is not None
        assert (done.notice.chat_id, done.notice.bot_id, done.notice.label) == (5, None, "Words")
        await sim.until(lambda: any("Done" in text for text in shown(sim)), timeout=PATIENCE_S)
        said = sim.telegram.sent.texts(5)
        assert said.count("I say hello") == 1
        assert len(said) == 2  # that, and the one message that was edited

    play(way, tmp_path, story)


def shown(sim: SimServer) -> list[str]:
    """Texts of a chat as people see them now."""
    found = [sim.telegram.message(TOKEN, 5, one.message_id) for one in sim.telegram.sent if one.chat_id == 5]
    return [str(message["text"]) for message in found if message is not None]


@both
def test_a_repeat_under_a_key_is_the_same_job(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        first = await peik.queue_job("add", user=1, key="order-5", chat_id=5, numbers=[1])
        await peik.wait_job(first)
        again = await peik.queue_job("add", user=1, key="order-5", chat_id=5, numbers=[1])
        assert (again.id, again.state) == (first.id, "completed")
        # The program and the server agree about what is the same.
        assert (await doer.peik.queue_job("add", user=1, key="order-5", chat_id=5, numbers=[1])).id == first.id
        with pytest.raises(Conflict, match="key"):
            await peik.queue_job("add", user=1, key="order-5", chat_id=5, numbers=[2])

    play(way, tmp_path, story)


@both
def test_jobs_are_found_page_by_page(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PAGE_JOBS", 2)

    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        ids = [(await peik.queue_job("elsewhere", user=f"u{number % 2}")).id for number in range(5)]
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        put_off = await peik.queue_job("elsewhere", user="u0", run_at=later)
        assert put_off.state == "delayed"
        assert (await peik.get_job(put_off)).due_at == later.replace(microsecond=later.microsecond // 1000 * 1000)
        assert [job.id async for job in peik.find_jobs(kind="elsewhere", state="waiting")] == ids[::-1]
        assert [job.id async for job in peik.find_jobs(user="u1")] == [ids[3], ids[1]]
        assert [job.id async for job in peik.find_jobs(since=later)] == []
        used = await peik.jobs_used("elsewhere", "u1")
        assert (used.jobs, used.bytes, used.jobs_max) == (2, 0, None)
        assert await peik.hosts() == []

    play(way, tmp_path, story)


REFUSED: list[tuple[dict[str, Any], type[Problem], str]] = [
    ({"kind": "no such name"}, BadInput, "bad_kind"),
    ({"user": "x" * 200}, BadInput, "bad_user"),
    ({"priority": 9}, BadInput, "bad_priority"),
    ({"priority": "high"}, BadInput, "bad_request"),
    ({"attempts": 0}, BadInput, "bad_attempts"),
    ({"backoff": "never"}, BadInput, "bad_request"),
    ({"run_at": datetime.datetime(2030, 1, 1)}, BadInput, "bad_time"),  # noqa: DTZ001  that is what is wrong
    ({"blob": object()}, BadInput, "bad_params"),
    ({"text": "x" * 70_000}, BadInput, "params_too_large"),
    ({"metadata": {"text": "x" * 9000}}, BadInput, "metadata_too_large"),
    ({"language": "en"}, BadInput, "no_chat"),
    ({"chat_id": 5, "on_done": "dance"}, BadInput, "bad_notice"),
    ({"chat_id": 5, "bot_id": 12}, NotFound, "unknown_bot"),
]


@both
def test_what_cannot_be_a_job_is_refused(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        for given, problem, code in REFUSED:
            with pytest.raises(problem) as error:
                await peik.queue_job(
                    given.get("kind", "add"), **{name: given[name] for name in given if name != "kind"}
                )
            assert (given, error.value.code) == (given, code)
        assert [job async for job in peik.find_jobs()] == []

    play(way, tmp_path, story)


@both
def test_what_is_not_there_is_not_found(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        for ask in (peik.get_job, peik.wait_job, peik.cancel_job, peik.retry_job, peik.job_place):
            with pytest.raises(NotFound):
                await ask(404)
        with pytest.raises(BadInput, match="number"):
            await peik.get_job("seven")
        with pytest.raises(BadInput, match="state is one of"):
            await anext(peik.find_jobs(state="lost"))

    play(way, tmp_path, story)


def test_a_day_allows_so_much_and_no_more(tmp_path: Path) -> None:
    async def story(peik: Peik, doer: Doer, sim: SimServer) -> None:
        for _ in range(3):
            await peik.wait_job(await peik.queue_job("add", user="ali", numbers=[]))
        with pytest.raises(Conflict) as error:
            await peik.queue_job("add", user="ali", numbers=[])
        assert error.value.code == "quota"
        used = await peik.jobs_used("add", "ali")
        assert (used.kind, used.user, used.jobs, used.jobs_max, used.bytes_max) == ("add", "ali", 3, 3, None)
        assert used.bytes >= 300
        await asyncio.gather(*[peik.queue_job("add", user="sara", numbers=[]) for _ in range(3)])

    play("open", tmp_path, story)
