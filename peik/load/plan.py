"""What is to be done, when, and why so much of it. Pure: chance comes in as an argument."""

import enum
import random
import re

import msgspec

from peik.core.units import parse_duration_s
from peik.ops.capacity import LETTERS, PEAK, REQUESTS

LETTERS_MAX = 1_000_000  # of one run: what the simulated Telegram and we ourselves keep of each of them
BATCH = 10
# How letters come: most of them alone by REST, some ten at a time, some by bots that wait for Telegram's answer.
BATCH_SHARE, GATEWAY_SHARE = 0.3, 0.1
PROFILES = {"1k": 1_000, "5k": 5_000, "10k": 10_000}  # new users a day

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h|d))?")
_PER_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Way(enum.StrEnum):
    SINGLE = "rest"
    BATCH = "batch"
    GATEWAY = "gateway"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what. A bot answers each update, so there is a letter for each besides `letters_per_s`."""

    letters_per_s: float
    updates_per_s: float
    for_s: float
    bots: int = 3
    chats: int = 500

    @property
    def sends(self) -> int:
        return round((self.letters_per_s + self.updates_per_s) * self.for_s)


class Letters(msgspec.Struct, frozen=True, kw_only=True):
    """Letters that go in one request: one of them, or a batch."""

    due_s: float
    way: Way
    first: int  # its number; those of a batch follow
    count: int
    bot: int


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody writes to a bot."""

    due_s: float
    number: int
    bot: int
    chat: int


def profile(users_a_day: int) -> tuple[float, float]:
    """Letters and updates a second in the busiest minute of such a day, by the same arithmetic as the doctor's: five requests
    of each user (of three to five), a tenth of the day in its busiest hour, three times that in its busiest minute. Each
    request is an update and four letters, of which one is the bot's own answer."""
    requests_per_s = users_a_day * REQUESTS * PEAK
    return requests_per_s * (LETTERS - 1), requests_per_s


def users_a_day(letters_per_s: float) -> int:
    """For so many letters a second in the busiest minute, answers included."""
    return int(letters_per_s / (REQUESTS * PEAK * LETTERS))


def letters_plan(work: Work, chance: random.Random) -> list[Letters]:
    """In the order of time. Moments are those of a Poisson process: callers do not know of one another."""
    total = round(work.letters_per_s * work.for_s)
    batches = round(total * BATCH_SHARE / BATCH)
    by_gateway = round(total * GATEWAY_SHARE)
    ways = [Way.BATCH] * batches + [Way.GATEWAY] * by_gateway
    ways += [Way.SINGLE] * (total - batches * BATCH - by_gateway)
    chance.shuffle(ways)
    planned, number = [], 0
    for due_s, way in zip(_moments(len(ways), work.for_s, chance), ways, strict=True):
        count = BATCH if way is Way.BATCH else 1
        planned.append(Letters(due_s=due_s, way=way, first=number, count=count, bot=chance.randrange(work.bots)))
        number += count
    return planned


def updates_plan(work: Work, chance: random.Random) -> list[Written]:
    moments = _moments(round(work.updates_per_s * work.for_s), work.for_s, chance)
    return [
        Written(due_s=due_s, number=number, bot=chance.randrange(work.bots), chat=chance.randrange(work.chats))
        for number, due_s in enumerate(moments)
    ]


def _moments(count: int, for_s: float, chance: random.Random) -> list[float]:
    return sorted(chance.uniform(0.0, for_s) for _ in range(count))


def parse_rate(text: str) -> float:
    """A second's worth of "50/s", "20", "300/m". Raises ValueError with a hint."""
    match = _RATE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a rate; write 50/s, 300/m or 5000/h")
    return float(match[1]) / _PER_S[match[2] or "s"]


def parse_span(text: str) -> float:
    """Seconds, more than none. Raises ValueError with a hint."""
    seconds = parse_duration_s(text)
    if seconds <= 0:
        raise ValueError("a load needs some time; write 60s or 30m")
    return seconds
