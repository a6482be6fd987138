"""Handing on to handlers, in virtual time on a real store: in order, at least once, and one trouble never another's."""

import asyncio
import itertools
import json

import pytest

from peik.core import events
from peik.core.arrival import Arrival, ConsumerProgress
from peik.core.letter import State
from peik.errors import StoreUnavailable
from peik.inbox.store import ConsumerKind
from tests.inbox.handing import (
    FIRST,
    Program,
    all_over,
    arrive,
    consumer,
    message,
    on_unsure_store,
    told,
    until,
    views,
    written,
)
from tests.outbox.story import BOT, Stage, play, play_closed

HOUR_S = 3600.0


def no_surprise(stage: Stage) -> None:
    assert not stage.events_of(events.Surprise), stage.events_of(events.Surprise)


def test_every_arrival_is_handled_once_in_the_order_of_its_chat() -> None:
    async def story(stage: Stage) -> None:
        async def slow(text: str, arrival: Arrival) -> None:
            await asyncio.sleep(1.0 if arrival.lane == 5 else 0.1)

        program = Program(stage, slow)
        program.run()
        for number in range(5):
            await written(stage, f"a{number}", chat=5)
            await written(stage, f"b{number}", chat=6)
        await all_over(stage)
        assert [text for text in program.texts if text[0] == "a"] == ["a0", "a1", "a2", "a3", "a4"]
        assert [text for text in program.texts if text[0] == "b"] == ["b0", "b1", "b2", "b3", "b4"]
        assert program.at_once_max == 2
        assert [event.state for event in stage.events_of(events.ArrivalSettled)] == [State.COMPLETED] * 10
        assert (await consumer(stage)).kind is ConsumerKind.HANDLER
        no_surprise(stage)

    play(story)


def test_no_more_run_at_once_than_the_setting_says() -> None:
    async def story(stage: Stage) -> None:
        async def slow(text: str, arrival: Arrival) -> None:
            await asyncio.sleep(1)

        program = Program(stage, slow)
        program.run()
        for chat in range(1, 21):
            await written(stage, f"from {chat}", chat=chat)
        await all_over(stage)
        assert (program.at_once_max, len(program.finished)) == (4, 20)

    play(story, handlers="4")


def test_what_was_settled_is_not_handed_on_after_a_restart_and_what_was_not_is() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            first = Program(stage)
            first.run()
            await written(stage, "one", "two", "three")
            await all_over(stage)
        async with stage.open():
            await written(stage, "four")
            second = Program(stage)
            second.run()
            await all_over(stage)
        assert (first.texts, second.texts) == (["one", "two", "three"], ["four"])

    play_closed(story)


def test_a_failing_handler_makes_a_dead_arrival_with_its_whole_history() -> None:
    async def story(stage: Stage) -> None:
        async def broken(text: str, arrival: Arrival) -> None:
            if text == "poison":
                raise ValueError("bot 7000001:AAxxxxxxxxxxxxxxxx cannot read this")

        program = Program(stage, broken)
        program.run()
        await written(stage, "poison", "after", chat=5)
        await written(stage, "elsewhere", chat=6)
        await all_over(stage)
        times = [at for at, text in program.given if text == "poison"]
        waits = [round(later - sooner) for sooner, later in itertools.pairwise(times)]
        assert waits == [2, 4, 8, 16]
        assert program.finished == ["elsewhere", "after"]
        (dead,) = [event for event in stage.events_of(events.ArrivalSettled) if event.state is State.FAILED]
        assert (dead.tries, dead.reason) == (5, "ValueError: bot 7000001:*** cannot read this")
        (delivery,) = (await views(stage))["poison"].deliveries
        assert (delivery.state, delivery.tries, delivery.failed_reason) == (State.FAILED, 5, dead.reason)
        history = json.loads(delivery.history or "[]")
        assert len(history) == 5
        assert all("in broken" in line["traceback"] and "AAxx" not in line["traceback"] for line in history)
        no_surprise(stage)

    play(story)


