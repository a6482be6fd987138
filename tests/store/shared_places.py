"""The places whose stores are shared by nodes on several machines, for the stories of nodes among each other."""

import os
from typing import Protocol

from peik.ports import Store
from tests.store.places import Place


class SharedPlace(Place, Protocol):
    url: str

    def make(self, *, is_owner: bool) -> Store: ...

    def expire_leases(self) -> None:
        """Every node was away for longer than its leases last: leases, nodes and locks are over."""


SHARED: tuple[type[SharedPlace], ...] = ()
if os.environ.get("PEIK_STORES"):
    from tests.store.postgres_place import PostgresPlace
    from tests.store.redis_place import RedisPlace

    SHARED = (PostgresPlace, RedisPlace)
