"""Instants as people read them: in UTC as the server writes them, and how long ago."""

from collections.abc import Callable
from datetime import UTC, datetime

_STEPS = ((86_400, "age_days"), (3_600, "age_hours"), (60, "age_minutes"), (1, "age_seconds"))


def utc_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span_text(seconds: float, say: Callable[..., str]) -> str:
    """A length of time in its largest unit."""
    for size, key in _STEPS:
        if seconds >= size:
            return say(key, count=int(seconds // size))
    return say("age_seconds", count=0)


def age_text(ms: int, now_ms: int, say: Callable[..., str]) -> str:
    """How long ago it was, or how long until it is."""
    away_s = (now_ms - ms) / 1000
    if abs(away_s) < 1:
        return say("age_now")
    return say("age_ago" if away_s > 0 else "age_ahead", span=span_text(abs(away_s), say))
