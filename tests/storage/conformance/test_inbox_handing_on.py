"""Consumers read in order, each with a cursor of its own, and what is over stays over, whoever settles."""

import asyncio

import msgspec
import pytest

from peik.core.arrival import ConsumerProgress
from peik.errors import Conflict, NotFound
from peik.inbox.store import ArrivalFilter, Burial, Consumer, ConsumerKind, Deferral, InboxStore
from tests.storage.inbox_acts import (
    FIRST,
    HOUR,
    NOW,
    bury,
    delivery,
    message,
    messages,
    named,
    numbers,
    open_inbox,
    progress,
    put_off,
    raw,
    settle,
    states,
    take,
)
from tests.storage.places import BOT, OTHER_BOT, Place


async def begin(inbox: InboxStore, count: int = 10, *, lanes: int = 3) -> Consumer:
    """The default consumer of a bot with arrivals 1, 2, 3 …"""
    await open_inbox(inbox)
    await take(inbox, *messages(count, first=1, lanes=lanes))
    return await named(inbox, "default")


async def replay_to(inbox: InboxStore, consumer: Consumer, first: int, last: int) -> int:
    """Numbers first to last once more for one consumer. How many."""
    up_to = await inbox.last_arrival_id()
    wanted = ArrivalFilter(bot_id=consumer.bot_id, first_number=first, last_number=last)
    made, rest = await inbox.replay(wanted, consumer.id, after=0, up_to=up_to, limit=1000, at_ms=NOW)
    assert rest is None
    return made


# ---- who ----


