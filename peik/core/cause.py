"""What letters died of, in words that are the same for all that died of the same."""

import re

CAUSE_CHARS_MAX = 200
_QUOTED = re.compile(r'"[^"]*"')
_FIGURES = re.compile(r"[0-9]+")


def cause_of(reason: str | None) -> str:
    """The reason of a failure without what differs from letter to letter: figures, and what somebody wrote."""
    plain = _FIGURES.sub("N", _QUOTED.sub('"…"', reason or ""))
    return plain if len(plain) <= CAUSE_CHARS_MAX else plain[: CAUSE_CHARS_MAX - 1] + "…"
