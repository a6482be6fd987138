"""A consumer's progress: what is over, in as few spans as possible, and a watermark that never passes what is open."""

from hypothesis import given
from hypothesis import strategies as st

from peik.core.arrival import ConsumerProgress, advanced, joined, spans_of

_SPANS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 8)).map(lambda one: (one[0], one[0] + one[1])), max_size=12
)


def test_what_is_done_in_order_leaves_a_watermark_and_nothing_else() -> None:
    progress = ConsumerProgress(watermark=10)
    for number in range(11, 21):
        progress = advanced(progress, [(number, number)])
    assert progress == ConsumerProgress(watermark=20)


def test_one_open_arrival_holds_the_watermark_and_the_rest_is_one_span() -> None:
    progress = advanced(ConsumerProgress(watermark=10), spans_of(list(range(12, 1000))))
    assert progress == ConsumerProgress(watermark=10, spans=((12, 999),))
    assert advanced(progress, [(11, 11)]) == ConsumerProgress(watermark=999)


def test_a_later_word_for_what_is_over_changes_nothing() -> None:
    progress = ConsumerProgress(watermark=10, spans=((12, 14),))
    assert advanced(progress, [(3, 7), (13, 13)]) == progress


def test_an_empty_span_is_nothing() -> None:
    assert joined([(5, 4)]) == []


@given(st.integers(0, 20), st.lists(_SPANS, max_size=6))
def test_progress_is_the_set_of_numbers_that_it_was_given(watermark: int, steps: list[list[tuple[int, int]]]) -> None:
    progress = ConsumerProgress(watermark=watermark)
    over = set(range(watermark + 1))
    for step in steps:
        progress = advanced(progress, step)
        over |= {number for first, last in step for number in range(first, last + 1)}
        assert {number for number in range(100) if progress.is_over(number)} == over
        assert progress.watermark + 1 not in over, "the watermark stands right below the first open one"
        edges = [progress.watermark, *(edge for span in progress.spans for edge in span)]
        assert edges == sorted(edges)
        assert all(after - before >= 2 for before, after in zip(edges[::2], edges[1::2], strict=False))
