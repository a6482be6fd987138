"""What one run found, as one document: `--json` prints it, the terminal and the report draw it."""

import os
import platform
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from peik import __version__
from peik.load.count import Counts
from peik.load.latency import Bar, Figures, Latencies
from peik.load.slope import Sample, Trend, Verdict

LATE_MS_MAX = 100.0  # with more at the 99th percentile it is we who were slow, not Peik
POINTS = 120  # of a plot


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    cores: int
    python: str
    peik: str
    store: str


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One way that is timed, from the moment at which it was due."""

    name: str
    figures: Figures
    bars: list[Bar]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    machine: Machine
    seconds: float
    letters_per_s: float  # wanted, without the answers of bots
    updates_per_s: float
    bots: int
    chats: int
    delivered_per_s: float
    kinds: list[Kind]
    counts: Counts
    refusals: dict[str, int]
    late: Figures | None  # we ourselves
    memory: Trend
    handles: Trend
    sizes_before: dict[str, int]
    sizes_after: dict[str, int]
    backlog_max: int
    broken: list[str]
    notes: list[str]
    series: dict[str, list[Sample]]

    @property
    def is_good(self) -> bool:
        return not self.broken


def this_machine(store: str) -> Machine:
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        python=platform.python_version(),
        peik=__version__,
        store=store,
    )


def kinds_of(named: Iterable[tuple[str, Latencies]]) -> list[Kind]:
    """Those of which there was any."""
    found = []
    for name, latencies in named:
        figures = latencies.figures()
        if figures is not None:
            found.append(Kind(name=name, figures=figures, bars=latencies.bars()))
    return found


def broken_by(counts: Counts, trends: Iterable[tuple[str, Trend]]) -> list[str]:
    grown = [f"{name}: {trend.words}" for name, trend in trends if trend.verdict is Verdict.LEAK]
    nothing = [] if counts.accepted or counts.updates else ["nothing was accepted, so nothing was shown"]
    return counts.broken() + grown + nothing


def notes_on(late: Figures | None, counts: Counts) -> list[str]:
    """What a reader of the figures should know."""
    notes = []
    if late is not None and late.p99_ms > LATE_MS_MAX:
        notes.append(
            f"This program itself was late by up to {late.p99_ms:.0f} ms (p99): the machine is too busy for the load and the "
            "server together, and the latencies are worse than Peik's own."
        )
    if counts.doubled and not counts.doubled_by_habit:
        notes.append(f"{counts.doubled} repeats, all of them after tries that were uncertain.")
    return notes


def per_second(moments: Sequence[float], *, for_s: float) -> list[Sample]:
    """How many a second, over time."""
    width_s = max(1.0, for_s / POINTS)
    counts = Counter(int(moment // width_s) for moment in moments)
    return [((n + 0.5) * width_s, counts[n] / width_s) for n in range(max(counts, default=-1) + 1)]


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """So many that a plot can show, the last one among them."""
    step = max(1, len(samples) // POINTS)
    return [*samples[:-1:step], *samples[-1:]]
