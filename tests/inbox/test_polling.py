"""Long polling in virtual time: commit before confirm, and whatever Telegram, the network and other programs do to it."""

import asyncio

from peik.core import events
from peik.core.arrival import UPDATE_TYPES
from peik.core.token import Token
from peik.testing.updates import UpdateQueue
from tests.inbox.sources import (
    SOON_S,
    Bench,
    OtherProgram,
    arrivals,
    number_from,
    numbered,
    state,
    stored_in,
    text_of,
    texts,
    waiting,
    write,
)
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def test_what_users_write_is_stored_in_order_and_confirmed_and_every_type_is_asked_for() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 250)
        await asyncio.sleep(SOON_S)
        write(stage, 250, 1)  # finds a parked poll
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == numbered(0, 251)
        assert waiting(stage) == 0
        assert stage.telegram.bots[BOT].allowed == frozenset(UPDATE_TYPES)
        assert sum(event.stored for event in stage.events_of(events.Arrived)) == 251

    play(story, inbound="polling", update_types="custom_event")


def test_a_paused_bot_is_polled_all_the_same() -> None:
    async def story(stage: Stage) -> None:
        await stage.peik.outbox.service.change_bot(BOT, paused="by hand")
        write(stage, 0, 3)
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == numbered(0, 3)

    play(story, inbound="polling")


def test_nothing_is_confirmed_that_is_not_committed() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        write(stage, 0, 150)
        bench.unsure.refuses = 3
        await bench.run_for(1.0)  # two refusals within a second, and the third is still to come
        assert waiting(stage) == 150
        assert bench.way.asked[0].get("offset") is None
        assert [one.get("offset") for one in bench.way.asked] == [None] * len(bench.way.asked)
        await bench.run_for(60.0)
        assert [text_of(one) for one in await stored_in(bench.store)] == numbered(0, 150)
        assert waiting(stage) == 0
        assert len(bench.events_of(events.StoreFailed)) == 2  # once for each life, however often it failed
        await bench.store.close()

    play_closed(story)


def test_every_offset_is_one_above_an_id_that_was_committed() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        write(stage, 0, 1000)
        await bench.run_for(60.0)
        committed = {one.update_id for one in await stored_in(bench.store)}
        offsets = [one["offset"] for one in bench.way.asked[1:]]
        assert len(offsets) >= 10
        assert all(offset - 1 in committed for offset in offsets)
        assert all(one["limit"] == 100 for one in bench.way.asked)
        await bench.store.close()

    play_closed(story)


def test_who_dies_between_commit_and_confirm_takes_nothing_in_twice() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        write(stage, 0, 250)
        bench.unsure.dies_after_commit = True
        for life in range(1, 4):
            assert isinstance(await _death(bench), BaseException)
            assert waiting(stage) == 250 - 100 * (life - 1)  # this life's page is stored, and not confirmed yet
        bench.unsure.dies_after_commit = False
        await bench.run_for(10.0)
        assert [text_of(one) for one in await stored_in(bench.store)] == numbered(0, 250)
        assert waiting(stage) == 0
        assert sum(event.duplicates for event in bench.events_of(events.Arrived)) == 0
        await bench.store.close()

    async def _death(bench: Bench) -> BaseException:
        from tests.inbox.sources import Died

        try:
            await bench.poller().run()
        except Died as died:
            return died
        raise AssertionError("it lives")

    play_closed(story)


def test_an_answer_that_is_lost_on_its_way_costs_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("lose_after", method="getUpdates", probability=0.5, seconds=60.0)
        for number in range(40):
            write(stage, number, 1)
            await asyncio.sleep(2.0)
        await asyncio.sleep(60.0)
        assert await texts(stage) == numbered(0, 40)
        assert waiting(stage) == 0

    play(story, inbound="polling")


def test_an_outage_is_told_once_and_its_end_is_noticed_at_once() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        stage.telegram.outage(HOUR_S)
        await asyncio.sleep(HOUR_S - 10.0)
        (failed,) = stage.events_of(events.SourceFailed)
        assert failed.source == "polling"
        assert not stage.peik.inbox.receiver.status(BOT).is_well
        write(stage, 0, 2)
        await asyncio.sleep(10.0 + 16.0)  # the route is probed at least every 15 s
        assert await texts(stage) == numbered(0, 2)
        (back,) = stage.events_of(events.SourceBack)
        assert back.away_s > HOUR_S - 60.0
        assert stage.peik.inbox.receiver.status(BOT).is_well

    play(story, inbound="polling")


