"""How a cost grows with n: the exponent on two logarithmic axes, and whether log n would have grown as fast.

Over the same points, 1 + ln n itself has a slope there: small, and smaller the further out they lie. A cost passes if its slope
is no greater than that, give or take twice its own standard error, and if its last step alone is not much steeper either,
since a line that is flat for long and doubles at the end has a small slope as well.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

ERROR_LEAST = 0.02  # points of one machine are never better than this
LAST_STEP_MORE = 0.15  # a term that grows with n and is at last as large as all others makes 0.26 of the last decade

Point = tuple[float, float]


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    exponent: float
    error: float
    last_step: float
    log_exponent: float  # what 1 + ln n has over the same points
    is_log: bool

    @classmethod
    def of(cls, points: Sequence[Point]) -> "Growth":
        """Of three points or more, both coordinates positive."""
        exponent, error = slope(points)
        log_points = [(n, 1 + math.log(n)) for n, _ in points]
        log_exponent, _ = slope(log_points)
        last, log_last = _last_step(points), _last_step(log_points)
        allowance = 2 * max(error, ERROR_LEAST)
        is_log = exponent <= log_exponent + allowance and last <= log_last + LAST_STEP_MORE
        return cls(exponent=exponent, error=error, last_step=last, log_exponent=log_exponent, is_log=is_log)


def slope(points: Sequence[Point]) -> tuple[float, float]:
    """By least squares on both logarithms, with its standard error."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    found = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
    line: Callable[[float], float] = lambda x: y_mean + found * (x - x_mean)  # noqa: E731
    left = sum((y - line(x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return found, math.sqrt(left / max(1, len(points) - 2) / spread)


def _last_step(points: Sequence[Point]) -> float:
    (x_before, y_before), (x_last, y_last) = points[-2:]
    return math.log(y_last / y_before) / math.log(x_last / x_before)
