"""The breaker: opens for a bad route, not for a bad letter, and is probed at bounded intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.telegram.routes import (
    CLOSED,
    FAILURES_TO_OPEN,
    PROBE_S_FIRST,
    PROBE_S_MAX,
    Breaker,
    after_doubt,
    after_failed_probe,
    after_unsent,
)


def doubts(*letters: int, breaker: Breaker = CLOSED) -> Breaker:
    for letter_id in letters:
        breaker = after_doubt(breaker, letter_id=letter_id, now=100.0, chance=0.0, why="502")
    return breaker


def test_one_poison_letter_never_opens_it() -> None:
    assert not doubts(*[7] * 1000).is_open


def test_a_row_of_failures_over_several_letters_opens_it() -> None:
    assert not doubts(1, 2, 3).is_open
    assert doubts(1, 2, 3, 4).is_open
    assert doubts(1, 1, 1, 2).is_open
    assert FAILURES_TO_OPEN == 4


def test_a_connection_that_cannot_be_made_opens_it_at_once() -> None:
    breaker = after_unsent(CLOSED, now=100.0, chance=0.0, why="dns")
    assert breaker.is_open
    assert (breaker.opened_at, breaker.probe_at, breaker.why) == (100.0, 100.0 + PROBE_S_FIRST, "dns")


def test_what_fails_while_it_is_open_changes_nothing() -> None:
    breaker = after_unsent(CLOSED, now=100.0, chance=0.0, why="dns")
    assert after_unsent(breaker, now=105.0, chance=0.0, why="tls") == breaker
    assert doubts(1, 2, 3, 4, 5, breaker=breaker) == breaker


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_probes_double_their_distance_up_to_a_bound(chance: float) -> None:
    breaker = after_unsent(CLOSED, now=0.0, chance=chance, why="dns")
    waits = [breaker.probe_at]
    for _ in range(100):
        now = breaker.probe_at
        breaker = after_failed_probe(breaker, now=now, chance=chance, why="dns")
        waits.append(breaker.probe_at - now)
    share = 1.0 - chance / 2
    assert waits[:6] == pytest.approx([0.5 * share, 1 * share, 2 * share, 4 * share, 8 * share, 15 * share])
    assert max(waits) <= PROBE_S_MAX + 1e-9


@given(st.integers(min_value=0, max_value=10**6), st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_a_probe_is_never_at_once_and_never_far(probes: int, chance: float) -> None:
    breaker = Breaker(probes=probes)
    wait = after_failed_probe(breaker, now=0.0, chance=chance, why="").probe_at
    assert PROBE_S_FIRST / 2 <= wait <= PROBE_S_MAX


def test_it_remembers_few_letters_however_long_the_row() -> None:
    assert len(doubts(*range(1000)).failing) <= FAILURES_TO_OPEN
