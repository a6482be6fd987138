"""Merged edits, letters that refer to letters, files, idempotency keys, restarts."""

import asyncio

import msgspec
import pytest

from peik.core import events
from peik.core.letter import Enclosed, OnUncertain, State
from peik.errors import BadInput, Conflict, NotFound
from peik.storage.spool import FolderSpool
from tests.outbox.story import BOT, Stage, call, play, play_closed


def message_id(letter: object) -> int:
    return int(msgspec.json.decode(getattr(letter, "result", None) or "")["message_id"])


def edit(message: object, text: str) -> dict[str, object]:
    return {"chat_id": 5, "message_id": message, "text": text}


def test_a_waiting_edit_gives_way_to_a_newer_one_and_its_waiter_gets_the_newer_result() -> None:
    async def story(stage: Stage) -> None:
        message = message_id(await stage.ended(await stage.text(5, "0 %")))
        stage.telegram.dark(True)
        ids = [await stage.accept("editMessageText", params=edit(message, f"{done} %")) for done in (10, 20, 30)]
        other = await stage.accept("editMessageText", params=edit(message + 1, "another message"))
        waiter = asyncio.ensure_future(stage.peik.outbox.service.wait(ids[0], 3600))
        await asyncio.sleep(5)
        stage.telegram.dark(False)
        seen = await waiter
        assert (seen.id, seen.state, msgspec.json.decode(seen.result or "")["text"]) == (
            ids[0],
            State.COMPLETED,
            "30 %",
        )
        assert (await stage.letter(ids[0])).merged_into == ids[1]
        assert (await stage.letter(ids[1])).merged_into == ids[2]
        assert (await stage.ended(other)).merged_into is None
        assert len(stage.telegram.applied.where(method="editMessageText")) == 1

    play(story)


def test_an_edit_goes_out_after_all_when_the_newer_one_is_taken_back() -> None:
    async def story(stage: Stage) -> None:
        message = message_id(await stage.ended(await stage.text(5, "0 %")))
        await stage.peik.outbox.service.change_bot(BOT, paused="for a while")
        older = await stage.accept("editMessageText", params=edit(message, "10 %"))
        later = await stage.text(5, "after")
        newer = await stage.accept("editMessageText", params=edit(message, "20 %"))
        waiter = asyncio.ensure_future(stage.peik.outbox.service.wait(older, 3600))
        await asyncio.sleep(5)
        await stage.peik.outbox.service.cancel(newer)
        await stage.peik.outbox.service.change_bot(BOT, paused=None)
        assert ((await waiter).id, (await waiter).state, (await waiter).merged_into) == (older, State.COMPLETED, None)
        await stage.ended(later)
        assert stage.telegram.message(7000001, 5, message)["text"] == "10 %"
        ends = [event.letter_id for event in stage.events_of(events.Settled) if event.state is State.COMPLETED]
        assert ends[-2:] == [older, later], "it is back at its old place"

    play(story)


def test_an_edit_fails_with_the_newer_one_and_both_are_told_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.peik.outbox.service.change_bot(BOT, paused="for a while")
        ids = [await stage.accept("editMessageText", params=edit(4711, text)) for text in ("1", "2")]
        await stage.peik.outbox.service.change_bot(BOT, paused=None)
        seen = [await stage.ended(one) for one in ids]
        assert [one.state for one in seen] == [State.FAILED, State.FAILED]
        assert seen[0].failed_reason == seen[1].failed_reason
        ends = [event.letter_id for event in stage.events_of(events.Settled) if event.state.is_final]
        assert sorted(ends) == ids

    play(story)


def test_a_live_period_is_not_lost_to_a_newer_place() -> None:
    async def story(stage: Stage) -> None:
        place = {"chat_id": 5, "latitude": 35.0, "longitude": 51.0}
        message = message_id(await stage.ended(await stage.accept("sendLocation", params={**place, "live_period": 60})))
        await stage.peik.outbox.service.change_bot(BOT, paused="for a while")
        moved = {**place, "message_id": message}
        ids = [
            await stage.accept("editMessageLiveLocation", params={**moved, "latitude": 36.0 + one, **period})
            for one, period in enumerate(({}, {"live_period": 3600}, {"live_period": "3600"}, {}, {}))
        ]
        await stage.peik.outbox.service.change_bot(BOT, paused=None)
        views = [await stage.ended(one) for one in ids]
        assert [one.merged_into for one in views] == [ids[3], ids[2], None, ids[4], None]

    play(story)


