"""Waiting for Telegram's own answer: as soon as it comes, or the letter as it stands."""

import asyncio

import msgspec

from peik.core.events import Settled
from peik.core.letter import State
from peik.core.lifecycle import Move
from peik.outbox.store import LetterView
from tests.outbox.story import BOT, Stage, play


def watched(stage: Stage) -> dict[int, object]:
    sender = stage.peik.outbox.courier.senders[BOT]
    assert sender is not None
    return dict(sender._eager)


def test_a_result_is_told_as_it_comes_and_stored_all_the_same() -> None:
    async def story(stage: Stage) -> None:
        letter_id = await stage.text(5, "hello")
        result = await stage.peik.outbox.service.answer(BOT, letter_id, 4.0)
        assert isinstance(result, bytes)
        assert msgspec.json.decode(result)["text"] == "hello"
        assert (await stage.ended(letter_id)).result == result.decode()
        assert not watched(stage)

    play(story)


def test_a_refusal_is_told_when_it_is_stored() -> None:
    async def story(stage: Stage) -> None:
        letter_id = await stage.text(5, "<b>", priority=1)
        params = b'{"chat_id":5,"text":"<b>","parse_mode":"HTML"}'
        stage.telegram.user(5)
        refused = await stage.accept(params=msgspec.json.decode(params))
        view = await stage.peik.outbox.service.answer(BOT, refused, 4.0)
        assert isinstance(view, LetterView)
        assert view.state is State.FAILED
        assert (await stage.ended(letter_id)).state is State.COMPLETED

    play(story)


def test_what_is_not_answered_in_time_is_shown_as_it_stands_and_nobody_is_left_waiting() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("dark", seconds=60)
        letter_id = await stage.text(5, "later")
        began = stage.clock.mono()
        view = await stage.peik.outbox.service.answer(BOT, letter_id, 4.0)
        assert isinstance(view, LetterView)
        assert not view.state.is_final
        assert 3.9 < stage.clock.mono() - began < 4.1
        assert not watched(stage)
        assert (await stage.ended(letter_id)).state is State.COMPLETED

    play(story)


def test_an_edit_that_gave_way_is_answered_with_the_newer_one() -> None:
    async def story(stage: Stage) -> None:
        sent = await stage.ended(await stage.text(5, "0"))
        message_id = msgspec.json.decode(sent.result or "")["message_id"]
        edits = [
            await stage.accept("editMessageText", params={"chat_id": 5, "message_id": message_id, "text": text})
            for text in ("1", "2")
        ]
        first, second = await asyncio.gather(*(stage.peik.outbox.service.answer(BOT, one, 30.0) for one in edits))
        newer = first if isinstance(first, bytes) else (first.result or "").encode()
        assert msgspec.json.decode(newer)["text"] == "2"
        assert isinstance(second, bytes)
        told = [(event.move, event.state) for event in stage.events_of(Settled) if event.letter_id == edits[0]]
        assert told == [(Move.MERGE, State.DELAYED), (Move.FOLLOW, State.COMPLETED)]

    play(story)


def test_whoever_is_cut_off_while_he_waits_leaves_nothing_behind() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.dark(True)
        service = stage.peik.outbox.service
        letter_id = await stage.text(5, "later")
        callers = [service.answer(BOT, letter_id, 60.0), service.wait(letter_id, 60.0), service.wait(letter_id, 60.0)]
        waiting = [asyncio.ensure_future(one) for one in callers]
        await asyncio.sleep(1)
        assert len(service._waiters[letter_id]) == 3
        for one in waiting[:2]:
            one.cancel()
        await asyncio.wait(waiting[:2])
        assert not watched(stage)
        stage.telegram.dark(False)
        assert (await waiting[2]).state is State.COMPLETED
        assert not service._waiters

    play(story)
