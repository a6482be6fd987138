"""Growth is told from noise, from steps and from caches that fill; and a short look says that it is short."""

import math
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from peik.load.plan import HANDLES, MEMORY, Sample, TrendRule, TrendVerdict, block_floors, theil_sen, trend
from peik.load.run import process_look

MIB = 2.0**20


def half_an_hour(grown_mib: float, *, noise_mib: float = 3.0, seed: int = 1) -> list[Sample]:
    """Samples every second of a process of 90 MiB, with busy moments that only ever add."""
    chance = random.Random(seed)
    return [
        (float(second), (90 + grown_mib * second / 1800 + abs(chance.gauss(0, noise_mib))) * MIB)
        for second in range(1801)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_flat(seed: int) -> None:
    assert trend(half_an_hour(0.0, seed=seed), MEMORY).verdict is TrendVerdict.FLAT


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_leak_is_found_with_its_rate(seed: int) -> None:
    found = trend(half_an_hour(20.0, seed=seed), MEMORY)
    assert found.verdict is TrendVerdict.LEAK
    assert found.per_hour_low <= found.per_hour <= found.per_hour_high
    assert found.per_hour == pytest.approx(40.0, rel=0.15)
    assert "leak at" in found.words


def test_steady_growth_below_what_matters_is_no_leak_and_the_words_say_what_could_not_be_seen() -> None:
    found = trend(half_an_hour(2.0, noise_mib=0.1), MEMORY)
    assert found.verdict is TrendVerdict.FLAT
    assert found.per_hour_low > 0  # it is seen, and too little
    assert found.unseen_per_hour == pytest.approx(18, abs=1)  # 6 MiB in the twenty minutes that are looked at
    assert "less than 18 an hour could not be seen" in found.words


def test_a_cache_that_fills_and_is_full_is_settling() -> None:
    filling = [(float(second), (90 + 100 * (1 - math.exp(-second / 400))) * MIB) for second in range(1801)]
    assert trend(filling, MEMORY).verdict is TrendVerdict.SETTLING


def test_growth_in_steps_is_a_leak() -> None:
    """An allocator takes memory in large pieces; most samples are like the one before."""
    steps = [(float(second), (90 + 8 * (second // 200)) * MIB) for second in range(1801)]
    assert trend(steps, MEMORY).verdict is TrendVerdict.LEAK


def test_one_wild_hour_does_not_move_it() -> None:
    samples = [(at, value + (400 * MIB if 900 <= at < 1200 else 0.0)) for at, value in half_an_hour(0.0)]
    found = trend(samples, MEMORY)
    assert found.verdict is TrendVerdict.FLAT
    assert found.highest > 480


@pytest.mark.parametrize("samples", [[], [(0.0, 1.0)], [(float(n), MIB * n) for n in range(170)]])
def test_a_short_look_says_that_it_is_short(samples: list[Sample]) -> None:
    found = trend(samples, MEMORY)
    assert found.verdict is TrendVerdict.TOO_SHORT
    assert found.words.startswith("too short to say")


def test_handles_that_stay_open_are_found() -> None:
    chance = random.Random(3)
    leaking = [(float(second), 40.0 + second // 60 + chance.randint(0, 5)) for second in range(1801)]
    level = [(float(second), 40.0 + chance.randint(0, 5)) for second in range(1801)]
    assert trend(leaking, HANDLES).verdict is TrendVerdict.LEAK
    assert trend(level, HANDLES).verdict is TrendVerdict.FLAT


def test_the_slope_is_the_median_of_all_pairs() -> None:
    slope, low, high = theil_sen([(0, 0), (1, 1), (2, 2), (3, 30)])
    assert slope == 5.5  # of 1, 1, 1, 10, 14.5 and 29
    assert (low, high) == (-math.inf, math.inf)  # four points say little
    assert theil_sen([(1, 5), (1, 9)]) == (0.0, -math.inf, math.inf)
    slope, low, high = theil_sen([(n, 2.0 * n) for n in range(40)])
    assert slope == low == high == 2.0


def test_a_block_counts_with_its_lowest_sample() -> None:
    floors = block_floors([(float(n), 10.0 if n % 4 else float(n)) for n in range(240)])
    assert len(floors) == 40
    assert floors[0] == (0.0, 0.0)
    assert all(value <= 10.0 for _, value in floors)


# ---- real processes ----

STEPS = 60
_STEADY = """
import sys
for line in sys.stdin:
    held = bytearray(1 << 20)
    sys.stdout.write("done\\n"); sys.stdout.flush()
"""
_LEAKING = """
import os, sys
held, files = [], []
for line in sys.stdin:
    held.append(os.urandom(1 << 20))
    files.append(open(os.devnull))
    sys.stdout.write("done\\n"); sys.stdout.flush()
"""


@contextmanager
def stepping(program: str) -> Iterator[list[tuple[int, int]]]:
    """What was seen of a process after each of its steps: it makes the next only when it was looked at."""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    looks = []
    try:
        for _ in range(STEPS):
            process.stdin.write("on\n")
            assert process.stdout.readline() == "done\n"
            look = process_look(process.pid)
            assert look is not None
            looks.append(look)
        yield looks
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show processes as files")
@pytest.mark.parametrize(("program", "verdict"), [(_STEADY, TrendVerdict.FLAT), (_LEAKING, TrendVerdict.LEAK)])
def test_a_real_process_that_leaks_is_found_and_one_that_does_not_is_not(program: str, verdict: TrendVerdict) -> None:
    brief = {"least_s": 10.0}
    memory = TrendRule(unit="MiB", per_unit=MIB, allowed=MEMORY.allowed, allowed_share=MEMORY.allowed_share, **brief)
    handles = TrendRule(unit="handles", allowed=HANDLES.allowed, **brief)
    with stepping(program) as looks:
        assert trend([(float(n), float(look[0])) for n, look in enumerate(looks)], memory).verdict is verdict
        assert trend([(float(n), float(look[1])) for n, look in enumerate(looks)], handles).verdict is verdict


def test_a_process_that_has_ended_cannot_be_looked_at() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert process_look(process.pid) is None
