"""Which troubles go on: from the table of alerts, with or without anybody to tell."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peik.accounts import events as session_events
from peik.alerts.rules import BY_NAME, RULES
from peik.alerts.service import AlertService
from peik.broadcasts import model as broadcast_events
from peik.core import events
from peik.core.letter import State
from peik.jobs import events as job_events
from peik.jobs.model import JobEnd
from peik.testing.virtual import VirtualClock, run_virtual


def listening(story: Callable[[AlertService], Coroutine[Any, Any, None]], *, served: set[int] | None = None) -> None:
    async def nobody(chat: str, text: str, idempotency_key: str) -> None:
        raise AssertionError("there is nobody to tell")

    async def main(clock: VirtualClock) -> None:
        is_served = (lambda bot_id: True) if served is None else served.__contains__
        await story(AlertService(chats=(), clock=clock, send=nobody, is_served=is_served))

    run_virtual(main)


def names(alerts: AlertService) -> list[str]:
    return [one.name for one in alerts.ongoing()]


PAIRS: list[tuple[str, events.Event, events.Event, float]] = [
    ("bot-paused", events.BotPaused(bot_id=5, reason="Unauthorized"), events.BotResumed(bot_id=5), 0),
    (
        "source",
        events.SourceFailed(bot_id=5, source="polling", why="reset", wait_s=1),
        events.SourceBack(bot_id=5, source="polling", away_s=400),
        300,
    ),
    (
        "inbox-expiry",
        events.InboxNearExpiry(bot_id=5, percent_left=25, expires_at_ms=1),
        events.SourceBack(bot_id=5, source="polling", away_s=400),
        0,
    ),
    ("no-way", events.RouteChosen(route=None), events.RouteChosen(route="direct"), 30),
    ("route", events.RouteOpened(route="direct", why="reset"), events.RouteClosed(route="direct", after_s=5), 60),
    (
        "session-ended",
        session_events.SessionRevoked(session_id="s", why="gone"),
        session_events.SessionUp(session_id="s"),
        0,
    ),
    ("archive", session_events.ArchiveAway(why="down"), session_events.ArchiveBack(), 60),
    (
        "host",
        job_events.HostOpened(host="example.com", why="503"),
        job_events.HostClosed(host="example.com", after_s=1),
        300,
    ),
    ("no-room", job_events.DiskShort(why="full."), job_events.DiskBack(), 60),
]


@pytest.mark.parametrize(("name", "began", "ended", "after_s"), PAIRS, ids=lambda one: one if type(one) is str else "")
def test_a_trouble_goes_on_until_its_end_is_heard(
    name: str, began: events.Event, ended: events.Event, after_s: float
) -> None:
    async def story(alerts: AlertService) -> None:
        alerts([began])
        assert names(alerts) == ([] if after_s else [name])
        await asyncio.sleep(after_s + 3 * 86400)
        (one,) = alerts.ongoing()
        assert one.name == name
        assert one.text
        assert one.last_ms - one.since_ms < 1000
        alerts([ended])
        assert names(alerts) == []

    listening(story)


def test_the_end_of_another_ends_nothing() -> None:
    async def story(alerts: AlertService) -> None:
        alerts([events.BotPaused(bot_id=5, reason="Unauthorized"), events.RouteOpened(route="a", why="reset")])
        alerts([events.BotResumed(bot_id=6), events.RouteClosed(route="b", after_s=1)])
        await asyncio.sleep(60)
        assert sorted(names(alerts)) == ["bot-paused", "route"]

    listening(story)


def test_what_has_no_end_of_its_own_fades() -> None:
    async def story(alerts: AlertService) -> None:
        alerts([events.StoreFailed(what="a step", why="The disk is full.")] * 3)
        (one,) = alerts.ongoing()
        assert (one.count, "3 times" in one.text) == (3, True)
        await asyncio.sleep(181)
        assert names(alerts) == []

    listening(story)


def test_a_few_failed_jobs_are_no_trouble_and_many_are() -> None:
    def failed(number: int) -> events.Event:
        return job_events.JobRan(
            job_id=number,
            kind="film",
            user="",
            run=1,
            end=JobEnd.HOPELESS,
            state=State.FAILED,
            reason="gone.",
            run_s=1.0,
        )

    async def story(alerts: AlertService) -> None:
        alerts([failed(number) for number in range(9)])
        assert names(alerts) == ["new-error"]
        alerts([failed(9)])
        (one,) = [one for one in alerts.ongoing() if one.name == "jobs-failing"]
        assert one.count == 10

    listening(story)


def test_the_troubles_of_a_bot_go_with_its_lease() -> None:
    served = {5}

    async def story(alerts: AlertService) -> None:
        alerts([events.BotPaused(bot_id=5, reason="Unauthorized"), events.RouteChosen(route=None)])
        await asyncio.sleep(30)
        served.clear()
        assert names(alerts) == ["no-way"]

    listening(story, served=served)


def test_every_rule_has_an_end_or_fades_within_a_day() -> None:
    for rule in RULES:
        assert rule.lasts_s is None or rule.lasts_s <= 86400.0


def test_no_token_is_ever_shown() -> None:
    async def story(alerts: AlertService) -> None:
        alerts([events.Surprise(where="sender", error="GET /bot7000001:AAE-abcdefghijklmnopqrstuvwxyz012345/getMe")])
        assert "abcdefghijkl" not in alerts.ongoing()[0].text

    listening(story)


def test_every_rule_says_what_to_do_and_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(RULES)
    for rule in RULES:
        assert rule.todo.endswith(".")
        assert rule.means.endswith(".")
        assert rule.repeat_s >= 60.0
        assert rule.runbook == f"docs/runbook.md#{rule.name}"


def test_what_the_chores_tell_of_is_kept_where_they_are_whoever_serves_the_bot() -> None:
    stopped = broadcast_events.BroadcastMoved(bot_id=5, broadcast_id="b", state="stopped", reason="Too many failed.")
    near = events.UnreadNearEnd(bot_id=5, consumer="default", oldest_at_ms=1, ends_at_ms=2)
    dropped = events.UnreadDropped(bot_id=5, count=3)
    expired = events.ConsumerExpired(bot_id=5, consumer="reports")

    async def story(alerts: AlertService) -> None:
        alerts([stopped, near, dropped, expired])
        assert sorted(names(alerts)) == ["broadcast-stopped", "consumer-expired", "unread", "unread-dropped"]

    listening(story, served=set())


def test_what_happens_on_any_node_is_kept_on_that_node() -> None:
    async def story(alerts: AlertService) -> None:
        alerts([events.Surprise(bot_id=5, where="sender", error="unforeseen")])
        assert names(alerts) == ["new-error"]

    listening(story, served=set())


def test_alerts_hear_all_that_they_have_rules_for_and_of_no_letter() -> None:
    async def story(alerts: AlertService) -> None:
        told = events.Events()
        told.listen(alerts, *alerts.kinds)
        told.tell(events.BotPaused(bot_id=5, reason="Unauthorized"))
        told.tell(events.Surprise(where="sender", error="KeyError: 1"))
        assert sorted(names(alerts)) == ["bot-paused", "new-error"]
        assert {rule.event for rule in RULES} <= set(alerts.kinds)
        assert events.Settled not in alerts.kinds

    listening(story)
