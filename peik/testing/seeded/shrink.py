"""Finds a shorter story that still goes wrong: leaves out deeds as long as something stays wrong without them."""

from collections.abc import Callable, Sequence

from peik.testing.seeded.play import Life, play

RUNS_MAX = 150


def shrunk(life: Life, *, replay: Callable[[int, Sequence[int]], Life] | None = None, runs_max: int = RUNS_MAX) -> Life:
    """The shortest life of the same seed that was found. Halves first, then quarters, down to single deeds."""
    again = replay or (lambda seed, only: play(seed, only=only, kind=life.kind))
    best = life
    runs = 0
    size = max(1, len(best.deeds) // 2)
    while size:
        is_shorter = False
        for start in range(0, len(best.deeds), size):
            if runs >= runs_max:
                return best
            kept = best.deeds[:start] + best.deeds[start + size :]
            if len(kept) == len(best.deeds):
                continue
            runs += 1
            shorter = again(life.seed, kept)
            if shorter.wrong:
                best = shorter
                is_shorter = True
                break  # the places have moved: begin anew at this size
        if not is_shorter:
            size //= 2
    return best
