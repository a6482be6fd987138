"""Every kind of place that the stories of the conformance suite are told in."""

import os

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