def test_an_edit_refers_to_a_letter_that_is_not_sent_yet() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.outage(300)
        first = await stage.text(5, "draft")
        second = await stage.accept("editMessageText", params=edit({"letter": str(first)}, "final"))
        third = await stage.text(5, "after")
        assert (await stage.ended(second)).state is State.COMPLETED
        await stage.ended(third)
        assert stage.texts(5) == ["draft", "after"]
        assert stage.telegram.message(7000001, 5, message_id(await stage.letter(first)))["text"] == "final"

    play(story)


def test_a_reference_follows_every_edit_that_gave_way_to_a_newer_one() -> None:
    async def story(stage: Stage) -> None:
        message = message_id(await stage.ended(await stage.text(5, "0 %")))
        stage.telegram.dark(True)
        first, *_ = [await stage.accept("editMessageText", params=edit(message, f"{done} %")) for done in (10, 20, 30)]
        params = {"chat_id": 6, "text": "see there", "reply_parameters": {"message_id": {"letter": str(first)}}}
        refers = await stage.accept(params={**params, "reply_parameters": {"chat_id": 5, **params["reply_parameters"]}})
        await asyncio.sleep(5)
        stage.telegram.dark(False)
        assert (await stage.ended(refers)).state is State.COMPLETED
        assert stage.texts(6) == ["see there"]

    play(story)


def test_a_reply_across_chats_waits_without_blocking_its_own_lane() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=600, chat=6, count=1)
        slow = await stage.text(6, "slow")
        params = {
            "chat_id": 5,
            "text": "see there",
            "reply_parameters": {"chat_id": 6, "message_id": {"letter": str(slow)}},
        }
        refers = await stage.accept(params=params)
        free = await stage.ended(await stage.text(5, "free"))
        assert free.state is State.COMPLETED
        assert (await stage.letter(refers)).state is State.DELAYED
        assert (await stage.ended(refers)).state is State.COMPLETED
        assert stage.texts(5) == ["free", "see there"]

    play(story)


def test_a_letter_that_refers_to_a_dead_one_fails_and_says_so() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=400, words="Bad Request: message text is empty", count=1)
        dead = await stage.text(5, "dies")
        orphan = await stage.ended(await stage.accept("editMessageText", params=edit({"letter": dead}, "never")))
        assert orphan.state is State.FAILED
        assert f"letter {dead}" in str(orphan.failed_reason)

    play(story)


def test_a_reference_to_a_letter_that_does_not_exist_is_refused_at_the_door() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(BadInput) as refused:
            await stage.accept("editMessageText", params=edit({"letter": "999"}, "never"))
        assert refused.value.code == "unknown_reference"

    play(story)


def test_an_idempotency_key_makes_a_repeat_the_same_letter() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.text(5, "once", idempotency_key="order-1")
        assert await stage.text(5, "once", idempotency_key="order-1") == first
        with pytest.raises(Conflict):
            await stage.text(5, "something else", idempotency_key="order-1")
        await stage.ended(first)
        assert await stage.text(5, "once", idempotency_key="order-1") == first
        await stage.quiet()
        assert stage.texts(5) == ["once"]
        await asyncio.sleep(49 * 3600)
        assert await stage.text(5, "once", idempotency_key="order-1") != first

    play(story)


async def enclose(spool: FolderSpool, content: bytes, field: str, filename: str = "گزارش.txt") -> Enclosed:
    async def chunks():  # type: ignore[no-untyped-def]
        yield content

    kept = await spool.keep(chunks(), size_bytes_max=1000)
    return Enclosed(
        field=field,
        blob=kept.blob,
        filename=filename,
        content_type="text/plain",
        size_bytes=kept.size_bytes,
        digest=kept.digest,
    )


def test_a_file_is_uploaded_once_and_sent_by_its_id_afterwards() -> None:
    async def story(stage: Stage) -> None:
        spool = stage.peik.spool
        blobs = []
        for chat in (5, 6, 7):
            file = await enclose(spool, b"report", "document")
            blobs.append(file.blob)
            sent = await stage.ended(await stage.accept("sendDocument", params={"chat_id": chat}, enclosed=(file,)))
            assert sent.state is State.COMPLETED
        assert stage.carrier.uploads == 1
        assert not any(spool.path_of(blob).exists() for blob in blobs)

    play(story)


