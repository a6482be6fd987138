"""A clock that moves only when told, and a simulated Telegram on it."""

import random

import pytest

from peik.testing import Telegram

TOKEN = "700042:AAE-secret"


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    return Telegram(now=clock, chance=random.Random(7))
