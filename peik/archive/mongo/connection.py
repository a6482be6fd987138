"""The client with our settings, and MongoDB's errors in our words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from pymongo import AsyncMongoClient, WriteConcern, errors
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from peik.archive.mongo.documents import Document
from peik.errors import BadInput, Problem, StoreUnavailable
from peik.wakeup import heeded

DATABASE = "peik"
CONNECT_MS = 5000
ANSWER_MS = 60_000  # a server that is silent for so long is gone
CONNECTIONS_MAX = 20

# What the address says of these counts more.
_BOUNDS = {
    "serverSelectionTimeoutMS": CONNECT_MS,
    "connectTimeoutMS": CONNECT_MS,
    "socketTimeoutMS": ANSWER_MS,
    "waitQueueTimeoutMS": ANSWER_MS,
    "maxPoolSize": CONNECTIONS_MAX,
}

# On the disk of most servers before we are told.
_DURABLE = WriteConcern(w="majority", j=True)
_DATES: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)


class MongoServer:
    """A database, its collections, and the last thing that went wrong with them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: AsyncMongoClient[Document] | None = None
        self.trouble: StoreUnavailable | None = None

    @property
    def shown(self) -> str:
        """Where it is, without user, password and options."""
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def connect(self) -> None:
        said = {name.lower() for name, _ in parse_qsl(urlsplit(self._url).query)}
        bounds: dict[str, Any] = {name: bound for name, bound in _BOUNDS.items() if name.lower() not in said}
        client: AsyncMongoClient[Document] = AsyncMongoClient(self._url, appname="peik archive", **bounds)
        self._client = client
        name = client.get_default_database(DATABASE).name
        # What the address says of reading and writing does not count: other values would break the promise.
        self.database: AsyncDatabase[Document] = client.get_database(
            name, codec_options=_DATES, read_preference=ReadPreference.PRIMARY, write_concern=_DURABLE
        )

    def settled(self, name: str) -> AsyncCollection[Document]:
        """To read what cannot be undone any more. The collections of `database` are for writes and what belongs to them."""
        return self.database.get_collection(name, read_concern=ReadConcern("majority"))

    async def close(self) -> None:
        """Also where it was never connected."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        """Around everything that asks the server."""
        try:
            with heeded():
                yield
        except (errors.PyMongoError, BSONError, OverflowError, OSError) as error:
            told = translate(error)
            if isinstance(told, StoreUnavailable):
                self.trouble = told
            raise told from error
        else:
            self.trouble = None

    async def weaknesses(self) -> list[str]:
        """What this server does not promise of a write."""
        told: list[str] = []
        async with self.asked():
            try:
                status: dict[str, Any] = await self.database.command("serverStatus")
            except errors.OperationFailure:
                return ["This MongoDB user may not ask serverStatus: whether anything is durable cannot be told."]
            if not status.get("storageEngine", {}).get("persistent", True):
                told.append("MongoDB keeps its data in memory only. Run it with the storage engine wiredTiger.")
            hello: dict[str, Any] = await self.database.command("hello")
            if "setName" not in hello:
                told.append(
                    "MongoDB runs as a single server, not as a replica set. What is archived outlives a power cut, but a disk "
                    "that dies takes it along, and nobody stands in for a server that fails. Take backups (mongodump), or run "
                    "a replica set."
                )
        return told


_LOST = "What was being stored then may be there or not."


def translate(error: BaseException) -> Problem:
    line = str(error).partition(", full error:")[0].partition(", Timeout:")[0][:300]
    match error:
        case errors.ServerSelectionTimeoutError():
            return _gone("No MongoDB server can be reached that takes writes.", line)
        case errors.NetworkTimeout() | errors.ExecutionTimeout() | errors.WaitQueueTimeoutError():
            return _gone("MongoDB does not answer.", line)
        case errors.WTimeoutError() | errors.WriteConcernError():
            return _gone("MongoDB could not say that the write is on the disks of most servers.", line)
        case errors.ConnectionFailure():
            return _gone("MongoDB cannot be reached, or the connection broke.", line)
        case errors.DocumentTooLarge() | BSONError() | OverflowError():
            return BadInput(code="bad_value", detail=f"A value cannot be stored: {line}.")
        case errors.OperationFailure(code=18 | 13 | 8000):
            return StoreUnavailable(
                code="store_denied", detail=f"MongoDB does not let this user do that. Check PEIK_ARCHIVE. ({line})"
            )
        case errors.OperationFailure(code=14031):
            return StoreUnavailable(
                code="store_full", detail=f"MongoDB's disk is nearly full. Free some room. ({line})"
            )
        case OSError():
            return _gone("MongoDB cannot be reached.", line)
        case _:
            return StoreUnavailable(code="store_error", detail=f"MongoDB refused: {line}. {_LOST}")


def _gone(hint: str, line: str) -> StoreUnavailable:
    return StoreUnavailable(code="store_gone", detail=f"{hint} {_LOST} ({line})")


def duplicates(error: errors.BulkWriteError) -> set[int]:
    """The places of those documents of a bulk that were there already. Raises the error if something else was wrong."""
    details = error.details or {}
    failed: list[dict[str, Any]] = details.get("writeErrors", [])
    if details.get("writeConcernErrors") or any(one["code"] != DUPLICATE for one in failed):
        raise error
    return {one["index"] for one in failed}


DUPLICATE = 11000
