"""The overview: one value, cheap to ask for, that never fails."""

import asyncio
from typing import Any

from peik.core import events
from peik.core.arrival import DAY_MS
from peik.errors import StoreUnavailable
from peik.jobs.store import JobTally
from peik.monitoring.overview import of_bots
from tests.monitoring.seeing import seen
from tests.outbox.story import BOT, Stage, play


def test_a_quiet_peik_is_seen_as_one() -> None:
    async def story(stage: Stage) -> None:
        _, overview, _ = seen(stage.peik)
        view = await overview.now()
        assert view.missing == ()
        assert (view.letters.waiting, view.oldest_waiting_ms, view.alerts, view.hosts) == (0, None, (), ())
        assert [(bot.bot_id, bot.paused) for bot in view.bots] == [(BOT, None)]
        assert [(node.is_this, node.bots) for node in view.nodes] == [(True, 1)]
        assert [(route.name, route.state, route.is_in_use) for route in view.routes] == [("direct", "closed", True)]
        assert (len(view.last_hour), len(view.last_day)) == (60, 96)
        assert view.sessions is None

    play(story)


def test_letters_are_seen_as_they_wait_and_as_they_go() -> None:
    async def story(stage: Stage) -> None:
        figures, overview, _ = seen(stage.peik)
        counting = asyncio.create_task(figures.run())
        began_ms = stage.clock.wall_ms()
        for number in range(30):
            await stage.text(1, str(number))
        await asyncio.sleep(5)
        view = await overview.now()
        assert view.letters.waiting + view.letters.active >= 20
        assert view.bots[0].letters == view.letters
        assert view.oldest_waiting_ms is not None
        assert began_ms <= view.oldest_waiting_ms <= view.at_ms
        assert view.now.accepted == 30
        assert 0 < view.now.delivered == view.letters.completed
        await stage.quiet()
        await asyncio.sleep(2)
        view = await overview.now()
        assert view.oldest_waiting_ms is None
        assert view.hour.delivered == view.day.delivered == 30
        assert sum(point.delivered for point in view.last_hour) == 30
        assert view.hour.end_to_end is not None
        assert view.hour.end_to_end.p50_s <= view.hour.end_to_end.p95_s <= view.hour.end_to_end.p99_s <= 60
        counting.cancel()

    play(story)


def test_a_dead_letter_is_seen_with_the_class_of_its_reason() -> None:
    async def story(stage: Stage) -> None:
        figures, overview, _ = seen(stage.peik)
        stage.telegram.user(5, "Sara", "fa", None)
        stage.telegram.block(BOT, 5)
        await stage.ended(await stage.text(5, "hello"))
        await stage.ended(await stage.text(5, "are you there?"))
        view = await overview.now()
        assert (view.letters.failed, view.hour.failed) == (2, 2)
        counted = figures.counting
        assert counted.labelled["letters_failed", "refused"] == 1
        assert counted.labelled["letters_failed", "unreachable"] == 1
        assert counted.sent["sendMessage", "refused", "403"] == 1

    play(story)


def test_however_many_ask_one_looks_and_not_more_than_once_a_second() -> None:
    async def story(stage: Stage) -> None:
        _, overview, _ = seen(stage.peik)
        asked = 0
        tallies = overview._tallies._ask

        async def counted() -> Any:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0.01)
            return await tallies()

        overview._tallies._ask = counted
        views = await asyncio.gather(*(overview.now() for _ in range(50)))
        assert asked == 1
        assert all(view is views[0] for view in views)
        await asyncio.sleep(1.1)
        await overview.now()
        assert asked == 2

    play(story)


def test_a_part_that_takes_long_is_asked_seldom() -> None:
    async def story(stage: Stage) -> None:
        _, overview, _ = seen(stage.peik)
        asked = 0

        async def slow() -> dict[str, JobTally]:
            nonlocal asked
            asked += 1
            await asyncio.sleep(2)
            return {}

        overview._jobs._ask = slow
        for _ in range(120):
            await overview.now()
            await asyncio.sleep(1)
        assert asked <= 4  # of two minutes, a twentieth is spent with it

    play(story)


def test_a_store_that_fails_leaves_what_was_known_and_says_so() -> None:
    async def story(stage: Stage) -> None:
        _, overview, _ = seen(stage.peik)
        await stage.ended(await stage.text(1, "hello"))
        assert (await overview.now()).letters.completed == 1

        async def fails() -> Any:
            raise StoreUnavailable(code="store_full", detail="The disk is full.")

        async def hangs() -> Any:
            await asyncio.Event().wait()

        overview._tallies._ask = fails
        overview._inbox._ask = hangs
        await asyncio.sleep(2)
        view = await overview.now()
        assert view.missing == ("letters", "inbox")
        assert view.letters.completed == 1

    play(story)


def test_the_clock_of_an_inbox_runs_from_the_last_answer() -> None:
    async def story(stage: Stage) -> None:
        _, overview, _ = seen(stage.peik)
        await stage.peik.outbox.service.receive_for(BOT)
        await asyncio.sleep(120)
        (inbox,) = (await overview.now()).inbox
        assert inbox.source == "polling"
        assert inbox.seen_at_ms is not None
        assert inbox.expires_at_ms == inbox.seen_at_ms + DAY_MS
        assert stage.clock.wall_ms() - inbox.seen_at_ms < 120_000
        assert [consumer.name for consumer in inbox.consumers] == ["default"]

    play(story)


def test_alerts_are_seen_without_anybody_to_tell() -> None:
    async def story(stage: Stage) -> None:
        _, overview, _ = seen(stage.peik)
        stage.peik.events.tell(events.BotPaused(bot_id=BOT, reason="Unauthorized"))
        (alert,) = (await overview.now()).alerts
        assert (alert.name, alert.bot_id, alert.node) == ("bot-paused", BOT, (await overview.now()).node)

    play(story)


def test_who_may_see_some_bots_sees_those() -> None:
    async def story(stage: Stage) -> None:
        _, overview, _ = seen(stage.peik)
        await stage.ended(await stage.text(1, "hello"))
        view = await overview.now()
        assert of_bots(view, lambda bot_id: bot_id == BOT).letters.completed == 1
        narrow = of_bots(view, lambda bot_id: False)
        assert (narrow.bots, narrow.inbox, narrow.nodes, narrow.letters.completed) == ((), (), (), 0)
        assert (narrow.day.delivered, narrow.last_day) == (0, ())

    play(story)
