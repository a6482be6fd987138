"""Every kind of place that the stories of the conformance suite are told in."""

import os

from tests.store.places import Place, SqlitePlace

PLACES: tuple[type[Place], ...] = (SqlitePlace,)
if os.environ.get("PEIK_STORES"):  # `make stores`: no setting leads to the others yet, and they need servers
    from tests.store.postgres_place import PostgresPlace
    from tests.store.redis_place import RedisPlace

    PLACES += (PostgresPlace, RedisPlace)
