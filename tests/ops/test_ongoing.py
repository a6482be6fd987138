"""Which troubles go on: from the table of alerts, with or without anybody to tell."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peik import events, job_events, session_events
from peik.core.job import End
from peik.core.letter import State
from peik.ops.alert_rules import RULES
from peik.ops.alerts import Alerts
from peik.ops.shown_rules import SHOWN
from peik.testing.virtual import VirtualClock, run_virtual


def listening(story: Callable[[Alerts], Coroutine[Any, Any, None]], *, served: set[int] | None = None) -> None:
    async def nobody(chat: str, text: str, idempotency_key: str) -> None:
        raise AssertionError("there is nobody to tell")

    async def main(clock: VirtualClock) -> None:
        is_served = (lambda bot_id: True) if served is None else served.__contains__
        await story(Alerts(chats=(), clock=clock, send=nobody, is_served=is_served))

    run_virtual(main)


def names(alerts: Alerts) -> list[str]:
    return [one.name for one in alerts.ongoing()]


PAIRS: list[tuple[events.Event, events.Event, float]] = [
    (events.BotPaused(bot_id=5, reason="Unauthorized"), events.BotResumed(bot_id=5), 0),
    (
        events.SourceFailed(bot_id=5, source="polling", why="reset", wait_s=1),
        events.SourceBack(bot_id=5, source="polling", away_s=400),
        300,
    ),
    (
        events.InboxNearExpiry(bot_id=5, percent_left=25, expires_at_ms=1),
        events.SourceBack(bot_id=5, source="polling", away_s=400),
        0,
    ),
    (events.RouteChosen(route=None), events.RouteChosen(route="direct"), 0),
    (events.RouteOpened(route="direct", why="reset"), events.RouteClosed(route="direct", after_s=5), 0),
    (session_events.SessionRevoked(session_id="s", why="gone"), session_events.SessionUp(session_id="s"), 0),
    (session_events.ArchiveAway(why="down"), session_events.ArchiveBack(), 60),
    (job_events.HostOpened(host="example.com", why="503"), job_events.HostClosed(host="example.com", after_s=1), 300),
    (job_events.DiskShort(why="full."), job_events.DiskBack(), 60),
]


@pytest.mark.parametrize(("began", "ended", "after_s"), PAIRS, ids=lambda one: type(one).__name__)
def test_a_trouble_goes_on_until_its_end_is_heard(began: events.Event, ended: events.Event, after_s: float) -> None:
    async def story(alerts: Alerts) -> None:
        alerts([began])
        assert names(alerts) == ([] if after_s else [type(began).__name__])
        await asyncio.sleep(after_s + 3 * 86400)
        (one,) = alerts.ongoing()
        assert one.name == type(began).__name__
        assert one.text
        assert one.last_ms - one.since_ms < 1000
        alerts([ended])
        assert names(alerts) == []

    listening(story)


def test_the_end_of_another_ends_nothing() -> None:
    async def story(alerts: Alerts) -> None:
        alerts([events.BotPaused(bot_id=5, reason="Unauthorized"), events.RouteOpened(route="a", why="reset")])
        alerts([events.BotResumed(bot_id=6), events.RouteClosed(route="b", after_s=1)])
        assert sorted(names(alerts)) == ["BotPaused", "RouteOpened"]

    listening(story)


def test_what_has_no_end_of_its_own_fades() -> None:
    async def story(alerts: Alerts) -> None:
        alerts([events.StoreFailed(what="a step", why="The disk is full.")] * 3)
        (one,) = alerts.ongoing()
        assert (one.count, "3 times" in one.text) == (3, True)
        await asyncio.sleep(61)
        assert names(alerts) == []

    listening(story)


def test_a_few_failed_jobs_are_no_trouble_and_many_are() -> None:
    def failed(number: int) -> events.Event:
        return job_events.JobRan(
            job_id=number, kind="film", user="", run=1, end=End.HOPELESS, state=State.FAILED, reason="gone.", run_s=1.0
        )

    async def story(alerts: Alerts) -> None:
        alerts([failed(number) for number in range(9)])
        assert names(alerts) == []
        alerts([failed(9)])
        (one,) = alerts.ongoing()
        assert one.count == 10

    listening(story)


def test_the_troubles_of_a_bot_go_with_its_lease() -> None:
    served = {5}

    async def story(alerts: Alerts) -> None:
        alerts([events.BotPaused(bot_id=5, reason="Unauthorized"), events.RouteChosen(route=None)])
        served.clear()
        assert names(alerts) == ["RouteChosen"]

    listening(story, served=served)


def test_every_rule_has_an_end_or_fades_within_a_day() -> None:
    for rule in (*RULES, *SHOWN):
        assert rule.lasts_s is None or rule.lasts_s <= 86400.0


def test_no_token_is_ever_shown() -> None:
    async def story(alerts: Alerts) -> None:
        alerts([events.Surprise(where="sender", error="GET /bot7000001:AAE-abcdefghijklmnopqrstuvwxyz012345/getMe")])
        assert "abcdefghijkl" not in alerts.ongoing()[0].text

    listening(story)
