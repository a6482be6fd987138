"""One run at one place: drive, watch, drain, count."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from peik.load.count import ArrivedLetters, LoadCounts, count, ledger, total_of
from peik.load.drive import Drive
from peik.load.place import LoadClient, LoadPlace, decoded
from peik.load.plan import HANDLES, MEMORY, Latencies, LoadWork, Sample, trend, users_a_day
from peik.load.report import POINTS, Machine, Result, broken_by, kinds_of, notes_on, per_second, thinned, this_machine
from peik.monitoring.doctor import LETTERS

# Looks at the server while it works: its memory, its open handles, what waits in it.


WATCH_S = 1.0
HAS_PROC = Path("/proc/self/statm").exists()
ASK_METRICS_S = 5.0  # of a Peik whose process is not ours to look at


class ServerStats(msgspec.Struct):
    waiting: int = 0
    active: int = 0
    delayed: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def unfinished(self) -> int:
        return self.waiting + self.active + self.delayed


class LoadWatch:
    """Moments are seconds since `began_at`. A look that fails leaves a gap; whether Peik answers is the drive's to say."""

    def __init__(self, peik: LoadClient, pid: int | None) -> None:
        """`pid` is that of a process of this machine; without one, Peik's own metrics are asked."""
        self._peik = peik
        self._pid = pid
        self._began_at = time.time()
        self.memory: list[Sample] = []
        self.handles: list[Sample] = []
        self.backlog: list[Sample] = []

    async def run(self) -> None:
        asked_at_s = -ASK_METRICS_S
        while True:
            now_s = time.time() - self._began_at
            if self._pid is not None and HAS_PROC:
                self._note(now_s, process_look(self._pid))
            elif now_s - asked_at_s >= ASK_METRICS_S:
                asked_at_s = now_s
                self._note(now_s, await self._metrics())
            stats = await stats_of(self._peik)
            if stats is not None:
                self.backlog.append((now_s, float(stats.unfinished)))
            await asyncio.sleep(WATCH_S)

    def _note(self, now_s: float, found: tuple[int, int] | None) -> None:
        if found is not None:
            self.memory.append((now_s, float(found[0])))
            self.handles.append((now_s, float(found[1])))

    async def _metrics(self) -> tuple[int, int] | None:
        reply = await self._peik.ask("GET", "/metrics")
        if reply.status != 200:
            return None
        lines = dict(line.rsplit(" ", 1) for line in reply.body.decode().splitlines() if line.startswith("process_"))
        try:
            return int(float(lines["process_resident_memory_bytes"])), int(float(lines["process_open_fds"]))
        except (KeyError, ValueError):  # not every system tells
            return None


