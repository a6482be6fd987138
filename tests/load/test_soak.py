"""The soak in little: everything of the long one, for some seconds; and its verdict on growth, which must be able to fail."""

import asyncio
import random
from pathlib import Path

import pytest

from peik.load.plan import MEMORY, Sample
from proofs.nodes.judge import Letter, Sent
from proofs.soak.judge import is_growing_over, of_lives, promises
from proofs.soak.plan import SHORT, long
from proofs.soak.play import soak
from proofs.soak.report import drawings
from proofs.soak.trouble import Life

pytestmark = pytest.mark.gate  # a soak

MIB = 2.0**20


def test_through_faults_outages_and_kills_nothing_is_lost_and_all_stays_in_order(tmp_path: Path) -> None:
    said: list[str] = []
    found = asyncio.run(soak(tmp_path, SHORT, said.append))
    assert found.broken == [], (found.figures, said)
    assert len(found.lives) == 1 + found.figures["trouble: kill -9"] > 1
    doors = ("rest", "batch", "gateway", "library")
    assert all(found.figures[f"letters by {door}"] for door in doors)
    assert found.figures["answers of bots"] == found.figures["updates written"] > 0
    assert found.figures["accepted"] == found.figures["delivered"]
    assert any(name.startswith("faults that struck") for name in found.figures)  # it was a bad day
    assert {life["memory"]["verdict"] for life in found.lives} == {"too short to say"}
    assert all("<polyline" in drawn for drawn in drawings(found).values())


def life(*, seconds: int, level: float = 90.0, leak_per_hour: float = 0.0, seed: int = 1) -> Life:
    chance = random.Random(seed)
    memory: list[Sample] = [
        (float(age), (level + leak_per_hour * age / 3600 + abs(chance.gauss(0, 2))) * MIB) for age in range(seconds)
    ]
    return Life(began_s=0.0, memory=memory, handles=[(float(age), 50.0) for age in range(seconds)])


def test_a_planted_leak_breaks_the_soak_and_level_lives_do_not() -> None:
    _, broken = of_lives([life(seconds=180), life(seconds=900)])
    assert broken == []
    rows, broken = of_lives([life(seconds=180), life(seconds=900, leak_per_hour=120.0)])
    assert rows[1]["memory"]["verdict"] == "leak"
    assert broken[0].startswith("memory grew in life 2: leak at")


def test_what_grows_from_life_to_life_is_found() -> None:
    """As what is left behind on disk would make it."""
    level = [life(seconds=180, seed=seed).memory for seed in range(7)]
    growing = [life(seconds=180, level=90.0 + 6 * seed, seed=seed).memory for seed in range(7)]
    assert not is_growing_over(level, MEMORY)
    assert is_growing_over(growing, MEMORY)
    assert not is_growing_over(growing[:4], MEMORY)  # too few to say
    assert not is_growing_over([], MEMORY)
    assert not is_growing_over([*level, [(3.0, 90 * MIB)]], MEMORY)  # one died at once


@pytest.mark.parametrize(
    ("arrived", "name"),
    [
        (["a", "b"], "lost"),
        (["a", "c", "b"], "lanes out of order"),
        (["a", "b", "c", "c"], "repeats without an uncertain try"),
    ],
)
def test_each_broken_promise_is_seen(arrived: list[str], name: str) -> None:
    sent = [Sent(float(at), 1, 2, text) for at, text in enumerate(arrived)]
    stored = [Letter(text, "completed", 1 if text == "b" else 0) for text in "abc"]
    figures = promises(sent, stored, {(1, 2): ["a", "b", "c"]})
    must_be_none = {"lost", "lanes out of order", "repeats without an uncertain try", "accepted twice", "not completed"}
    assert name in {one for one in must_be_none if figures[one]}
    whole = promises([Sent(float(at), 1, 2, text) for at, text in enumerate("abbc")], stored, {(1, 2): ["a", "b", "c"]})
    assert not any(whole[one] for one in must_be_none)


def test_half_an_hour_has_several_kills_and_then_one_long_life() -> None:
    plan = long(30)
    assert plan.kill_times_s == [180, 360, 540, 720, 900]
    assert plan.bots == 20
    assert len(long(3).kill_times_s) == 2
