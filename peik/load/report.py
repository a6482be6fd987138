"""The report of a run as one file: HTML with its plots in it. Read as text it still says everything."""

from collections.abc import Mapping, Sequence
from html import escape

from peik.load.result import Kind, Result
from peik.load.svg import Points, plot
from peik.load.words import bars_drawn, facts_of, verdict_of

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
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>Load test of Peik, {escape(made_at)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Load test of Peik</h1>\n<p>{escape(made_at)}</p>",
        f'<p class="{"good" if result.is_good else "bad"}"><strong>{escape(verdict_of(result))}</strong></p>',
        *(f"<p>{escape(note)}</p>" for note in result.notes),
        _table("facts", ("what", "figure"), facts_of(result)),
        "<h2>Latency, from the moment each was due</h2>",
        _table("", ("", "count", "p50", "p95", "p99", "max"), [_row(kind) for kind in result.kinds]),
        *_plots(result.series),
    ]
    parts += [
        f"<h3>{escape(kind.name)}</h3>\n<pre>{escape(chr(10).join(bars_drawn(kind.bars)))}</pre>"
        for kind in result.kinds
    ]
    return "\n".join([*parts, "</body></html>", ""])


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


def _row(kind: Kind) -> tuple[str, ...]:
    found = kind.figures
    times = (found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms)
    return (kind.name, f"{found.count:,}", *(f"{time_ms:,.1f} ms" for time_ms in times))


def _table(style: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f'<table class="{style}">', "<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])
