"""Every kind of place that the stories of the conformance suite are told in."""

import os

import pytest

from tests.storage.places import Place, SqlitePlace

# TEST_STORES=sqlite is for a quick look while one works: the others need servers.
HAS_SERVERS = os.environ.get("TEST_STORES") != "sqlite"

# How many lives the models are compared over, on each place; the servers' are dear, and `make stores` plays them all.
LIVES_ON_SERVERS = 40 if os.environ.get("TEST_STORES") == "all" else 10

PLACES: tuple[type[Place], ...] = (SqlitePlace,)
if HAS_SERVERS:
    from tests.storage.postgres_place import PostgresPlace
    from tests.storage.redis_place import RedisPlace

    PLACES += (PostgresPlace, RedisPlace)


def pairs(*, all_others: pytest.MarkDecorator) -> list[object]:
    """From each kind into each. Those of a ring, in which each is left once and entered once, are for every day; `all_others`
    have this mark."""
    ring = set(zip(PLACES, PLACES[1:] + PLACES[:1], strict=True))
    return [
        pytest.param(
            (one, other), marks=() if (one, other) in ring else all_others, id=f"{one.__name__}-{other.__name__}"
        )
        for one in PLACES
        for other in PLACES
    ]
