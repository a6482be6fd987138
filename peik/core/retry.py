"""When to try again. Pure arithmetic, exact to the millisecond, so that a table can test it."""

from peik.core.letter import Backoff

BACKOFF_MS_MAX = 60_000  # it doubles from try to try, up to this
RESENDS_MAX = 10  # after so many resends of uncertain tries a person must look


def backoff_ms(*, failures: int, first_ms: int, kind: Backoff) -> int:
    """How long to wait after the nth failure in a row: 2, 4, 8, 16 … s with the defaults."""
    if kind is Backoff.FIXED:
        return first_ms
    doubled = first_ms << min(max(failures - 1, 0), 32)
    return min(doubled, max(BACKOFF_MS_MAX, first_ms))
