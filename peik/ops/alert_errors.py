"""Which errors are new, and which come more and more often: by a fingerprint that leaves out numbers, ids and quoted words.

What was seen is filed now and then, so that a restart does not make old errors new. A look that a crash lost costs one alert.
"""

import hashlib
import re
from collections import defaultdict

import msgspec

from peik import events, job_events
from peik.clock import Clock
from peik.core.letter import State
from peik.core.token import without_tokens
from peik.ops.alert_rule import ErrorSeen

HOUR_MS = 3_600_000
HOURS = 24
KNOWN_MS = 7 * 24 * HOUR_MS
KNOWN_MAX = 500
RISING_MIN = 10  # within an hour
RISING_TIMES = 3  # as often as in the mean hour of the day before
ERROR_CHARS_MAX = 500

_NOISE = re.compile(r"'[^']*'|\"[^\"]*\"|0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|\d+")


class Known(msgspec.Struct, kw_only=True):
    """One error: when it was last seen, and how often in which hour."""

    last_ms: int
    hours: dict[int, int] = {}


_decode = msgspec.json.Decoder(dict[str, Known]).decode


class Errors:
    kinds: tuple[type[events.Event], ...] = (
        events.Surprise,
        events.ArrivalSettled,
        job_events.JobRan,
    )  # that tell of errors

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Known] = {}
        self.is_changed = False

    def hear(self, event: events.Event) -> ErrorSeen | None:
        """What an event says of errors, if that is worth an alert."""
        match event:
            case events.Surprise(where=where, error=error):
                return self._see(where, error, event.bot_id)
            case events.ArrivalSettled(state=State.FAILED, consumer=consumer, reason=str(reason)):
                return self._see(f"consumer {consumer}", reason, event.bot_id)
            case job_events.JobRan(state=State.FAILED, kind=kind, reason=str(reason)):
                return self._see(f"jobs of the kind {kind}", reason, 0)
        return None

    def _see(self, where: str, error: str, bot_id: int) -> ErrorSeen | None:
        now = self._clock.wall_ms()
        fingerprint = fingerprint_of(where, error)
        known = self._known.get(fingerprint)
        is_new = known is None or now - known.last_ms > KNOWN_MS
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                del self._known[min(self._known, key=lambda name: self._known[name].last_ms)]
            known = self._known[fingerprint] = Known(last_ms=now, hours={})
        hour = now // HOUR_MS
        known.last_ms = now
        known.hours[hour] = known.hours.get(hour, 0) + 1
        known.hours = {one: count for one, count in known.hours.items() if hour - HOURS <= one <= hour}
        self.is_changed = True
        before = sum(count for one, count in known.hours.items() if one < hour) / HOURS
        is_rising = known.hours[hour] >= RISING_MIN and known.hours[hour] >= RISING_TIMES * before
        if not is_new and not is_rising:
            return None
        return ErrorSeen(
            bot_id=bot_id,
            fingerprint=fingerprint,
            where=where,
            error=without_tokens(error)[:ERROR_CHARS_MAX],
            in_hour=known.hours[hour],
            is_rising=is_rising and not is_new,
        )

    def on_paper(self) -> str:
        self.is_changed = False
        return msgspec.json.encode(self._known).decode()

    def take_up(self, body: str) -> None:
        """What this node, or another, has seen. Raises msgspec.DecodeError."""
        merged: defaultdict[str, list[Known]] = defaultdict(list)
        for seen in (self._known, _decode(body)):
            for fingerprint, known in seen.items():
                merged[fingerprint].append(known)
        newest = sorted(merged.items(), key=lambda item: max(one.last_ms for one in item[1]), reverse=True)[:KNOWN_MAX]
        self._known = {
            fingerprint: Known(
                last_ms=max(one.last_ms for one in ones),
                hours={hour: max(one.hours.get(hour, 0) for one in ones) for one in ones for hour in one.hours},
            )
            for fingerprint, ones in newest
        }


def fingerprint_of(where: str, error: str) -> str:
    """The same for errors that differ in numbers, ids and quoted words only."""
    first = error.strip().partition("\n")[0]
    return hashlib.sha256(_NOISE.sub("#", f"{where}|{first}").encode()).hexdigest()[:16]
