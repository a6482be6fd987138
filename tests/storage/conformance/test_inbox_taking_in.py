"""Updates come in: each once, in order, under numbers of our own, together with where we stand at Telegram."""

import asyncio

import pytest

from peik.core.arrival import mended, read_update
from peik.errors import NotFound
from peik.inbox.store import ArrivalFilter, InboxState, TakenIn
from tests.storage.inbox_acts import (
    DAY,
    FIRST,
    HOUR,
    NOW,
    SERVER,
    message,
    messages,
    named,
    numbers,
    open_inbox,
    press,
    progress,
    raw,
    states,
    take,
)
from tests.storage.places import BOT, OTHER_BOT, Place

OTHER_SERVER = "http://127.0.0.1:8081"


async def test_the_first_update_ever_seeds_the_numbers_with_telegrams_own_id(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        early = await store.inbox.ensure_consumer(BOT, "early", at_ms=NOW)
        taken = await take(store.inbox, *messages(3), message(9000))
        assert taken == TakenIn(stored=4, duplicates=0, last_number=FIRST + 3, epoch=1)
        assert await numbers(store.inbox, default) == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]
        assert (await progress(store.inbox, default)).watermark == FIRST - 1
        assert (await progress(store.inbox, early)).watermark == FIRST - 1


async def test_an_arrival_keeps_everything_that_its_update_said(place: Place) -> None:
    given = message(FIRST, chat=-100, user=5, text="سلام 🌷")
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        await take(
            store.inbox, given, raw(FIRST + 1, {"poll": {"id": "77"}}), raw(FIRST + 2, {"brand_new": {"x": [1]}})
        )
    async with place.open() as store:
        first, poll, new = await store.inbox.arrivals_after(default.id, 0, limit=9)
        assert (first.update_id, first.type, first.lane, first.user_id) == (FIRST, "message", -100, 5)
        assert (first.message_id, first.sent_at_ms, first.received_at_ms) == (FIRST * 10, NOW, NOW)
        assert (first.payload, first.epoch, first.replay_of, first.only_for) == (given.payload, 1, None, None)
        assert (poll.lane, poll.user_id, poll.message_id, poll.sent_at_ms) == ("poll:77", None, None, None)
        assert (new.type, new.lane, new.payload) == ("brand_new", "brand_new", '{"brand_new":{"x":[1]}}')


