"""Trouble on command: which fault strikes which request. Deciding only; the server (or a virtual network) carries it out."""

import enum
import random
from collections.abc import Callable, Iterable

import msgspec

from peik.core.problem import BadInput


class Kind(enum.StrEnum):
    """What can go wrong, and what a client sees of it."""

    # Connections.
    REFUSE = "refuse"  # nobody listens: ECONNREFUSED
    DARK = "dark"  # nobody listens, and open connections are reset
    RESET_ON_ACCEPT = "reset_on_accept"  # connected, then reset
    CLOSE_AFTER = "close_after"  # closed, unannounced, after `requests` answers
    CLOSE_IDLE = "close_idle"  # closed, unannounced, after `idle_s` without a request
    STALE = "stale"  # after `requests` answers the next request on that connection meets a reset
    # Before the request has an effect.
    HANG = "hang"  # no answer, ever; with `after` the request has had its effect
    LOSE_BEFORE = "lose_before"  # dropped without effect
    FLOOD = "flood"  # 429 with `retry_after`
    ERROR = "error"  # `status`, as JSON or nginx's HTML; with `after` the request has had its effect
    LATE = "late"  # takes effect only after a while, even if the client has gone (docs/telegram.md, Slow sends)
    # After it.
    LOSE_AFTER = "lose_after"  # took effect, dropped before the answer
    TRUNCATE = "truncate"  # took effect, part of the answer, then the end
    GARBAGE = "garbage"  # not HTTP; with `after` the request has had its effect
    SLOW = "slow"  # took effect, the answer comes after a while; joins with any other fault


CONNECTION_KINDS = frozenset(
    {Kind.REFUSE, Kind.DARK, Kind.RESET_ON_ACCEPT, Kind.CLOSE_AFTER, Kind.CLOSE_IDLE, Kind.STALE}
)


class Fault(msgspec.Struct, kw_only=True):
    """One standing order for trouble. `count` falls with every strike; at 0, or after `until`, it is over."""

    id: int = 0
    kind: Kind
    method: str | None = None
    chat: int | str | None = None
    bot: int | None = None
    probability: float = 1.0
    count: int | None = None
    until: float | None = None

    after: bool = False
    by_end: bool = False  # a dropped connection ends with FIN instead of RST
    status: int = 502
    words: str = ""  # Telegram's description; empty: the usual one of the status
    html: bool = False
    retry_after: int = 5
    least_s: float = 0.0  # SLOW and LATE wait between least_s and most_s
    most_s: float = 0.0
    requests: int = 1
    idle_s: float = 1.0
    share: float = 0.5  # of the answer's bytes, for TRUNCATE
    garbage: str = "\x00\x15not HTTP\r\n\r\n"

    def is_live(self, now: float) -> bool:
        return self.count != 0 and (self.until is None or now < self.until)

    def delay_s(self, chance: random.Random) -> float:
        return chance.uniform(self.least_s, max(self.least_s, self.most_s))


