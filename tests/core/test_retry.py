"""When to try again: 2, 4, 8 and 16 seconds by default, and the bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.letter import Backoff
from peik.core.lifecycle import BACKOFF_MS_MAX, backoff_ms


@pytest.mark.parametrize(
    ("failures", "wait_ms"),
    [(1, 2000), (2, 4000), (3, 8000), (4, 16_000), (5, 32_000), (6, 60_000), (7, 60_000), (1000, 60_000)],
)
def test_the_wait_doubles_up_to_a_minute(failures: int, wait_ms: int) -> None:
    assert backoff_ms(failures=failures, first_ms=2000, kind=Backoff.EXPONENTIAL) == wait_ms


@pytest.mark.parametrize("failures", [1, 2, 50])
def test_a_fixed_wait_stays(failures: int) -> None:
    assert backoff_ms(failures=failures, first_ms=700, kind=Backoff.FIXED) == 700


def test_a_first_wait_above_a_minute_is_the_callers_wish() -> None:
    assert backoff_ms(failures=3, first_ms=90_000, kind=Backoff.EXPONENTIAL) == 90_000


@given(st.integers(min_value=1, max_value=10_000), st.integers(min_value=1, max_value=10**7))
def test_waits_never_shrink_and_never_pass_their_bound(failures: int, first_ms: int) -> None:
    wait = backoff_ms(failures=failures, first_ms=first_ms, kind=Backoff.EXPONENTIAL)
    assert first_ms <= wait <= max(BACKOFF_MS_MAX, first_ms)
    assert wait <= backoff_ms(failures=failures + 1, first_ms=first_ms, kind=Backoff.EXPONENTIAL)
