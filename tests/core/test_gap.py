"""What ids say about what is missing, and the arithmetic of Telegram's day."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.arrival import (
    DAY_MS,
    DISORDER_MAX,
    SILENT_MS,
    THRESHOLDS,
    Continuous,
    Gap,
    IdsReset,
    Reading,
    Unclear,
    crossed,
    expires_at_ms,
    is_over_a_day,
    is_pushed_anew,
    percent_left,
    read_ids,
)

HOUR_MS = 3600 * 1000


@pytest.mark.parametrize(
    ("ids", "expected", "silent_ms", "reading"),
    [
        ([7], 7, 0, Continuous()),
        ([7, 8, 9], 7, 0, Continuous()),
        ([8], 7, 0, Gap(count=1)),
        ([12, 13], 7, HOUR_MS, Gap(count=5)),
        ([7, 9, 12], 7, HOUR_MS, Gap(count=3)),  # a button press between two messages expired long before them
        ([9, 11], 7, 5 * DAY_MS, Gap(count=3)),
        ([8], 7, SILENT_MS, Unclear()),
        ([900_000_000], 7, 8 * DAY_MS, Unclear()),
        ([7], 7, 8 * DAY_MS, Continuous()),  # a local server goes on counting
        ([6], 7, 0, IdsReset()),
        ([117_314_199], 727_334_708, 8 * DAY_MS, IdsReset()),  # as it was seen: go-telegram-bot-api#156
        ([5], None, None, Unclear()),  # the first batch ever
        ([9], 7, None, Unclear()),
    ],
)
def test_a_batch_of_ids_is_read(ids: list[int], expected: int | None, silent_ms: int | None, reading: Reading) -> None:
    assert read_ids(ids, expected=expected, silent_ms=silent_ms) == reading


def test_after_a_webhook_holes_say_nothing_but_a_lower_id_still_does() -> None:
    assert read_ids([9], expected=7, silent_ms=0, may_have_holes=True) == Unclear()
    assert read_ids([7, 8], expected=7, silent_ms=0, may_have_holes=True) == Continuous()
    assert read_ids([3], expected=7, silent_ms=0, may_have_holes=True) == IdsReset()


@given(
    first=st.integers(1, 2**31),
    fates=st.lists(st.booleans(), min_size=1, max_size=300),
    silent_ms=st.integers(0, SILENT_MS - 1),
)
def test_of_a_row_of_updates_exactly_those_that_are_gone_are_counted(
    first: int, fates: list[bool], silent_ms: int
) -> None:
    kept = [first + place for place, is_kept in enumerate([*fates, True]) if is_kept]
    gone = fates.count(False)
    assert read_ids(kept, expected=first, silent_ms=silent_ms) == (Gap(count=gone) if gone else Continuous())


@given(expected=st.integers(2, 2**31), lower=st.integers(1, 2**31), silent_ms=st.none() | st.integers(0, 9 * DAY_MS))
def test_a_lower_id_is_always_a_reset(expected: int, lower: int, silent_ms: int | None) -> None:
    first = expected - min(lower, expected - 1)
    assert read_ids([first, first + 1], expected=expected, silent_ms=silent_ms) == IdsReset()


@pytest.mark.parametrize(
    ("update_id", "newest", "is_anew"),
    [
        (5, None, False),
        (1_000_001, 1_000_000, False),
        (999_990, 1_000_000, False),
        (1_000_000 - DISORDER_MAX, 1_000_000, False),
        (1_000_000 - DISORDER_MAX - 1, 1_000_000, True),
    ],
)
def test_a_push_is_a_reset_only_if_it_is_further_behind_than_the_queue_is_long(
    update_id: int, newest: int | None, is_anew: bool
) -> None:
    assert is_pushed_anew(update_id, newest=newest) is is_anew


@pytest.mark.parametrize(
    ("away_ms", "left"),
    [
        (0, 100),
        (6 * HOUR_MS, 75),
        (6 * HOUR_MS + 1, 75),  # rounded up: 74 % are reached when they are
        (12 * HOUR_MS, 50),
        (18 * HOUR_MS, 25),
        (21 * HOUR_MS + 36 * 60 * 1000, 10),
        (24 * HOUR_MS, 0),
        (30 * HOUR_MS, 0),
        (-HOUR_MS, 100),
    ],
)
def test_the_clock_of_the_day(away_ms: int, left: int) -> None:
    assert percent_left(contact_at_ms=1_000_000_000, now_ms=1_000_000_000 + away_ms) == left


@pytest.mark.parametrize(
    ("before", "now", "threshold"),
    [(100, 76, None), (100, 75, 75), (75, 74, None), (76, 40, 50), (100, 0, 10), (10, 0, None), (26, 25, 25)],
)
def test_the_lowest_threshold_that_was_crossed(before: int, now: int, threshold: int | None) -> None:
    assert crossed(before=before, now=now) == threshold


@given(looks=st.lists(st.integers(0, 30 * HOUR_MS), min_size=1, max_size=40).map(sorted))
def test_however_often_one_looks_each_threshold_is_told_at_most_once_and_the_last_one_never_missed(
    looks: list[int],
) -> None:
    told, before = [], 100
    for away_ms in looks:
        now = percent_left(contact_at_ms=0, now_ms=away_ms)
        threshold = crossed(before=before, now=now)
        told += [threshold] if threshold is not None else []
        before = min(before, now)
    assert told == sorted(set(told), reverse=True)
    reached = [one for one in THRESHOLDS if before <= one]
    assert not reached or told[-1] == min(reached)


def test_a_day_is_over_only_when_it_is_over() -> None:
    assert expires_at_ms(5) == 5 + DAY_MS
    assert not is_over_a_day(DAY_MS)
    assert is_over_a_day(DAY_MS + 1)
