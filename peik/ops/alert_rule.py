"""One rule of what is worth an alert: which events, how often, in which words, what to do, and when it is over."""

import enum
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from peik import events

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
RUNBOOK = "docs/runbook.md"

E = TypeVar("E", bound=events.Event)


class Noticed(events.Event, frozen=True, kw_only=True):
    """What a look found (`peik.ops.watching`). It is told anew with every look for as long as it is so."""

    rule: str
    subject: str  # what it is about: looks that differ in it are different matters
    words: str


class ErrorSeen(events.Event, frozen=True, kw_only=True):
    """An error that was not seen for long, or is seen more and more often (`peik.ops.alert_errors`)."""

    fingerprint: str
    where: str
    error: str
    in_hour: int
    is_rising: bool


class Place(enum.Enum):
    """Where a matter that has a bot is heard of, so that whoever comes next there goes on with it."""

    BOT = enum.auto()  # on the node that serves the bot
    CHORES = enum.auto()  # on the node that does the chores, whoever serves the bot
    ANY = enum.auto()  # on whatever node it happened


class Rule(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """When an event is an alert. Events of one fingerprint are one matter, told at most every `repeat_s`."""

    name: str  # for people: what to silence, and where in the runbook to look
    means: str  # when it is told, as the docs say it
    todo: str  # one line
    event: type[E]
    text: Callable[[E, int], str]  # of the newest event, and how many there were since the last alert
    repeat_s: float
    apart_by: tuple[str, ...] = ("bot_id",)  # fields: events that differ in one of them are different matters
    is_meant: Callable[[E], bool] = lambda event: True
    after_s: float = 0.0  # only if it lasts so long
    at_least: int = 1  # only if so many come
    within_s: float = HOUR_S  # in so long
    ends: type[events.Event] | None = None  # what ends the matter
    is_over: Callable[[events.Event], bool] = lambda event: True  # of an event of that type
    fades_s: float = DAY_S  # without an end of its own, it is over when it was not heard of for so long
    place: Place = Place.BOT
    is_local: bool = False  # of one machine: the same trouble of another is another matter
    is_moment: bool = False  # it happens and does not last, so that nobody is told that it is over
    is_kept: bool = False  # it goes on after a restart, whether or not it is heard of again

    @property
    def lasts_s(self) -> float | None:
        """None: until its end is heard."""
        return None if self.ends is not None else self.fades_s

    def is_over_by(self, event: events.Event) -> bool:
        return type(event) is self.ends and self.is_over(event)

    def apart(self, event: events.Event) -> dict[str, str]:
        """What tells its matter from others of the rule. Of an end, as much of it as the end says."""
        return {name: str(getattr(event, name)) for name in self.apart_by if hasattr(event, name)}

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.name}"


def as_rule(rule: Rule[E]) -> "Rule[events.Event]":
    """Each row is typed by its own event; the table is of events."""
    return rule  # type: ignore[return-value]
