"""A long story that goes wrong becomes a short one, of the same seed, within a bounded number of runs."""

from collections.abc import Callable, Sequence

import pytest

from simulation.play import RUNS_MAX, Life, shrunk

SEED = 4711


class Replays:
    """Plays synthetic lives, and remembers what it was asked for."""

    def __init__(self, is_wrong: Callable[[set[int]], bool]) -> None:
        self._is_wrong = is_wrong
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, seed: int, only: Sequence[int]) -> Life:
        assert seed == SEED
        self.asked.append(tuple(only))
        return self.life(only)

    def life(self, deeds: Sequence[int]) -> Life:
        wrong = ["a letter is lost"] if self._is_wrong(set(deeds)) else []
        return Life(seed=SEED, wrong=wrong, deeds=list(deeds), story=[], log=[], counts={}, digest="")


@pytest.mark.parametrize(
    ("deeds", "guilty"),
    [
        (30, {17}),
        (30, {0, 29}),
        (30, {3, 4, 5, 21}),
        (31, {30}),
        (16, {0, 3, 6, 9, 12, 15}),
        (7, {0, 2, 4, 6}),
        (30, set(range(30))),
        (2, {1}),
        (1, {0}),
    ],
)
def test_only_the_guilty_deeds_stay(deeds: int, guilty: set[int]) -> None:
    replays = Replays(lambda done: done >= guilty)
    short = shrunk(replays.life(range(deeds)), replay=replays)
    assert (short.seed, short.deeds, short.wrong) == (SEED, sorted(guilty), ["a letter is lost"])


def test_no_single_deed_more_can_be_left_out() -> None:
    """Two ways to go wrong: either will do, and what stays is one of them alone."""
    replays = Replays(lambda done: done >= {2, 3} or done >= {11, 19, 25})
    short = shrunk(replays.life(range(30)), replay=replays)
    assert short.deeds in ([2, 3], [11, 19, 25])


def test_a_world_that_is_wrong_from_the_first_needs_no_deed() -> None:
    replays = Replays(lambda done: True)
    assert shrunk(replays.life(range(30)), replay=replays).deeds == []


def test_what_cannot_be_repeated_stays_as_it_is() -> None:
    replays = Replays(lambda done: False)
    life = Life(seed=SEED, wrong=["once"], deeds=[1, 5, 9], story=["told"], log=["noted"], counts={}, digest="d")
    assert shrunk(life, replay=replays) is life


@pytest.mark.parametrize("runs_max", [0, 1, 5, RUNS_MAX])
def test_the_runs_are_bounded_and_the_best_so_far_is_kept(runs_max: int) -> None:
    guilty = set(range(0, 400, 2))
    replays = Replays(lambda done: done >= guilty)
    short = shrunk(replays.life(range(400)), replay=replays, runs_max=runs_max)
    assert len(replays.asked) == runs_max
    assert short.wrong
    assert guilty <= set(short.deeds)


def test_a_life_that_goes_wrong_sooner_is_taken_as_it_went() -> None:
    """It stops where it goes wrong: what would have come after that is no part of the story."""
    replays = Replays(lambda done: 3 in done)

    def stops_early(seed: int, only: Sequence[int]) -> Life:
        return replays(seed, [place for place in only if place <= 3])

    assert shrunk(replays.life(range(30)), replay=stops_early).deeds == [3]
