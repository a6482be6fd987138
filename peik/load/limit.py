"""How much this machine can take: the rate is raised until what comes in waits longer and longer, then narrowed down."""

from collections.abc import Awaitable, Callable

import msgspec

from peik.load.plan import Work, users_a_day
from peik.load.result import Machine, Result
from peik.ops.capacity import LETTERS

FIRST_PER_S = 40.0  # letters, answers of bots among them
TIMES = 1.6
NARROWINGS = 2
PER_S_MAX = 20_000.0
ACCEPT_MS_MAX = 1000.0
ARRIVE_MS_MAX = 3000.0
KEPT_UP_SHARE = 0.9
LATE_MS_MAX = 500.0
ACCEPTED, ARRIVED = "REST request → accepted", "letter → at Telegram"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    letters_per_s: float
    accept_p99_ms: float
    arrive_p99_ms: float
    backlog_max: int
    why_not: str | None  # None: it kept up


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    machine: Machine
    letters_per_s: float  # the most that was kept up with; 0: not even the first step
    users_a_day: int
    bots_needed: int  # at Telegram's pace, which was not kept here
    ended_by: str
    steps: list[Step]
    broken: list[str]


async def find_limit(run: Callable[[Work], Awaitable[Result]], *, step_s: float, bots: int, chats: int) -> Limit:
    """Raises nothing of its own; a promise that breaks on the way ends the search and is told."""
    steps: list[Step] = []
    good, bad, rate = 0.0, 0.0, FIRST_PER_S
    narrowed = 0
    while True:
        result = await run(work_at(rate, step_s=step_s, bots=bots, chats=chats))
        steps.append(judged(result, rate))
        # Where it is too much, letters may be refused or still wait: that is what is looked for. Loss is not.
        broken = result.counts.faults()
        if broken:
            return _limit(result.machine, good, steps, ended_by="a promise was broken", broken=broken)
        if steps[-1].why_not is None:
            good = rate
        else:
            bad = rate
        if bad:
            narrowed += 1
        if narrowed > NARROWINGS or rate >= PER_S_MAX:
            worst = next((one.why_not for one in reversed(steps) if one.why_not), "the highest rate was reached")
            return _limit(result.machine, good, steps, ended_by=worst, broken=[])
        rate = next_rate(good, bad)


def next_rate(good: float, bad: float) -> float:
    """Between what went and what did not, by equal factors; upwards while nothing failed."""
    if not bad:
        return min(PER_S_MAX, good * TIMES)
    return float((max(good, bad / TIMES**2) * bad) ** 0.5)


def work_at(letters_per_s: float, *, step_s: float, bots: int, chats: int) -> Work:
    """In the same mix as a profile: of four letters one is the bot's answer to somebody."""
    updates = letters_per_s / LETTERS
    return Work(letters_per_s=letters_per_s - updates, updates_per_s=updates, for_s=step_s, bots=bots, chats=chats)


def judged(result: Result, letters_per_s: float) -> Step:
    p99 = {kind.name: kind.figures.p99_ms for kind in result.kinds}
    accept_ms, arrive_ms = p99.get(ACCEPTED, 0.0), p99.get(ARRIVED, 0.0)
    why = None
    if result.counts.refused or result.counts.unknown:
        why = "Peik no longer accepted everything"
    elif result.late is not None and result.late.p99_ms > LATE_MS_MAX:
        why = "the load program itself could not keep up"
    elif accept_ms > ACCEPT_MS_MAX:
        why = f"accepting took {accept_ms:.0f} ms (p99)"
    elif arrive_ms > ARRIVE_MS_MAX:
        why = f"a letter took {arrive_ms:.0f} ms to Telegram (p99)"
    elif result.delivered_per_s < letters_per_s * KEPT_UP_SHARE:
        why = f"{result.delivered_per_s:.0f} of {letters_per_s:.0f} letters a second were delivered"
    return Step(
        letters_per_s=letters_per_s,
        accept_p99_ms=accept_ms,
        arrive_p99_ms=arrive_ms,
        backlog_max=result.backlog_max,
        why_not=why,
    )


def _limit(machine: Machine, good: float, steps: list[Step], *, ended_by: str, broken: list[str]) -> Limit:
    return Limit(
        machine=machine,
        letters_per_s=good,
        users_a_day=users_a_day(good),
        bots_needed=max(1, -(-int(good) // 30)),  # Telegram's figure for bulk is 30 a second of one bot
        ended_by=ended_by,
        steps=steps,
        broken=broken,
    )
