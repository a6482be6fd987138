"""When a schedule is due: cron in a time zone, with the hours that summer time leaves out and repeats; what is made up for."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from peik.errors import BadInput
from peik.schedules.model import (
    CATCH_UP_MAX,
    LATE_MS,
    LetterWork,
    MissedRuns,
    Schedule,
    ScheduleState,
    Terms,
    checked_cron,
    dues,
    filled_terms,
    following,
    next_due,
    planned,
    upcoming,
)

BERLIN, TEHRAN, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tehran"), ZoneInfo("Australia/Lord_Howe")
DAY_MS = 86_400_000
MINUTE_MS = 60_000


def ms(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def shown(found: list[int], zone: ZoneInfo = BERLIN) -> list[str]:
    return [datetime.fromtimestamp(one / 1000, zone).strftime("%m-%d %H:%M%z") for one in found]


@pytest.mark.parametrize(
    ("cron", "since", "expected"),
    [
        ("30 9 * * 1-5", "2026-11-20 10:00", ["11-23 09:30+0100", "11-24 09:30+0100", "11-25 09:30+0100"]),
        ("0 0 29 2 *", "2026-11-20 10:00", ["02-29 00:00+0100"] * 3),
        ("0 12 L * *", "2027-02-01 00:00", ["02-28 12:00+0100", "03-31 12:00+0200", "04-30 12:00+0200"]),
        ("0 8 * * MON#1", "2026-11-20 10:00", ["12-07 08:00+0100", "01-04 08:00+0100", "02-01 08:00+0100"]),
        ("@monthly", "2026-11-20 10:00", ["12-01 00:00+0100", "01-01 00:00+0100", "02-01 00:00+0100"]),
        # 29 March 2026: 02:00 becomes 03:00. What is due in between is due right after.
        ("30 2 * * *", "2026-03-28 00:00", ["03-28 02:30+0100", "03-29 03:00+0200", "03-30 02:30+0200"]),
        ("*/30 2 * * *", "2026-03-29 00:00", ["03-30 02:00+0200", "03-30 02:30+0200", "03-31 02:00+0200"]),
        ("0 * * * *", "2026-03-29 00:30", ["03-29 01:00+0100", "03-29 03:00+0200", "03-29 04:00+0200"]),
        # 25 October 2026: 03:00 becomes 02:00. A fixed time comes once, an hourly one in both hours.
        ("30 2 * * *", "2026-10-24 12:00", ["10-25 02:30+0200", "10-26 02:30+0100", "10-27 02:30+0100"]),
        ("30 * * * *", "2026-10-25 01:40", ["10-25 02:30+0200", "10-25 02:30+0100", "10-25 03:30+0100"]),
    ],
)
def test_when_it_is_due(cron: str, since: str, expected: list[str]) -> None:
    found: list[int] = []
    after = ms(since)
    for _ in range(3):
        due = next_due(cron, BERLIN, after)
        assert due is not None
        found.append(after := due)
    assert shown(found) == expected


def test_a_time_that_the_clocks_show_twice_is_not_found_again_in_the_second_hour() -> None:
    first = ms("2026-10-25 02:30")
    for minutes in (0, 1, 20, 40, 59, 60, 89, 119):
        again = next_due("30 2 * * *", BERLIN, first + minutes * MINUTE_MS)
        assert again is not None
        assert shown([again]) == ["10-26 02:30+0100"], minutes


def test_iran_has_no_summer_time_and_half_an_hour() -> None:
    assert shown(
        list(dues("0 9 * * *", TEHRAN, ms("2026-03-20 00:00", TEHRAN), ms("2026-03-22 23:00", TEHRAN))), TEHRAN
    ) == [
        "03-20 09:00+0330",
        "03-21 09:00+0330",
        "03-22 09:00+0330",
    ]


crons = some.tuples(
    some.sampled_from(["*", "*/7", "0", "30", "5,35", "10-20"]),
    some.sampled_from(["*", "*/5", "2", "1-3", "0,2,23"]),
    some.sampled_from(["*", "1", "28-31", "L"]),
    some.sampled_from(["*", "3,10,4", "*/4"]),
    some.sampled_from(["*", "0", "1-5", "SUN#1"]),
).map(" ".join)
zones = some.sampled_from([BERLIN, TEHRAN, LORD_HOWE, ZoneInfo("America/New_York"), ZoneInfo("Asia/Tashkent")])
moments = some.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)).map(  # noqa: DTZ001  hypothesis takes plain ones
    lambda one: int(one.replace(tzinfo=UTC).timestamp() * 1000)
)


@settings(deadline=None, max_examples=80)
@given(cron=crons, zone=zones, after=moments, cut=some.floats(0, 1))
def test_due_times_are_the_same_from_wherever_one_looks(cron: str, zone: ZoneInfo, after: int, cut: float) -> None:
    """A process that starts anew in between finds no other times, and none twice."""
    until = after + 3 * DAY_MS
    whole = list(dues(cron, zone, after, until))
    assert whole == sorted(set(whole))
    middle = after + int((until - after) * cut)
    assert [*dues(cron, zone, after, middle), *dues(cron, zone, middle, until)] == whole
    assert all(after < one <= until for one in whole)


@pytest.mark.parametrize(
    "text", ["", "* * * *", "61 * * * *", "* * * * * *", "0 0 31 2 *", "a b c d e", "@often", "0 " * 200]
)
def test_what_is_no_cron_is_refused_with_what_one_is(text: str) -> None:
    with pytest.raises(BadInput, match="minute, hour, day of the month") as problem:
        checked_cron(text)
    assert (problem.value.code, problem.value.field) == ("bad_cron", "cron")


def test_a_cron_that_is_never_due_is_found_out_at_once() -> None:
    # The 30th is never the fifth Monday of a February.
    assert next_due("0 0 29 2 *", BERLIN, ms("2097-01-01 00:00")) is None
    assert checked_cron("  30   9 * * 1-5 ") == "30 9 * * 1-5"


# ---- what is made up for ----


def terms(missed: MissedRuns, cron: str = "0 * * * *", **more: int) -> Terms:
    return Terms(cron=cron, letter=LetterWork(), missed=missed, **more)


NOON = ms("2026-11-20 12:00")


@pytest.mark.parametrize(
    ("missed", "away_minutes", "fires", "is_late", "dropped"),
    [
        (MissedRuns.ONCE, 1, NOON, False, 0),
        (MissedRuns.SKIP, 1, NOON, False, 0),
        (MissedRuns.SKIP, 10, None, False, 1),
        (MissedRuns.ONCE, 10, NOON, True, 0),
        (MissedRuns.ALL, 10, NOON, True, 0),
        (MissedRuns.SKIP, 190, None, False, 4),
        (MissedRuns.SKIP, 181, NOON + 180 * MINUTE_MS, False, 3),
        (MissedRuns.ONCE, 185, NOON + 180 * MINUTE_MS, False, 3),
        (MissedRuns.ONCE, 200, NOON + 180 * MINUTE_MS, True, 3),
        (MissedRuns.ALL, 185, NOON, True, 0),
    ],
)
def test_what_becomes_of_missed_times(
    missed: MissedRuns, away_minutes: int, fires: int | None, is_late: bool, dropped: int
) -> None:
    plan = planned(terms(missed), BERLIN, decided_ms=NOON - 1, now_ms=NOON + away_minutes * MINUTE_MS)
    assert (plan.fire_ms, plan.is_late) == (fires, is_late)
    assert (0 if plan.dropped is None else plan.dropped.count) == dropped


@pytest.mark.parametrize("missed", list(MissedRuns))
def test_a_year_of_minutes_is_not_counted_one_by_one(missed: MissedRuns) -> None:
    now = NOON + 366 * DAY_MS
    plan = planned(terms(missed, "* * * * *"), BERLIN, decided_ms=NOON, now_ms=now)
    assert plan.dropped is not None
    assert plan.dropped.is_least
    assert plan.dropped.first_ms == NOON + MINUTE_MS
    expected = {MissedRuns.ALL: now - (CATCH_UP_MAX - 1) * MINUTE_MS}.get(missed, now)
    assert plan.fire_ms == expected
    assert plan.dropped.last_ms == expected - MINUTE_MS


@settings(deadline=None, max_examples=60)
@given(cron=crons, after=moments, away=some.integers(0, 40 * DAY_MS), missed=some.sampled_from(MissedRuns))
def test_each_due_time_is_fired_or_told_and_none_twice(cron: str, after: int, away: int, missed: MissedRuns) -> None:
    """However often an engine looks: what it fires and what it drops is all that was due."""
    now, decided = after + away, after
    fired, told, is_least = list[int](), 0, False
    while True:
        plan = planned(terms(missed, cron), BERLIN, decided_ms=decided, now_ms=now)
        if plan.dropped is None and plan.fire_ms is None:
            break
        if plan.dropped is not None:
            told += plan.dropped.count
            is_least |= plan.dropped.is_least
            decided = plan.dropped.last_ms
        if plan.fire_ms is not None:
            assert plan.fire_ms > decided or plan.dropped is None
            fired.append(decided := plan.fire_ms)
            assert plan.is_late == (now - plan.fire_ms > LATE_MS)
    assert fired == sorted(set(fired))
    if not is_least:
        assert len(fired) + told == len(list(dues(cron, BERLIN, after, now)))


def schedule(given: Terms, *, fired: int = 0) -> Schedule:
    return Schedule(name="one", terms=given, created_at_ms=NOON, decided_ms=NOON, fired=fired)


def test_it_ends_by_its_count_and_by_its_date() -> None:
    hourly = schedule(terms(MissedRuns.ONCE, runs_max=3), fired=1)
    assert shown(upcoming(hourly, BERLIN, count=5)) == ["11-20 13:00+0100", "11-20 14:00+0100"]
    assert following(schedule(terms(MissedRuns.ONCE, runs_max=3), fired=3), BERLIN).state is ScheduleState.ENDED
    until = schedule(terms(MissedRuns.ONCE, ends_at_ms=NOON + 90 * MINUTE_MS))
    assert shown(upcoming(until, BERLIN, count=5)) == ["11-20 13:00+0100"]
    late = planned(until.terms, BERLIN, decided_ms=NOON, now_ms=NOON + DAY_MS)
    assert late.fire_ms == NOON + 60 * MINUTE_MS, "what came after its end was not missed"


def test_nothing_is_due_before_it_begins() -> None:
    begins = NOON + 150 * MINUTE_MS
    later = schedule(terms(MissedRuns.ALL, starts_at_ms=begins))
    assert shown(upcoming(later, BERLIN, count=2)) == ["11-20 15:00+0100", "11-20 16:00+0100"]
    plan = planned(later.terms, BERLIN, decided_ms=NOON, now_ms=NOON + 200 * MINUTE_MS)
    assert (plan.fire_ms, plan.dropped) == (NOON + 180 * MINUTE_MS, None)


# ---- the date in the text ----


def test_texts_have_the_date_of_the_due_time_in_its_zone() -> None:
    text = "%{date} %{time} %{date-1} %{date+10} %{year}/%{month}/%{day} w%{week} #%{run} %{name} %{jalali} 100 %"
    given = Terms(
        cron="0 1 * * *",
        tz="Asia/Tehran",
        letter=LetterWork(params={"chat_id": 7, "text": text, "more": [{"a": "%{date}"}]}),
    )
    due = ms("2026-11-20 01:00", TEHRAN)
    made = filled_terms(schedule(given, fired=4), TEHRAN, due).params
    assert made["text"] == "2026-11-20 01:00 2026-11-19 2026-11-30 2026/11/20 w47 #5 one 1405/08/29 100 %"
    assert made["more"] == [{"a": "2026-11-20"}]
    assert made["chat_id"] == 7


@pytest.mark.parametrize("text", ["%{}", "%{dat}", "%{date+}", "%{date+1234}", "%{ date }"])
def test_a_place_that_there_is_not_is_refused(text: str) -> None:
    given = Terms(cron="@daily", letter=LetterWork(params={"text": text}))
    with pytest.raises(BadInput, match="is no place"):
        filled_terms(schedule(given), BERLIN, NOON)