async def test_the_default_consumer_exists_from_the_first_day(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        assert (default.bot_id, default.name, default.kind) == (BOT, "default", ConsumerKind.NONE)
        again = await open_inbox(store.inbox)
        assert again.id == default.id
        assert await store.inbox.consumers() == [again]


async def test_a_new_consumer_begins_with_the_oldest_arrival_still_kept(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        await take(store.inbox, *messages(3))
        late = await store.inbox.ensure_consumer(BOT, "late", at_ms=NOW + 5)
        assert (late.progress, late.created_at_ms, late.seen_at_ms) == (
            ConsumerProgress(watermark=FIRST - 1),
            NOW + 5,
            None,
        )
        assert await numbers(store.inbox, late, late.progress.watermark) == [FIRST, FIRST + 1, FIRST + 2]
        assert (await store.inbox.ensure_consumer(BOT, "late", at_ms=NOW + 9)) == late
        with pytest.raises(NotFound):
            await store.inbox.ensure_consumer(999, "late", at_ms=NOW)


async def test_a_bot_has_so_many_consumers_and_no_more(place: Place) -> None:
    async with place.open() as store:
        await open_inbox(store.inbox)
        answers = await asyncio.gather(
            *(store.inbox.ensure_consumer(BOT, f"reader{one}", at_ms=NOW, most=3) for one in range(5)),
            return_exceptions=True,
        )
        refused = [one for one in answers if isinstance(one, Conflict)]
        assert [one.code for one in refused] == ["too_many_consumers"] * 2
        assert f"Bot {BOT} has 3 consumers" in refused[0].detail
        assert len(await store.inbox.consumers(BOT)) == 4
        made = next(one for one in answers if isinstance(one, Consumer))  # whichever came first
        await store.inbox.ensure_consumer(BOT, made.name, at_ms=NOW, most=3)
        await store.inbox.ensure_consumer(BOT, "default", at_ms=NOW, most=3)
        await store.inbox.ensure_consumer(BOT, "a program's own", at_ms=NOW)


async def test_two_who_make_one_consumer_at_once_get_the_same(place: Place) -> None:
    async with place.open() as store:
        both = await asyncio.gather(*(store.inbox.ensure_consumer(BOT, "one", at_ms=NOW) for _ in range(5)))
        assert len({consumer.id for consumer in both}) == 1


async def test_what_a_consumer_wants_is_saved_but_never_its_progress(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        await settle(store.inbox, default, 1)
        wished = Consumer(
            id=default.id,
            bot_id=BOT,
            name="default",
            kind=ConsumerKind.PUSH,
            url="https://bot.example/hook",
            secret="s",
            allowed=frozenset({"message", "poll"}),
            connections_max=7,
            progress=ConsumerProgress(watermark=9),
            seen_at_ms=77,
        )
        await store.inbox.save_consumer(wished)
    async with place.open() as store:
        saved = await named(store.inbox, "default")
        assert saved == msgspec.structs.replace(
            wished, progress=ConsumerProgress(watermark=1), seen_at_ms=None, created_at_ms=NOW
        )
        await store.inbox.save_consumer(msgspec.structs.replace(saved, allowed=None, url=None, secret=None))
        plain = await named(store.inbox, "default")
        assert (plain.allowed, plain.url, plain.secret) == (None, None, None)
        await store.inbox.save_consumer(msgspec.structs.replace(saved, allowed=frozenset()))
        assert (await named(store.inbox, "default")).allowed == frozenset()


async def test_when_a_consumer_was_there_never_goes_back(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await store.inbox.touch_consumers({default.id: NOW + 5, other.id: NOW + 6})
        await store.inbox.touch_consumers({default.id: NOW + 4, 12345: NOW})
        await store.inbox.touch_consumers({})
        assert [one.seen_at_ms for one in await store.inbox.consumers(BOT)] == [NOW + 5, NOW + 6]


async def test_a_removed_consumer_is_gone_with_all_that_was_its_own(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await settle(store.inbox, other, 2, 4)
        await put_off(store.inbox, other, 1)
        await bury(store.inbox, other, 5)
        await replay_to(store.inbox, other, 1, 3)
        await store.inbox.remove_consumer(other.id)
        assert [one.name for one in await store.inbox.consumers()] == ["default"]
        assert (await numbers(store.inbox, other), await store.inbox.deferrals(other.id)) == ([], [])
        for late in (settle(store.inbox, other, 1), store.inbox.save_consumer(other)):
            with pytest.raises(NotFound):
                await late
        assert await settle(store.inbox, default, (1, 10)) == ConsumerProgress(watermark=13)
        anew = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        assert anew.id != other.id
        assert anew.progress == ConsumerProgress(watermark=0)
        assert await numbers(store.inbox, anew) == list(range(1, 11))


async def test_the_default_consumer_cannot_be_removed(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        with pytest.raises(Conflict):
            await store.inbox.remove_consumer(default.id)
        with pytest.raises(NotFound):
            await store.inbox.remove_consumer(999)


# ---- reading ----


async def test_pages_follow_each_other_without_a_gap(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 25)
        seen: list[int] = []
        while page := await numbers(store.inbox, default, seen[-1] if seen else 0, limit=10):
            seen += page
        assert seen == list(range(1, 26))


async def test_a_page_is_bounded_in_bytes_but_never_empty(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        sizes = [200, 300, 50_000, 100]
        updates = [message(index, text="x" * size) for index, size in enumerate(sizes, start=1)]
        await take(store.inbox, *updates, message(5, chat=2, text="é" * 1000))
        two = sum(len(update.payload) for update in updates[:2])
        assert await numbers(store.inbox, default, bytes_max=two) == [1, 2]
        assert await numbers(store.inbox, default, bytes_max=two - 1) == [1]
        assert await numbers(store.inbox, default, bytes_max=1) == [1]
        assert await numbers(store.inbox, default, 2, bytes_max=1000) == [3]
        assert await numbers(store.inbox, default, 3, bytes_max=1500) == [4]  # bytes, not characters
        assert await numbers(store.inbox, default, 1, bytes_max=1000, lane=1) == [2]
        assert await numbers(store.inbox, default, 5, bytes_max=1) == []


async def test_a_lane_can_be_read_by_itself(place: Place) -> None:
    async with place.open() as store:
        default = await open_inbox(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await take(store.inbox, *messages(9, first=1), raw(10, {"poll": {"id": "5"}}))
        await open_inbox(store.inbox, OTHER_BOT)
        await take(store.inbox, *messages(9, first=1), bot_id=OTHER_BOT)
        await replay_to(store.inbox, other, 1, 4)
        assert await numbers(store.inbox, default, lane=2) == [2, 5, 8]
        assert await numbers(store.inbox, default, 5, lane=2) == [8]
        assert await numbers(store.inbox, default, 4, lane=2, limit=1) == [5]
        assert await numbers(store.inbox, default, lane="poll:5") == [10]
        assert await numbers(store.inbox, other, 6, lane=1) == [7, 11, 14]
        assert await numbers(store.inbox, other, 12, lane=1) == [14]
        assert await numbers(store.inbox, default, lane="1") == []


async def test_a_consumer_sees_only_its_own_bot_and_its_own_replays(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 4)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await open_inbox(store.inbox, OTHER_BOT)
        await take(store.inbox, *messages(2, first=1), bot_id=OTHER_BOT)
        assert await replay_to(store.inbox, other, 2, 3) == 2
        await take(store.inbox, message(5))
        assert await numbers(store.inbox, default) == [1, 2, 3, 4, 7]
        assert await numbers(store.inbox, other) == [1, 2, 3, 4, 5, 6, 7]
        assert await numbers(store.inbox, other, 4, limit=2) == [5, 6]


# ---- settling ----


async def test_the_watermark_stops_at_what_is_still_open(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        assert await settle(store.inbox, default, (1, 2)) == ConsumerProgress(watermark=2)
        assert await settle(store.inbox, default, 4, (6, 7)) == ConsumerProgress(watermark=2, spans=((4, 4), (6, 7)))
        assert await settle(store.inbox, default, (1, 2)) == ConsumerProgress(watermark=2, spans=((4, 4), (6, 7)))
    async with place.open() as store:
        assert await settle(store.inbox, default, 5) == ConsumerProgress(watermark=2, spans=((4, 7),))
        assert await settle(store.inbox, default, 3) == ConsumerProgress(watermark=7)
        assert await progress(store.inbox, default) == ConsumerProgress(watermark=7)
        assert await states(store.inbox) == {
            number: "completed" if number <= 7 else "waiting" for number in range(1, 11)
        }


async def test_what_has_not_come_yet_cannot_be_over(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 3)
        late = [Deferral(number=50, tries=1, due_at_ms=NOW)]
        dead = [Burial(number=60, tries=1, reason="x", entry="{}")]
        assert await settle(store.inbox, default, (1, 10**9), (2**40, 2**41)) == ConsumerProgress(watermark=3)
        await store.inbox.settle_arrivals(default.id, deferred=late, dead=dead, at_ms=NOW)
        await take(store.inbox, *messages(60, first=4))
        assert await progress(store.inbox, default) == ConsumerProgress(watermark=3)
        assert set((await states(store.inbox)).values()) == {"completed", "waiting"}


async def test_settlements_at_once_are_all_counted(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 100)
        await asyncio.gather(*(settle(store.inbox, default, number) for number in range(100, 1, -1)))
        assert await progress(store.inbox, default) == ConsumerProgress(watermark=0, spans=((2, 100),))
        assert await settle(store.inbox, default, 1) == ConsumerProgress(watermark=100)


async def test_one_consumer_does_not_move_another(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await settle(store.inbox, default, (1, 10))
        await bury(store.inbox, other, 3)
        assert await progress(store.inbox, other) == ConsumerProgress(watermark=0, spans=((3, 3),))
        assert (await states(store.inbox))[3] == "completed"
        assert (await states(store.inbox, "other"))[3] == "failed"


async def test_replays_for_others_do_not_keep_the_watermark_back(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 3)
        other = await store.inbox.ensure_consumer(BOT, "other", at_ms=NOW)
        await replay_to(store.inbox, other, 1, 3)  # numbers 4 to 6
        await take(store.inbox, message(7), message(8))
        await replay_to(store.inbox, other, 1, 1)  # number 9
        assert await settle(store.inbox, default, 8) == ConsumerProgress(watermark=0, spans=((8, 8),))
        assert await settle(store.inbox, default, (1, 2)) == ConsumerProgress(watermark=2, spans=((8, 8),))
        assert await settle(store.inbox, default, 3) == ConsumerProgress(watermark=6, spans=((8, 8),))
        assert await settle(store.inbox, default, 7) == ConsumerProgress(watermark=9)
        assert await settle(store.inbox, other, (1, 3)) == ConsumerProgress(watermark=3)


# ---- put off, and given up ----


async def test_what_is_put_off_is_found_again_with_its_lane(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox)
        later = [
            Deferral(number=5, tries=2, due_at_ms=NOW + 9, entry='{"n":1}'),
            Deferral(number=3, tries=1, due_at_ms=NOW + 8),
        ]
        assert await store.inbox.settle_arrivals(
            default.id, over=[(1, 2), (4, 4)], deferred=later, at_ms=NOW
        ) == ConsumerProgress(watermark=2, spans=((4, 4),))
    async with place.open() as store:
        assert await store.inbox.deferrals(default.id) == [
            Deferral(number=3, tries=1, due_at_ms=NOW + 8, lane=3),
            Deferral(number=5, tries=2, due_at_ms=NOW + 9, lane=2),
        ]
        again = Deferral(number=5, tries=3, due_at_ms=NOW + HOUR, entry='{"n":2}')
        await store.inbox.settle_arrivals(default.id, deferred=[again], at_ms=NOW)
        assert [(one.number, one.tries) for one in await store.inbox.deferrals(default.id)] == [(3, 1), (5, 3)]
        standing = await delivery(store.inbox, 5)
        assert (standing.state, standing.tries, standing.due_at_ms) == ("delayed", 3, NOW + HOUR)
        assert standing.history == '[{"n":1},{"n":2}]'
        assert (await delivery(store.inbox, 3)).history == "[]"


async def test_what_is_handed_again_at_once_waits_and_keeps_its_story_when_it_is_over(place: Place) -> None:
    """As of a poller that died: nothing is put off, and an earlier one that is still in hand keeps the watermark."""
    async with place.open() as store:
        default = await begin(store.inbox, 4)
        now = place.clock.now_ms
        again = [Deferral(number=number, tries=1, due_at_ms=now, entry='{"n":1}') for number in (2, 3)]
        await store.inbox.settle_arrivals(default.id, deferred=again, at_ms=now)
        assert set((await states(store.inbox)).values()) == {"waiting"}
        found = await store.inbox.arrivals_after(default.id, 0, limit=10)
        assert [one.number for one in found] == [1, 2, 3, 4]
        assert await settle(store.inbox, default, 3) == ConsumerProgress(watermark=0, spans=((3, 3),))
    async with place.open() as store:
        standing = await delivery(store.inbox, 3)
        assert (standing.state, standing.history) == ("completed", '[{"n":1}]')
        assert await settle(store.inbox, default, (1, 2)) == ConsumerProgress(watermark=3)
        assert (await delivery(store.inbox, 2)).state == "completed"
        assert [one.number for one in await store.inbox.deferrals(default.id)] == []


async def test_put_off_until_a_time_that_has_come_means_waiting(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 2)
        await put_off(store.inbox, default, 1, until_ms=place.clock.now_ms + 5)
        assert await states(store.inbox) == {1: "delayed", 2: "waiting"}
        place.clock.pass_ms(5)
        assert await states(store.inbox) == {1: "waiting", 2: "waiting"}


async def test_what_was_put_off_and_is_over_in_the_end_keeps_its_history(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 3)
        await put_off(store.inbox, default, 2)
        await settle(store.inbox, default, (1, 3), at_ms=NOW + 7)
        standing = await delivery(store.inbox, 2)
        assert (standing.state, standing.tries, standing.settled_at_ms) == ("completed", 1, NOW + 7)
        assert standing.history == '[{"outcome":"failed once"}]'
        assert await store.inbox.deferrals(default.id) == []


async def test_put_off_and_over_in_one_call_is_over(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 3)
        both = [Deferral(number=1, tries=1, due_at_ms=NOW + HOUR)]
        reached = await store.inbox.settle_arrivals(default.id, over=[(1, 1)], deferred=both, at_ms=NOW)
        assert reached == ConsumerProgress(watermark=1)
        assert (await states(store.inbox), await store.inbox.deferrals(default.id)) == (
            {1: "completed", 2: "waiting", 3: "waiting"},
            [],
        )


async def test_a_dead_arrival_is_over_and_remembers_everything(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 3)
        await put_off(store.inbox, default, 1)
        assert await bury(store.inbox, default, 1, 3, at_ms=NOW + 5) == ConsumerProgress(watermark=1, spans=((3, 3),))
        assert await states(store.inbox) == {1: "failed", 2: "waiting", 3: "failed"}
        standing = await delivery(store.inbox, 1)
        assert (standing.tries, standing.failed_reason, standing.settled_at_ms) == (5, "it broke", NOW + 5)
        assert standing.history == '[{"outcome":"failed once"},{"outcome":"gave up"}]'
        assert standing.due_at_ms is None


async def test_whoever_comes_late_changes_nothing(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 4)
        await settle(store.inbox, default, 1, 3)
        await bury(store.inbox, default, 2)
        await put_off(store.inbox, default, 1)
        await put_off(store.inbox, default, 2)
        assert await bury(store.inbox, default, 3) == ConsumerProgress(watermark=3)
        assert await settle(store.inbox, default, (1, 3)) == ConsumerProgress(watermark=3)
        assert await states(store.inbox) == {1: "completed", 2: "failed", 3: "completed", 4: "waiting"}
        assert await store.inbox.deferrals(default.id) == []


async def test_a_long_history_keeps_its_beginning_and_its_end(place: Place) -> None:
    async with place.open() as store:
        default = await begin(store.inbox, 1)
        for turn in range(130):
            one = Deferral(number=1, tries=turn + 1, due_at_ms=NOW, entry=f'{{"turn":{turn}}}')
            await store.inbox.settle_arrivals(default.id, deferred=[one], at_ms=NOW)
        lines = msgspec.json.decode((await delivery(store.inbox, 1)).history or "")
        assert [line["turn"] for line in lines] == [*range(50), *range(80, 130)]
