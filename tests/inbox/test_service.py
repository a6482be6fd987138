"""What doors ask of the inbox, in virtual time on a real store: long polls as at Telegram, replays, dead arrivals."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from peik.core.arrival import Arrival, Update, read_update, wire_id
from peik.core.events import Arrived
from peik.core.letter import State
from peik.errors import BadInput, Conflict, NotFound
from peik.inbox.service import InboxService
from peik.inbox.store import ArrivalFilter, Burial, ConsumerKind
from tests.outbox.story import BOT, Stage, play, play_closed

FIRST = 1001
ALL = ArrivalFilter(bot_id=BOT, first_number=0)


def message(update_id: int, text: str = "hi", *, chat: int = 5, kind: str = "message") -> Update:
    body = {"message_id": update_id, "date": 1_700_000_000, "chat": {"id": chat}, "from": {"id": chat}, "text": text}
    return read_update(msgspec.json.encode({"update_id": update_id, kind: body}))


async def arrive(stage: Stage, *updates: Update) -> None:
    """As a source brings them in: stored, then told."""
    store, now = stage.peik.store.inbox, stage.clock.wall_ms()
    if await store.inbox(BOT) is None:
        await store.open_inbox(BOT, server="telegram", at_ms=now)
    taken = await store.take_in(BOT, updates, at_ms=now, last_update_id=updates[-1].update_id)
    arrived = Arrived(bot_id=BOT, stored=taken.stored, duplicates=taken.duplicates, last_number=taken.last_number)
    stage.peik.events.tell(arrived)


async def come(stage: Stage, count: int, *, first: int = FIRST) -> None:
    await arrive(stage, *(message(first + index, f"text {index}") for index in range(count)))


def ids(arrivals: Sequence[Arrival]) -> list[int]:
    return [wire_id(arrival.number) for arrival in arrivals]


async def code_of(work: Coroutine[Any, Any, object]) -> str:
    with pytest.raises(Conflict) as raised:
        await work
    return raised.value.code


async def parked(inbox: InboxService, *arguments: Any, **terms: Any) -> asyncio.Task[list[Arrival]]:
    """A long poll that has come to rest."""
    polling = asyncio.create_task(inbox.updates(BOT, *arguments, **({"timeout_s": 50} | terms)))
    await asyncio.sleep(0.001)
    assert not polling.done()
    return polling


# ---- acknowledging ----


def test_only_an_offset_confirms_and_what_it_confirmed_stays_so_after_a_restart() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await come(stage, 5)
            inbox = stage.peik.inbox.service
            assert ids(await inbox.updates(BOT)) == [1001, 1002, 1003, 1004, 1005]
            assert ids(await inbox.updates(BOT, limit=2)) == [1001, 1002]
            assert ids(await inbox.updates(BOT, offset=1003)) == [1003, 1004, 1005]
        async with stage.open():
            assert ids(await stage.peik.inbox.service.updates(BOT)) == [1003, 1004, 1005]

    play_closed(story, polling_redelivery="off")


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (None, [1001, 1002, 1003]),
        (0, [1001, 1002, 1003]),
        (7, [1001, 1002, 1003]),  # below all: nothing to confirm
        (1002, [1002, 1003]),
        (1004, []),
        (1013, []),  # a little above the newest: what there is
        (1015, [1001, 1002, 1003]),  # far above: no offset of ours
        (2_000_000_000, [1001, 1002, 1003]),
        (-1, [1003]),
        (-2, [1002, 1003]),
        (-3, [1001, 1002, 1003]),
        (-100_000, [1001, 1002, 1003]),
    ],
)
def test_an_offset_means_what_it_means_at_telegram(offset: int | None, left: list[int]) -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        inbox = stage.peik.inbox.service
        assert ids(await inbox.updates(BOT, offset=offset)) == left
        assert ids(await inbox.updates(BOT)) == left
        assert await inbox.count(ALL) == 3  # nothing was deleted
        await come(stage, 1, first=1004)
        assert ids(await inbox.updates(BOT))[-1:] == [1004]  # and nothing that comes is skipped

    play(story, polling_redelivery="off")


def test_a_negative_offset_moves_one_consumer_and_no_other() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 4)
        inbox = stage.peik.inbox.service
        assert ids(await inbox.updates(BOT, offset=-1)) == [1004]
        assert ids(await inbox.updates(BOT, "reports")) == [1001, 1002, 1003, 1004]
        await inbox.replay(msgspec.structs.replace(ALL, last_number=1001), "reports")
        assert ids(await inbox.updates(BOT, offset=-1)) == [1004]  # the replay at the end is not for it

    play(story)


def test_ids_go_round_before_they_are_too_large_for_a_bot() -> None:
    async def story(stage: Stage) -> None:
        top = 2**31 - 1
        await arrive(stage, message(top - 1), message(top))
        await arrive(stage, message(5), message(6))
        inbox = stage.peik.inbox.service
        assert ids(await inbox.updates(BOT)) == [top - 1, top, 1, 2]
        assert ids(await inbox.updates(BOT, offset=top)) == [top, 1, 2]
        assert ids(await inbox.updates(BOT, offset=2)) == [2]

    play(story)


# ---- waiting ----


def test_a_long_poll_is_answered_when_something_comes_and_never_later_than_after_fifty_seconds() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        began = stage.clock.mono()
        assert await inbox.updates(BOT, timeout_s=600) == []
        assert stage.clock.mono() - began == pytest.approx(50)
        polling = await parked(inbox)
        await asyncio.sleep(20)
        await come(stage, 1)
        assert ids(await polling) == [1001]
        assert stage.clock.mono() - began == pytest.approx(70, abs=0.1)

    play(story)


def test_of_two_polls_that_wait_the_newer_stays() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        older = await parked(inbox)
        other = await parked(inbox, "reports")
        newer = await parked(inbox)
        assert await code_of(older) == "other_poll"
        await come(stage, 1)
        assert ids(await newer) == ids(await other) == [1001]

    play(story)


def test_a_poll_that_finds_something_sends_nobody_away() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        waiting = await parked(inbox, allowed=["message"])
        await arrive(stage, message(FIRST, kind="edited_message"))
        await asyncio.sleep(0.001)
        assert not waiting.done()
        assert ids(await inbox.updates(BOT, allowed=["message", "edited_message"])) == []  # skipped, and so over
        await arrive(stage, message(FIRST + 1))
        assert ids(await waiting) == ids(await inbox.updates(BOT)) == [1002]

    play(story)


def test_what_another_process_wrote_wakes_those_who_wait() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        inbox, store = stage.peik.inbox.service, stage.peik.store.inbox
        await inbox.look()
        await inbox.acknowledge(BOT, "default", up_to=1002)
        polling = await parked(inbox)
        (consumer,) = await inbox.consumers(BOT)
        await store.replay(ALL, consumer.id, after=0, up_to=1, limit=9, at_ms=stage.clock.wall_ms())
        await asyncio.sleep(0.001)
        assert not polling.done()
        began = stage.clock.mono()
        await inbox.look()
        assert ids(await polling) == [1003]
        assert stage.clock.mono() == began  # not when its time was over

    play(story)


def test_when_peik_ends_nobody_is_kept_waiting() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        polling = await parked(inbox)
        began = stage.clock.mono()
        inbox.end()
        assert await polling == await inbox.updates(BOT, timeout_s=50) == []
        assert stage.clock.mono() == began

    play(story)


# ---- what a consumer wants ----


def test_types_that_a_consumer_does_not_want_are_over_as_soon_as_they_stand_in_front() -> None:
    async def story(stage: Stage) -> None:
        kinds = ("chat_member", "message", "edited_message", "message", "chat_member")
        await arrive(stage, *(message(FIRST + index, kind=kind) for index, kind in enumerate(kinds)))
        inbox = stage.peik.inbox.service
        assert ids(await inbox.updates(BOT)) == [1002, 1003, 1004]  # as Telegram gives it if nobody asks
        assert (await inbox.consumer(BOT, "default")).progress.watermark == 1001
        assert ids(await inbox.updates(BOT, allowed=["message"])) == [1002, 1004]
        assert ids(await inbox.updates(BOT, offset=1003)) == [1004]  # remembered
        assert ids(await inbox.updates(BOT, offset=1005)) == []
        assert (await inbox.consumer(BOT, "default")).progress.watermark == 1005
        everything = ["message", "edited_message", "chat_member", "of_tomorrow"]
        assert ids(await inbox.updates(BOT, "reports", allowed=everything)) == [1001, 1002, 1003, 1004, 1005]
        assert ids(await inbox.updates(BOT, "reports", allowed=[])) == [1002, 1003, 1004]

    play(story, polling_redelivery="off")


def test_many_unwanted_ones_are_skipped_once() -> None:
    async def story(stage: Stage) -> None:
        await arrive(stage, *(message(FIRST + index, kind="chat_member") for index in range(2000)))
        await arrive(stage, message(FIRST + 2000))
        inbox = stage.peik.inbox.service
        assert ids(await inbox.updates(BOT)) == [3001]
        assert (await inbox.consumer(BOT, "default")).progress.watermark == 3000

    play(story)


def test_an_answer_holds_at_most_a_hundred_updates_and_about_four_megabytes() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 120)
        inbox = stage.peik.inbox.service
        assert len(await inbox.updates(BOT, limit=1000)) == 100
        assert len(await inbox.updates(BOT, limit=0)) == 1
        await inbox.acknowledge(BOT, "default", up_to=1120)
        await arrive(stage, *(message(FIRST + 120 + index, "x" * 500_000) for index in range(12)))
        assert 8 <= len(await inbox.updates(BOT)) <= 9

    play(story)


# ---- one reader at a time ----


def test_a_webhook_sends_pollers_away_until_it_is_removed() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        polling = await parked(inbox)
        await inbox.set_consumer(BOT, "default", url="http://127.0.0.1:9/", secret="s3cret")
        assert await code_of(polling) == "webhook_set"
        assert await code_of(inbox.updates(BOT)) == "webhook_active"
        assert await inbox.updates(BOT, "reports") == []
        gone = await inbox.set_consumer(BOT, "default", url=None)
        assert (gone.kind, gone.url, gone.secret) == (ConsumerKind.NONE, None, None)
        assert await inbox.updates(BOT) == []
        assert (await inbox.consumer(BOT, "default")).kind is ConsumerKind.POLL

    play(story)


def test_a_poll_that_waits_gets_nothing_any_more_when_another_process_has_set_a_webhook() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        polling = await parked(inbox)
        consumer = await inbox.consumer(BOT, "default")
        pushed = msgspec.structs.replace(consumer, kind=ConsumerKind.PUSH, url="http://127.0.0.1:9/")
        await stage.peik.store.inbox.save_consumer(pushed)
        await come(stage, 1)
        assert await code_of(polling) == "webhook_active"

    play(story)


def test_a_poll_that_says_what_it_wants_never_undoes_a_webhook_that_is_set_at_the_same_time() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        for number, kind in enumerate(("message", "poll", "message", "poll")):
            polling = inbox.updates(BOT, "shop", allowed=[kind])
            setting = inbox.set_consumer(BOT, "shop", url="http://127.0.0.1:9/")
            both = (polling, setting) if number % 2 else (setting, polling)
            await asyncio.gather(*both, return_exceptions=True)
            assert (await inbox.consumer(BOT, "shop")).url == "http://127.0.0.1:9/"
            assert await code_of(inbox.updates(BOT, "shop")) == "webhook_active"
            await inbox.set_consumer(BOT, "shop", url=None)

    play(story)


def test_a_removed_consumer_is_forgotten_and_the_default_one_cannot_be_removed() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 1)
        inbox = stage.peik.inbox.service
        assert ids(await inbox.updates(BOT, "reports", offset=1001)) == [1001]
        await inbox.acknowledge(BOT, "reports", update_id=1001)
        polling = await parked(inbox, "reports")
        await inbox.remove_consumer(BOT, "reports")
        assert await code_of(polling) == "consumer_removed"
        assert ids(await inbox.updates(BOT, "reports")) == [1001]  # a new one, from the oldest on
        for name, kind in (("default", BadInput), ("nobody", NotFound)):
            with pytest.raises(kind):
                await inbox.remove_consumer(BOT, name)

    play(story)


def test_only_what_is_there_can_be_acknowledged() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        inbox = stage.peik.inbox.service
        assert (await inbox.acknowledge(BOT, "default", up_to=1002)).watermark == 1002
        assert (await inbox.acknowledge(BOT, "default", up_to=1001)).watermark == 1002
        with pytest.raises(BadInput):
            await inbox.acknowledge(BOT, "default", up_to=1004)
        with pytest.raises(NotFound):
            await inbox.acknowledge(BOT, "nobody", up_to=1001)

    play(story)


# ---- away and back ----


def test_what_waited_while_the_consumer_was_away_is_settled_before_it_is_handed_on() -> None:
    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service
        assert await inbox.updates(BOT, timeout_s=50) == []
        await asyncio.sleep(30)
        await come(stage, 1)
        assert ids(await inbox.updates(BOT)) == [1001]  # half a minute is no outage
        await asyncio.sleep(600)
        await come(stage, 2, first=1002)
        await asyncio.sleep(600)
        assert ids(await inbox.updates(BOT, offset=1002, timeout_s=50)) == []
        assert (await inbox.consumer(BOT, "default")).progress.watermark == 1003
        await come(stage, 1, first=1004)
        assert ids(await inbox.updates(BOT)) == [1004]

    play(story, missed="drop")


def test_when_a_consumer_was_seen_is_stored_at_most_every_forty_seconds() -> None:
    async def story(stage: Stage) -> None:
        inbox, began = stage.peik.inbox.service, stage.clock.wall_ms()
        await inbox.updates(BOT)
        stored = []
        for _ in range(10):
            await asyncio.sleep(10)
            await inbox.updates(BOT)
            (consumer,) = await inbox.consumers(BOT)
            assert consumer.seen_at_ms is not None
            stored.append(round((consumer.seen_at_ms - began) / 1000))
        assert stored == [0, 0, 0, 40, 40, 40, 40, 80, 80, 80]

    play(story)


@pytest.mark.parametrize("poll_s", [10, 25, 30, 39, 50])
def test_what_is_stored_of_a_long_poller_is_never_older_than_a_message_may_wait(poll_s: int) -> None:
    """Else every crash in a quiet hour would count as an outage."""

    async def story(stage: Stage) -> None:
        inbox = stage.peik.inbox.service

        async def poll() -> None:
            while True:
                await inbox.updates(BOT, timeout_s=poll_s)

        polling = asyncio.create_task(poll())
        oldest = 0
        await asyncio.sleep(1)
        for _ in range(160):
            await asyncio.sleep(1)
            (consumer,) = await inbox.consumers(BOT)
            assert consumer.seen_at_ms is not None
            oldest = max(oldest, stage.clock.wall_ms() - consumer.seen_at_ms)
        polling.cancel()
        assert oldest < 55_000

    play(story)


# ---- again ----


def test_a_replay_is_for_one_consumer_and_never_replays_itself() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 7)
        inbox = stage.peik.inbox.service
        await inbox.updates(BOT, "reports", offset=1008)
        await inbox.acknowledge(BOT, "default", up_to=1007)
        assert await inbox.count_replay(ALL, "reports") == 7
        replayed, cursor = 0, None
        while True:
            count, cursor = await inbox.replay_page(ALL, "reports", cursor=cursor, limit=3)
            replayed += count
            if cursor is None:
                break
        assert replayed == 7
        assert ids(await inbox.updates(BOT)) == []
        again = await inbox.updates(BOT, "reports", offset=1008)
        assert ids(again) == [1008, 1009, 1010, 1011, 1012, 1013, 1014]
        assert [arrival.update_id for arrival in again] == [1001, 1002, 1003, 1004, 1005, 1006, 1007]
        assert await inbox.count_replay(ALL, "reports") == 7
        assert await inbox.replay(msgspec.structs.replace(ALL, first_number=1002, last_number=1003), "reports") == 2

    play(story)


def test_what_comes_while_a_replay_is_made_is_not_part_of_it() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 4)
        inbox = stage.peik.inbox.service
        count, cursor = await inbox.replay_page(ALL, "default", cursor=None, limit=2)
        await come(stage, 3, first=1005)
        assert (count, await inbox.replay_page(ALL, "default", cursor=cursor, limit=100)) == (2, (2, None))

    play(story)


def test_a_dead_arrival_can_be_retried_or_cleared() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 3)
        inbox, store = stage.peik.inbox.service, stage.peik.store.inbox
        (consumer,) = await inbox.consumers(BOT)
        dead = [Burial(number=1000 + n, tries=5, reason="ValueError: no", entry='{"at":1}') for n in (1, 2)]
        await store.settle_arrivals(consumer.id, dead=dead, at_ms=stage.clock.wall_ms())
        failed = ArrivalFilter(bot_id=BOT, state=State.FAILED)
        second, first = await inbox.arrivals(failed, before=None, limit=10)
        assert [view.arrival.number for view in (first, second)] == [1001, 1002]
        polling = await parked(inbox, offset=1004)
        again = await inbox.retry(first.arrival.id)
        assert (again.arrival.number, again.arrival.replay_of) == (1004, first.arrival.id)
        assert ids(await polling) == [1004]
        assert await code_of(inbox.retry(first.arrival.id)) == "not_dead"
        assert await inbox.clear_dead(ArrivalFilter(bot_id=BOT)) == 1
        assert await inbox.arrivals(failed, before=None, limit=10) == []
        assert await inbox.retry_dead(ArrivalFilter()) == 0
        with pytest.raises(NotFound):
            await inbox.retry(99)

    play(story)


def test_what_a_program_has_handled_itself_is_not_handed_to_the_default_consumer() -> None:
    async def story(stage: Stage) -> None:
        await come(stage, 2)
        inbox = stage.peik.inbox.service
        assert await inbox.note_handled(BOT, [(5, 1001), (5, 1003)]) == 1
        await come(stage, 2, first=1003)
        assert ids(await inbox.updates(BOT)) == [1002, 1004]
        assert ids(await inbox.updates(BOT, "reports")) == [1001, 1002, 1003, 1004]

    play(story)
