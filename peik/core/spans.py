"""What a consumer has behind it: everything up to a watermark, and spans of numbers above. Pure arithmetic.

The watermark is the highest number below which nothing is open. One arrival that is still being worked on keeps it where
it is, and what is done beyond stands in spans meanwhile: few, however much that is, since only what is open parts them.
"""

from collections.abc import Iterable, Sequence

import msgspec

Span = tuple[int, int]  # (first, last), both included


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Everything up to `watermark` is over, and so are the spans above it: apart, in order, and not touching it."""

    watermark: int
    spans: tuple[Span, ...] = ()

    def is_over(self, number: int) -> bool:
        return number <= self.watermark or any(first <= number <= last for first, last in self.spans)


def advanced(progress: Progress, over: Iterable[Span]) -> Progress:
    """Progress after these are over too. It never goes back."""
    (_, watermark), *rest = joined([(0, progress.watermark), *progress.spans, *over])
    return Progress(watermark=watermark, spans=tuple(rest))


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same numbers in as few spans as possible, in order."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def spans_of(numbers: Sequence[int]) -> list[Span]:
    return joined([(number, number) for number in numbers])
