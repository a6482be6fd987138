"""One run at one place: drive, watch, drain, count."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable

from peik.load.client import Client
from peik.load.count import Arrived, count, ledger, total_of
from peik.load.drive import Drive
from peik.load.latency import Latencies
from peik.load.place import Place
from peik.load.plan import Work
from peik.load.result import (
    POINTS,
    Result,
    broken_by,
    kinds_of,
    notes_on,
    per_second,
    thinned,
    this_machine,
)
from peik.load.slope import HANDLES, MEMORY, trend
from peik.load.watch import Watch, stats_of

DRAIN_S = 60.0  # without anything that ends
LOOK_S = 0.2


async def run(place: Place, work: Work, *, seed: int, grow: Callable[[int], None]) -> Result:
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
async def watched(peik: Client, pid: int | None) -> AsyncIterator[Watch]:
    watch = Watch(peik, pid)
    looking = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def drained(peik: Client, *, patience_s: float = DRAIN_S) -> bool:
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


def _arrival_latencies(drive: Drive, arrivals: list[Arrived]) -> tuple[Latencies, Latencies]:
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


def _last_s(drive: Drive, arrivals: list[Arrived]) -> float:
    return max((one.at - drive.place.ahead_s - drive.began_at for one in arrivals), default=0.0)


def _ms(latencies: Latencies, percent: float, width_s: float) -> list[tuple[float, float]]:
    return [(at, 1000 * took) for at, took in latencies.over_time(percent, width_s=width_s)]
