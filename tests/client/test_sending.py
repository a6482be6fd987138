"""Every way to send, told the same in this process and over REST."""

import datetime
import io
import time
from pathlib import Path

import pytest

from peik import BadInput, Call, Conflict, NotFound, OnUncertain, Peik, Priority, Problem, Refused, State, TooLarge
from peik.testing import SimServer
from tests.client.counters import both, play
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT


@both
def test_each_method_sends_what_it_says_and_answers_with_a_durable_letter(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        letters = [
            await peik.send_text(1, "<b>Hello</b>", parse_mode="HTML", priority=Priority.HIGH),
            await peik.send_photo(2, b"\xff\xd8 a picture", caption="seen"),
            await peik.send_document("3", "https://example.org/report.pdf"),
            await peik.send_voice(4, io.BytesIO(b"OggS"), duration=3),
            await peik.send_location(5, 35.7, 51.4, horizontal_accuracy=10.0),
            await peik.send("sendDice", chat_id=6, emoji="🎲"),
        ]
        assert {letter.state for letter in letters} == {State.WAITING}
        receipts = [await peik.wait(letter.id, timeout=PATIENCE_S) for letter in letters]
        assert [receipt.state for receipt in receipts] == [State.COMPLETED] * 6
        methods = ["sendMessage", "sendPhoto", "sendDocument", "sendVoice", "sendLocation", "sendDice"]
        assert [receipt.method for receipt in receipts] == methods
        assert [receipt.chat_id for receipt in receipts] == [1, 2, 3, 4, 5, 6]
        assert [receipt.message_id for receipt in receipts] == [1] * 6
        first = receipts[0]
        assert (first.bot_id, first.priority, first.progress, first.attempts_made) == (BOT, 1, 100, 1)
        assert isinstance(first.result, dict)
        assert first.result["text"] == "Hello"
        assert first.created_at <= datetime.datetime.now(datetime.UTC)
        assert [one.outcome for one in first.history] == ["delivered"]

    play(way, tmp_path, story)


@both
def test_files_come_as_bytes_paths_open_files_and_ids_and_arrive_byte_for_byte(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        content = bytes(range(256)) * 2000
        path = tmp_path / "گزارش.bin"
        path.write_bytes(content + b"on disk")
        with path.open("rb") as file:
            file.seek(256)
            given = [
                (content, "bytes.bin", "bytes.bin", len(content)),
                (memoryview(content)[1:], None, "document", len(content) - 1),
                (path, "named.txt", "named.txt", len(content) + 7),
                (file, None, "گزارش.bin", len(content) - 249),
            ]
            for document, filename, shown, size in given:
                receipt = await peik.send_document(5, document, filename=filename, wait=PATIENCE_S)
                assert isinstance(receipt.result, dict)
                sent = receipt.result["document"]
                assert sent["file_size"] == size
                assert shown is None or sent["file_name"] == shown
        again = await peik.send_document(6, sent["file_id"], wait=PATIENCE_S)
        assert isinstance(again.result, dict)
        assert again.result["document"]["file_id"] == sent["file_id"]
        album = await peik.send(
            "sendMediaGroup",
            chat_id=7,
            media=[{"type": "photo", "media": "attach://one"}, {"type": "photo", "media": "attach://two"}],
            files={"one": b"first", "two": ("second.jpg", b"second")},
            wait=10,
        )
        assert isinstance(album.result, list)
        assert album.message_id == album.result[0]["message_id"]
        direct = await peik.send("sendPhoto", chat_id=8, photo=b"as the parameter itself", wait=PATIENCE_S)
        assert direct.is_delivered
        assert not any((tmp_path / "peik.db.files").iterdir())

    play(way, tmp_path, story)


@both
def test_files_that_cannot_be_sent_are_refused_and_leave_nothing(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        bad: list[tuple[object, type[Problem], str]] = [
            (tmp_path / "missing.txt", BadInput, "unreadable_file"),
            (io.StringIO("text"), BadInput, "bad_file"),
            ("/etc/hostname", BadInput, "bad_file"),
            (7, BadInput, "bad_file"),
            (b"x" * 1_500_000, TooLarge, "file_too_large"),
        ]
        for document, kind, code in bad:
            with pytest.raises(kind) as raised:
                await peik.send_document(5, document)  # type: ignore[call-overload]
            assert raised.value.code == code
        with pytest.raises(BadInput, match="A batch carries no files"):
            await peik.send_many([Call("sendPhoto", chat_id=5, photo=b"x")])
        assert (await peik.get_queue_stats()).waiting == 0
        folder = tmp_path / "peik.db.files"
        assert not folder.exists() or not any(folder.iterdir())

    play(way, tmp_path, story)


@both
def test_wait_answers_with_the_receipt_raises_refusals_and_gives_up_in_time(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        receipt = await peik.send_text(5, "now", wait=PATIENCE_S)
        assert (receipt.is_delivered, receipt.message_id) == (True, 1)
        with pytest.raises(Refused) as raised:
            await peik.send_text(5, "<b>unclosed", parse_mode="HTML", wait=PATIENCE_S)
        assert "can't parse entities" in raised.value.words
        assert (raised.value.receipt.state, raised.value.receipt.attempts_made) == (State.FAILED, 1)
        sim.telegram.faults.add("dark")
        waiting = await peik.send_text(5, "later", wait=0.2)
        assert not waiting.state.is_final
        assert waiting.why is not None
        sim.telegram.faults.clear()
        assert (await peik.wait(waiting, timeout=PATIENCE_S)).is_delivered
        sim.telegram.faults.add("lose_after", count=1)
        doubtful = await peik.send_text(5, "once", on_uncertain="hold", wait=PATIENCE_S)
        assert (doubtful.state, doubtful.failed_reason) == (State.FAILED, "uncertain")

    play(way, tmp_path, story)


@both
def test_all_terms_are_taken_by_every_counter(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        letter = await peik.send_text(
            5,
            "later",
            bot_id=BOT,
            priority=Priority.CRITICAL,
            attempts=3,
            backoff_ms=100,
            backoff="fixed",
            timeout_ms=30_000,
            send_at=tomorrow,
            expires_at=time.time() + 2 * 86400,
            on_uncertain=OnUncertain.HOLD,
            idempotency_key="k1",
            metadata={"user_id": 17, "message_type": "receipt"},
        )
        assert letter.state is State.DELAYED
        status = await peik.get_job_status(letter)
        assert (status.priority, status.attempts, status.on_uncertain) == (2, 3, "hold")
        assert status.send_at is not None
        assert abs(status.send_at - tomorrow) < datetime.timedelta(seconds=1)
        assert status.expires_at is not None
        assert status.metadata == {"user_id": 17, "message_type": "receipt"}
        assert (await peik.send_text(5, "later", idempotency_key="k1")).id == letter.id
        with pytest.raises(Conflict) as raised:
            await peik.send_text(5, "another", idempotency_key="k1")
        assert raised.value.code == "idempotency_key_reused"

    play(way, tmp_path, story)


@both
def test_a_repeat_of_what_was_cleared_away_is_refused_as_the_first_was(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        sim.telegram.block(BOT, 5)
        for reason in ("Forbidden", "it failed, and was cleared away since"):
            with pytest.raises(Refused) as raised:
                await peik.send_text(5, "once", idempotency_key="k1", wait=10)
            assert reason in str(raised.value.receipt.failed_reason)
            await peik.clear_failed_jobs(chat_id=5)

    play(way, tmp_path, story)


@both
def test_a_letter_stands_for_the_message_that_it_becomes(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        sim.telegram.faults.add("slow", least_s=0.2, most_s=0.2, count=1)
        question = await peik.send_text(5, "question")
        answer = await peik.send_text(5, "answer", reply_to=question, wait=PATIENCE_S)
        assert isinstance(answer.result, dict)
        assert answer.result["reply_to_message"]["text"] == "question"
        await peik.send("editMessageText", chat_id=5, message_id=question, text="edited", wait=PATIENCE_S)
        number = (await peik.wait(question)).message_id
        assert number is not None
        assert sim.telegram.message(BOT, 5, number)["text"] == "edited"
        plain = await peik.send_text(5, "to a number", reply_to=number, wait=PATIENCE_S)
        assert isinstance(plain.result, dict)
        assert plain.result["reply_to_message"]["message_id"] == number

    play(way, tmp_path, story)


@both
def test_a_batch_is_accepted_whole_and_in_order_or_not_at_all(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        letters = await peik.send_many(Call("sendMessage", chat_id=5, text=f"n{n}") for n in range(300))
        assert len({letter.id for letter in letters}) == 300
        assert (await peik.wait(letters[-1], timeout=PATIENCE_S)).is_delivered
        assert sim.telegram.sent.texts(5) == [f"n{n}" for n in range(300)]
        (one,) = await peik.send_many([Call("sendMessage", chat_id=6, text="alone", priority=Priority.BULK)])
        assert (await peik.wait(one)).priority == -1
        with pytest.raises(BadInput) as raised:
            await peik.send_many([Call("sendMessage", chat_id=7, text="good"), Call("sendMessage", text="to whom?")])
        assert raised.value.code == "missing_chat_id"
        assert "Letter 1" in raised.value.detail
        with pytest.raises(BadInput, match="no letter in the batch"):
            await peik.send_many([])
        stats = await peik.get_queue_stats()
        assert (stats.completed, stats.waiting, stats.bots[BOT].completed) == (301, 0, 301)

    play(way, tmp_path, story)


BAD: list[tuple[dict[str, object], type[Problem], str]] = [
    ({"text": "to whom?"}, BadInput, "missing_chat_id"),
    ({"chat_id": 5, "text": "x" * 4097}, BadInput, "text_too_long"),
    ({"chat_id": 5, "text": "t", "priority": 7}, BadInput, "bad_priority"),
    ({"chat_id": 5, "text": "t", "attempts": 0}, BadInput, "bad_attempts"),
    ({"chat_id": 5, "text": "t", "attempts": "three"}, BadInput, "bad_request"),
    ({"chat_id": 5, "text": "t", "on_uncertain": "pray"}, BadInput, "bad_request"),
    ({"chat_id": 5, "text": "t", "send_at": datetime.datetime(2030, 1, 1)}, BadInput, "bad_time"),  # noqa: DTZ001
    ({"chat_id": 5, "text": "t", "expires_at": 5}, BadInput, "already_expired"),
    ({"chat_id": 5, "text": "t", "metadata": [1]}, BadInput, "bad_metadata"),
    ({"chat_id": 5, "text": "t", "extra": object()}, BadInput, "bad_params"),
    ({"chat_id": 5, "text": "t", "bot_id": 1}, NotFound, "unknown_bot"),
    ({"chat_id": 5, "text": "t", "reply_parameters": {"message_id": {"letter": "77"}}}, BadInput, "unknown_reference"),
]


@both
def test_mistakes_are_raised_with_the_same_class_and_code(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        for params, kind, code in BAD:
            with pytest.raises(Problem) as raised:
                await peik.send("sendMessage", **params)
            assert (type(raised.value), raised.value.code) == (kind, code), params
            assert raised.value.detail
        with pytest.raises(BadInput, match="not sent by letter"):
            await peik.send("getMe")
        assert (await peik.get_queue_stats()).waiting == 0

    play(way, tmp_path, story)
