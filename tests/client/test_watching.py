"""Looking at letters and acting on them, told the same in this process and over REST."""

from pathlib import Path

import pytest

from peik import BadInput, Call, Conflict, NotFound, Peik, State
from peik.testing import SimServer
from tests.client.counters import both, play
from tests.processes.programs import BOT

NEXT_YEAR = 1_830_000_000


@both
def test_letters_are_listed_page_by_page_and_by_filter(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        calls = [
            Call(
                "sendMessage",
                chat_id=n % 3 + 1,
                text=f"n{n}",
                send_at=NEXT_YEAR,
                metadata={"user_id": n, "message_type": "news" if n % 2 else "bill"},
            )
            for n in range(450)
        ]
        letters = await peik.send_many(calls)
        assert [one.id async for one in peik.letters()] == [letter.id for letter in reversed(letters)]
        assert len([one async for one in peik.letters(state=State.DELAYED, chat_id=2)]) == 150
        assert len([one async for one in peik.letters(message_type="news", bot_id=BOT)]) == 225
        assert len([one.text async for one in peik.message_log(message_type="news", bot_id=BOT)]) == 225
        assert [one.params["text"] async for one in peik.letters(user_id=7)] == ["n7"]
        assert [one.chat_id async for one in peik.letters(text="N444", method="sendMessage")] == [1]
        assert [one async for one in peik.letters(state="completed")] == []
        assert [one async for one in peik.letters(since=NEXT_YEAR)] == []
        assert len([one async for one in peik.letters(until=NEXT_YEAR, chat_id=2)]) == 150
        assert [one async for one in peik.letters(trace="u7.1")] == []
        assert (await peik.get_queue_stats()).delayed == 450

    play(way, tmp_path, story)


@both
def test_dead_letters_are_retried_one_by_one_or_by_filter_and_cleared(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        fault = sim.telegram.faults.add("error", status=400, words="Bad Request: message is too odd")
        letters = await peik.send_many(
            Call("sendMessage", chat_id=n, text=f"n{n}", metadata={"message_type": "odd" if n % 2 else "even"})
            for n in range(1, 7)
        )
        dead = [await peik.wait(letter) for letter in letters]
        assert {(one.state, one.failed_reason) for one in dead} == {(State.FAILED, "Bad Request: message is too odd")}
        assert (await peik.get_queue_stats()).failed == 6
        sim.telegram.faults.clear(fault)
        assert (await peik.retry_failed_job(letters[0].id)).state in (State.WAITING, State.ACTIVE, State.COMPLETED)
        assert (await peik.wait(letters[0])).is_delivered
        assert await peik.retry_failed_jobs(message_type="even", error="too odd") == 3
        assert [(await peik.wait(letter)).is_delivered for letter in letters[1::2]] == [True] * 3
        assert await peik.clear_failed_jobs(cause="something else") == 0
        assert await peik.clear_failed_jobs(chat_id=3) == 1
        assert await peik.clear_failed_jobs() == 1
        stats = await peik.get_queue_stats()
        assert (stats.completed, stats.failed) == (4, 0)
        with pytest.raises(Conflict) as raised:
            await peik.retry_failed_job(letters[0])
        assert raised.value.code == "not_dead"
        with pytest.raises(NotFound):
            await peik.get_job_status(letters[2])

    play(way, tmp_path, story)


@both
def test_a_letter_is_taken_back_and_an_uncertain_one_resolved(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        later = await peik.send_text(5, "never mind", send_at=NEXT_YEAR)
        assert (await peik.cancel(later)).state is State.CANCELLED
        with pytest.raises(Conflict) as raised:
            await peik.cancel(later)
        assert raised.value.code == "already_ended"
        sim.telegram.faults.add("lose_after", count=2)
        doubts = [await peik.send_text(chat, "perhaps", on_uncertain="hold") for chat in (6, 7)]
        assert [(await peik.wait(letter)).failed_reason for letter in doubts] == ["uncertain"] * 2
        assert (await peik.resolve(doubts[0], arrived=True)).is_delivered
        await peik.resolve(doubts[1], arrived=False)
        assert (await peik.wait(doubts[1])).is_delivered
        assert [len(sim.telegram.sent.texts(chat)) for chat in (6, 7)] == [1, 2]
        with pytest.raises(Conflict) as raised:
            await peik.resolve(doubts[0], arrived=True)
        assert raised.value.code == "not_uncertain"

    play(way, tmp_path, story)


@both
def test_wrong_ids_and_filters_are_refused(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        with pytest.raises(BadInput) as bad:
            await peik.get_job_status("../bots")
        assert bad.value.code == "bad_letter_id"
        for act in (peik.get_job_status, peik.wait, peik.cancel, peik.retry_failed_job):
            with pytest.raises(NotFound) as missing:
                await act(999)
            assert missing.value.code == "unknown_letter"
        with pytest.raises(BadInput) as bad:
            await peik.clear_failed_jobs(chat=5)  # type: ignore[call-arg]
        assert bad.value.code == "unknown_filter"
        with pytest.raises(BadInput) as bad:
            _ = [one async for one in peik.letters(state="lost")]
        assert bad.value.code == "bad_state"

    play(way, tmp_path, story)
