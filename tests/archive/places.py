"""Where the archives of the stories live. A new archive joins the suite with one more class here."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Archive
from tests.storage.all_places import HAS_SERVERS


class Place(Protocol):
    """One set of data. Archives open and close on it; the data stays."""

    def __init__(self, folder: Path) -> None: ...

    def make(self) -> Archive: ...


class SqlitePlace:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "peik.db.archive"

    def make(self) -> SqliteArchive:
        return SqliteArchive(self.path)


class PostgresPlace:
    @staticmethod
    def skip_if_missing() -> object:
        from tests.storage.servers import wanted

        return wanted()

    def __init__(self, folder: Path) -> None:
        from tests.storage.servers import postgres

        self.url = f"{postgres().url}?schema=a{uuid.uuid4().hex}"

    def make(self) -> Archive:
        from peik.archive.postgres.archive import PostgresArchive

        return PostgresArchive(self.url)


class MongoPlace:
    @staticmethod
    def skip_if_missing() -> object:
        from tests.archive.mongo_server import wanted

        return wanted()

    def __init__(self, folder: Path) -> None:
        from tests.archive.mongo_server import shared

        self.url = shared().url.format(database=f"a{uuid.uuid4().hex}")

    def make(self) -> Archive:
        from peik.archive.mongo.archive import MongoArchive

        return MongoArchive(self.url)


PLACES: tuple[type[Place], ...] = (SqlitePlace,)
if HAS_SERVERS:
    PLACES += (PostgresPlace, MongoPlace)


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Archive]:
    archive = place.make()
    await archive.open()
    try:
        yield archive
    finally:
        await archive.close()
