"""Histograms and ages: counted in little room, merged exactly, and right to about a tenth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.arrival import STRETCHES_MAX, Ages
from peik.monitoring.values import BOUNDS_S, Histogram, merged

LASTED = st.lists(st.floats(min_value=0.0, max_value=90_000.0), max_size=60)


def of(*seconds: float) -> Histogram:
    made = Histogram()
    for one in seconds:
        made.add(one)
    return made


def test_nothing_has_no_percentile() -> None:
    assert of().percentile(50) is None


@given(LASTED.filter(bool), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_in_the_bucket_of_the_true_one(seconds: list[float], percent: int) -> None:
    found = of(*seconds).percentile(percent)
    rank = max(0, -(-len(seconds) * percent // 100) - 1)
    true = sorted(seconds)[rank]
    assert found is not None
    assert found <= max(true * 2**0.5, BOUNDS_S[0]) + 1e-9
    assert found >= (true / 2**0.5 if true > BOUNDS_S[0] else 0.0) - 1e-9


@given(LASTED, LASTED)
def test_merging_is_the_same_as_counting_all(ones: list[float], others: list[float]) -> None:
    whole = merged([of(*ones), of(*others)])
    assert whole.counts == of(*ones, *others).counts
    assert whole.sum_s == pytest.approx(sum(ones) + sum(others))


@given(LASTED, LASTED)
def test_what_came_since_is_what_came_since(before: list[float], after: list[float]) -> None:
    histogram = of(*before)
    then = histogram.copy()
    for one in after:
        histogram.add(one)
    assert histogram.since(then).counts == of(*after).counts


@given(LASTED)
def test_it_comes_back_from_paper_as_it_went(seconds: list[float]) -> None:
    went = of(*seconds)
    assert Histogram.of_sparse(went.sparse(), went.sum_s).counts == went.counts


def test_a_bucket_that_is_not_known_counts_as_the_last() -> None:
    assert Histogram.of_sparse({999: 2, -5: 1}, 3.0).count == 3


# ---- ages ----


def test_a_letter_is_known_by_its_number() -> None:
    ages = Ages()
    ages.came(1, 10, 100.0)
    ages.came(13, 13, 105.0)
    assert [ages.at(number) for number in (1, 10, 11, 13, 14)] == [100.0, 100.0, None, 105.0, None]


def test_what_is_told_twice_came_the_first_time() -> None:
    ages = Ages()
    ages.came(1, 10, 100.0)
    ages.came(5, 10, 200.0)
    assert ages.at(7) == 100.0


@pytest.mark.parametrize("per_s", [0.01, 7.0, 5000.0])
def test_any_number_of_letters_takes_little_room_and_is_known_well_enough(per_s: float) -> None:
    ages, letters = Ages(), 50_000
    for number in range(letters):
        ages.came(number, number, number / per_s)
    assert len(ages._at) <= STRETCHES_MAX
    now = letters / per_s
    for number in range(0, letters, 97):
        found = ages.at(number)
        assert found is not None
        true_s = now - number / per_s
        assert true_s - 1e-9 <= now - found <= true_s * 1.15 + 1e-9
