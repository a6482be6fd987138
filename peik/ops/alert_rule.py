"""One rule of what is worth an alert: which events, how often, in which words, and when it is over."""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from peik import events

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S

E = TypeVar("E", bound=events.Event)


class Rule(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """When an event is an alert. Events of one fingerprint are one matter, told at most every `repeat_s`."""

    event: type[E]
    text: Callable[[E, int], str]  # of the newest event, and how many there were since the last alert
    repeat_s: float
    apart_by: tuple[str, ...] = ("bot_id",)  # fields: events that differ in one of them are different matters
    is_meant: Callable[[E], bool] = lambda event: True
    is_counted: bool = False  # what came within `repeat_s` is told when that is over; else it is not told at all
    after_s: float = 0.0  # only if it lasts so long
    ends: type[events.Event] | None = None  # what ends the matter before that
    at_least: int = 1  # only if so many come
    within_s: float = HOUR_S  # in so long
    over: type[events.Event] | None = None  # what ends the trouble for who looks, besides `ends`
    is_over: Callable[[events.Event], bool] = lambda event: True  # of an event of that type
    fades_s: float = DAY_S  # without an end of its own, it is over when it was not heard of for so long

    def fingerprint(self, event: events.Event) -> str:
        return ":".join([self.event.__name__, *(str(getattr(event, name)) for name in self.apart_by)])

    def is_over_by(self, event: events.Event) -> bool:
        return type(event) is self.ends or (type(event) is self.over and self.is_over(event))

    def is_same(self, began: events.Event, ended: events.Event) -> bool:
        """Whether the one is the end of the other: they are alike in what both of them have."""
        return all(getattr(began, name) == getattr(ended, name, getattr(began, name)) for name in self.apart_by)

    @property
    def lasts_s(self) -> float | None:
        """None: until its end is heard."""
        return None if self.ends is not None or self.over is not None else self.fades_s


def as_rule(rule: Rule[E]) -> "Rule[events.Event]":
    """Each row is typed by its own event; the table is of events."""
    return rule  # type: ignore[return-value]
