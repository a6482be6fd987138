"""What each outcome costs a letter, and what it means beyond the letter (docs/guarantees.md)."""

import asyncio
import itertools

import msgspec
import pytest

from peik.core import events
from peik.core.letter import OnUncertain, State
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed


def test_a_letter_is_delivered_and_its_result_is_telegrams_own() -> None:
    async def story(stage: Stage) -> None:
        letter = await stage.ended(await stage.text(5, "hello"))
        assert (letter.state, letter.attempts_made) == (State.COMPLETED, 1)
        assert letter.result is not None
        assert msgspec.json.decode(letter.result)["text"] == "hello"
        assert stage.texts(5) == ["hello"]

    play(story)


def test_a_passing_refusal_is_tried_after_2_4_8_and_16_seconds_and_then_the_letter_is_dead() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=400, words="Bad Request: Group send failed")
        begun = stage.clock.mono()
        letter = await stage.ended(await stage.text(5, "album"))
        assert (letter.state, letter.attempts_made) == (State.FAILED, 5)
        assert letter.failed_reason == "Bad Request: Group send failed"
        at = [line["at"] for line in msgspec.json.decode(letter.history or "[]")]
        waits = [round((later - earlier) / 1000) for earlier, later in itertools.pairwise(at)]
        assert waits == [2, 4, 8, 16]
        assert stage.clock.mono() - begun < 31

    play(story)


def test_attempts_and_first_delay_can_be_set_per_letter() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=400, words="Bad Request: Group send failed", count=1)
        letter = await stage.ended(await stage.text(5, "once more", attempts=2, backoff_ms=500))
        assert (letter.state, letter.attempts_made) == (State.COMPLETED, 2)
        stage.telegram.faults.add("error", status=400, words="Bad Request: Group send failed", count=1)
        letter = await stage.ended(await stage.text(6, "no more", attempts=1))
        assert (letter.state, letter.attempts_made) == (State.FAILED, 1)

    play(story)


def test_a_final_refusal_fails_at_once_in_telegrams_words() -> None:
    async def story(stage: Stage) -> None:
        params = {"chat_id": 5, "text": "<b>broken", "parse_mode": "HTML"}
        letter = await stage.ended(await stage.accept(params=params))
        assert letter.state is State.FAILED
        assert letter.attempts_made == 1
        assert "can't parse entities" in str(letter.failed_reason)

    play(story)


def test_while_telegram_is_dark_for_hours_no_attempt_is_used_up_and_order_is_kept() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.outage(6 * 3600)
        ids = [await stage.text(5, f"n{number}") for number in range(20)]
        await asyncio.sleep(3 * 3600)
        waiting = await stage.letter(ids[0])
        assert (waiting.state, waiting.attempts_made, waiting.uncertain_tries) == (State.WAITING, 0, 0)
        last = await stage.ended(ids[-1])
        assert (last.state, last.attempts_made, last.uncertain_tries) == (State.COMPLETED, 1, 0)
        assert stage.texts(5) == [f"n{number}" for number in range(20)]
        assert len(stage.events_of(events.RouteOpened)) == 1
        # The route is asked with getMe, never with a letter.
        assert stage.telegram.counters.requests["sendMessage"] == 20

    play(story)


def test_an_uncertain_try_is_resent_and_counted() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("lose_after", method="sendMessage", count=1)
        letter = await stage.ended(await stage.text(5, "twice"))
        assert (letter.state, letter.uncertain_tries, letter.attempts_made) == (State.COMPLETED, 1, 2)
        assert stage.texts(5) == ["twice", "twice"]

    play(story)


def test_an_edit_that_is_held_is_not_repeated_either() -> None:
    async def story(stage: Stage) -> None:
        sent = await stage.ended(await stage.text(5, "before"))
        params = {"chat_id": 5, "message_id": msgspec.json.decode(sent.result or "")["message_id"], "text": "after"}
        stage.telegram.faults.add("lose_after", method="editMessageText", count=1)
        held = await stage.accept("editMessageText", params=params, on_uncertain=OnUncertain.HOLD)
        letter = await stage.ended(held)
        assert (letter.state, letter.failed_reason, letter.uncertain_tries) == (State.FAILED, "uncertain", 1)
        await asyncio.sleep(3600)
        assert stage.telegram.counters.requests["editMessageText"] == 1

    play(story)


def test_a_held_letter_is_never_sent_twice_a_person_decides() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("lose_after", method="sendMessage", count=1)
        letter = await stage.ended(await stage.text(5, "once", on_uncertain=OnUncertain.HOLD))
        assert (letter.state, letter.failed_reason, letter.uncertain_tries) == (State.FAILED, "uncertain", 1)
        await asyncio.sleep(3600)
        assert stage.texts(5) == ["once"]

    play(story)