def test_a_dead_arrival_can_be_retried_at_the_end_of_its_chat() -> None:
    async def story(stage: Stage) -> None:
        is_mended = False

        async def broken(text: str, arrival: Arrival) -> None:
            if text == "poison" and not is_mended:
                raise ValueError

        program = Program(stage, broken)
        program.run()
        await written(stage, "poison", "after")
        await all_over(stage)
        is_mended = True
        await stage.peik.inbox.service.retry((await views(stage))["poison"].arrival.id)
        await until(stage, lambda: program.finished == ["after", "poison"], 5)
        assert program.tries[-1] == 0

    play(story, handler_attempts="2")


def test_one_chat_that_never_ends_does_not_hold_up_another() -> None:
    async def story(stage: Stage) -> None:
        forever = asyncio.Event()

        async def stuck(text: str, arrival: Arrival) -> None:
            if arrival.lane == 5:
                await forever.wait()

        program = Program(stage, stuck)
        program.run()
        await written(stage, "stuck", "behind", chat=5)
        for number in range(50):
            await written(stage, f"fine {number}", chat=6)
        await until(stage, lambda: len(program.finished) == 50, 10)
        progress = (await consumer(stage)).progress
        assert progress == ConsumerProgress(watermark=FIRST - 1, spans=((FIRST + 2, FIRST + 51),))
        assert stage.peik.inbox.consumers.in_hand(BOT, "default") == {FIRST}
        active = (await views(stage))["stuck"].deliveries[0].state
        assert active is State.ACTIVE
        forever.set()
        await all_over(stage)
        assert program.finished[-2:] == ["stuck", "behind"]

    play(story, handler_timeout="1h")


def test_a_handler_that_takes_too_long_is_stopped_and_tried_again() -> None:
    async def story(stage: Stage) -> None:
        async def hangs_once(text: str, arrival: Arrival) -> None:
            if not program.finished and len(program.given) == 1:
                await asyncio.sleep(HOUR_S)

        program = Program(stage, hangs_once)
        program.run()
        await written(stage, "slow")
        await all_over(stage)
        assert [round(at) for at, _ in program.given] == [0, 12]  # ten seconds, and two of backoff
        (deferred,) = stage.events_of(events.ArrivalDeferred)
        assert deferred.reason == "no end within 10 s"

    play(story, handler_timeout="10s")


def test_a_handler_that_cancels_itself_costs_a_try_and_no_arrival() -> None:
    async def story(stage: Stage) -> None:
        async def cancels_once(text: str, arrival: Arrival) -> None:
            if len(program.given) == 1:
                raise asyncio.CancelledError

        program = Program(stage, cancels_once)
        program.run()
        await written(stage, "hello")
        await all_over(stage)
        assert (program.tries, program.finished) == ([0, 1], ["hello"])
        no_surprise(stage)

    play(story)


def test_a_store_that_fails_within_a_handler_costs_no_try() -> None:
    async def story(stage: Stage) -> None:
        async def needs_the_store(text: str, arrival: Arrival) -> None:
            if stage.clock.mono() < HOUR_S:
                raise StoreUnavailable(code="store_full", detail="The disk is full.")

        program = Program(stage, needs_the_store)
        program.run()
        await written(stage, "one", chat=5)
        await written(stage, "two", chat=6)
        await all_over(stage)
        assert sorted(program.finished) == ["one", "two"]
        assert set(program.tries) == {0}
        assert len(program.given) < 80  # it is tried with one at a time, at most once a minute in the end
        assert len(stage.events_of(events.ConsumerAway)) == 1
        (back,) = stage.events_of(events.ConsumerBack)
        assert back.away_s >= HOUR_S

    play(story)