def process_look(pid: int) -> tuple[int, int] | None:
    """Resident bytes and open handles of a process of this machine. None: it has ended, or is not ours."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  only counted
    except (OSError, IndexError):
        return None


async def stats_of(peik: LoadClient) -> ServerStats | None:
    """None: it does not answer just now."""
    reply = await peik.ask("GET", "/v1/stats")
    return msgspec.json.decode(reply.body, type=ServerStats) if reply.status == 200 else None


DRAIN_S = 60.0  # without anything that ends
LOOK_S = 0.2


async def run(place: LoadPlace, work: LoadWork, *, seed: int, grow: Callable[[int], None]) -> Result:
    """`grow` is told of each letter whose caller has his answer."""
    mark = f"p{secrets.token_hex(4)}"
    drive = Drive(place, work, seed=seed, mark=mark, grow=grow)
    before, sizes_before = await total_of(place), place.sizes()
    async with watched(place.peik, place.pid) as watch:
        await drive.run()
        await drained(place.peik)
    arrivals = await ledger(place, mark, after=before)
    counts = await count(drive, arrivals)
    at_telegram, answered = _arrival_latencies(drive, arrivals)
    memory, handles = trend(watch.memory, MEMORY), trend(watch.handles, HANDLES)
    unwritten = [f"the simulated Telegram did not take {n} messages: {why}" for why, n in drive.unwritten.items()]
    late = drive.late.figures()
    width_s = max(1.0, work.for_s / POINTS)
    delivered = per_second([one.at - place.ahead_s - drive.began_at for one in arrivals], for_s=work.for_s)
    return Result(
        machine=this_machine(place.store),
        seconds=work.for_s,
        letters_per_s=work.letters_per_s,
        updates_per_s=work.updates_per_s,
        bots=work.bots,
        chats=work.chats,
        delivered_per_s=len(arrivals) / max(work.for_s, _last_s(drive, arrivals)),
        kinds=kinds_of(
            (
                ("REST request → accepted", drive.accepting),
                ("letter → at Telegram", at_telegram),
                ("gateway send → Telegram's answer", drive.answering),
                ("update → bot got it", drive.getting),
                ("update → answer at Telegram", answered),
            )
        ),
        counts=counts,
        refusals=drive.refusals,
        late=late,
        memory=memory,
        handles=handles,
        sizes_before=sizes_before,
        sizes_after=place.sizes(),
        backlog_max=int(max((value for _, value in watch.backlog), default=0)),
        broken=broken_by(counts, (("memory", memory), ("open handles", handles))) + unwritten,
        notes=notes_on(late, counts),
        series={
            "accept p50, ms": _ms(drive.accepting, 50, width_s),
            "accept p99, ms": _ms(drive.accepting, 99, width_s),
            "at Telegram p50, ms": _ms(at_telegram, 50, width_s),
            "at Telegram p99, ms": _ms(at_telegram, 99, width_s),
            "update answered p99, ms": _ms(answered, 99, width_s),
            "asked for, per s": per_second([one.due_s for one in drive.asked.values()], for_s=work.for_s),
            "delivered, per s": delivered,
            "waiting letters": thinned(watch.backlog),
            "memory, MiB": [(at, value / 2**20) for at, value in thinned(watch.memory)],
            "open handles": thinned(watch.handles),
        },
    )


@contextlib.asynccontextmanager
async def watched(peik: LoadClient, pid: int | None) -> AsyncIterator[LoadWatch]:
    watch = LoadWatch(peik, pid)
    looking = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def drained(peik: LoadClient, *, patience_s: float = DRAIN_S) -> bool:
    """Whether nothing waits any more; False if nothing has ended for so long."""
    before, since = -1, time.monotonic()
    while True:
        stats = await stats_of(peik)
        if stats is not None and not stats.unfinished:
            return True
        ended = -1 if stats is None else stats.completed + stats.failed
        if ended != before:
            before, since = ended, time.monotonic()
        if time.monotonic() - since > patience_s:
            return False
        await asyncio.sleep(LOOK_S)


def _arrival_latencies(drive: Drive, arrivals: list[ArrivedLetters]) -> tuple[Latencies, Latencies]:
    """Of letters, and of answers to people; by the first time that each arrived."""
    letters, answers = Latencies(), Latencies()
    seen: set[str] = set()
    for one in arrivals:
        asked = drive.asked.get(one.mark)
        if asked is None or one.mark in seen:
            continue
        seen.add(one.mark)
        which = letters if one.mark.startswith(f"{drive.mark}L") else answers
        which.add(due_s=asked.due_s, done_s=one.at - drive.place.ahead_s - drive.began_at)
    return letters, answers


def _last_s(drive: Drive, arrivals: list[ArrivedLetters]) -> float:
    return max((one.at - drive.place.ahead_s - drive.began_at for one in arrivals), default=0.0)


def _ms(latencies: Latencies, percent: float, width_s: float) -> list[tuple[float, float]]:
    return [(at, 1000 * took) for at, took in latencies.over_time(percent, width_s=width_s)]


# How much this machine can take: the rate is raised until what comes in waits longer and longer, then narrowed down.


FIRST_PER_S = 40.0  # letters, answers of bots among them
TIMES = 1.6
NARROWINGS = 2
PER_S_MAX = 20_000.0
ACCEPT_MS_MAX = 1000.0
ARRIVE_MS_MAX = 3000.0
KEPT_UP_SHARE = 0.9
LATE_MS_MAX = 500.0
ACCEPTED, ARRIVED = "REST request → accepted", "letter → at Telegram"


class LimitStep(msgspec.Struct, frozen=True, kw_only=True):
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
    steps: list[LimitStep]
    broken: list[str]


async def find_limit(run: Callable[[LoadWork], Awaitable[Result]], *, step_s: float, bots: int, chats: int) -> Limit:
    """Raises nothing of its own; a promise that breaks on the way ends the search and is told."""
    steps: list[LimitStep] = []
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


def work_at(letters_per_s: float, *, step_s: float, bots: int, chats: int) -> LoadWork:
    """In the same mix as a profile: of four letters one is the bot's answer to somebody."""
    updates = letters_per_s / LETTERS
    return LoadWork(letters_per_s=letters_per_s - updates, updates_per_s=updates, for_s=step_s, bots=bots, chats=chats)


def judged(result: Result, letters_per_s: float) -> LimitStep:
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
    return LimitStep(
        letters_per_s=letters_per_s,
        accept_p99_ms=accept_ms,
        arrive_p99_ms=arrive_ms,
        backlog_max=result.backlog_max,
        why_not=why,
    )