async def test_a_duplicate_takes_no_number_whether_it_comes_in_one_call_or_in_several(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        one, two, three, four = messages(4)
        assert (await take(store.inbox, one, one, two)).duplicates == 1
        assert await take(store.inbox, two, three, one) == TakenIn(
            stored=1, duplicates=2, last_number=FIRST + 2, epoch=1
        )
        at_once = await asyncio.gather(*(take(store.inbox, four, three) for _ in range(5)))
        assert sorted(taken.stored for taken in at_once) == [0, 0, 0, 0, 1]
        seen = await store.inbox.arrivals_after(default.id, 0, limit=9)
        assert [(arrival.number, arrival.update_id) for arrival in seen] == [
            (one, one) for one in range(FIRST, FIRST + 4)
        ]


async def test_updates_that_overtook_each_other_are_numbered_as_they_came(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        for update_id in (FIRST, FIRST + 5, FIRST + 2, FIRST + 5, FIRST + 1):
            await take(store.inbox, message(update_id), last_update_id=None)
        seen = await store.inbox.arrivals_after(default.id, 0, limit=9)
        assert [arrival.update_id - FIRST for arrival in seen] == [0, 5, 2, 1]
        assert [arrival.number - FIRST for arrival in seen] == [0, 1, 2, 3]


async def test_many_calls_at_once_share_a_gap_free_order(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        other = await open_inbox(store.inbox, OTHER_BOT)
        calls = [take(store.inbox, message(FIRST + index)) for index in range(200)]
        calls += [take(store.inbox, *messages(3, first=index * 3 + 1), bot_id=OTHER_BOT) for index in range(50)]
        taken = await asyncio.gather(*calls)
        assert sorted(one.last_number for one in taken[:200]) == list(range(FIRST, FIRST + 200))
        assert await numbers(store.inbox, default) == list(range(FIRST, FIRST + 200))
        assert await numbers(store.inbox, other) == list(range(1, 151))


async def test_where_we_stand_is_stored_with_the_updates(place: Place) -> None:
    async with place.open() as store:
        assert await store.inbox.inbox(BOT) is None
        before, now = await store.inbox.open_inbox(BOT, server=SERVER, at_ms=NOW)
        assert before == InboxState(bot_id=BOT)
        assert now == InboxState(bot_id=BOT, server=SERVER, started_at_ms=NOW)
        await take(store.inbox, *messages(3), at_ms=NOW + 1, last_update_id=FIRST + 2, expired=7)
        await take(store.inbox, message(FIRST + 9), at_ms=NOW + 2, last_update_id=None, expired=1)
        await take(store.inbox, at_ms=NOW + 3)
        await store.inbox.note_seen(BOT, at_ms=NOW + 4)
    async with place.open() as store:
        assert await store.inbox.inbox(BOT) == InboxState(
            bot_id=BOT,
            epoch=1,
            server=SERVER,
            last_update_id=FIRST + 2,
            newest_update_id=FIRST + 9,
            started_at_ms=NOW,
            seen_at_ms=NOW + 4,
            received_at_ms=NOW + 2,
            last_number=FIRST + 3,
            expired=8,
        )
        before, now = await store.inbox.open_inbox(BOT, server=SERVER, at_ms=NOW + 5)
        assert (before.started_at_ms, now.started_at_ms) == (NOW, NOW + 5)
        assert (now.last_update_id, now.epoch, now.seen_at_ms) == (FIRST + 2, 1, NOW + 4)


async def test_the_last_id_is_that_of_the_last_batch_and_not_the_highest(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await asyncio.gather(take(store.inbox, message(9000)), take(store.inbox, message(8000)))
        state = await store.inbox.inbox(BOT)
        assert state is not None
        assert (state.last_update_id, state.epoch) == (8000, 1)
        await take(store.inbox, message(50), is_new_epoch=True, last_update_id=None)
        state = await store.inbox.inbox(BOT)
        assert state is not None
        assert (state.last_update_id, state.epoch) == (None, 2)


async def test_an_epoch_begins_between_two_calls_even_if_they_share_a_commit(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        taken = await asyncio.gather(
            take(store.inbox, message(100)),
            take(store.inbox, message(100, text="another one"), message(7), is_new_epoch=True),
            take(store.inbox, message(100), message(7)),
        )
        assert [(one.stored, one.duplicates, one.epoch) for one in taken] == [(1, 0, 1), (2, 0, 2), (0, 2, 2)]


async def test_another_server_is_another_epoch_read_from_its_head(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        await take(store.inbox, *messages(2))
        before, now = await store.inbox.open_inbox(BOT, server=OTHER_SERVER, at_ms=NOW)
        assert (before.epoch, before.server, before.last_update_id) == (1, SERVER, FIRST + 1)
        assert (now.epoch, now.server, now.last_update_id) == (2, OTHER_SERVER, None)
        taken = await take(store.inbox, message(FIRST, text="another one with the same id"))
        assert taken == TakenIn(stored=1, duplicates=0, last_number=FIRST + 2, epoch=2)
        assert await numbers(store.inbox, default) == [FIRST, FIRST + 1, FIRST + 2]


async def test_across_epochs_the_same_payload_in_the_same_lane_is_the_same_update(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        known = {"chat": 1, "message_id": 5}
        await take(store.inbox, message(100, **known), message(101, chat=2, message_id=5))
        again = [message(3, **known), message(4, chat=1, message_id=6), message(5, chat=3, message_id=5)]
        taken = await take(store.inbox, *again, at_ms=NOW + 47 * HOUR, is_new_epoch=True)
        assert taken == TakenIn(stored=2, duplicates=1, last_number=103, epoch=2)
        taken = await take(store.inbox, message(6, chat=2, message_id=5), at_ms=NOW + 47 * HOUR)
        assert (taken.stored, taken.duplicates) == (0, 1)


async def test_the_same_payload_is_news_within_an_epoch_and_after_two_days(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        known = {"chat": 1, "message_id": 5}
        taken = await take(store.inbox, message(100, **known), message(101, **known))
        assert (taken.stored, taken.duplicates) == (2, 0)
        taken = await take(store.inbox, message(3, **known), at_ms=NOW + 2 * DAY + 1, is_new_epoch=True)
        assert (taken.stored, taken.duplicates) == (1, 0)
        taken = await take(store.inbox, message(4, **known), at_ms=NOW + 2 * DAY + 2)
        assert (taken.stored, taken.duplicates) == (1, 0)


async def test_another_update_under_an_id_that_is_here_is_no_duplicate(place: Place) -> None:
    """A server that lost the end of its queue gives its ids once more; a webhook brings them as if nothing were."""
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        old = [message(100, message_id=1), message(101, message_id=2), message(102, chat=2, message_id=3)]
        await take(store.inbox, *old)
        again = [message(101, message_id=7), message(102, message_id=8)]
        taken = [await take(store.inbox, one, last_update_id=None) for one in [*again, *old, *again]]
        assert [one.stored for one in taken] == [1, 1, 0, 0, 0, 0, 0]
        assert [one.epoch for one in taken] == [2] * 7
        seen = await store.inbox.arrivals_after(default.id, 0, limit=9)
        assert [one.message_id for one in seen] == [1, 2, 3, 7, 8]
        state = await store.inbox.inbox(BOT)
        assert state is not None
        assert (state.last_update_id, state.epoch) == (None, 2)


async def test_the_same_update_in_other_characters_is_a_duplicate(place: Place) -> None:
    """A page of updates that is broken in one of them is mended as a whole, and then written differently."""
    plain = b'{"update_id":100,"message":{"message_id":1,"date":5,"chat":{"id":1},"text":"\\u0633 x"}}'
    other = mended(plain)
    assert other is not None
    async with place.open() as store:
        await open_inbox(store.inbox)
        first, second = read_update(plain), read_update(other)
        assert first.digest != second.digest
        taken = [await take(store.inbox, one) for one in (first, second)]
        assert [(one.stored, one.duplicates, one.epoch) for one in taken] == [(1, 0, 1), (0, 1, 1)]


async def test_another_update_under_an_id_of_the_same_commit_is_no_duplicate(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        await asyncio.gather(
            take(store.inbox, message(100, message_id=1), message(101, message_id=2)),
            take(store.inbox, message(101, message_id=7), last_update_id=None),
            take(store.inbox, message(100, message_id=1), last_update_id=None),
        )
        seen = await store.inbox.arrivals_after(default.id, 0, limit=9)
        assert [one.message_id for one in seen] == [1, 2, 7]
        state = await store.inbox.inbox(BOT)
        assert state is not None
        assert (state.last_update_id, state.epoch) == (None, 2)


async def test_the_newest_id_is_the_highest_of_the_epoch_and_replays_have_none(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        assert (await store.inbox.inbox(BOT)).newest_update_id is None  # type: ignore[union-attr]
        await take(store.inbox, message(FIRST), message(FIRST + 5), message(FIRST + 3))
        up_to = await store.inbox.last_arrival_id()
        wanted = ArrivalFilter(bot_id=BOT, last_number=FIRST)
        await store.inbox.replay(wanted, default.id, after=0, up_to=up_to, limit=9, at_ms=NOW)
        assert (await store.inbox.inbox(BOT)).newest_update_id == FIRST + 5  # type: ignore[union-attr]
        _, now = await store.inbox.open_inbox(BOT, server=OTHER_SERVER, at_ms=NOW)
        assert now.newest_update_id is None
        await take(store.inbox, message(7, text="other"))
        assert (await store.inbox.inbox(BOT)).newest_update_id == 7  # type: ignore[union-attr]


async def test_a_bot_without_an_inbox_fails_alone(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        strange = [take(store.inbox, message(1), bot_id=999), take(store.inbox, message(1), bot_id=OTHER_BOT)]
        answers = await asyncio.gather(
            take(store.inbox, message(FIRST)), *strange, take(store.inbox, message(FIRST + 1)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [TakenIn, NotFound, NotFound, TakenIn]
        assert await numbers(store.inbox, default) == [FIRST, FIRST + 1]
        with pytest.raises(NotFound):
            await store.inbox.open_inbox(999, server=SERVER, at_ms=NOW)


async def test_what_a_crash_follows_was_stored_if_it_was_answered(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        await take(store.inbox, *messages(2))
        await place.crash(store)
    async with place.open() as store:
        assert await numbers(store.inbox, default) == [FIRST, FIRST + 1]
        assert (await take(store.inbox, *messages(3))).stored == 1


async def test_a_removed_bot_leaves_nothing_of_its_inbox(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        other = await open_inbox(store.inbox, OTHER_BOT)
        await take(store.inbox, *messages(3))
        await take(store.inbox, *messages(2), bot_id=OTHER_BOT)
        await store.inbox.note_handled(BOT, [(1, 77)], at_ms=NOW)
        await store.inbox.open_outage(BOT, began_at_ms=1, ended_at_ms=2, last_number=3)
        await store.remove_bot(BOT)
        assert (await store.inbox.inbox(BOT), await store.inbox.consumers(BOT)) == (None, [])
        assert await store.inbox.count_arrivals(ArrivalFilter()) == 2
        assert await store.inbox.outages(BOT, is_open=False) == []
        with pytest.raises(NotFound):
            await take(store.inbox, message(FIRST + 3))
        assert await numbers(store.inbox, other) == [FIRST, FIRST + 1]
    async with place.open() as store:  # which adds the bot again
        default = await open_inbox(store.inbox)
        assert (await take(store.inbox, message(40, message_id=77))).last_number == 40
        assert await states(store.inbox) == {40: "waiting"}
        assert (await progress(store.inbox, default)).watermark == 39


# ---- what MTProto clients have handled ----


async def test_what_was_handled_over_mtproto_is_over_when_it_comes(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        assert await store.inbox.note_handled(BOT, [(1, 11), (2, 22), (1, 11)], at_ms=NOW) == 0
        taken = await take(
            store.inbox,
            message(1, chat=1, message_id=11),
            message(2, chat=2, message_id=11),
            message(3, chat=2, message_id=22, kind="channel_post"),
            press(4, chat=1, message_id=11),
        )
        assert taken.stored == 4
        assert await states(store.inbox) == {1: "completed", 2: "waiting", 3: "completed", 4: "waiting"}
        default = await named(store.inbox, "default")
        assert (default.progress.watermark, default.progress.spans) == (1, ((3, 3),))


async def test_what_was_handled_over_mtproto_is_over_if_it_is_here_already(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await take(store.inbox, *(message(one, chat=1, message_id=one) for one in (1, 2, 3)), press(4, message_id=2))
        assert await store.inbox.note_handled(BOT, [(1, 2), (1, 3), (1, 99), (5, 1)], at_ms=NOW) == 2
        assert await states(store.inbox) == {1: "waiting", 2: "completed", 3: "completed", 4: "waiting"}
        assert (await progress(store.inbox, other)).watermark == 0
        assert await store.inbox.note_handled(BOT, [(1, 2)], at_ms=NOW) == 0


async def test_an_edit_after_the_note_is_news_and_one_before_it_is_not(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await store.inbox.note_handled(BOT, [(1, 11)], at_ms=NOW)
        edited = {"chat": 1, "message_id": 11, "kind": "edited_message"}
        seconds = NOW // 1000
        await take(
            store.inbox, message(1, edit_date=seconds - 60, **edited), message(2, edit_date=seconds + 60, **edited)
        )
        assert await states(store.inbox) == {1: "completed", 2: "waiting"}
        assert await store.inbox.note_handled(BOT, [(1, 11)], at_ms=NOW + 30_000) == 0
        assert await store.inbox.note_handled(BOT, [(1, 11)], at_ms=NOW + 90_000) == 1
        assert await states(store.inbox) == {1: "completed", 2: "completed"}
        await store.inbox.note_handled(BOT, [(1, 11)], at_ms=NOW)  # one that was late
        await take(store.inbox, message(3, edit_date=seconds + 70, **edited))
        assert (await states(store.inbox))[3] == "completed"


async def test_notes_of_handled_messages_need_no_inbox(place: Place) -> None:
    async with place.open() as store:
        assert await store.inbox.note_handled(BOT, [(1, 10)], at_ms=NOW) == 0
        assert await store.inbox.note_handled(BOT, [], at_ms=NOW) == 0
        await open_inbox(store.inbox)
        await take(store.inbox, message(1), message(2))
        assert await states(store.inbox) == {1: "completed", 2: "waiting"}


# ---- outages ----


async def test_outages_are_kept_until_they_are_settled_and_told_newest_first(place: Place) -> None:
    async with place.open() as store:
        first = await store.inbox.open_outage(BOT, began_at_ms=1, ended_at_ms=2, last_number=3)
        second = await store.inbox.open_outage(BOT, began_at_ms=4, ended_at_ms=5, last_number=6)
        await store.inbox.open_outage(OTHER_BOT, began_at_ms=7, ended_at_ms=8, last_number=9)
        assert (first.bot_id, first.began_at_ms, first.ended_at_ms, first.last_number) == (BOT, 1, 2, 3)
        await store.inbox.settle_outage(first.id, at_ms=NOW)
        await store.inbox.settle_outage(first.id, at_ms=NOW + 1)
    async with place.open() as store:
        assert await store.inbox.outages(BOT, is_open=True) == [second]
        newest, oldest = await store.inbox.outages(BOT, is_open=False)
        assert (newest, oldest.id, oldest.settled_at_ms) == (second, first.id, NOW)


async def test_only_the_newest_outages_are_told_and_open_ones_are_all_kept(place: Place) -> None:
    async with place.open() as store:
        opened = [
            await store.inbox.open_outage(BOT, began_at_ms=one, ended_at_ms=one, last_number=one) for one in range(120)
        ]
        assert await store.inbox.outages(BOT, is_open=False) == opened[:19:-1]
        assert await store.inbox.outages(BOT, is_open=True) == opened
