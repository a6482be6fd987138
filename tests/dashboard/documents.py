"""Documents of a real store for tests, and such as fail when they are told to."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from peik.clock import Clock
from peik.core.documents import Filing
from peik.errors import StoreUnavailable
from peik.storage.sqlite.store import SqliteStore


@contextlib.asynccontextmanager
async def opened(folder: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / "peik.db", clock=clock, is_owner=True)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Failing:
    """Those of a store that can be read, and says no to every write while it is down."""

    def __init__(self, documents: Any) -> None:
        self._documents = documents
        self.is_down = False

    async def file(self, filings: Sequence[Filing]) -> None:
        if self.is_down:
            raise StoreUnavailable(code="store_full", detail="The disk is full.")
        await self._documents.file(filings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)
