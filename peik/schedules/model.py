"""Recurring work: when it is due, by cron and a time zone; what is made then; what becomes of missed times. Pure."""

import datetime
import enum
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cronsim
import msgspec
from msgspec.structs import replace

from peik.core.events import Event
from peik.core.letter import OnUncertain
from peik.core.quiet import Quiet
from peik.core.units import jalali_of
from peik.errors import BadInput

# ---- when ----

CRON_CHARS_MAX = 200
_FIELDS = 5  # with seconds it would be six: what is due every second is no schedule, and pace would hold it up
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LATEST_MS = 4_102_444_800_000  # the year 2100


def checked_cron(text: str) -> str:
    """With single spaces. Raises BadInput."""
    plain = " ".join(text.split())
    fields = _NICKNAMES.get(plain.lower(), plain).split()
    try:
        if len(plain) > CRON_CHARS_MAX or len(fields) != _FIELDS:
            raise cronsim.CronSimError("there are not five fields")
        cronsim.CronSim(" ".join(fields), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    except (cronsim.CronSimError, ValueError, AssertionError) as error:
        raise BadInput(
            code="bad_cron",
            detail=f"cron {plain[:40]!r}: {error}. It has minute, hour, day of the month, month and day of the week, such as "
            '"30 9 * * 1-5", or is @hourly, @daily, @weekly, @monthly or @yearly.',
            field="cron",
        ) from None
    return plain


def next_due(cron: str, zone: datetime.tzinfo, after_ms: int) -> int | None:
    """The first due time behind an instant. None: there is none within fifty years.

    Where the clocks of the zone go forward, a fixed time in the hour that is left out is due right after it. Where they go back,
    it is due once, the first time that the clocks show it. What comes every hour, or every few minutes, comes in each hour
    that there is."""
    if after_ms >= _LATEST_MS:
        return None
    local = datetime.datetime.fromtimestamp(after_ms // 1000, datetime.UTC).astimezone(zone)
    for moment in cronsim.CronSim(_NICKNAMES.get(cron.lower(), cron), local):
        due_ms = int(moment.timestamp()) * 1000
        # A fixed time that the clocks show twice is found again from within the second hour.
        if due_ms > after_ms:
            return due_ms if due_ms < _LATEST_MS else None
    return None


def dues(cron: str, zone: datetime.tzinfo, after_ms: int, until_ms: int) -> Iterator[int]:
    """All due times behind one instant, up to another and with it."""
    due_ms = next_due(cron, zone, after_ms)
    while due_ms is not None and due_ms <= until_ms:
        yield due_ms
        due_ms = next_due(cron, zone, due_ms)


# ---- what ----

LIST_MAX = 2_000  # chats that are named one by one: a schedule is one document
TITLE_CHARS_MAX = 200
NAME_PATTERN = "^[A-Za-z0-9_.-]{1,64}$"
EXPIRES_S_MAX = 30 * 86_400
WITHIN_DAYS_MAX = 3650


class LetterWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One call of the Bot API. `expires_in_s`: not sent any more so long after it was due."""

    method: str = "sendMessage"
    params: dict[str, Any] = {}
    priority: int = 0
    attempts: int | None = None
    expires_in_s: int | None = None
    on_uncertain: OnUncertain | None = None
    metadata: dict[str, Any] | None = None


class BroadcastWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One call to many chats: to those of a list, or to the known chats of the bot as they are when it is due."""

    method: str = "sendMessage"
    params: dict[str, Any] = {}
    chat_ids: list[int | str] | None = None
    types: list[str] | None = None  # private, group, supergroup or channel
    languages: list[str] | None = None
    campaign: str | None = None
    seen_within_days: int | None = None
    canary_percent: float | None = None
    quiet: Quiet | None = None
    on_uncertain: OnUncertain | None = None


class JobWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job."""

    kind: str
    params: dict[str, Any] = {}
    user: str = ""
    priority: int = 0
    attempts: int | None = None
    timeout_ms: int | None = None
    metadata: dict[str, Any] | None = None
    notice: dict[str, Any] | None = None


class MissedRuns(enum.StrEnum):
    """What becomes of due times at which Peik was not there."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class OverlapPolicy(enum.StrEnum):
    """What happens if the broadcast or the job of the time before still goes on."""

    SKIP = "skip"
    ALLOW = "allow"


class ScheduleState(enum.StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


class ScheduleRunState(enum.StrEnum):
    FIRING = "firing"  # it is being made
    DONE = "done"  # the letter, broadcast or job is durable
    SKIPPED = "skipped"  # the one before still went on
    MISSED = "missed"  # Peik was not there, and it is not made up for
    REFUSED = "refused"  # it cannot be made


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody asks for, and may change. One of `letter`, `broadcast` and `job`."""

    cron: str
    tz: str = "UTC"
    title: str | None = None
    bot_id: int = 0  # of letters and broadcasts
    letter: LetterWork | None = None
    broadcast: BroadcastWork | None = None
    job: JobWork | None = None
    missed: MissedRuns = MissedRuns.ONCE
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    runs_max: int | None = None

    @property
    def kind(self) -> str:
        return "letter" if self.letter is not None else "broadcast" if self.broadcast is not None else "job"

    @property
    def params(self) -> dict[str, Any]:
        work = self.letter or self.broadcast or self.job
        return {} if work is None else work.params


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A due time that is being made. It is stored before anything is made, with what it makes, so that after a crash the same is
    made again, under the same key; whatever has been edited since."""

    due_at_ms: int
    terms: Terms
    is_late: bool = False
    by: str | None = None  # who asked for it now


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    terms: Terms
    state: ScheduleState = ScheduleState.ACTIVE
    revision: int = 1
    created_at_ms: int
    created_by: str | None = None
    changed_at_ms: int = 0
    changed_by: str | None = None
    decided_ms: int  # of all due times up to here it is stored what became of them
    next_at_ms: int | None = None
    fired: int = 0
    firing: Firing | None = None
    made: str | None = None  # the last letter, broadcast or job
    last_due_ms: int | None = None
    last_state: ScheduleRunState | None = None

    @property
    def wake_at_ms(self) -> int | None:
        """When an engine must look at it. None: never."""
        if self.firing is not None:
            return 0
        return self.next_at_ms if self.state is ScheduleState.ACTIVE else None


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one due time; of missed ones, of as many as `count` says, up to `due_at_ms`."""

    due_at_ms: int
    state: ScheduleRunState
    at_ms: int
    kind: str = "letter"
    made: str | None = None  # the letter, broadcast or job
    reason: str | None = None
    is_late: bool = False
    by: str | None = None
    count: int = 1
    is_least: bool = False  # there were more than were counted
    first_ms: int | None = None


class ScheduleEdit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How it was before somebody changed it."""

    revision: int
    terms: Terms
    until_ms: int
    by: str | None = None


# ---- what becomes of due times ----

LATE_MS = 5 * 60_000  # a restart, or a lease that changes hands, misses nothing
CATCH_UP_MAX = 100  # due times that are made up for, the newest ones
COUNTED_MAX = 1_000
_TAILS_MS = (2 * 3_600_000, 2 * 86_400_000, 62 * 86_400_000)


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """Due times that are over, and nothing is made for them."""

    count: int
    first_ms: int
    last_ms: int
    is_least: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. `fire_ms` is behind all that is dropped."""

    dropped: Dropped | None = None
    fire_ms: int | None = None
    is_late: bool = False


def planned(terms: Terms, zone: datetime.tzinfo, *, decided_ms: int, now_ms: int) -> Plan:
    """What is due by now, and how much of it is made up for."""
    until_ms = now_ms if terms.ends_at_ms is None else min(now_ms, terms.ends_at_ms)
    found, is_least = _bounded_dues(terms.cron, zone, max(decided_ms, (terms.starts_at_ms or 0) - 1), until_ms)
    if not found:
        return Plan()
    newest_is_late = now_ms - found[-1] > LATE_MS
    match terms.missed:
        case MissedRuns.ALL:
            kept = found[-CATCH_UP_MAX:]
        case MissedRuns.SKIP if newest_is_late:
            kept = []
        case _:
            kept = found[-1:]
    gone = found[: len(found) - len(kept)]
    dropped = Dropped(count=len(gone), first_ms=gone[0], last_ms=gone[-1], is_least=is_least) if gone else None
    fire_ms = kept[0] if kept else None
    return Plan(dropped=dropped, fire_ms=fire_ms, is_late=fire_ms is not None and now_ms - fire_ms > LATE_MS)


def _bounded_dues(cron: str, zone: datetime.tzinfo, after_ms: int, until_ms: int) -> tuple[list[int], bool]:
    """The due times, and whether only some of them were counted: the first one, and the newest ones."""
    found: list[int] = []
    for due_ms in dues(cron, zone, after_ms, until_ms):
        found.append(due_ms)
        if len(found) > COUNTED_MAX:
            break
    else:
        return found, False
    # A minute's schedule after a year: nobody waits for half a million of them to be counted.
    tail: list[int] = []
    for span_ms in _TAILS_MS:
        tail = list(dues(cron, zone, max(found[-1], until_ms - span_ms), until_ms))
        if len(tail) >= CATCH_UP_MAX:
            break
    return found + tail, True


def following(schedule: Schedule, zone: datetime.tzinfo) -> Schedule:
    """The same with its next due time, or ended if there is none."""
    terms = schedule.terms
    next_at_ms = next_due(terms.cron, zone, max(schedule.decided_ms, (terms.starts_at_ms or 0) - 1))
    is_over = (
        next_at_ms is None
        or (terms.ends_at_ms is not None and next_at_ms > terms.ends_at_ms)
        or (terms.runs_max is not None and schedule.fired >= terms.runs_max)
    )
    if is_over:
        return replace(schedule, next_at_ms=None, state=ScheduleState.ENDED)
    state = ScheduleState.ACTIVE if schedule.state is ScheduleState.ENDED else schedule.state
    return replace(schedule, next_at_ms=next_at_ms, state=state)


def upcoming(schedule: Schedule, zone: datetime.tzinfo, *, count: int) -> list[int]:
    """The next due times, also of one that is paused."""
    found: list[int] = []
    one = schedule
    while len(found) < count:
        one = following(one, zone)
        if one.next_at_ms is None:
            break
        found.append(one.next_at_ms)
        one = replace(one, decided_ms=one.next_at_ms, fired=one.fired + 1)
    return found


# ---- words of the due time ----

_PLACE = re.compile(r"%\{([^{}]*)\}")
_WORD = re.compile(r"([a-z]+)([+-][0-9]{1,3})?")
_DAY_MS = 86_400_000


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """The due time as its zone shows it, and which run of the schedule it is."""

    moment: datetime.datetime
    run: int
    name: str


def _day(due: Due, days: int) -> datetime.date:
    return due.moment.date() + datetime.timedelta(days=days)


def _jalali(due: Due, days: int) -> str:
    year, month, day = jalali_of(_day(due, days))
    return f"{year}/{month:02}/{day:02}"


# What can be named in a text, as %{date}. Those of a day take a number of days, as %{date-1}.
PLACES: Mapping[str, Callable[[Due, int], str]] = {
    "date": lambda due, days: _day(due, days).isoformat(),
    "jalali": _jalali,
    "year": lambda due, days: f"{_day(due, days):%Y}",
    "month": lambda due, days: f"{_day(due, days):%m}",
    "day": lambda due, days: f"{_day(due, days):%d}",
    "week": lambda due, days: f"{_day(due, days):%V}",
    "time": lambda due, _: f"{due.moment:%H:%M}",
    "run": lambda due, _: str(due.run),
    "name": lambda due, _: due.name,
}


def filled(value: Any, due: Due) -> Any:
    """A parameter with its places filled, in texts however deep. Raises BadInput for a place that there is not."""
    match value:
        case str():
            return _PLACE.sub(lambda found: _said(found[1], due), value)
        case dict():
            return {name: filled(one, due) for name, one in value.items()}
        case list():
            return [filled(one, due) for one in value]
    return value


def _said(text: str, due: Due) -> str:
    found = _WORD.fullmatch(text)
    if found is None or found[1] not in PLACES:
        known = ", ".join(f"%{{{name}}}" for name in PLACES)
        raise BadInput(
            code="unknown_place",
            detail=f"%{{{text[:40]}}} is no place. There are {known}; %{{date-1}} is the day before.",
        )
    return PLACES[found[1]](due, int(found[2] or 0))


def is_too_late(terms: Terms, due_ms: int, now_ms: int) -> bool:
    """Whether a letter of this due time would have expired by now."""
    expires_in_s = None if terms.letter is None else terms.letter.expires_in_s
    return expires_in_s is not None and due_ms + expires_in_s * 1000 <= now_ms


def with_params(terms: Terms, params: dict[str, Any]) -> Terms:
    """The same with other parameters of its work."""
    return replace(
        terms,
        letter=None if terms.letter is None else replace(terms.letter, params=params),
        broadcast=None if terms.broadcast is None else replace(terms.broadcast, params=params),
        job=None if terms.job is None else replace(terms.job, params=params),
    )


def filled_terms(schedule: Schedule, zone: datetime.tzinfo, due_ms: int) -> Terms:
    """What a due time makes. Raises BadInput."""
    moment = datetime.datetime.fromtimestamp(due_ms / 1000, zone)
    due = Due(moment=moment, run=schedule.fired + 1, name=schedule.name)
    return with_params(schedule.terms, filled(schedule.terms.params, due))


def key_of(schedule: Schedule, due_ms: int) -> str:
    """Of idempotency. One that is made anew under an old name is another one."""
    return f"schedule:{schedule.name}:{schedule.created_at_ms}:{due_ms}"


# ---- as they are stored ----

COLLECTION = "schedules"
DUE_COLLECTION = "schedules.due"  # when each must be looked at next, in the order of time
RUNS = "schedules.runs:"  # with the name behind it: what became of due times, in their order
EDITS = "schedules.edits:"


def instant_key(at_ms: int) -> str:
    return f"{at_ms:013d}"


def due_key(schedule: Schedule) -> str | None:
    at_ms = schedule.wake_at_ms
    return None if at_ms is None else f"{instant_key(at_ms)}/{schedule.name}"


# ---- what can be observed ----


class ScheduleRan(Event, frozen=True, kw_only=True):
    """A due time was dealt with."""

    schedule: str
    due_at_ms: int
    state: ScheduleRunState
    made: str | None = None
    reason: str | None = None


class ScheduleMissed(Event, frozen=True, kw_only=True):
    """Due times at which Peik was not there. `caught_up`: what is made up for."""

    schedule: str
    count: int
    is_least: bool
    first_ms: int
    last_ms: int
    caught_up: int = 0