def test_creations_are_held_unless_the_caller_says_otherwise() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("lose_before", method="createChatInviteLink", count=1)
        held = await stage.ended(await stage.accept("createChatInviteLink", params={"chat_id": -1005}))
        assert (held.state, held.failed_reason) == (State.FAILED, "uncertain")
        stage.telegram.faults.add("lose_before", method="createChatInviteLink", count=1)
        resent = await stage.ended(
            await stage.accept("createChatInviteLink", params={"chat_id": -1005}, on_uncertain=OnUncertain.RESEND)
        )
        assert resent.state is State.COMPLETED

    play(story)


def test_after_ten_resends_an_uncertain_letter_is_dead() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=502, chat=5)
        letter = await stage.ended(await stage.text(5, "never"))
        assert (letter.state, letter.failed_reason) == (State.FAILED, "uncertain")
        assert letter.uncertain_tries == 11
        # One letter that always fails says nothing about the route.
        assert not stage.events_of(events.RouteOpened)

    play(story)


def test_five_attempts_that_the_caller_set_are_five_tries_whatever_went_wrong() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=502, chat=5)
        letter = await stage.ended(await stage.text(5, "never", attempts=5))
        assert (letter.state, letter.failed_reason) == (State.FAILED, "uncertain")
        assert (letter.attempts_made, letter.uncertain_tries) == (5, 5)
        assert len(msgspec.json.decode(letter.history or "[]")) == 5
        assert letter.settled_at_ms is not None
        assert 30_000 <= letter.settled_at_ms - letter.created_at_ms < 35_000  # 2 + 4 + 8 + 16 s

    play(story)


def test_an_answer_ends_a_row_of_failures() -> None:
    async def story(stage: Stage) -> None:
        for chat in range(100, 112):
            stage.telegram.faults.add("error", status=502, chat=chat, count=1)
            letter = await stage.ended(await stage.text(chat, "at the second try"))
            assert (letter.state, letter.uncertain_tries) == (State.COMPLETED, 1)
        assert not stage.events_of(events.RouteOpened)

    play(story)


def test_an_outage_made_of_server_errors_costs_few_uncertain_tries() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=502, seconds=1800)
        ids = [await stage.text(chat, "through") for chat in range(100, 200)]
        letters = [await stage.ended(letter_id) for letter_id in ids]
        assert all(letter.state is State.COMPLETED for letter in letters)
        assert sum(letter.uncertain_tries for letter in letters) <= 64 * 2
        assert max(letter.uncertain_tries for letter in letters) <= 3

    play(story)


def test_a_429_holds_the_chat_and_no_other() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=600, chat=5, count=1)
        slow = await stage.text(5, "held")
        behind = await stage.text(5, "behind it")
        await asyncio.sleep(1)
        begun = stage.clock.mono()
        quick = await stage.ended(await stage.text(6, "free"))
        assert quick.state is State.COMPLETED
        assert stage.clock.mono() - begun < 5
        letter = await stage.ended(slow)
        assert (letter.attempts_made, letter.uncertain_tries) == (1, 0)
        assert stage.clock.mono() - begun > 590
        await stage.ended(behind)
        assert stage.texts(5) == ["held", "behind it"]
        assert [event.chat for event in stage.events_of(events.Held)] == [5]

    play(story)


def test_two_idle_chats_refused_together_hold_the_bot() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=60, count=2)
        first, second = await stage.text(5, "a"), await stage.text(6, "b")
        await asyncio.sleep(2)
        third = await stage.text(7, "c")
        begun = stage.clock.mono()
        await stage.ended(third)
        assert stage.clock.mono() - begun > 50
        await stage.ended(first)
        await stage.ended(second)
        assert [event.chat for event in stage.events_of(events.Held)] == [5, None]

    play(story)


def test_a_hold_survives_a_restart() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=3000, chat=5, count=1)
        async with stage.open():
            letter_id = await stage.text(5, "held")
            await asyncio.sleep(2)
        async with stage.open():
            begun = stage.clock.mono()
            await stage.ended(letter_id)
            assert stage.clock.mono() - begun > 2900
        assert stage.texts(5) == ["held"]

    play_closed(story)


def test_a_429_right_after_a_server_error_may_have_arrived() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=500, chat=9, count=1)
        await stage.text(9, "stumbles")
        await asyncio.sleep(1)
        stage.telegram.faults.add("flood", retry_after=5, chat=5, count=1)
        held = await stage.ended(await stage.text(5, "once", on_uncertain=OnUncertain.HOLD))
        assert (held.state, held.failed_reason) == (State.FAILED, "uncertain")

    play(story)


def test_an_unauthorised_bot_is_paused_keeps_its_letters_and_goes_on_by_itself() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=401, words="Unauthorized", seconds=900)
        letter_id = await stage.text(5, "patient")
        await asyncio.sleep(600)
        letter = await stage.letter(letter_id)
        assert (letter.state, letter.attempts_made) == (State.WAITING, 0)
        assert [event.bot_id for event in stage.events_of(events.BotPaused)] == [BOT]
        assert (await stage.ended(letter_id)).state is State.COMPLETED
        assert stage.events_of(events.BotResumed)

    play(story)


