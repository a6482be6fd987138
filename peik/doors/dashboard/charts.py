"""Charts as SVG, drawn here: no script needs to run for them, and their colours come from the style sheet."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
from markupsafe import Markup, escape

WIDTH, HEIGHT = 420, 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 8, 20
_TICKS = 4


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """What happened from an instant on, from the bottom up."""

    at_ms: int
    parts: tuple[float, ...]


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """One instant of several lines; None: there was nothing to measure."""

    at_ms: int
    values: tuple[float | None, ...]


def stacked(bars: Sequence[Bar], *, title: str, names: Sequence[str]) -> Markup:
    """Bars of several parts each. Colours are f1, f2 … of the style sheet; the figures stand in their titles."""
    top = nice_top(max((sum(bar.parts) for bar in bars), default=0))
    step = (WIDTH - _LEFT - _RIGHT) / max(len(bars), 1)
    drawn = []
    for place, bar in enumerate(bars):
        y = float(HEIGHT - _BOTTOM)
        x = _LEFT + place * step
        told = ", ".join(f"{name}: {part:g}" for name, part in zip(names, bar.parts, strict=True))
        pieces = []
        for number, part in enumerate(bar.parts, 1):
            high = part / top * (HEIGHT - _TOP - _BOTTOM)
            y -= high
            if part:
                wide = max(step - 1, 0.6)
                pieces.append(
                    f'<rect class="f{number}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'
                )
        if pieces:
            drawn.append(f"<g><title>{_clock(bar.at_ms)} {escape(told)}</title>{''.join(pieces)}</g>")
    return _framed("".join(drawn), title=title, top=top, unit=_count, times=[bar.at_ms for bar in bars])


def lines(dots: Sequence[Dot], *, title: str) -> Markup:
    """Several lines of seconds over time, which break where nothing was measured. Classes are l1, l2 …"""
    top = nice_top(max((value for dot in dots for value in dot.values if value is not None), default=0))
    step = (WIDTH - _LEFT - _RIGHT) / max(len(dots) - 1, 1)
    drawn = []
    for number in range(len(dots[0].values) if dots else 0):
        path, is_down = [], False
        for place, dot in enumerate(dots):
            value = dot.values[number]
            if value is not None:
                y = HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)
                # A line of no length has round ends: one measurement alone is a dot.
                path.append(
                    f"{'L' if is_down else 'M'}{_LEFT + place * step:.1f} {y:.1f}" + ("" if is_down else "h.01")
                )
            is_down = value is not None
        if path:
            drawn.append(f'<path class="l{number + 1}" d="{"".join(path)}"/>')
    return _framed("".join(drawn), title=title, top=top, unit=seconds_text, times=[dot.at_ms for dot in dots])


def nice_top(most: float) -> float:
    """The end of an axis: the next round figure above."""
    if most <= 0:
        return 1.0
    size = 10.0 ** (len(f"{int(most)}") - 1) if most >= 1 else 10.0 ** -_zeros(most)
    return next(step * size for step in (1, 2, 4, 5, 8, 10) if step * size >= most)


def _zeros(value: float) -> int:
    """How many places behind the point the first figure stands."""
    places = 0
    while value < 1 and places < 9:
        value *= 10
        places += 1
    return places


def _framed(inner: str, *, title: str, top: float, unit: Callable[[float], str], times: Sequence[int]) -> Markup:
    axis = []
    for tick in range(_TICKS + 1):
        y = HEIGHT - _BOTTOM - tick / _TICKS * (HEIGHT - _TOP - _BOTTOM)
        axis.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if tick % 2 == 0:
            label = unit(top * tick / _TICKS)
            axis.append(f'<text x="{_LEFT - 4}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>')
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")) if times else ():
        at_ms = times[round(share * (len(times) - 1))]
        x = _LEFT + share * (WIDTH - _LEFT - _RIGHT)
        axis.append(f'<text x="{x:.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">{_clock(at_ms)}</text>')
    return Markup(  # noqa: S704  figures, and the words that were escaped
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" direction="ltr">'
        f"<title>{escape(title)}</title>{''.join(axis)}{inner}</svg>"
    )


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M")


def _count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def seconds_text(value: float) -> str:
    if value >= 3600:
        return f"{value / 3600:.3g} h"
    if value >= 60:
        return f"{value / 60:.3g} min"
    return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"
