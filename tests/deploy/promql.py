"""As much of the language of Prometheus as tells which metrics and labels an expression names."""

import re
from collections.abc import Iterator

import msgspec

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<range>\[(?:\d+[smhdw]|\$__rate_interval)\])
  | (?P<number>\d+(?:\.\d+)?[smhdw]?\b)
  | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
  | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},])
    """,
    re.VERBOSE,
)
FUNCTIONS = {"sum", "max", "min", "count", "topk", "rate", "increase", "delta", "histogram_quantile", "time", "vector"}
GROUPING = {"by", "on"}
WORDS = {"and", "or", "unless", "offset"}
_PAIRS = {")": "(", "}": "{"}


class Matcher(msgspec.Struct, frozen=True, kw_only=True):
    metric: str
    label: str
    is_pattern: bool
    value: str


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression names. `grouped`: labels of `by` and `on`."""

    metrics: frozenset[str]
    matchers: tuple[Matcher, ...]
    grouped: frozenset[str]
    ranged: frozenset[str]  # metrics with a range behind them


def named(expression: str) -> Named:
    """Raises ValueError for what cannot be read, with the place."""
    tokens = [(kind, text) for kind, text in _tokens(expression) if kind != "space"]
    metrics: set[str] = set()
    matchers: list[Matcher] = []
    grouped: set[str] = set()
    ranged: set[str] = set()
    place = 0
    while place < len(tokens):
        kind, text = tokens[place]
        place += 1
        if kind != "name" or text in WORDS:
            continue
        if text in GROUPING:
            labels, place = _until(tokens, place, ")")
            grouped |= {word for kind, word in labels if kind == "name"}
        elif text in FUNCTIONS:
            if place == len(tokens) or tokens[place][1] not in ("(", "by"):
                raise ValueError(f"{text} is not called in {expression}")
        else:
            metrics.add(text)
            if place < len(tokens) and tokens[place][1] == "{":
                inside, place = _until(tokens, place, "}")
                matchers += _matchers(text, inside)
            if place < len(tokens) and tokens[place][0] == "range":
                ranged.add(text)
    return Named(
        metrics=frozenset(metrics), matchers=tuple(matchers), grouped=frozenset(grouped), ranged=frozenset(ranged)
    )


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    place, opened = 0, []
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None or match.lastgroup is None:
            raise ValueError(f"cannot read {expression[place : place + 20]!r} of {expression}")
        if match[0] in _PAIRS.values():
            opened.append(match[0])
        elif match[0] in _PAIRS and (not opened or opened.pop() != _PAIRS[match[0]]):
            raise ValueError(f"{match[0]} closes nothing in {expression}")
        yield match.lastgroup, match[0]
        place = match.end()
    if opened:
        raise ValueError(f"{opened[-1]} is never closed in {expression}")


def _until(tokens: list[tuple[str, str]], place: int, end: str) -> tuple[list[tuple[str, str]], int]:
    """What is between the brackets that open here, and the place behind them."""
    closing = next(index for index in range(place, len(tokens)) if tokens[index][1] == end)
    return tokens[place + 1 : closing], closing + 1


def _matchers(metric: str, inside: list[tuple[str, str]]) -> Iterator[Matcher]:
    parts = [inside[index : index + 4] for index in range(0, len(inside), 4)]  # label, sign, text, comma
    for part in parts:
        if len(part) < 3:
            raise ValueError(f"a label of {metric} is compared with nothing")
        (_, label), (_, sign), (kind, text), *_ = part
        if sign not in ("=", "!=", "=~", "!~") or kind != "text":
            raise ValueError(f"{label} of {metric} is compared with nothing")
        yield Matcher(metric=metric, label=label, is_pattern=sign.endswith("~"), value=text[1:-1])
