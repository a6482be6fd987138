"""The collector of garbage in a process that serves and does nothing else. A library must not decide this for its program."""

import gc

YOUNG_MAX = 10_000  # objects between two collections of young ones


def let_the_collector_rest() -> None:
    """What is here by now stays until the end: a collection need not look through it again and again. And requests make
    thousands of objects that are gone a moment later, none of them in cycles: collections may come less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 20, 50)
