"""Time passes: what everybody has had goes, what nobody fetched goes later and is counted, idle consumers are forgotten."""

import msgspec

from peik.core.arrival import ConsumerProgress
from peik.core.letter import State
from peik.inbox.store import ArrivalFilter, ArrivalRetention, ArrivalsCleaned, Consumer, InboxStore
from tests.storage.inbox_acts import (
    DAY,
    HOUR,
    KEEP,
    NOW,
    bury,
    found,
    message,
    messages,
    named,
    numbers,
    open_inbox,
    progress,
    put_off,
    settle,
    states,
    take,
)
from tests.storage.places import BOT, OTHER_BOT, Place

NOTHING = ArrivalsCleaned(gone=0, unread={}, expired=())


async def begin(inbox: InboxStore, count: int = 5) -> Consumer:
    await open_inbox(inbox)
    await take(inbox, *messages(count, first=1))
    return await named(inbox, "default")


async def clean(inbox: InboxStore, at_ms: int, keep: ArrivalRetention = KEEP, *, limit: int = 1000) -> ArrivalsCleaned:
    return await inbox.clean_arrivals(keep, at_ms=at_ms, limit=limit)


async def pass_days(inbox: InboxStore, first: int, last: int) -> int:
    """Upkeep once a day from one day to another. How many arrivals went."""
    return sum([(await clean(inbox, NOW + day * DAY)).gone for day in range(first, last + 1)])


