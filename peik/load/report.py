"""What a run found: as one document, in the terminal, and as one HTML file with its plots in it. Read as text it still says
everything."""

import math
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import msgspec

from peik import __version__
from peik.load.count import LoadCounts
from peik.load.plan import Latencies, LatencyBar, LatencyFigures, Sample, Trend, TrendVerdict

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.load.run import Limit

# Plots as SVG text: lines over time with a grid and a legend. No script, no outside network, legible in light and
# dark.


WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 34, 26
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2")
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_INK, _GRID = "#6b7280", "#9ca3af"

Points = Sequence[tuple[float, float]]


def plot(title: str, lines: Mapping[str, Points], *, unit: str, marks: Sequence[tuple[float, str]] = ()) -> str:
    """`lines` by name; the moments are seconds. `marks` are upright lines with a word. Starts at nothing, so that a growth
    looks as large as it is."""
    shown = {name: points for name, points in lines.items() if points}
    last_s = max((points[-1][0] for points in shown.values()), default=1.0) or 1.0
    highest = _round_up(max((value for points in shown.values() for _, value in points), default=1.0))

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / last_s

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / highest

    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="{_INK}">'
    )
    parts = [
        head,
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="13" font-size="13" font-weight="600">{escape(title)}</text>',
    ]
    for share in _QUARTERS:
        level, height = highest * share, y(highest * share)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="{_GRID}" stroke-width="0.5"/>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{_figure(level)}</text>')
    parts += [
        f'<text x="{x(last_s * share):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{_clock(last_s * share)}</text>'
        for share in _QUARTERS
    ]
    for at_s, word in marks:
        parts.append(
            f'<line x1="{x(at_s):.1f}" x2="{x(at_s):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{_INK}" '
            f'stroke-width="0.7" stroke-dasharray="2 3"><title>{escape(word)}</title></line>'
        )
    legend = LEFT
    for colour, (name, points) in zip(COLOURS * (1 + len(shown) // len(COLOURS)), shown.items(), strict=False):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{legend}" y="28" fill="{colour}">{escape(name)}</text>')
        legend += 7 * len(name) + 18
    parts.append(f'<text x="{WIDTH - RIGHT}" y="13" text-anchor="end">{escape(unit)}</text>')
    return "\n".join([*parts, "</svg>"])


def _round_up(value: float) -> float:
    """To 1, 2, 4, 5 or 10 of its power of ten, so that quarters are round as well."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= value * 0.999)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# What one run found, as one document: `--json` prints it, the terminal and the report draw it.


LATE_MS_MAX = 100.0  # with more at the 99th percentile it is we who were slow, not Peik
POINTS = 120  # of a plot


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    cores: int
    python: str
    peik: str
    store: str


class WorkKind(msgspec.Struct, frozen=True, kw_only=True):
    """One way that is timed, from the moment at which it was due."""

    name: str
    figures: LatencyFigures
    bars: list[LatencyBar]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    machine: Machine
    seconds: float
    letters_per_s: float  # wanted, without the answers of bots
    updates_per_s: float
    bots: int
    chats: int
    delivered_per_s: float
    kinds: list[WorkKind]
    counts: LoadCounts
    refusals: dict[str, int]
    late: LatencyFigures | None  # we ourselves
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


def kinds_of(named: Iterable[tuple[str, Latencies]]) -> list[WorkKind]:
    """Those of which there was any."""
    found = []
    for name, latencies in named:
        figures = latencies.figures()
        if figures is not None:
            found.append(WorkKind(name=name, figures=figures, bars=latencies.bars()))
    return found


def broken_by(counts: LoadCounts, trends: Iterable[tuple[str, Trend]]) -> list[str]:
    grown = [f"{name}: {trend.words}" for name, trend in trends if trend.verdict is TrendVerdict.LEAK]
    nothing = [] if counts.accepted or counts.updates else ["nothing was accepted, so nothing was shown"]
    return counts.broken() + grown + nothing


def notes_on(late: LatencyFigures | None, counts: LoadCounts) -> list[str]:
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
    """As many as a plot can show, the last one among them."""
    step = max(1, len(samples) // POINTS)
    return [*samples[:-1:step], *samples[-1:]]


# A result in words and bars, for the terminal and the report alike.


BAR = 40


def verdict_of(result: Result) -> str:
    if result.is_good:
        counts = result.counts
        return f"Nothing was lost: {counts.delivered:,} letters delivered, {counts.updates:,} updates handed on."
    return f"Not good: {'; '.join(result.broken)}."


def facts_of(result: Result) -> list[tuple[str, str]]:
    machine, counts = result.machine, result.counts
    work = (
        f"{result.letters_per_s:g} letters/s and {result.updates_per_s:g} updates/s with an answer each for "
        f"{result.seconds:g} s, {result.bots} bots, {result.chats} chats"
    )
    found = [
        ("machine", f"{machine.system}, {machine.cores} cores, Python {machine.python}, Peik {machine.peik}"),
        ("store", machine.store),
        ("work", work),
        ("letters", f"{counts.letters:,}, accepted {counts.accepted:,}, delivered {counts.delivered:,}"),
        ("delivered", f"{result.delivered_per_s:,.1f} a second; at most {result.backlog_max:,} were waiting"),
        ("lost", f"{counts.lost:,}"),
        ("doubled", f"{counts.doubled:,} (uncertain tries: {counts.uncertain_tries:,})"),
        ("updates", f"{counts.updates:,}, lost {counts.updates_lost:,}, twice {counts.updates_doubled:,}"),
    ]
    for name, count in (
        ("refused", counts.refused),
        ("without an answer", counts.unknown),
        ("still waiting", counts.waiting),
        ("failed", counts.failed),
    ):
        if count:
            found.append((name, f"{count:,}"))
    if result.refusals:
        found.append(("refusals", ", ".join(f"{why}: {count:,}" for why, count in result.refusals.items())))
    memory, handles = result.memory, result.handles
    found.append(("memory", f"{memory.words}; {memory.highest:.0f} MiB at most" if memory.highest else _UNSEEN))
    found.append(("open handles", f"{handles.words}; {handles.highest:.0f} at most" if handles.highest else _UNSEEN))
    if result.sizes_after:
        for name, size in sorted(result.sizes_after.items(), key=lambda one: -one[1]):
            if size >= 1024:
                found.append((f"size of {name}", f"{mb(result.sizes_before.get(name, 0))} → {mb(size)}"))
    return found


def bars_drawn(bars: Sequence[LatencyBar]) -> list[str]:
    """A histogram in lines of text: up to a number of ms, a bar, how many."""
    most, total = max((bar.count for bar in bars), default=1), sum(bar.count for bar in bars)
    drawn = []
    for bar in bars:
        edge = "more" if bar.up_to_s is None else f"≤ {_time(bar.up_to_s)}"
        filled = "█" * round(BAR * bar.count / most) or ("▏" if bar.count else "")
        drawn.append(f"{edge:>9} {filled:<{BAR}} {bar.count:>8,} {100 * bar.count / total:5.1f} %")
    return drawn


_UNSEEN = "cannot be seen from here"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


def mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f} MB"


# A result in the terminal: the verdict, the facts, latencies as a table and as bars. Who only wants JSON waits for no Rich.


def drawn(result: Result) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from peik.cli.output import facts, plain, table

    rows = []
    for kind in result.kinds:
        found = kind.figures
        times = (found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms)
        rows.append((kind.name, f"{found.count:,}", *(f"{time_ms:,.1f}" for time_ms in times)))
    heads = ("from the moment it was due, ms", "count", "p50", "p95", "p99", "max")
    parts: list[RenderableType] = [
        facts(facts_of(result)),
        plain(""),
        table(heads, rows, right=heads[1:], empty="Nothing was timed."),
    ]
    for kind in result.kinds:
        parts += [plain(""), plain(kind.name, "bold"), *(Text(line) for line in bars_drawn(kind.bars))]
    parts += [plain(""), *(plain(note, "yellow") for note in result.notes)]
    return Group(*parts, plain(verdict_of(result), "green" if result.is_good else "red"))


def limit_drawn(found: "Limit") -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain, table

    rows = [
        (
            f"{step.letters_per_s:,.0f}",
            f"{step.accept_p99_ms:,.0f}",
            f"{step.arrive_p99_ms:,.0f}",
            f"{step.backlog_max:,}",
            "kept up" if step.why_not is None else step.why_not,
        )
        for step in found.steps
    ]
    heads = ("letters/s", "accepted p99, ms", "at Telegram p99, ms", "waiting", "")
    parts: list[RenderableType] = [table(heads, rows, right=heads[:4], empty=""), plain("")]
    parts += [plain(f"Broken: {words}", "red") for words in found.broken]
    machine = found.machine
    if not found.letters_per_s:
        return Group(*parts, plain("Not even the first step was kept up with.", "red"))
    users = float(f"{found.users_a_day:.2g}")
    sentence = (
        f"About {found.letters_per_s:,.0f} letters/s, or {users:,.0f} new users a day, on this machine "
        f"({machine.cores} cores) with {machine.store}. It ended because {found.ended_by}."
    )
    beside = (
        "Load, simulated Telegram and Peik shared the machine, so Peik alone can do more. Telegram's own pace was not kept: at "
        f"30 letters a second of one bot, so many need {found.bots_needed} bots."
    )
    return Group(*parts, plain(sentence, "green"), plain(beside))


# The same as a page.


_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 780px; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 } th, td { padding: .2rem .8rem .2rem 0; text-align: left }
td + td, th + th { text-align: right } table.facts td, table.facts th { text-align: left }
svg { width: 100%; height: auto; margin: 1rem 0 } pre { font-size: 12px; line-height: 1.3; overflow-x: auto }
.good { color: #059669 } .bad { color: #dc2626 }
"""
_PLOTS = (
    ("Latency over time", "ms", ", ms"),
    ("Letters a second", "per s", ", per s"),
    ("Waiting in Peik", "letters", "waiting letters"),
    ("Memory of the server", "MiB", "memory, MiB"),
    ("Open handles of the server", "handles", "open handles"),
)


def html(result: Result, *, made_at: str) -> str:
    """`made_at` is printed as it is."""
    parts = [
        "<h2>Latency, from the moment each was due</h2>",
        _table("", ("", "count", "p50", "p95", "p99", "max"), [_row(kind) for kind in result.kinds]),
        *_plots(result.series),
    ]
    parts += [
        f"<h3>{escape(kind.name)}</h3>\n<pre>{escape(chr(10).join(bars_drawn(kind.bars)))}</pre>"
        for kind in result.kinds
    ]
    notes = [f"<p>{escape(note)}</p>" for note in result.notes]
    return page(
        title="Load test of Peik",
        made_at=made_at,
        verdict=verdict_of(result),
        is_good=result.is_good,
        facts=facts_of(result),
        notes=notes,
        parts=parts,
    )


def page(
    *,
    title: str,
    made_at: str,
    verdict: str,
    is_good: bool,
    facts: Sequence[tuple[str, str]],
    parts: Sequence[str],
    notes: Sequence[str] = (),
) -> str:
    """`notes` and `parts` are HTML."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}, {escape(made_at)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>\n<p>{escape(made_at)}</p>",
            f'<p class="{"good" if is_good else "bad"}"><strong>{escape(verdict)}</strong></p>',
            *notes,
            _table("facts", ("what", "figure"), facts),
            *parts,
            "</body></html>",
            "",
        ]
    )


def _plots(series: Mapping[str, Points]) -> list[str]:
    drawn = []
    for title, unit, ending in _PLOTS:
        lines = {
            name.removesuffix(ending) or name: points
            for name, points in series.items()
            if name.endswith(ending) and points
        }
        if lines:
            drawn.append(plot(title, lines, unit=unit))
    return drawn


def _row(kind: WorkKind) -> tuple[str, ...]:
    found = kind.figures
    times = (found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms)
    return (kind.name, f"{found.count:,}", *(f"{time_ms:,.1f} ms" for time_ms in times))


def _table(style: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f'<table class="{style}">', "<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])