class Faults:
    """All standing orders. `changed` is called after every change, so that a listener can be closed or opened."""

    def __init__(self, *, now: Callable[[], float], chance: random.Random) -> None:
        self._now = now
        self._chance = chance
        self._next_id = 1
        self.standing: list[Fault] = []
        self.any_request = False  # the hot path asks this one thing
        self.any_connection = False
        self.changed: Callable[[], None] = lambda: None

    def add(self, kind: Kind | str, *, seconds: float | None = None, **details: object) -> Fault:
        """Order a fault; `seconds` is how long it lasts. Raises BadInput for a wrong name or value.

        Details: method, chat, bot, probability, count, and what the kind reads of after, by_end, status, words, html,
        retry_after, least_s, most_s, requests, idle_s, share, garbage.
        """
        if details.keys() - _DETAILS:
            names = ", ".join(sorted(details.keys() - _DETAILS))
            raise BadInput(
                code="unknown_fault_detail", detail=f"A fault has no {names}. It has: {', '.join(_DETAILS)}."
            )
        try:
            fault = msgspec.convert({"kind": str(kind), **details}, Fault)
        except msgspec.ValidationError as error:
            raise BadInput(code="wrong_fault", detail=f"{error}. Kinds: {', '.join(Kind)}.") from error
        fault.id = self._next_id
        self._next_id += 1
        if seconds is not None:
            fault.until = self._now() + seconds
        self.standing.append(fault)
        self._count()
        return fault

    def clear(self, which: Fault | Kind | str | int | None = None) -> None:
        """End one fault (itself or its id), all of one kind, or all."""
        if isinstance(which, Fault):
            which = which.id
        if which is None:
            self.standing = []
        elif isinstance(which, int):
            self.standing = [fault for fault in self.standing if fault.id != which]
        else:
            self.standing = [fault for fault in self.standing if fault.kind != which]
        self._count()

    def outage(self, seconds: float) -> Fault:
        """Cut everything off for so long."""
        return self.add(Kind.DARK, seconds=seconds)

    def dark(self, on: bool) -> None:
        """Cut everything off until told otherwise."""
        self.clear(Kind.DARK)
        if on:
            self.add(Kind.DARK)

    def strike(self, *, bot_id: int, method: str, chat: object) -> tuple[Fault | None, float]:
        """What this request meets: at most one fault, and how many seconds its answer is slowed by."""
        now = self._now()
        struck: Fault | None = None
        slow_s = 0.0
        has_ended = False
        for fault in self.standing:
            if fault.kind in CONNECTION_KINDS or (struck is not None and fault.kind is not Kind.SLOW):
                continue
            if not (fault.is_live(now) and _matches(fault, bot_id=bot_id, method=method, chat=chat)):
                continue
            if fault.probability < 1.0 and self._chance.random() >= fault.probability:
                continue
            if fault.count is not None:
                fault.count -= 1
            if fault.kind is Kind.SLOW:
                slow_s += fault.delay_s(self._chance)
            else:
                struck = fault
            has_ended = has_ended or fault.count == 0
        if has_ended:
            self._count()
        return struck, slow_s

    def connection(self, *kinds: Kind) -> Fault | None:
        """The first live fault of these connection kinds that strikes now."""
        now = self._now()
        for fault in self.standing:
            if fault.kind not in kinds or not fault.is_live(now):
                continue
            if fault.probability < 1.0 and self._chance.random() >= fault.probability:
                continue
            if fault.count is not None:
                fault.count -= 1
                if fault.count == 0:
                    self._count()
            return fault
        return None

    def is_live(self, *kinds: Kind) -> bool:
        now = self._now()
        return any(fault.kind in kinds and fault.is_live(now) for fault in self.standing)

    def next_end(self) -> float | None:
        """When the next standing fault ends by itself: the instant to look again whether to listen."""
        now = self._now()
        ends = [fault.until for fault in self.standing if fault.until is not None and fault.until > now]
        return min(ends, default=None)

    def sweep(self) -> None:
        """Forget what is over."""
        now = self._now()
        self.standing = [fault for fault in self.standing if fault.is_live(now)]
        self._note()

    def _count(self) -> None:
        self.sweep()
        self.changed()

    def _note(self) -> None:
        kinds: Iterable[Kind] = [fault.kind for fault in self.standing]
        self.any_connection = any(kind in CONNECTION_KINDS for kind in kinds)
        self.any_request = any(kind not in CONNECTION_KINDS for kind in kinds)


_DETAILS = tuple(name for name in Fault.__struct_fields__ if name not in {"id", "kind", "until"})


def _matches(fault: Fault, *, bot_id: int, method: str, chat: object) -> bool:
    if fault.bot is not None and fault.bot != bot_id:
        return False
    if fault.method is not None and fault.method.lower() != method.lower():
        return False
    return fault.chat is None or str(fault.chat) == str(chat)
