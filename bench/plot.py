"""Plots as SVG, written by hand: bars of a run, and lines on two logarithmic axes. No script, no font to load."""

import math
from collections.abc import Sequence
from html import escape

import msgspec

PEIK, PEER, CEILING = "#0b7a75", "#b8c4ce", "#e3a857"
_COLOURS = ("#0b7a75", "#d1495b", "#30638e", "#e3a857", "#6a4c93", "#555555")
_FONT = 'font-family="system-ui, sans-serif"'


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    value: float
    words: str
    colour: str = PEER
    least: float | None = None
    most: float | None = None


class Group(msgspec.Struct, frozen=True):
    """Bars that share a scale."""

    title: str
    bars: tuple[Bar, ...]


_WIDTH, _LEFT, _RIGHT = 930, 392, 130
_BAR, _GAP, _HEAD = 15, 5, 40
_CUT_ABOVE, _CUT_TO = 2.0, 1.6  # times the longest of Peik and its peers


def bars(groups: Sequence[Group], *, heading: str) -> str:
    parts: list[str] = _legend()
    top = 58.0
    for group in groups:
        parts.append(_text(12, top + 18, group.title, size=14, is_bold=True))
        most = _most(group)
        scale = (_WIDTH - _LEFT - _RIGHT) / most
        place = top + _HEAD - 12
        for bar in group.bars:
            parts += _bar(bar, place, scale)
            place += _BAR + _GAP
        top = place + 10
    return _svg(_WIDTH, top + 10, [_text(12, 24, heading, size=16, is_bold=True), *parts])


def _legend() -> list[str]:
    parts: list[str] = []
    for place, (colour, words) in enumerate(((PEIK, "Peik"), (PEER, "peers"), (CEILING, "ceiling: it does less"))):
        parts.append(f'<rect x="{12 + 90 * place}" y="36" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(30 + 90 * place, 46, words))
    return [*parts, _text(372, 46, "a bar with a gap near its end is longer than there is room for")]


def _most(group: Group) -> float:
    """What the whole width stands for. A ceiling that is far above all others is cut, or these would be too small to compare."""
    longest = max(bar.most or bar.value for bar in group.bars)
    others = max((bar.most or bar.value for bar in group.bars if bar.colour != CEILING), default=longest)
    return (_CUT_TO * others if longest > _CUT_ABOVE * others > 0 else longest) or 1.0


def _bar(bar: Bar, top: float, scale: float) -> list[str]:
    middle = top + _BAR / 2
    room = _WIDTH - _LEFT - _RIGHT
    if bar.value * scale > room + 1:
        parts = _bar(msgspec.structs.replace(bar, value=room / scale, least=None, most=None), top, scale)
        line = f'x1="{_LEFT + room - 8}" x2="{_LEFT + room - 4}" y1="{top + _BAR + 2:.1f}" y2="{top - 2:.1f}"'
        return [*parts, f'<line {line} stroke="#fff" stroke-width="4"/>']
    width = max(1.0, bar.value * scale)
    parts = [
        _text(_LEFT - 8, middle + 4, bar.label, anchor="end"),
        f'<rect x="{_LEFT}" y="{top:.1f}" width="{width:.1f}" height="{_BAR}" fill="{bar.colour}"/>',
    ]
    end = width
    if bar.least is not None and bar.most is not None and bar.most > bar.least:
        low, end = bar.least * scale, max(width, bar.most * scale)
        line = f'x1="{_LEFT + low:.1f}" x2="{_LEFT + bar.most * scale:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"'
        parts.append(f'<line {line} stroke="#222" stroke-width="1"/>')
    return [*parts, _text(_LEFT + end + 6, middle + 4, bar.words)]


class Series(msgspec.Struct, frozen=True):
    label: str
    points: tuple[tuple[float, float], ...]  # both positive


_PLOT_W, _PLOT_H, _PAD_L, _PAD_T, _PAD_B = 560, 320, 76, 62, 52


def lines(series: Sequence[Series], *, heading: str, across: str, up: str) -> str:
    """On two logarithmic axes a power of n is a straight line, and its slope is the exponent."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    x_low, x_high = _decades(xs)
    y_low, y_high = _decades(ys)

    def x_of(value: float) -> float:
        return _PAD_L + (math.log10(value) - x_low) / (x_high - x_low) * _PLOT_W

    def y_of(value: float) -> float:
        return _PAD_T + _PLOT_H - (math.log10(value) - y_low) / (y_high - y_low) * _PLOT_H

    parts = [_text(12, 24, heading, size=16, is_bold=True)]
    for decade in range(x_low, x_high + 1):
        x = x_of(10.0**decade)
        parts.append(_rule(x, _PAD_T, x, _PAD_T + _PLOT_H))
        parts.append(_text(x, _PAD_T + _PLOT_H + 18, _power(decade), anchor="middle"))
    for decade in range(y_low, y_high + 1):
        y = y_of(10.0**decade)
        parts.append(_rule(_PAD_L, y, _PAD_L + _PLOT_W, y))
        parts.append(_text(_PAD_L - 8, y + 4, _power(decade), anchor="end"))
    for place, one in enumerate(series):
        colour = _COLOURS[place % len(_COLOURS)]
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in one.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{colour}"/>' for x, y in one.points]
        top = _PAD_T + 14 + place * 18
        parts.append(f'<rect x="{_PAD_L + _PLOT_W + 14}" y="{top - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(_PAD_L + _PLOT_W + 30, top, one.label))
    parts.append(_text(_PAD_L + _PLOT_W / 2, _PAD_T + _PLOT_H + 40, across, anchor="middle"))
    parts.append(_text(12, _PAD_T - 18, up))
    return _svg(_PAD_L + _PLOT_W + 290, _PAD_T + _PLOT_H + _PAD_B, parts)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _power(decade: int) -> str:
    names = {0: "1", 1: "10", 2: "100", 3: "1k", 4: "10k", 5: "100k", 6: "1M"}
    return names.get(decade, f"{10.0**decade:g}")


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", is_bold: bool = False) -> str:
    weight = ' font-weight="600"' if is_bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="#222" {_FONT}{weight}>{escape(words)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', ground, *parts, "</svg>"]) + "\n"