def test_the_same_bytes_under_another_name_are_another_file() -> None:
    async def story(stage: Stage) -> None:
        for chat, name in ((5, "invoice-1.txt"), (6, "invoice-2.txt"), (7, "invoice-1.txt")):
            file = await enclose(stage.peik.spool, b"report", "document", name)
            sent = await stage.ended(await stage.accept("sendDocument", params={"chat_id": chat}, enclosed=(file,)))
            assert msgspec.json.decode(sent.result or "")["document"]["file_name"] == name
        assert stage.carrier.uploads == 2

    play(story)


def test_a_remembered_file_id_that_telegram_refuses_is_forgotten_and_the_file_uploaded_again() -> None:
    async def story(stage: Stage) -> None:
        for chat in (5, 6):
            if chat == 6:
                words = "Bad Request: wrong file identifier/HTTP URL specified"
                stage.telegram.faults.add("error", status=400, words=words, count=1)
            file = await enclose(stage.peik.spool, b"report", "document")
            sent = await stage.ended(await stage.accept("sendDocument", params={"chat_id": chat}, enclosed=(file,)))
            assert (sent.state, sent.attempts_made) == (State.COMPLETED, 1)
        assert stage.carrier.uploads == 2

    play(story)


def test_files_wait_in_the_spool_with_their_letter() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.dark(True)
        async with stage.open():
            file = await enclose(stage.peik.spool, b"report", "document")
            letter_id = await stage.accept("sendDocument", params={"chat_id": 5}, enclosed=(file,))
            await asyncio.sleep(60)
        stage.telegram.dark(False)
        async with stage.open():
            path = stage.peik.spool.path_of(file.blob)
            assert path.read_bytes() == b"report"
            assert (await stage.ended(letter_id)).state is State.COMPLETED
            assert not path.exists()

    play_closed(story)


def test_an_unknown_bot_and_a_missing_chat_are_told_and_nothing_is_accepted() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(NotFound):
            await stage.text(5, "whose?", bot_id=1)
        with pytest.raises(BadInput) as refused:
            await stage.accept_all([call(params={"chat_id": 5, "text": "fine"}), call(params={"text": "to whom?"})])
        assert refused.value.code == "missing_chat_id"
        assert "Letter 1 of the batch" in refused.value.detail
        await asyncio.sleep(60)
        assert stage.telegram.sent.total == 0

    play(story)


def test_a_graceful_end_finishes_what_is_in_flight_and_leaves_the_rest() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("slow", least_s=3, most_s=3)
        async with stage.open():
            ids = [await stage.text(5, f"n{number}") for number in range(5)]
            await asyncio.sleep(0.5)
        assert stage.texts(5) == ["n0"]
        async with stage.open():
            await stage.quiet()
            first = await stage.letter(ids[0])
            assert (first.state, first.uncertain_tries) == (State.COMPLETED, 0)
        assert stage.texts(5) == [f"n{number}" for number in range(5)]
        assert not stage.events_of(events.Recovered)

    play_closed(story)


def test_what_was_in_flight_when_peik_ended_is_uncertain() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("hang", after=True, count=2)
        async with stage.open():
            resend = await stage.text(5, "again")
            hold = await stage.text(6, "once", on_uncertain=OnUncertain.HOLD)
            await asyncio.sleep(1)
        async with stage.open():
            again, once = await stage.ended(resend), await stage.ended(hold)
            assert (again.state, again.uncertain_tries) == (State.COMPLETED, 1)
            assert (once.state, once.failed_reason) == (State.FAILED, "uncertain")
        assert stage.texts(5) == ["again", "again"]
        assert stage.texts(6) == ["once"]
        assert [event.count for event in stage.events_of(events.Recovered)] == [2]

    play_closed(story, grace="1s")


def test_letters_accepted_before_a_restart_are_sent_after_it_in_order() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.dark(True)
        async with stage.open():
            for number in range(40):
                await stage.text(5, f"n{number}")
        stage.telegram.dark(False)
        async with stage.open():
            await stage.text(5, "new")
            await stage.quiet()
        assert stage.texts(5) == [f"n{number}" for number in range(40)] + ["new"]

    play_closed(story)


def test_old_letters_leave_the_store_and_stay_in_the_message_log() -> None:
    async def story(stage: Stage) -> None:
        letter_id = await stage.text(5, "old")
        await stage.ended(letter_id)
        await asyncio.sleep(8 * 86400)
        with pytest.raises(NotFound):
            await stage.letter(letter_id)
        rows = await stage.peik.store.read(
            lambda connection: list(connection.execute("SELECT id, status FROM telegram_message_logs"))
        )
        assert rows == [(letter_id, "completed")]

    play(story)
