"""Quiet hours: from one time of day to another, in one time zone, nobody is to be written to. Pure: zones come in as values."""

import datetime
import re

import msgspec

from peik.errors import BadInput

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DAYS_MAX = 3660  # what takes longer than ten years is not looked at day by day


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """From `start` to `end` every day, over midnight if the end is the earlier one. `tz` is a name of the IANA's."""

    start: str  # 22:00
    end: str  # 08:00
    tz: str = "UTC"


def checked_quiet(quiet: Quiet) -> Quiet:
    """As it is. Raises BadInput if these are no hours; whether there is such a zone, only `peik.clock` knows."""
    for name, text in (("start", quiet.start), ("end", quiet.end)):
        if _TIME.fullmatch(text) is None:
            raise BadInput(code="bad_quiet", detail=f"The {name} of quiet hours is a time of day such as 22:00.")
    if quiet.start == quiet.end:
        raise BadInput(code="bad_quiet", detail="Quiet hours that end when they start would never be over.")
    return quiet


def quiet_until(at_ms: int, quiet: Quiet, zone: datetime.tzinfo) -> int | None:
    """When the quiet hours end in which this instant lies (ms). None: it lies in none."""
    start, end = _time(quiet.start), _time(quiet.end)
    today = datetime.datetime.fromtimestamp(at_ms / 1000, zone).date()
    # Those that began yesterday may still last. What a change to summer time leaves out, or repeats, is settled by
    # datetime's own rules: hours that a day does not have are as long as they would have been.
    for first in (today - datetime.timedelta(days=1), today):
        last = first if start < end else first + datetime.timedelta(days=1)
        if _ms(first, start, zone) <= at_ms < _ms(last, end, zone):
            return _ms(last, end, zone)
    return None


def done_at(at_ms: int, work_ms: int, quiet: Quiet | None, zone: datetime.tzinfo) -> int:
    """When work of this length is done that begins now, and rests in quiet hours (ms)."""
    if quiet is None:
        return at_ms + work_ms
    for _ in range(_DAYS_MAX):
        at_ms = quiet_until(at_ms, quiet, zone) or at_ms
        rest_ms = _next_start(at_ms, quiet, zone) - at_ms
        if work_ms <= rest_ms:
            break
        work_ms -= rest_ms
        at_ms += rest_ms
    return at_ms + work_ms


def _next_start(at_ms: int, quiet: Quiet, zone: datetime.tzinfo) -> int:
    today = datetime.datetime.fromtimestamp(at_ms / 1000, zone).date()
    start = _ms(today, _time(quiet.start), zone)
    return start if start > at_ms else _ms(today + datetime.timedelta(days=1), _time(quiet.start), zone)


def _time(text: str) -> datetime.time:
    hour, minute = text.split(":")
    return datetime.time(int(hour), int(minute))


def _ms(day: datetime.date, time: datetime.time, zone: datetime.tzinfo) -> int:
    return int(datetime.datetime.combine(day, time, tzinfo=zone).timestamp() * 1000)
