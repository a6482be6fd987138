"""People look for arrivals, hand them on again, clear dead ones, and count."""

import pytest

from peik.core.arrival import read_update
from peik.core.letter import State
from peik.errors import NotFound
from peik.inbox.store import ArrivalFilter, Consumer, InboxStore
from tests.storage.inbox_acts import (
    DAY,
    HOUR,
    NOW,
    bury,
    found,
    message,
    messages,
    named,
    numbers,
    open_inbox,
    press,
    put_off,
    raw,
    settle,
    states,
    take,
)
from tests.storage.places import BOT, OTHER_BOT, Place


async def begin(inbox: InboxStore, count: int = 6) -> Consumer:
    await open_inbox(inbox)
    await take(inbox, *messages(count, first=1))
    return await named(inbox, "default")


async def replay(
    inbox: InboxStore, consumer: Consumer, *, limit: int = 100, after: int = 0, **wanted: object
) -> object:
    return await inbox.replay(
        ArrivalFilter(**wanted),  # type: ignore[arg-type]
        consumer.id,
        after=after,
        up_to=await inbox.last_arrival_id(),
        limit=limit,
        at_ms=NOW + 5,
    )


# ---- finding ----


async def test_the_newest_come_first_and_pages_follow_each_other(place: Place) -> None:
    async with place.open() as store:
        await begin(store.inbox, 7)
        seen: list[int] = []
        before = None
        while views := await store.inbox.find_arrivals(ArrivalFilter(), before=before, limit=3):
            seen += [view.arrival.number for view in views]
            before = views[-1].arrival.id
        assert seen == [7, 6, 5, 4, 3, 2, 1]