def test_a_single_lost_connection_is_not_worth_a_word() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        stage.telegram.faults.add("lose_before", method="getUpdates", count=1)
        await asyncio.sleep(100.0)
        write(stage, 0, 1)
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == numbered(0, 1)
        assert not stage.events_of(events.SourceFailed)

    play(story, inbound="polling")


def test_a_revoked_token_is_told_once_and_a_new_one_goes_on_at_once() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        token = stage.telegram.revoke(BOT)
        await asyncio.sleep(10 * 60.0)
        assert len(stage.events_of(events.SourceFailed)) == 1
        asked = stage.telegram.counters.requests["getUpdates"]
        await asyncio.sleep(10 * 60.0)
        assert stage.telegram.counters.requests["getUpdates"] - asked <= 10
        stage.telegram.write(BOT, 5, "n0")
        await stage.peik.outbox.service.change_bot(BOT, token=Token(token))
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == numbered(0, 1)

    play(story, inbound="polling")


def test_a_new_token_in_the_settings_leaves_the_bot_as_it_was_changed_to_be() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await stage.peik.outbox.service.change_bot(BOT, inbound="off")
        stage._settings["bot_tokens"] = token = stage.telegram.revoke(BOT)
        async with stage.open():
            bot = stage.peik.outbox.service.bot(BOT)
            assert (bot.token.reveal(), bot.inbound) == (token, "off")

    play_closed(story, inbound="polling")


def test_a_flood_wait_is_kept() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        stage.telegram.faults.add("flood", method="getUpdates", retry_after=30, count=1)
        stage.telegram.write(TOKEN, 5, "n0")  # ends the parked poll, so that the next one meets the flood
        await asyncio.sleep(SOON_S)
        write(stage, 1, 1)
        await asyncio.sleep(20.0)
        assert await texts(stage) == numbered(0, 1)
        await asyncio.sleep(15.0)
        assert await texts(stage) == numbered(0, 2)

    play(story, inbound="polling")


def test_an_answer_with_a_broken_update_in_it_does_not_stop_the_others() -> None:
    async def story(stage: Stage) -> None:
        queue = stage.telegram.bots[BOT].queue
        _push(queue, stage, "message", b'{"message_id":1,"chat":{"id":5},"date":1794700000,"text":"\\ud800 n0"}')
        _push(queue, stage, "message", b'{"message_id":2,"chat":"none","date":-5,"text":"n1"}')
        _push(queue, stage, "message", b"[]")
        write(stage, 3, 1)
        await asyncio.sleep(SOON_S)
        found = await arrivals(stage)
        assert [one.type for one in found] == ["message"] * 4
        assert [one.lane for one in found] == [5, "message", "message", 5]
        assert waiting(stage) == 0

    def _push(queue: UpdateQueue, stage: Stage, kind: str, payload: bytes) -> None:
        now = stage.telegram.now()
        queue.push(kind, payload, now=now, expires_at=now + DAY_S, queue_id=None)

    play(story, inbound="polling")


def test_a_page_that_straddles_a_new_numbering_is_confirmed_by_its_last_id() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.dark(True)
        await asyncio.sleep(SOON_S)
        for first, count in ((1001, 1), (5, 2)):
            number_from(stage, first)
            write(stage, first, count)
        stage.telegram.dark(False)
        await asyncio.sleep(60.0)
        assert waiting(stage) == 0
        write(stage, 7, 1)
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == ["n1001", "n5", "n6", "n7"]
        assert waiting(stage) == 0
        assert sum(event.duplicates for event in stage.events_of(events.Arrived)) == 0
        assert not stage.events_of(events.Intruder)

    play(story, inbound="polling")


# ---- others ----


