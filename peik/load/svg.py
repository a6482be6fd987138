"""Plots as SVG text: lines over time with a grid and a legend. No script, no outside network, legible in light and dark."""

import math
from collections.abc import Mapping, Sequence
from html import escape

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
