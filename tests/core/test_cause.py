"""Letters that died of the same are told by the same words."""

import pytest

from peik.core.letter import CAUSE_CHARS_MAX, cause_of


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (None, ""),
        ("uncertain", "uncertain"),
        ("Too Many Requests: retry after 35", "Too Many Requests: retry after N"),
        ("chat -100123 is not 7", "chat -N is not N"),
        ('Unsupported start tag "b7" at byte offset 12', 'Unsupported start tag "…" at byte offset N'),
        ('an open " quote 5', 'an open " quote N'),
    ],
)
def test_what_differs_from_letter_to_letter_is_left_out(reason: str | None, cause: str) -> None:
    assert cause_of(reason) == cause
    assert cause_of(cause) == cause


def test_a_cause_has_a_bound() -> None:
    assert cause_of("x" * 500) == "x" * (CAUSE_CHARS_MAX - 1) + "…"
    assert cause_of("y" * CAUSE_CHARS_MAX) == "y" * CAUSE_CHARS_MAX