def test_a_second_poller_is_told_of_every_ten_minutes_and_nothing_loops() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        other = OtherProgram(stage)
        began_at = stage.clock.mono()
        before = stage.telegram.counters.requests["getUpdates"]
        polls = 0
        while stage.clock.mono() < began_at + 25 * 60.0:
            await other.poll(timeout=50)
            polls += 1
            await asyncio.sleep(0.05)  # it is as impatient as they come
        told = [one for one in stage.events_of(events.Intruder) if one.kind == "poller"]
        assert len(told) == 3
        assert "let it use Peik's address" in told[0].detail  # most often it is the bot itself, still at Telegram's
        ours = stage.telegram.counters.requests["getUpdates"] - before - polls
        assert ours <= 25 * 60.0 / 5.0  # we are the patient one, however the two throw each other out

    play(story, inbound="polling")


def test_updates_that_another_program_took_are_counted_and_told() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 2)
        await asyncio.sleep(SOON_S)
        write(stage, 2, 5)
        # Whoever asks first gets them: here somebody in the very moment, who confirms them at once. No 409 shows it.
        last_id = 0
        while found := stage.telegram.call(TOKEN, "getUpdates", {"offset": last_id + 1}).result:
            last_id = found[-1]["update_id"]
        assert waiting(stage) == 0
        await asyncio.sleep(SOON_S)
        write(stage, 7, 1)
        await asyncio.sleep(10.0)
        assert waiting(stage) == 0
        assert await texts(stage) == [*numbered(0, 2), *numbered(7, 1)]
        (gap,) = [one for one in stage.events_of(events.Intruder) if one.kind == "gap"]
        assert "5 updates" in gap.detail
        assert not stage.events_of(events.UpdatesExpired)
        assert (await state(stage)).expired == 0

    play(story, inbound="polling")


def test_a_foreign_webhook_is_told_of_and_removed_with_nothing_lost() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        stranger = OtherProgram(stage)
        await stranger.call("setWebhook", url="https://evil.example.com/secret-path")
        write(stage, 0, 3)
        await asyncio.sleep(10.0)
        (told,) = stage.events_of(events.Intruder)
        assert (told.kind, told.detail) == ("webhook", "evil.example.com")
        assert await texts(stage) == numbered(0, 3)

    play(story, inbound="polling")


def test_a_webhook_that_somebody_sets_again_and_again_is_removed_once_a_minute() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        stranger = OtherProgram(stage)
        until = stage.clock.mono() + 30 * 60.0
        while stage.clock.mono() < until:
            await stranger.call("setWebhook", url="https://evil.example.com/hook")
            await asyncio.sleep(2.0)
        assert 20 <= stage.telegram.counters.requests["deleteWebhook"] <= 31
        assert len(stage.events_of(events.Intruder)) == 3
        write(stage, 0, 1)
        await asyncio.sleep(120.0)
        assert await texts(stage) == numbered(0, 1)

    play(story, inbound="polling")


# ---- ids ----


def test_ids_that_jump_lower_after_a_silent_week_begin_another_epoch() -> None:
    async def story(stage: Stage) -> None:
        number_from(stage, 1_900_000_000)  # whatever is chosen after the week is lower than this
        async with stage.open():
            write(stage, 0, 3)
            await asyncio.sleep(SOON_S)
            first = await state(stage)
        stage.telegram.bots[BOT].queue._jumps = True
        await asyncio.sleep(8 * DAY_S)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            write(stage, 3, 3)
            await asyncio.sleep(100.0)
            assert await texts(stage) == numbered(0, 6)
            then = await state(stage)
            assert (first.epoch, then.epoch) == (1, 2)
            (reset,) = stage.events_of(events.NumberingReset)
            assert (reset.expected_id, reset.first_id) == (1_900_000_003, (then.last_update_id or 0) - 2)
            assert reset.first_id <= 1_000_000_000
            assert waiting(stage) == 0
            polls = stage.telegram.counters.requests["getUpdates"]
            await asyncio.sleep(500.0)
            assert stage.telegram.counters.requests["getUpdates"] - polls <= 11  # it does not loop
            numbers = [one.number for one in await arrivals(stage)]
            assert numbers == list(range(numbers[0], numbers[0] + 6))

    play_closed(story, inbound="polling")


def test_ids_that_jump_higher_after_a_silent_week_are_no_loss() -> None:
    async def story(stage: Stage) -> None:
        number_from(stage, 5_000_000)
        async with stage.open():
            write(stage, 0, 1)
            await asyncio.sleep(SOON_S)
        await asyncio.sleep(8 * DAY_S)
        number_from(stage, 800_000_000)
        async with stage.open():
            write(stage, 1, 1)
            await asyncio.sleep(SOON_S)
            assert await texts(stage) == numbered(0, 2)
            assert (await state(stage)).epoch == 1
            assert not stage.events_of(events.Intruder)
            assert not stage.events_of(events.UpdatesExpired)
            assert stage.events_of(events.InboxRecovered)[-1].expired is None

    play_closed(story, inbound="polling")


