"""A load test in the terminal: the verdict, the facts, latencies as a table and as bars."""

from rich.console import Group, RenderableType
from rich.text import Text

from peik.cli.output import facts, plain, table
from peik.load.report import Result, bars_drawn, facts_of, verdict_of
from peik.load.run import Limit


def drawn(result: Result) -> RenderableType:
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


def limit_drawn(found: Limit) -> RenderableType:
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
