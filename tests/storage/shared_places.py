"""The places whose stores are shared by nodes on several machines, for the stories of nodes among each other."""

from typing import Protocol

from peik.outbox.store import Store
from tests.storage.all_places import HAS_SERVERS
from tests.storage.places import Place


class SharedPlace(Place, Protocol):
    url: str

    def make(self, *, is_owner: bool) -> Store: ...

    def expire_leases(self) -> None:
        """Every node was away for longer than its leases last: leases, nodes and locks are over."""

    def free_for_long(self) -> None:
        """What is known to be free has been so for hours."""

    def season(self) -> None:
        """Every node has lived for an hour."""


SHARED: tuple[type[SharedPlace], ...] = ()
if HAS_SERVERS:
    from tests.storage.postgres_place import PostgresPlace
    from tests.storage.redis_place import RedisPlace

    SHARED = (PostgresPlace, RedisPlace)
