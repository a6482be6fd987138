"""An archive in MongoDB as a part of a backup: its collections as BSON, one after the other, as mongodump writes them. What
others keep in the same database is neither copied nor touched."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern, errors

from peik.backups.model import BackupPart, BackupWatch, Hold, broken, on_thread
from peik.errors import StoreUnavailable

DATABASE = "peik"
CONNECT_MS = 5000
AT_ONCE = 1000
APART = ".restoring-"
# As `peik.archive.mongo` names them; a test compares.
COLLECTIONS = frozenset(
    {
        "chat_states",
        "copying",
        "events",
        "feed",
        "logs",
        "members",
        "message_versions",
        "messages",
        "reader_places",
        "telegram_sessions",
        "updates_states",
    }
)


class MongoSource:
    """See `Source`. Indexes are not copied: Peik makes them when it opens the archive."""

    kind = "mongodb"

    def __init__(self, url: str, *, shown: str) -> None:
        self._url = url
        self.shown = shown

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: BackupWatch) -> BackupPart:
        return await on_thread(watch, self._copy, into, name, watch)

    def _copy(self, into: Path, name: str, watch: BackupWatch) -> BackupPart:
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._connected() as database:
            names = _collections(database)
            watch.begin(f"Copying the {name}", sum(database[one].estimated_document_count() for one in names))
            with _snapshot(database, watch) as session:
                counts = {one: _write(database[one], into / f"{one}.bson", session, watch) for one in names}
            return BackupPart(name=name, kind=self.kind, shown=self.shown, counts=counts, label=database.name)

    def reserved(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def used_by(self) -> str | None:
        return None  # anyone who uses the archive runs on the store

    async def is_empty(self) -> bool:
        return await on_thread(BackupWatch(), self._is_empty)

    def _is_empty(self) -> bool:
        with self._connected() as database:
            return not any(database[name].find_one() for name in _collections(database))

    async def check(self, folder: Path, part: BackupPart, watch: BackupWatch) -> dict[str, int]:
        """In collections of other names, which go again."""
        return await on_thread(watch, self._check, folder, part, watch)

    def _check(self, folder: Path, part: BackupPart, watch: BackupWatch) -> dict[str, int]:
        watch.begin(f"Trying out the {part.name}", sum(part.counts.values()))
        with self._connected() as database, _apart(database) as suffix:
            return {name: _fill(database[name + suffix], folder / f"{name}.bson", watch) for name in part.counts}

    async def put_back(self, folder: Path, part: BackupPart, watch: BackupWatch) -> None:
        """Each collection as a whole. If it stops between two of them, putting it back again ends it."""
        await on_thread(watch, self._put_back, folder, part, watch)

    def _put_back(self, folder: Path, part: BackupPart, watch: BackupWatch) -> None:
        watch.begin(f"Putting the {part.name} back", sum(part.counts.values()))
        with self._connected() as database, _apart(database) as suffix:
            ours = {name: count for name, count in part.counts.items() if name in COLLECTIONS}
            for name in ours:
                _fill(database[name + suffix], folder / f"{name}.bson", watch)
            for name, count in ours.items():
                if count:
                    database[name + suffix].rename(name, dropTarget=True)
                else:
                    database[name].drop()
            for name in set(_collections(database)) - ours.keys():
                database[name].drop()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            with MongoClient[Any](
                self._url, appname="peik backup", serverSelectionTimeoutMS=CONNECT_MS, document_class=RawBSONDocument
            ) as client:
                name = client.get_default_database(DATABASE).name
                yield client.get_database(name, write_concern=WriteConcern(w="majority", j=True))
        except (errors.PyMongoError, BSONError) as error:
            raise StoreUnavailable(code="store_error", detail=f"MongoDB refused, or is gone: {error}.") from error


def _collections(database: Any) -> list[str]:
    """The archive's own that are there."""
    return sorted(COLLECTIONS.intersection(database.list_collection_names()))


@contextlib.contextmanager
def _snapshot(database: Any, watch: BackupWatch) -> Iterator[Any]:
    """All collections as they were at one moment, where the server can: MongoDB 5 and later, in a replica set."""
    with database.client.start_session(snapshot=True) as session:
        try:
            database["telegram_sessions"].find_one(session=session)
        except (errors.OperationFailure, errors.ConfigurationError):
            watch.warn(
                "This MongoDB has no snapshots (it is no replica set), so that each document is copied when its turn comes."
            )
        else:
            yield session
            return
    yield None


def _write(collection: Any, path: Path, session: Any, watch: BackupWatch) -> int:
    count = 0
    with path.open("wb") as file:
        for document in collection.find(session=session, batch_size=AT_ONCE):
            file.write(document.raw)
            count += 1
            watch.step(1)
    return count


def _fill(collection: Any, path: Path, watch: BackupWatch) -> int:
    count = 0
    with path.open("rb") as file:
        try:
            some: list[RawBSONDocument] = []
            for document in bson.decode_file_iter(file, bson.CodecOptions(document_class=RawBSONDocument)):
                some.append(document)
                if len(some) == AT_ONCE:
                    count += _insert(collection, some, watch)
                    some = []
            return count + _insert(collection, some, watch)
        except BSONError as error:
            raise broken(f"a document in it cannot be read ({error})") from None


def _insert(collection: Any, some: list[RawBSONDocument], watch: BackupWatch) -> int:
    if some:
        collection.insert_many(some, ordered=False)
        watch.step(len(some))
    return len(some)


@contextlib.contextmanager
def _apart(database: Any) -> Iterator[str]:
    suffix = APART + secrets.token_hex(6)
    try:
        yield suffix
    finally:
        for name in database.list_collection_names():
            if name.endswith(suffix):
                database[name].drop()
