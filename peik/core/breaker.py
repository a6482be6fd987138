"""The breaker of one route: opens when the route fails, and closes only when a probe has come back. Pure; time comes in."""

import enum

import msgspec

PROBE_S_FIRST = 0.5
PROBE_S_MAX = 15.0  # an outage that ends is noticed within so many seconds


class RouteState(enum.StrEnum):
    CLOSED = "closed"
    OPEN = "open"


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """How a route stands. `failing` holds the letters of the current row of failures, to tell a bad route from a bad letter."""

    state: RouteState = RouteState.CLOSED
    failures: int = 0
    failing: frozenset[int] = frozenset()
    probes: int = 0
    probe_at: float = 0.0
    opened_at: float = 0.0
    why: str = ""

    @property
    def is_open(self) -> bool:
        return self.state is RouteState.OPEN


FAILURES_TO_OPEN = 4  # in a row, over more than one letter: one letter that breaks the server must not close the route
CLOSED = Breaker()  # so it is after each answer of Telegram itself, whatever it was: the route works


def after_unsent(breaker: Breaker, *, now: float, chance: float, why: str) -> Breaker:
    """A connection could not even be made. That says nothing about the letter and all about the route: open at once."""
    return breaker if breaker.is_open else _open(now, chance, why)


def after_doubt(breaker: Breaker, *, letter_id: int, now: float, chance: float, why: str) -> Breaker:
    """Bytes left and no verdict came. A row of these over several letters opens the breaker."""
    if breaker.is_open:
        return breaker
    failing = breaker.failing | {letter_id}
    if breaker.failures + 1 >= FAILURES_TO_OPEN and len(failing) > 1:
        return _open(now, chance, why)
    return msgspec.structs.replace(breaker, failures=breaker.failures + 1, failing=failing, why=why)


def after_failed_probe(breaker: Breaker, *, now: float, chance: float, why: str) -> Breaker:
    probes = breaker.probes + 1
    return msgspec.structs.replace(breaker, probes=probes, probe_at=now + _wait(probes, chance), why=why)


def _open(now: float, chance: float, why: str) -> Breaker:
    return Breaker(state=RouteState.OPEN, probe_at=now + _wait(0, chance), opened_at=now, why=why)


def _wait(probes: int, chance: float) -> float:
    """0.5, 1, 2 … 15 s, each shortened by up to a half, so that many nodes do not probe in step."""
    return min(PROBE_S_MAX, PROBE_S_FIRST * (1 << min(probes, 16))) * (1.0 - chance / 2)
