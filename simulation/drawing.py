"""Which kind of life a seed is, and which deed stands at each place in it."""

import enum
import random
from typing import Any

from simulation.deeds import DEEDS, Deed
from simulation.deeds_server import SERVER_DEEDS


class Kind(enum.StrEnum):
    FILE = "file"  # one machine, one file, one or two processes
    SERVER = "server"  # a server, and several nodes on it


def kind_of(seed: int) -> Kind:
    """The kind of a seed, unless one is asked for."""
    return random.Random(f"{seed} kind").choice(list(Kind))


def drawn(seed: int, number: int, kind: Kind | None = None) -> tuple[Deed[Any], random.Random]:
    """The deed that stands at this place in the life of a seed, and its chance."""
    deeds: tuple[tuple[int, Deed[Any]], ...] = SERVER_DEEDS if (kind or kind_of(seed)) is Kind.SERVER else DEEDS
    chance = random.Random(f"{seed} deed {number}")
    ((_, deed),) = chance.choices(deeds, [weight for weight, _ in deeds])
    return deed, chance
