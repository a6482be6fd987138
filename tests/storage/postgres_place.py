"""Where the PostgreSQL stores of the stories live: a schema of their own on the shared server."""

import asyncio
import threading
import uuid
from pathlib import Path

import asyncpg

from peik.outbox.store import Store
from peik.storage.postgres.store import PostgresStore
from peik.storage.postgres.writer import SURELY_THERE_S
from tests.storage.places import LEASE_S, StorePlace
from tests.storage.servers import PostgresServer, postgres, wanted


class PostgresPlace(StorePlace[PostgresStore]):
    skip_if_missing = staticmethod(wanted)

    def __init__(self, folder: Path, server: PostgresServer | None = None) -> None:
        super().__init__()
        self.server = server or postgres()
        self.schema = f"s{uuid.uuid4().hex}"
        self.url = f"{self.server.url}?schema={self.schema}"
        self.surely_there_s = SURELY_THERE_S  # 0: each connection was quiet; infinite: none ever was

    def make(self, *, is_owner: bool) -> PostgresStore:
        return PostgresStore(
            self.url,
            clock=self.clock,
            lease_s=LEASE_S,
            on_blobs_freed=self.freed.extend,
            seals=self.seals,
            surely_there_s=self.surely_there_s,
        )

    async def crash(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        self._crashed.add(id(store))
        await store.abandon()
        self.unseat()

    def unseat(self) -> None:
        """Every node was away for longer than its leases last."""
        self._do("UPDATE nodes SET ends_at = '-infinity'", "UPDATE locks SET expires_at = '-infinity'")

    expire_leases = unseat

    def season(self) -> None:
        """Every node has lived for an hour."""
        self._do("UPDATE nodes SET started_at = seen_at - interval '1 hour'")

    def free_for_long(self) -> None:
        """What is known to be free has been so for hours."""
        self._do("UPDATE leases SET free_since = '-infinity' WHERE free_since IS NOT NULL")

    def _do(self, *statements: str) -> None:
        async def work() -> None:
            for sql in statements:
                await self.run(sql)

        # The stories say this between two awaits, so it waits for a loop of its own.
        thread = threading.Thread(target=asyncio.run, args=(work(),))
        thread.start()
        thread.join()

    async def run(self, sql: str, *bound: object) -> list[asyncpg.Record]:
        """Something that somebody else does to the database."""
        connection = await asyncpg.connect(self.server.url, server_settings={"search_path": self.schema})
        try:
            return await connection.fetch(sql, *bound)
        finally:
            await connection.close()