def test_an_offset_over_100000_behind_the_queue_is_ignored_by_telegram_and_does_no_harm() -> None:
    async def story(stage: Stage) -> None:
        number_from(stage, 5_000_000)
        async with stage.open():
            write(stage, 0, 1)
            await asyncio.sleep(SOON_S)
        # Somebody else served the bot for a while: many more ids have gone by than Telegram's window is wide.
        number_from(stage, 5_250_000)
        await asyncio.sleep(HOUR_S)
        async with stage.open():
            write(stage, 1, 3)
            await asyncio.sleep(SOON_S)
            assert await texts(stage) == numbered(0, 4)
            assert (await state(stage)).expired == 249_999
            assert (await state(stage)).epoch == 1
            assert waiting(stage) == 0

    play_closed(story, inbound="polling")


# ---- chats ----


def test_a_chat_that_was_shut_is_open_again_when_its_user_writes() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.block(TOKEN, 5)
        await stage.ended(await stage.text(5, "lost"))
        await asyncio.sleep(SOON_S)
        assert stage.peik.outbox.courier.is_chat_shut(BOT, 5)
        stage.telegram.write(TOKEN, 5, "I am back")
        await asyncio.sleep(SOON_S)
        assert not stage.peik.outbox.courier.is_chat_shut(BOT, 5)
        await stage.ended(await stage.text(5, "welcome"))
        assert stage.texts(5) == ["welcome"]
        known = await stage.peik.store.known_chats(BOT, after=None, limit=9)
        assert all(one.shut_reason is None for one in known)

    play(story, inbound="polling")


def test_being_blocked_does_not_open_a_chat() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.write(TOKEN, 5, "hello")
        await asyncio.sleep(SOON_S)
        stage.telegram.block(TOKEN, 5)
        await stage.ended(await stage.text(5, "lost"))
        await asyncio.sleep(SOON_S)
        assert [one.type for one in await arrivals(stage)] == ["message", "my_chat_member"]
        assert stage.peik.outbox.courier.is_chat_shut(BOT, 5)
        stage.telegram.unblock(TOKEN, 5)
        await asyncio.sleep(SOON_S)
        assert not stage.peik.outbox.courier.is_chat_shut(BOT, 5)

    play(story, inbound="polling")


# ---- the day ----


def test_while_contact_is_lost_each_threshold_of_the_day_is_told_once() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 1)
        await asyncio.sleep(SOON_S)
        stage.telegram.dark(True)
        await asyncio.sleep(30 * HOUR_S)
        told = stage.events_of(events.InboxNearExpiry)
        assert [one.percent_left for one in told] == [75, 50, 25, 10]
        assert len({one.expires_at_ms for one in told}) == 1
        stage.telegram.dark(False)
        await asyncio.sleep(60.0)
        (late,) = stage.events_of(events.OfflineTooLong)
        assert late.away_s > 30 * HOUR_S - 60.0
        stage.telegram.dark(True)
        await asyncio.sleep(7 * HOUR_S)
        assert [one.percent_left for one in stage.events_of(events.InboxNearExpiry)][4:] == [75]

    play(story, inbound="polling")


def test_a_bot_that_is_turned_off_is_polled_no_more_and_turned_on_again_misses_nothing() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 1)
        await asyncio.sleep(SOON_S)
        await stage.peik.outbox.service.change_bot(BOT, inbound="off")
        asked = stage.telegram.counters.requests["getUpdates"]
        write(stage, 1, 2)
        await asyncio.sleep(HOUR_S)
        assert stage.telegram.counters.requests["getUpdates"] == asked
        assert stage.peik.inbox.receiver.status(BOT).source == "off"
        await stage.peik.outbox.service.change_bot(BOT, inbound="polling")
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == numbered(0, 3)
        await stage.peik.outbox.service.remove_bot(BOT)
        await asyncio.sleep(100.0)
        assert not stage.events_of(events.Surprise)

    play(story, inbound="polling")