def test_the_wait_and_the_count_of_a_failed_arrival_outlive_a_restart() -> None:
    async def story(stage: Stage) -> None:
        async def broken(text: str, arrival: Arrival) -> None:
            if text == "poison":
                raise ValueError

        async with stage.open():
            first = Program(stage, broken)
            first.run()
            await written(stage, "poison", "after")
            await told(stage, events.ArrivalDeferred, 3)
            failed_at = stage.clock.mono()
        async with stage.open():
            second = Program(stage, broken)
            second.run()
            await all_over(stage)
        assert second.texts == ["poison", "poison", "after"]
        assert second.tries == [3, 4, 0]
        assert round(second.given[0][0] - failed_at) == 8

    play_closed(story)


def test_what_is_in_hand_at_the_end_may_end_and_what_does_not_is_handed_on_again() -> None:
    async def story(stage: Stage) -> None:
        async def slow(text: str, arrival: Arrival) -> None:
            await asyncio.sleep({"short": 3.0, "long": HOUR_S}.get(text, 0.0))

        async with stage.open():
            first = Program(stage, slow)
            first.run()
            await written(stage, "short", "not begun", chat=5)
            await written(stage, "long", chat=6)
            await until(stage, lambda: len(first.given) == 2)
        assert first.finished == ["short"]
        async with stage.open():
            second = Program(stage)
            second.run()
            await all_over(stage)
        assert sorted(second.texts) == ["long", "not begun"]

    play_closed(story, grace="10s", handler_timeout="2h")


def test_a_slow_consumer_does_not_delay_another_and_each_has_its_own_cursor() -> None:
    async def story(stage: Stage) -> None:
        async def slow(text: str, arrival: Arrival) -> None:
            await asyncio.sleep(60)

        tortoise, hare = Program(stage, slow), Program(stage)
        tortoise.run("tortoise")
        hare.run()
        await written(stage, *(f"n{number}" for number in range(20)))
        await until(stage, lambda: len(hare.finished) == 20, 5)
        assert len(tortoise.finished) == 0
        await all_over(stage, "tortoise")
        assert tortoise.finished == hare.finished

    play(story, handler_timeout="2m")


def test_types_that_nobody_asked_for_are_over_unseen() -> None:
    async def story(stage: Stage) -> None:
        program = Program(stage)
        program.run(allowed=frozenset({"message"}))
        await arrive(stage, message(FIRST, "edited", kind="edited_message"), message(FIRST + 1, "plain"))
        await all_over(stage)
        assert program.texts == ["plain"]
        assert len(stage.events_of(events.ArrivalSettled)) == 1

    play(story)


def test_a_users_flood_is_handed_on_slowly_to_the_last_word_and_he_is_told_once() -> None:
    async def story(stage: Stage) -> None:
        program = Program(stage)
        program.run()
        await written(stage, *(f"spam {number}" for number in range(40)), chat=5)
        await written(stage, "hello", chat=6)
        await asyncio.sleep(1)
        assert len(program.finished) == 6  # five of his, and the other's
        assert "hello" in program.finished
        await all_over(stage)
        assert [text for text in program.texts if text != "hello"] == [f"spam {number}" for number in range(40)]
        assert 69 < stage.clock.mono() < 72  # thirty a minute, after five at once
        assert [event.user_id for event in stage.events_of(events.UserLimited)] == [5]
        await stage.quiet()
        assert len(stage.texts(5)) == 1

    play(story, user_rate="30/m")


def test_after_an_absence_the_backlog_comes_at_its_pace_and_new_chats_do_not_wait_for_it() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            Program(stage).run()
            await written(stage, "before")
            await all_over(stage)
        async with stage.open():  # Peik is there, its program is not
            for chat in range(100, 300):
                await written(stage, f"waited {chat}", chat=chat)
            await asyncio.sleep(HOUR_S)
            program = Program(stage)
            began_at = stage.clock.mono()
            program.run()
            await asyncio.sleep(1)
            await written(stage, "fresh", chat=7)
            await until(stage, lambda: "fresh" in program.texts, 0.1)
            assert len(program.texts) < 20
            await all_over(stage)
            assert len(program.texts) == 201
            assert 19 < stage.clock.mono() - began_at < 22

    play_closed(story, catch_up_rate="10/s")


