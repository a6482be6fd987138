"""Time as a port. Wall time, steady time and monotonic time have different names, and nothing else in Peik reads a clock."""

import datetime
import time
import zoneinfo
from typing import Protocol

import msgspec

from peik.errors import BadInput

# Which time may destroy. Pure.
#
# A wall clock that is set forward makes everything old at once: what is kept for 30 days would be gone a moment
# later. So what goes by age goes by *settled* time. It is the time on the wall for as long as the wall agrees with a
# clock that nobody can set. After a jump forward it goes on from where it was, until the new time has held for a
# while, or the clock is back. A clock that is set back is believed at once: nothing is too old by it.


JUMP_MS = 5 * 60_000  # a clock that is corrected little by little is never so far off between two looks
START_MS = 60 * 60_000  # Peik was off for so long, and nobody wonders


class SettledTime(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets are between the wall and steady seconds. `doubted_ms` is what the wall shows, if it is not believed yet."""

    offset_ms: int
    doubted_ms: int | None = None
    since_s: float = 0.0  # in steady seconds: it has been doubted, and has held

    @property
    def ahead_ms(self) -> int:
        """How far the wall is ahead of settled time."""
        return 0 if self.doubted_ms is None else self.doubted_ms - self.offset_ms

    def at(self, steady_s: float) -> int:
        """Settled time in milliseconds since 1970."""
        return int(steady_s * 1000) + self.offset_ms


class KeptTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps of it, for the next start."""

    settled_ms: int
    wall_ms: int
    held_s: float = 0.0


def look(known: SettledTime, *, steady_s: float, wall_ms: int, settles_s: float) -> SettledTime:
    offset_ms = wall_ms - int(steady_s * 1000)
    if offset_ms <= known.offset_ms + JUMP_MS:
        return SettledTime(offset_ms=offset_ms)
    if known.doubted_ms is None or abs(offset_ms - known.doubted_ms) > JUMP_MS:
        return SettledTime(offset_ms=known.offset_ms, doubted_ms=offset_ms, since_s=steady_s)
    if steady_s - known.since_s >= settles_s:
        return SettledTime(offset_ms=offset_ms)
    return SettledTime(offset_ms=known.offset_ms, doubted_ms=offset_ms, since_s=known.since_s)


def begin(kept: KeptTime | None, *, steady_s: float, wall_ms: int) -> SettledTime:
    """At a start. How long Peik was off cannot be known: a clock far ahead of the last known time has to hold as well."""
    offset_ms = wall_ms - int(steady_s * 1000)
    if kept is None or wall_ms <= kept.settled_ms + START_MS:
        return SettledTime(offset_ms=offset_ms)
    has_held = abs(wall_ms - kept.wall_ms) <= START_MS
    since_s = steady_s - (kept.held_s if has_held else 0.0)
    return SettledTime(offset_ms=kept.settled_ms - int(steady_s * 1000), doubted_ms=offset_ms, since_s=since_s)


def keep(known: SettledTime, *, steady_s: float) -> KeptTime:
    offset_ms = known.offset_ms if known.doubted_ms is None else known.doubted_ms
    held_s = 0.0 if known.doubted_ms is None else steady_s - known.since_s
    return KeptTime(settled_ms=known.at(steady_s), wall_ms=int(steady_s * 1000) + offset_ms, held_s=held_s)


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, for what is stored and shown. It may jump."""

    def mono(self) -> float:
        """Seconds that only rise, for pace, waits and timeouts. The event loop's own time."""

    def steady(self) -> float:
        """Seconds that nobody can set, and that go on while the machine sleeps: how much time has really passed."""


# Linux stops CLOCK_MONOTONIC while the machine sleeps and has CLOCK_BOOTTIME; macOS has one CLOCK_MONOTONIC, which goes on.
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    mono = staticmethod(time.monotonic)  # itself, and no function around it: a letter asks several times

    def steady(self) -> float:
        return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)


class SettledClock:
    """A clock for what destroys by age: its wall shows settled time (`peik.clock`)."""

    def __init__(self, clock: Clock, *, settles_s: float) -> None:
        self._clock = clock
        self._settles_s = settles_s
        self.mono = clock.mono
        self.steady = clock.steady
        self._state = begin(None, steady_s=clock.steady(), wall_ms=clock.wall_ms())

    def wall_ms(self) -> int:
        return self.look().at(self.steady())

    def look(self) -> SettledTime:
        self._state = look(
            self._state, steady_s=self.steady(), wall_ms=self._clock.wall_ms(), settles_s=self._settles_s
        )
        return self._state

    def begin(self, kept: KeptTime | None) -> SettledTime:
        """With what the store knows of the life before this one."""
        self._state = begin(kept, steady_s=self.steady(), wall_ms=self._clock.wall_ms())
        return self._state

    def keep(self) -> KeptTime:
        return keep(self.look(), steady_s=self.steady())


# Time zones by their names. They are read from files of the machine, so that this is not for `core`.


def zone_of(name: str) -> datetime.tzinfo:
    """The zone of an IANA name: Asia/Tehran. Raises BadInput if this machine does not know it."""
    if name == "UTC":  # also where there are no files of zones at all
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise BadInput(
            code="unknown_zone", detail=f"There is no time zone {name!r} here. Names are such as Asia/Tehran, or UTC."
        ) from None