async def test_filters_find_what_they_say(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await open_inbox(store.inbox, OTHER_BOT)
        await take(store.inbox, message(1, chat=5, user=50), press(2, chat=5, message_id=7))
        await take(store.inbox, message(3, chat=6, user=50), raw(4, {"poll": {"id": "9"}}), at_ms=NOW + DAY)
        await take(store.inbox, message(11, chat=5, user=60), bot_id=OTHER_BOT, at_ms=NOW + 2 * DAY)
        inbox = store.inbox
        assert await found(inbox) == [11, 4, 3, 2, 1]
        assert await found(inbox, bot_id=BOT) == [4, 3, 2, 1]
        assert await found(inbox, bot_ids=frozenset({OTHER_BOT})) == [11]
        assert await found(inbox, bot_ids=frozenset()) == []
        assert await found(inbox, bot_id=BOT, bot_ids=frozenset({OTHER_BOT})) == []
        assert await found(inbox, bot_id=BOT, bot_ids=frozenset({OTHER_BOT}), chat=5) == []
        assert await found(inbox, chat=5) == [11, 2, 1]
        assert await found(inbox, chat=5, bot_id=BOT) == [2, 1]
        assert await found(inbox, chat="poll:9") == [4]
        assert await found(inbox, user_id=50) == [3, 1]
        assert await found(inbox, type="callback_query") == [2]
        assert await found(inbox, since_ms=NOW + 1) == [11, 4, 3]
        assert await found(inbox, since_ms=NOW + DAY, until_ms=NOW + DAY) == [4, 3]
        assert await found(inbox, until_ms=NOW) == [2, 1]
        assert await found(inbox, first_number=2, last_number=3) == [3, 2]
        assert await found(inbox, chat=5, state=State.WAITING) == [11, 2, 1]
        assert await found(inbox, chat=5, state=State.FAILED) == []
        assert await found(inbox, consumer="nobody") == []


async def test_text_is_found_however_it_was_written(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await take(
            store.inbox,
            message(1, text="Привет 🌷, мир"),
            message(2, text='100% of "a_b"\nnext'),
            message(3, text="100 axb"),
        )
        escaped = (
            '{"update_id":4,"message":{"text":"\\u041f\\u0440\\u0438\\u0432\\u0435\\u0442 \\uD83C\\uDF37 \\/start"}}'
        )
        await take(store.inbox, read_update(escaped.encode()))
        inbox = store.inbox
        assert await found(inbox, text="Привет 🌷") == [4, 1]
        assert await found(inbox, text="🌷, мир") == [1]
        assert await found(inbox, text="/START") == [4]
        assert await found(inbox, text="100%") == [2]
        assert await found(inbox, text="A_b") == [2]
        assert await found(inbox, text='"a_b"\nnext') == [2]
        assert await found(inbox, text="!") == []
        assert await found(inbox, text="100 ", chat=1, state=State.WAITING) == [3]


async def test_an_arrival_tells_how_it_stands_with_every_consumer_or_with_one(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await settle(store.inbox, default, 1)
        await bury(store.inbox, other, 1)
        (view,) = await store.inbox.find_arrivals(ArrivalFilter(last_number=1), before=None, limit=9)
        assert [(one.consumer, one.state) for one in view.deliveries] == [("default", "completed"), ("other", "failed")]
        assert await store.inbox.arrival(view.arrival.id) == view
        (view,) = await store.inbox.find_arrivals(ArrivalFilter(last_number=1, consumer="other"), before=None, limit=9)
        assert [(one.consumer, one.state) for one in view.deliveries] == [("other", "failed")]
        assert await store.inbox.arrival(9999) is None


async def test_states_are_found_page_by_page_too(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 9)
        await bury(store.inbox, default, 2, 4, 6, 8)
        await settle(store.inbox, default, 1, 5)
        await put_off(store.inbox, default, 3)
        for state, expected in (("failed", [8, 6, 4, 2]), ("completed", [5, 1]), ("waiting", [9, 7]), ("delayed", [3])):
            seen: list[int] = []
            before = None
            wanted = ArrivalFilter(state=State(state))
            while views := await store.inbox.find_arrivals(wanted, before=before, limit=1):
                seen += [view.arrival.number for view in views]
                before = views[-1].arrival.id
            assert seen == expected


async def test_states_of_several_bots_are_merged_by_age(place: Place) -> None:
    async with place.open() as store:
        for bot_id, first in ((BOT, 1), (OTHER_BOT, 11)):
            await open_inbox(store.inbox, bot_id)
            await take(store.inbox, *messages(2, first=first), bot_id=bot_id)
        await take(store.inbox, message(3))
        assert await found(store.inbox, state=State.WAITING) == [3, 12, 11, 2, 1]
        assert await found(store.inbox, state=State.WAITING, limit=2) == [3, 12]


# ---- handing on once more ----


async def test_a_replay_is_a_copy_under_a_new_number_for_one_consumer_alone(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 4)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await settle(store.inbox, other, (1, 4))
        assert await replay(store.inbox, other, first_number=2, last_number=3) == (2, None)
        original = (await store.inbox.arrivals_after(other.id, 1, limit=1))[0]
        copy = (await store.inbox.arrivals_after(other.id, 4, limit=1))[0]
        assert (copy.number, copy.replay_of, copy.only_for, copy.received_at_ms) == (5, original.id, other.id, NOW + 5)
        assert (copy.payload, copy.lane, copy.update_id, copy.sent_at_ms) == (
            original.payload,
            original.lane,
            original.update_id,
            original.sent_at_ms,
        )
        assert await numbers(store.inbox, default, 4) == []
        assert (await states(store.inbox, "other"))[5] == "waiting"
        assert (await take(store.inbox, message(5))).last_number == 7
        assert (await take(store.inbox, *messages(4, first=1))).duplicates == 4


async def test_a_long_replay_goes_on_page_by_page_and_never_replays_itself(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 7)
        up_to = await store.inbox.last_arrival_id()
        made, after = 0, 0
        last: int | None = 0
        while last is not None:
            count, last = await store.inbox.replay(
                ArrivalFilter(), default.id, after=after, up_to=up_to, limit=3, at_ms=NOW
            )
            made, after = made + count, last or 0
            await take(store.inbox, message(100 + made))  # what comes meanwhile is no part of it
        assert made == 7
        again = await store.inbox.arrivals_after(default.id, 7, limit=99)
        assert [one.update_id for one in again if one.only_for] == [1, 2, 3, 4, 5, 6, 7]
        among = await replay(store.inbox, default, first_number=8, last_number=17)
        assert among == (3, None)  # what came meanwhile; the replays between them are left out
        assert await store.inbox.count_arrivals(ArrivalFilter(is_original=True)) == 7 + 3


async def test_a_replay_stays_within_the_bot_of_its_consumer(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 2)
        await open_inbox(store.inbox, OTHER_BOT)
        await take(store.inbox, *messages(3, first=1), bot_id=OTHER_BOT)
        assert await replay(store.inbox, default) == (2, None)
        assert await replay(store.inbox, default, bot_id=OTHER_BOT) == (0, None)
        assert await replay(store.inbox, default, bot_ids=frozenset({OTHER_BOT})) == (0, None)
        assert await replay(store.inbox, default, chat=1) == (1, None)
        with pytest.raises(NotFound):
            await store.inbox.replay(ArrivalFilter(), 999, after=0, up_to=9, limit=9, at_ms=NOW)


async def test_a_replay_by_state_is_meant_with_the_filters_consumer(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 4)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await bury(store.inbox, default, 2, 3)
        await settle(store.inbox, default, 1)
        assert await replay(store.inbox, other, state=State.COMPLETED) == (1, None)
        assert await replay(store.inbox, other, state=State.FAILED) == (2, None)
        copies = await store.inbox.arrivals_after(other.id, 4, limit=9)
        assert [copy.update_id for copy in copies] == [1, 2, 3]


# ---- dead ones ----


async def test_dead_arrivals_join_the_end_in_their_order_for_whoever_gave_them_up(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 6)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await bury(store.inbox, other, 1, 5, 3)
        await bury(store.inbox, default, 2)
        ids = await store.inbox.retry_dead_arrivals(ArrivalFilter(consumer="other"), at_ms=NOW + 9, limit=2)
        again = await store.inbox.arrivals_after(other.id, 6, limit=9)
        assert ([one.id for one in again], [one.update_id for one in again]) == (ids, [1, 3])
        assert await numbers(store.inbox, default, 6) == []
        assert await states(store.inbox, "other") == {
            1: "completed", 2: "waiting", 3: "completed", 4: "waiting", 5: "failed", 6: "waiting",
            7: "waiting", 8: "waiting",
        }  # fmt: skip
        assert (await states(store.inbox))[2] == "failed"


async def test_a_retried_one_may_die_and_be_retried_again(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 1)
        await bury(store.inbox, default, 1)
        for number in (2, 3):
            assert len(await store.inbox.retry_dead_arrivals(ArrivalFilter(), at_ms=NOW, limit=9)) == 1
            assert await bury(store.inbox, default, number) == (await named(store.inbox, "default")).progress
        assert await found(store.inbox, state=State.FAILED) == [3]
        assert await store.inbox.retry_dead_arrivals(ArrivalFilter(chat=99), at_ms=NOW, limit=9) == []


async def test_dead_ones_are_retried_and_cleared_by_filter(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 6)
        await bury(store.inbox, default, *range(1, 7))
        wanted = ArrivalFilter(bot_id=BOT, chat=1)
        assert await store.inbox.clear_dead_arrivals(wanted, limit=1) == 1
        assert await store.inbox.clear_dead_arrivals(wanted, limit=9) == 1
        assert await found(store.inbox, state=State.FAILED) == [6, 5, 3, 2]
        assert len(await store.inbox.retry_dead_arrivals(ArrivalFilter(first_number=5), at_ms=NOW, limit=9)) == 2
        assert await found(store.inbox, state=State.FAILED) == [3, 2]
        assert await store.inbox.clear_dead_arrivals(ArrivalFilter(bot_id=OTHER_BOT), limit=9) == 0
        assert await store.inbox.clear_dead_arrivals(ArrivalFilter(state=State.WAITING), limit=9) == 2
        assert set((await states(store.inbox)).values()) == {"completed", "waiting"}


# ---- counting ----


async def test_tallies_count_what_is_open_put_off_and_dead(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 8)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await take(store.inbox, message(9), at_ms=NOW + HOUR)
        await settle(store.inbox, default, (1, 3), 5, at_ms=NOW)
        await put_off(store.inbox, default, 4, until_ms=place.clock.now_ms + 9)
        await bury(store.inbox, default, 7)
        await replay(store.inbox, other, last_number=2)
        await open_inbox(store.inbox, OTHER_BOT)
        mine, others, third = await store.inbox.inbox_tallies()
        assert (mine.consumer, mine.open, mine.delayed, mine.failed) == (await named(store.inbox, "default"), 3, 1, 1)
        assert mine.oldest_open_at_ms == NOW
        assert (others.consumer.name, others.open, others.delayed, others.failed) == ("other", 11, 0, 0)
        assert (third.open, third.oldest_open_at_ms) == (0, None)
        assert [one.consumer.bot_id for one in await store.inbox.inbox_tallies(OTHER_BOT)] == [OTHER_BOT]
        place.clock.pass_ms(9)
        assert [(one.open, one.delayed) for one in await store.inbox.inbox_tallies(BOT)] == [(4, 0), (11, 0)]
        await settle(store.inbox, default, (1, 8))
        assert (await store.inbox.inbox_tallies(BOT))[0].oldest_open_at_ms == NOW + HOUR
