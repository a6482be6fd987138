"""The log: every event has its line, and the numbers of a recovery can be read from one."""

from typing import Any

import msgspec
import pytest

from peik.accounts import events as session_events
from peik.core import events
from peik.core.letter import State
from peik.core.lifecycle import Move
from peik.jobs import events as job_events
from peik.jobs.model import JobEnd
from peik.monitoring.log import EventLog


class Lines:
    """A log that keeps its lines as (level, words, fields)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def log(self, level: int, words: str, **fields: Any) -> None:
        self.lines.append(({10: "debug", 20: "info"}[level], words, fields))

    def __getattr__(self, level: str) -> Any:
        return lambda words, **fields: self.lines.append((level, words, fields))


def shown(event: events.Event, *, level: str = "debug") -> list[tuple[str, str, dict[str, Any]]]:
    lines = Lines()
    EventLog(level=level, log=lines)([event])  # type: ignore[arg-type]
    return lines.lines


def every_event() -> list[type[events.Event]]:
    named = [one for module in (events, job_events, session_events) for one in vars(module).values()]
    found = dict.fromkeys(one for one in named if isinstance(one, type) and issubclass(one, events.Event))
    return [one for one in found if one not in (events.Event, session_events.SessionFed)]


def example(kind: type[events.Event]) -> events.Event:
    """One of this kind, made of the simplest values."""
    plain: dict[Any, Any] = {int: 1, str: "x", float: 1.0}
    values = {
        field.name: plain.get(field.type, 1)
        for field in msgspec.structs.fields(kind)
        if field.required and field.type is not State
    }
    if "state" in kind.__struct_fields__:
        values["state"] = State.COMPLETED
    if kind is job_events.JobRan:
        values["end"] = JobEnd.DONE
    if kind is events.HandedOn:
        values["arrivals"] = ()
    if kind is events.Settled:
        values["move"] = next(iter(Move))
    return kind(**values)


@pytest.mark.parametrize("kind", every_event(), ids=lambda kind: kind.__name__)
def test_every_event_has_one_line_that_begins_with_its_sign(kind: type[events.Event]) -> None:
    ((_, words, _),) = shown(example(kind))
    assert words.split()[0] in ("->", "<-", "~", "!", "#", "+", "x", "|")


def test_a_recovery_says_how_many_were_found_stored_duplicate_and_expired_and_how_long_it_took() -> None:
    event = events.InboxRecovered(
        bot_id=5, found=10, stored=7, duplicates=3, expired=None, took_s=0.1234, away_s=3600.04
    )
    assert shown(event, level="info") == [
        (
            "info",
            "+ recovered what Telegram kept",
            {
                "bot": 5, "found": 10, "stored": 7, "duplicates": 3, "expired": "unknown", "took_s": 0.12,
                "away_s": 3600.0,
            },
        )
    ]  # fmt: skip
    first = msgspec.structs.replace(event, expired=4, away_s=None)
    fields = shown(first)[0][2]
    assert (fields["expired"], fields["away_s"]) == (4, "first start")


def test_what_goes_as_it_should_is_told_at_debug_level_only() -> None:
    handled = events.ArrivalSettled(
        bot_id=5, consumer="default", arrival_id=1, number=1, kind="message", state=State.COMPLETED, tries=1
    )
    assert (shown(handled, level="info"), len(shown(handled))) == ([], 1)
    assert shown(msgspec.structs.replace(handled, state=State.FAILED), level="info")[0][:2] == (
        "warning",
        "! dead arrival",
    )
    nobody = events.OutageSettled(bot_id=5, policy="both", away_s=3.0, missed=0, handed=0, notices=0)
    assert shown(nobody)[0][0] == "debug"
    assert shown(msgspec.structs.replace(nobody, missed=2))[0][0] == "info"


def test_lines_that_join_a_feed_have_no_line_of_the_log() -> None:
    assert shown(session_events.SessionFed(session_id="s1", count=1)) == []


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (session_events.SessionUp(bot_id=5, session_id="s1"), "info"),
        (session_events.SessionDown(bot_id=5, session_id="s1", why="cut", retry_s=1.0), "warning"),
        (session_events.SessionFlooded(bot_id=5, session_id="s1", wait_s=30.0), "warning"),
        (session_events.SessionRevoked(bot_id=5, session_id="s1", why="ended"), "error"),
        (session_events.SessionUnfit(bot_id=5, session_id="s1", why="no key"), "error"),
        (session_events.SessionLockLost(bot_id=5, session_id="s1"), "warning"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_becomes_of_a_session_names_it_and_its_account(event: events.Event, level: str) -> None:
    ((as_level, _, fields),) = shown(event, level="info")
    assert (as_level, fields["session"], fields["bot"]) == (level, "s1", 5)


def test_a_crawl_is_told_of_when_it_is_done_and_its_steps_at_debug_level() -> None:
    step = session_events.CrawlAdvanced(session_id="s1", chat_id=7, crawled_to=100, crawled=50, is_done=False)
    assert shown(step)[0][0] == "debug"
    assert shown(msgspec.structs.replace(step, is_done=True))[0][0] == "info"


def test_of_jobs_only_those_that_do_not_go_as_they_should_are_told_of() -> None:
    ran = job_events.JobRan(
        job_id=7, kind="download", user="5", run=2, end=JobEnd.DONE, state=State.COMPLETED, reason=None, run_s=3.14
    )
    assert (shown(ran, level="info"), shown(ran)[0][1]) == ([], "<- job done")
    again = msgspec.structs.replace(ran, end=JobEnd.LATE, state=State.DELAYED, reason="It was not done after 5 s.")
    assert shown(again, level="info")[0][:2] == ("info", "~ job is tried again")
    ((level, words, fields),) = shown(msgspec.structs.replace(again, state=State.FAILED), level="info")
    assert (level, words, fields["job"], fields["reason"]) == ("warning", "! dead job", 7, "It was not done after 5 s.")


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 5.0

    def mono(self) -> float:
        return self.now

    steady = mono

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def test_a_store_that_fails_for_an_hour_is_told_of_once_a_minute() -> None:
    lines, clock = Lines(), Hand()
    log = EventLog(level="info", log=lines, clock=clock)  # type: ignore[arg-type]
    for _ in range(3600):
        log([events.StoreFailed(what="updates", why="full"), events.StoreFailed(what="an outage", why="full")])
        clock.now += 1.0
    assert len(lines.lines) == 2 * 60
    log([events.StoreFailed(what="updates", why="read-only")])
    assert lines.lines[-1][2]["why"] == "read-only"


def test_a_session_that_cannot_connect_for_an_hour_is_told_of_once_a_minute_and_others_are_not_hushed_by_it() -> None:
    lines, clock = Lines(), Hand()
    log = EventLog(level="info", log=lines, clock=clock)  # type: ignore[arg-type]
    for second in range(3600):
        for name in ("s1", "s2"):
            log([session_events.SessionDown(session_id=name, why="no route", retry_s=second / 7)])
        clock.now += 1.0
    assert [fields["session"] for _, _, fields in lines.lines] == ["s1", "s2"] * 60
    log([session_events.SessionDown(session_id="s1", why="a proxy that refuses", retry_s=1.0)])
    assert lines.lines[-1][2]["why"] == "a proxy that refuses"