async def test_an_arrival_goes_a_week_after_everybody_had_it_and_not_a_week_after_it_came(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await store.inbox.touch_consumers({other.id: NOW + 16 * DAY})
        await settle(store.inbox, default, (1, 5))
        assert await pass_days(store.inbox, 0, 9) == 0
        await settle(store.inbox, other, (1, 3))
        assert await pass_days(store.inbox, 10, 16) == 0
        assert await pass_days(store.inbox, 17, 17) == 3
        assert await numbers(store.inbox, default) == [4, 5]
        assert await progress(store.inbox, other) == ConsumerProgress(watermark=3)


async def test_a_consumer_that_came_lately_has_not_had_anything_for_a_week(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        await settle(store.inbox, default, (1, 5))
        assert await pass_days(store.inbox, 0, 6) == 0
        late = await store.inbox.ensure_consumer(BOT, "late", at_ms=NOW + 6 * DAY + HOUR)
        assert await pass_days(store.inbox, 7, 13) == 0
        assert await numbers(store.inbox, late) == [1, 2, 3, 4, 5]


async def test_what_is_over_above_an_open_one_stays_with_it(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        await settle(store.inbox, default, 1, (3, 5))
        assert await pass_days(store.inbox, 0, 20) == 1
        assert await numbers(store.inbox, default) == [2, 3, 4, 5]


async def test_what_nobody_fetched_goes_in_the_end_is_counted_and_lets_the_watermark_go_on(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        await put_off(store.inbox, default, 2)
        await settle(store.inbox, default, 1, 4)
        await take(store.inbox, message(6), at_ms=NOW + 20 * DAY)
        await open_inbox(store.inbox, OTHER_BOT)
        await take(store.inbox, *messages(2, first=1), bot_id=OTHER_BOT, at_ms=NOW + 20 * DAY)
        assert await clean(store.inbox, NOW + 30 * DAY) == NOTHING
        assert await clean(store.inbox, NOW + 30 * DAY + 1) == ArrivalsCleaned(gone=5, unread={BOT: 3}, expired=())
        assert await progress(store.inbox, default) == ConsumerProgress(watermark=5)
        assert (await numbers(store.inbox, default), await store.inbox.deferrals(default.id)) == ([6], [])
        (mine, _) = await store.inbox.inbox_tallies()
        assert (mine.open, mine.delayed, mine.failed) == (1, 0, 0)
        assert await clean(store.inbox, NOW + 30 * DAY + 2) == NOTHING


async def test_somebody_who_has_not_read_is_enough_to_be_counted(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await settle(store.inbox, default, (1, 5))
        await settle(store.inbox, other, (1, 3))
        await store.inbox.touch_consumers({other.id: NOW + 30 * DAY})
        assert await clean(store.inbox, NOW + 31 * DAY) == ArrivalsCleaned(gone=5, unread={BOT: 2}, expired=())
        assert await progress(store.inbox, other) == ConsumerProgress(watermark=5)


async def test_dead_arrivals_are_kept_as_long_after_they_died_as_unread_ones(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 3)
        await settle(store.inbox, default, 1, 3)
        await bury(store.inbox, default, 2, at_ms=NOW + 5 * DAY)
        assert await pass_days(store.inbox, 0, 35) == 2
        assert await states(store.inbox) == {2: "failed"}
        assert await pass_days(store.inbox, 36, 36) == 1
        assert await found(store.inbox, state=State.FAILED) == []
        assert (await store.inbox.inbox_tallies())[0].failed == 0


async def test_nothing_goes_within_two_days_since_duplicates_are_known_by_it(place: Place) -> None:
    brief = ArrivalRetention(read_ms=0, unread_ms=HOUR, idle_ms=DAY)
    async with place.open() as store:
        default = await begin(store.inbox, 3)
        await settle(store.inbox, default, (1, 2))
        assert await clean(store.inbox, NOW + 2 * DAY, brief) == NOTHING
        assert (await take(store.inbox, *messages(3, first=1), at_ms=NOW + 2 * DAY)).duplicates == 3
        await take(store.inbox, message(4), at_ms=NOW + 2 * DAY)
        cleaned = await clean(store.inbox, NOW + 2 * DAY + 1, brief)
        assert (cleaned.gone, cleaned.unread) == (3, {BOT: 1})
        assert await numbers(store.inbox, default) == [4]


async def test_a_call_takes_no_more_than_its_limit_and_the_rest_follows(place: Place) -> None:
    async with place.open() as store:
        for bot_id in (BOT, OTHER_BOT):
            await open_inbox(store.inbox, bot_id)
            await take(store.inbox, *messages(5, first=1), bot_id=bot_id)
        gone = [(await clean(store.inbox, NOW + 31 * DAY, limit=3)) for _ in range(5)]
        assert [one.gone for one in gone] == [3, 3, 3, 1, 0]
        assert [one.unread for one in gone] == [{BOT: 3}, {BOT: 2, OTHER_BOT: 1}, {OTHER_BOT: 3}, {OTHER_BOT: 1}, {}]
        assert [one.progress.watermark for one in await store.inbox.consumers()] == [5, 5]


async def test_idle_consumers_are_forgotten_and_told_but_never_the_default_one(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        young = await store.inbox.ensure_consumer(BOT, "young", at_ms=NOW + 5 * DAY)
        used = await store.inbox.ensure_consumer(BOT, "used", at_ms=NOW)
        idle = await store.inbox.ensure_consumer(BOT, "idle", at_ms=NOW)
        await store.inbox.touch_consumers({used.id: NOW + 6 * DAY, idle.id: NOW + 1})
        await settle(store.inbox, default, (1, 5))
        assert (await clean(store.inbox, NOW + 7 * DAY + 1)).expired == ()
        cleaned = await clean(store.inbox, NOW + 7 * DAY + 2)
        assert cleaned.expired == (msgspec.structs.replace(idle, seen_at_ms=NOW + 1),)
        assert [one.id for one in await store.inbox.consumers(BOT)] == [default.id, young.id, used.id]


async def test_replays_of_a_forgotten_consumer_go_and_those_of_others_stay(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 2)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await bury(store.inbox, other, 1, 2)
        await bury(store.inbox, default, 1)
        for name in ("other", "default"):
            await store.inbox.retry_dead_arrivals(ArrivalFilter(consumer=name), at_ms=NOW, limit=9)
        await store.inbox.remove_consumer(other.id)
        assert await found(store.inbox) == [5, 4, 3, 2, 1]
        assert (await clean(store.inbox, NOW)).gone == 2
        assert await found(store.inbox) == [5, 2, 1]


async def test_a_replay_goes_a_week_after_its_own_reader_had_it(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 2)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await bury(store.inbox, default, 1)
        await store.inbox.retry_dead_arrivals(ArrivalFilter(), at_ms=NOW, limit=9)  # number 3, for the default one
        await settle(store.inbox, default, (1, 3))
        await store.inbox.touch_consumers({other.id: NOW + 14 * DAY})
        assert await pass_days(store.inbox, 0, 8) == 1
        assert await found(store.inbox) == [2, 1]  # the other has not had these


async def test_a_clock_that_was_wrong_for_a_while_stops_nothing(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 2)
        await settle(store.inbox, default, (1, 2))
        keep_long = ArrivalRetention(read_ms=7 * DAY, unread_ms=10**6 * DAY, idle_ms=10**6 * DAY)
        await clean(store.inbox, NOW + 9000 * DAY, keep_long)
        assert await pass_days(store.inbox, 0, 7) == 2


async def test_notes_of_handled_messages_are_forgotten(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await store.inbox.note_handled(BOT, [(1, 10)], at_ms=NOW)
        await store.inbox.note_handled(BOT, [(1, 20)], at_ms=NOW + 1)
        await clean(store.inbox, NOW + 7 * DAY + 1)
        await take(store.inbox, message(1), message(2))
        assert await states(store.inbox) == {1: "waiting", 2: "completed"}


async def test_a_new_consumer_after_retention_begins_with_what_is_left(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 5)
        await settle(store.inbox, default, (1, 3))
        assert await pass_days(store.inbox, 0, 8) == 3
        late = await store.inbox.ensure_consumer(BOT, "late", at_ms=NOW + 8 * DAY)
        assert late.progress == ConsumerProgress(watermark=3)
        await settle(store.inbox, default, (1, 5))
        assert await pass_days(store.inbox, 9, 15) == 0  # the new one has not had the rest
        await settle(store.inbox, late, (1, 5))
        await store.inbox.touch_consumers({late.id: NOW + 30 * DAY})
        assert await pass_days(store.inbox, 16, 23) == 2
        last = await store.inbox.ensure_consumer(BOT, "last", at_ms=NOW)
        assert last.progress == ConsumerProgress(watermark=5)