@pytest.mark.parametrize(("policy", "handed"), [("process", ["waited"]), ("drop", [])])
def test_what_waited_for_the_program_is_dealt_with_by_the_bots_policy(policy: str, handed: list[str]) -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            Program(stage).run()
            await written(stage, "before")
            await all_over(stage)
        async with stage.open():
            await asyncio.sleep(HOUR_S)
            await written(stage, "waited")
            await asyncio.sleep(HOUR_S)
            program = Program(stage)
            program.run()
            await told(stage, events.OutageSettled)
            await written(stage, "now", chat=6)
            await all_over(stage)
            assert sorted(program.texts) == ["now", *handed]
            no_surprise(stage)

    play_closed(story, missed=policy)


def test_nothing_is_handed_on_while_the_store_does_not_take_what_ended_and_nothing_twice_after() -> None:
    async def story(stage: Stage) -> None:
        program = Program(stage)
        async with on_unsure_store(stage) as (consumers, store):
            program.run(consumers=consumers)
            await written(stage, "one", chat=5)
            await all_over(stage)
            store.is_full = True
            await written(stage, "two", chat=5)
            await asyncio.sleep(10)
            await written(stage, "three", chat=5)
            await written(stage, "four", chat=6)
            await asyncio.sleep(HOUR_S)
            assert program.texts == ["one", "two"]
            assert len(stage.events_of(events.StoreFailed)) == 1
            store.is_full = False
            await all_over(stage)
        assert sorted(program.texts) == ["four", "one", "three", "two"]
        assert len(stage.events_of(events.StoreRecovered)) == 1

    play(story)


def test_a_store_that_cannot_be_read_for_a_moment_disturbs_nothing_that_is_in_hand() -> None:
    async def story(stage: Stage) -> None:
        async def slow(text: str, arrival: Arrival) -> None:
            await asyncio.sleep(5.0 if text == "slow" else 0.0)

        program = Program(stage, slow)
        async with on_unsure_store(stage) as (consumers, store):
            store.refusals.update(consumers=2, deferrals=1, inbox=1)
            program.run(consumers=consumers)
            await written(stage, "slow", chat=5)
            await until(stage, lambda: program.texts == ["slow"])
            store.refusals["arrivals_after"] = 2
            await written(stage, "quick", chat=6)
            await all_over(stage)
            assert not +store.refusals
        assert program.texts == ["slow", "quick"]
        no_surprise(stage)

    play(story)


def test_a_clock_that_was_put_back_over_a_restart_delays_no_next_try() -> None:
    async def story(stage: Stage) -> None:
        async def broken(text: str, arrival: Arrival) -> None:
            if len(first.given) < 2:
                raise ValueError

        async with stage.open():
            first = Program(stage, broken)
            first.run()
            await written(stage, "poison")
            await told(stage, events.ArrivalDeferred, 1)
        stage.clock.wall_offset_s -= HOUR_S
        async with stage.open():
            second = Program(stage)
            second.run()
            began_at = stage.clock.mono()
            await until(stage, lambda: second.texts == ["poison"], 61.0)
            assert stage.clock.mono() - began_at <= 60.1

    play_closed(story)


def test_a_thousand_arrivals_are_settled_in_far_fewer_commits() -> None:
    async def story(stage: Stage) -> None:
        program = Program(stage)
        async with on_unsure_store(stage) as (consumers, store):
            for chat in range(1, 101):
                await written(stage, *(f"{chat} {number}" for number in range(10)), chat=chat)
            program.run(consumers=consumers)
            await all_over(stage)
            assert (len(program.finished), store.commits < 100) == (1000, True), store.commits

    play(story)


def test_a_removed_consumer_ends_its_runner_quietly() -> None:
    async def story(stage: Stage) -> None:
        program = Program(stage)
        program.run()
        await written(stage, "one")
        await all_over(stage)
        await stage.peik.outbox.service.remove_bot(BOT)
        await asyncio.sleep(60)
        no_surprise(stage)

    play(story)
