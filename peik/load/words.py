"""A result in words and bars, for the terminal and the report alike."""

from collections.abc import Sequence

from peik.load.latency import Bar
from peik.load.result import Result

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
                found.append((f"size of {name}", f"{_mb(result.sizes_before.get(name, 0))} → {_mb(size)}"))
    return found


def bars_drawn(bars: Sequence[Bar]) -> list[str]:
    """A histogram in lines of text: up to so many ms, a bar, how many."""
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


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f} MB"