def _limit(machine: Machine, good: float, steps: list[LimitStep], *, ended_by: str, broken: list[str]) -> Limit:
    return Limit(
        machine=machine,
        letters_per_s=good,
        users_a_day=users_a_day(good),
        bots_needed=max(1, -(-int(good) // 30)),  # Telegram's figure for bulk is 30 a second of one bot
        ended_by=ended_by,
        steps=steps,
        broken=broken,
    )


# A little load on the real Telegram: few letters, to one chat that is yours, by REST. What arrived is what Peik was
# told.


PER_S, REAL_PER_S_MAX = 0.2, 0.5  # Telegram allows about one a second in a chat, and people read there
LETTERS_MAX = 600
WAIT_S = 20
PATIENCE_S = 300.0
TEXT = "peik load: letter {number} of {total}"


class _Receipt(msgspec.Struct):
    id: str


class _Letter(msgspec.Struct):
    state: str
    uncertain_tries: int


class RealFates:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.uncertain_tries = 0
        self.accepting, self.delivering = Latencies(), Latencies()
        self.refusals: dict[str, int] = {}


async def run_real(url: str, *, key: str, chat: int | str, bot_id: int | None, per_s: float, for_s: float) -> Result:
    peik = LoadClient(url, key=key)
    total = min(LETTERS_MAX, max(1, round(per_s * for_s)))
    fates = RealFates()
    try:
        async with watched(peik, None) as watch, asyncio.TaskGroup() as group:
            began = time.monotonic()
            for number in range(total):
                due_s = number / per_s
                await asyncio.sleep(max(0.0, began + due_s - time.monotonic()))
                params = {"chat_id": chat, "text": TEXT.format(number=number + 1, total=total)}
                letter: dict[str, object] = {"method": "sendMessage", "params": params}
                if bot_id is not None:
                    letter["bot_id"] = str(bot_id)
                group.create_task(_follow(peik, letter, fates, began=began, due_s=due_s))
    finally:
        await peik.close()
    return _result(fates, watch.memory, watch.handles, total=total, per_s=per_s)


async def _follow(peik: LoadClient, letter: dict[str, object], fates: RealFates, *, began: float, due_s: float) -> None:
    reply = await peik.ask("POST", "/v1/letters", letter)
    if reply.status != 202:
        why = str(reply.fault or reply.status)
        fates.refusals[why] = fates.refusals.get(why, 0) + 1
        fates.states.append("unknown" if reply.fault is not None and reply.left else "refused")
        return
    fates.accepting.add(due_s=due_s, done_s=time.monotonic() - began)
    letter_id = msgspec.json.decode(reply.body, type=_Receipt).id
    found = _Letter(state="waiting", uncertain_tries=0)
    deadline = time.monotonic() + PATIENCE_S
    while found.state not in ("completed", "failed", "cancelled") and time.monotonic() < deadline:
        reply = await peik.ask("GET", f"/v1/letters/{letter_id}?wait={WAIT_S}s", timeout_s=WAIT_S + 30.0)
        if reply.status == 404:
            found = _Letter(state="lost", uncertain_tries=0)
            break
        found = decoded(reply, _Letter, "Peik")
    if found.state == "completed":
        fates.delivering.add(due_s=due_s, done_s=time.monotonic() - began)
    fates.states.append(found.state)
    fates.uncertain_tries += found.uncertain_tries


def _result(
    fates: RealFates, memory: list[tuple[float, float]], handles: list[tuple[float, float]], *, total: int, per_s: float
) -> Result:
    states, refused, unknown = fates.states, fates.states.count("refused"), fates.states.count("unknown")
    delivered, failed = states.count("completed"), states.count("failed") + states.count("cancelled")
    lost = states.count("lost")
    counts = LoadCounts(
        letters=total,
        accepted=total - refused - unknown,
        refused=refused,
        unknown=unknown,
        delivered=delivered,
        waiting=total - refused - unknown - delivered - failed - lost,
        failed=failed,
        lost=lost,
        doubled=0,
        uncertain_tries=fates.uncertain_tries,
        doubled_by_habit=0,
        updates=0,
        updates_lost=0,
        updates_doubled=0,
    )
    trends = trend(memory, MEMORY), trend(handles, HANDLES)
    unseen = (
        "What really arrived is not to be seen from here: delivered is what Telegram told Peik, and of what came twice only "
        f"the tries that may have caused it are known: {fates.uncertain_tries}."
    )
    return Result(
        machine=this_machine("of the running Peik"),
        seconds=total / per_s,
        letters_per_s=per_s,
        updates_per_s=0.0,
        bots=1,
        chats=1,
        delivered_per_s=delivered / (total / per_s),
        kinds=kinds_of((("REST request → accepted", fates.accepting), ("letter → delivered", fates.delivering))),
        counts=counts,
        refusals=fates.refusals,
        late=None,
        memory=trends[0],
        handles=trends[1],
        sizes_before={},
        sizes_after={},
        backlog_max=0,
        broken=broken_by(counts, (("memory", trends[0]), ("open handles", trends[1]))),
        notes=[*notes_on(None, counts), unseen],
        series={
            "accept, ms": [(at, 1000 * took) for at, took in fates.accepting],
            "delivered, ms": [(at, 1000 * took) for at, took in fates.delivering],
            "memory, MiB": [(at, value / 2**20) for at, value in memory],
        },
    )