@pytest.mark.parametrize("is_express", [True, False])
def test_a_blocked_chat_is_shut_and_one_letter_a_day_is_a_probe(is_express: bool) -> None:
    async def story(stage: Stage) -> None:
        # A letter that has an end goes by its lane, never by express.
        terms = {} if is_express else {"expires_at_ms": stage.clock.wall_ms() + 7 * 86_400_000}
        stage.telegram.user(5, "Sara", "fa", None)
        stage.telegram.block(BOT, 5)
        first = await stage.ended(await stage.text(5, "one", **terms))
        assert first.failed_reason == "Forbidden: bot was blocked by the user"
        second = await stage.ended(await stage.text(5, "two", **terms))
        assert (second.state, second.failed_reason) == (State.FAILED, "Forbidden: bot was blocked by the user")
        assert stage.telegram.counters.requests["sendMessage"] == 1  # the second was not even tried
        await asyncio.sleep(25 * 3600)
        stage.telegram.unblock(BOT, 5)
        probe = await stage.ended(await stage.text(5, "three", **terms))
        after = await stage.ended(await stage.text(5, "four", **terms))
        assert (probe.state, after.state) == (State.COMPLETED, State.COMPLETED)

    play(story)


def test_a_group_that_became_a_supergroup_gets_its_letters_in_order() -> None:
    async def story(stage: Stage) -> None:
        group = stage.telegram.chat("group", "Friends", chat_id=-500, bots=[BOT]).id
        ids = [await stage.text(group, f"n{number}") for number in range(3)]
        for letter_id in ids:
            await stage.ended(letter_id)
        new = stage.telegram.migrate(group)
        later = [await stage.text(group, f"m{number}") for number in range(6)]
        for letter_id in later:
            assert (await stage.ended(letter_id)).state is State.COMPLETED
        assert stage.texts(new) == [f"m{number}" for number in range(6)]
        assert [event.to_chat_id for event in stage.events_of(events.ChatMoved)] == [new]
        assert (await stage.ended(await stage.text(group, "last"))).chat == new

    play(story)


def test_a_chat_known_by_name_and_by_number_is_one_lane() -> None:
    async def story(stage: Stage) -> None:
        channel = stage.telegram.chat("channel", "News", chat_id=-100777, username="News", bots=[BOT]).id
        await stage.ended(await stage.text("@News", "by name"))
        await asyncio.sleep(5)
        view = await stage.ended(await stage.text("@news", "by name again"))
        assert view.chat == channel
        assert stage.texts(channel) == ["by name", "by name again"]

    play(story)


def test_already_so_is_success() -> None:
    async def story(stage: Stage) -> None:
        sent = await stage.ended(await stage.text(5, "same"))
        message_id = msgspec.json.decode(sent.result or "")["message_id"]
        params = {"chat_id": 5, "message_id": message_id, "text": "same"}
        edited = await stage.ended(await stage.accept("editMessageText", params=params))
        assert edited.state is State.COMPLETED

    play(story)


def test_a_deleted_message_is_proof_only_if_a_try_may_have_arrived() -> None:
    async def story(stage: Stage) -> None:
        sent = await stage.ended(await stage.text(5, "gone soon"))
        message_id = msgspec.json.decode(sent.result or "")["message_id"]
        stage.telegram.faults.add("lose_after", method="deleteMessage", count=1)
        params = {"chat_id": 5, "message_id": message_id}
        deleted = await stage.ended(await stage.accept("deleteMessage", params=params))
        assert (deleted.state, deleted.uncertain_tries) == (State.COMPLETED, 1)
        again = await stage.ended(await stage.accept("deleteMessage", params=params))
        assert again.state is State.FAILED

    play(story)


def test_no_event_and_no_letter_shows_the_token() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=401, words="Unauthorized", count=1)
        letter = await stage.letter(await stage.text(5, "secret"))
        await asyncio.sleep(60)
        assert TOKEN not in repr(stage.told)
        assert TOKEN not in repr(letter)
        assert TOKEN not in repr(stage.peik.outbox.service.bots())

    play(story)


def test_a_pause_by_telegram_is_over_when_somebody_pauses_the_bot_himself() -> None:
    """What is told of the first pause ends with it: nobody else would say so."""

    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", status=401, words="Unauthorized", seconds=900)
        await stage.text(5, "hello")
        await asyncio.sleep(5)
        assert stage.events_of(events.BotPaused)
        assert not stage.events_of(events.BotResumed)
        await stage.peik.outbox.service.change_bot(BOT, paused="by hand")
        await asyncio.sleep(3600)
        assert len(stage.events_of(events.BotResumed)) == 1
        assert stage.texts(5) == []

    play(story)
