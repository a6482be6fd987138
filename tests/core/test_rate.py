"""Rates as people write them, and buckets that never give more than they hold, however many holders come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.units import BURST_MIN, UNLIMITED, Limiter, Rate, parse_rate

WRITTEN = [
    ("20/s", Rate(per_s=20, burst=200), "20/s burst 200"),
    ("30/m", Rate(per_s=0.5, burst=BURST_MIN), "30/m burst 5"),
    ("20/s burst 100", Rate(per_s=20, burst=100), "20/s burst 100"),
    ("7", Rate(per_s=7, burst=70), "7/s burst 70"),
    ("100/H BURST 3", Rate(per_s=100 / 3600, burst=3), "100/h burst 3"),
]


@pytest.mark.parametrize(("text", "rate", "shown"), WRITTEN)
def test_a_rate_is_read_and_shown(text: str, rate: Rate, shown: str) -> None:
    assert parse_rate(text) == rate
    assert str(rate) == shown
    assert parse_rate(str(rate)) == rate


@pytest.mark.parametrize("text", ["off", "OFF", " 0 "])
def test_off_is_no_limit(text: str) -> None:
    assert parse_rate(text) is None
    assert str(UNLIMITED) == "off"


@pytest.mark.parametrize(
    "text", ["", "fast", "-1/s", "20/d", "20/s burst 0", "20/s burst", "1e9/s", "9" * 200, "nan", "0/s"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|burst"):
        parse_rate(text)


@given(st.floats(0.01, 1000), st.integers(1, 50), st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_in_any_stretch_of_time_no_more_than_the_burst_and_the_rate_go(
    per_s: float, burst: int, pauses: list[float]
) -> None:
    limiter: Limiter[str] = Limiter()
    rate = Rate(per_s=per_s, burst=burst)
    now, went = 1000.0, []
    for pause in pauses:
        now += pause
        if not limiter.spend("one", rate, now):
            went.append(now)
    for first in range(0, len(went), 7):
        stretch_s = went[-1] - went[first]
        assert len(went) - first <= burst + stretch_s * per_s + 1e-6


def test_the_wait_that_is_told_is_the_wait_that_helps() -> None:
    limiter: Limiter[str] = Limiter()
    rate = Rate(per_s=2, burst=3)
    assert [limiter.spend("one", rate, 5.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert limiter.wait_s("one", rate, 5.0) == 0.5
    assert limiter.spend("one", rate, 5.49) > 0
    assert limiter.spend("another", rate, 5.49) == 0
    assert limiter.spend("one", rate, 5.5) == 0
    assert limiter.spend("one", rate, 5.5) > 0


def test_a_million_holders_take_the_room_of_a_few_and_idle_ones_none() -> None:
    limiter: Limiter[int] = Limiter(holders_max=100)
    rate = Rate(per_s=0.001, burst=1)
    for holder in range(10_000):
        assert limiter.spend(holder, rate, 0.0) == 0
        assert len(limiter) <= 101
    assert limiter.spend(9_999, rate, 1.0) > 0, "the last ones are remembered"
    for turn in range(200):
        limiter.spend(-1, rate, 10_000.0 + turn)
    assert len(limiter) == 1
