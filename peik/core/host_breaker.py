"""The breaker of one outside host: opens when the host fails for several jobs, and lets one job at a time try whether it is back.

Pure; time and chance come in. What is asked of a host while the breaker stands one way tells nothing once it stands another
way: each talk carries the `era` in which it began, and only talks of the present era count.
"""

import enum

import msgspec

FAILURES_TO_OPEN = 5  # in a row, over more than one job: one job that breaks a server must not keep the others from it
CONNECTS_TO_OPEN = 3  # in a row: a connection that cannot be made says nothing about the job
PROBE_S_FIRST = 5.0
PROBE_S_MAX = 60.0
PROBE_PATIENCE_S = 30.0  # a probe may be a download of an hour: after so long another job may try beside it
PROBE_LOOK_S = 10.0  # while a probe is under way, the others come back so soon


class HostState(enum.StrEnum):
    CLOSED = "closed"  # all is well
    OPEN = "open"  # left alone
    PROBING = "probing"  # one job tries


class HostBreaker(msgspec.Struct, frozen=True, kw_only=True):
    state: HostState = HostState.CLOSED
    era: int = 0  # rises each time it opens or closes
    failures: int = 0  # in a row
    failing: frozenset[int] = frozenset()  # the jobs of that row
    connects: int = 0  # failures to connect, in a row
    probes: int = 0  # that failed
    probe_at: float = 0.0  # from then on a job may try
    opened_at: float = 0.0
    why: str = ""


def wait_s(breaker: HostBreaker, *, now: float) -> float | None:
    """How long a job has to leave the host alone; None: it may go, and `begun` is to be told."""
    if breaker.state is HostState.CLOSED or now >= breaker.probe_at:
        return None
    left_s = breaker.probe_at - now
    return min(left_s, PROBE_LOOK_S) if breaker.state is HostState.PROBING else left_s


def begun(breaker: HostBreaker, *, now: float) -> HostBreaker:
    """A job talks to the host. While the breaker is open, this is a probe."""
    if breaker.state is HostState.CLOSED:
        return breaker
    return msgspec.structs.replace(breaker, state=HostState.PROBING, probe_at=now + PROBE_PATIENCE_S)


def after_success(breaker: HostBreaker, *, era: int) -> HostBreaker:
    """The host did what was asked of it."""
    if era != breaker.era:
        return breaker
    is_clean = breaker.state is HostState.CLOSED and not breaker.failures
    return breaker if is_clean else HostBreaker(era=era + (breaker.state is not HostState.CLOSED))


def after_failure(
    breaker: HostBreaker, *, era: int, job_id: int, is_connect: bool, now: float, chance: float, why: str
) -> HostBreaker:
    if era != breaker.era:
        return breaker
    if breaker.state is not HostState.CLOSED:
        probes = breaker.probes + 1
        return msgspec.structs.replace(
            breaker, state=HostState.OPEN, probes=probes, probe_at=now + _wait_s(probes, chance), why=why
        )
    row = msgspec.structs.replace(
        breaker,
        failures=breaker.failures + 1,
        failing=breaker.failing | {job_id} if len(breaker.failing) < 2 else breaker.failing,
        connects=breaker.connects + 1 if is_connect else 0,
        why=why,
    )
    if row.connects < CONNECTS_TO_OPEN and (row.failures < FAILURES_TO_OPEN or len(row.failing) < 2):
        return row
    return HostBreaker(
        state=HostState.OPEN,
        era=era + 1,
        failures=row.failures,
        probe_at=now + _wait_s(0, chance),
        opened_at=now,
        why=why,
    )


def after_nothing(breaker: HostBreaker, *, era: int, now: float) -> HostBreaker:
    """A talk that says nothing of the host: it was cancelled, or the job made a mistake. If it was a probe, the next may come."""
    if era != breaker.era or breaker.state is not HostState.PROBING:
        return breaker
    return msgspec.structs.replace(breaker, state=HostState.OPEN, probe_at=now)


def _wait_s(probes: int, chance: float) -> float:
    """5, 10, 20 … 60 s, each shortened by up to a fifth, so that many nodes do not probe in step."""
    return min(PROBE_S_MAX, PROBE_S_FIRST * (1 << min(probes, 8))) * (1.0 - chance / 5)
