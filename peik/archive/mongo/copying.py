"""Pages of the MongoDB archive for a copy, and what a copy puts into it: see `peik.archive.moving`."""

from collections.abc import Sequence
from typing import Any, cast

from bson import ObjectId
from pymongo import ReplaceOne

from peik.archive.feeding import end_of, is_end
from peik.archive.mongo.connection import Server
from peik.archive.mongo.documents import (
    Document,
    document_of,
    key_filter,
    message_document,
    record_of,
    version_document,
)
from peik.archive.mongo.feed import Feed
from peik.archive.mongo.logs import log_document
from peik.archive_ports import (
    ChatState,
    FeedLine,
    Happening,
    Kind,
    LogLine,
    Message,
    ReaderPlace,
    Record,
    Session,
    UpdatesState,
)

COLLECTIONS: dict[Kind, tuple[str, type[Any]]] = {
    Kind.SESSIONS: ("telegram_sessions", Session),
    Kind.UPDATES_STATES: ("updates_states", UpdatesState),
    Kind.CHAT_STATES: ("chat_states", ChatState),
    Kind.MESSAGES: ("messages", Message),
    Kind.VERSIONS: ("message_versions", Message),
    Kind.EVENTS: ("events", Happening),
    Kind.FEED: ("feed", FeedLine),
    Kind.PLACES: ("reader_places", ReaderPlace),
    Kind.LOGS: ("logs", LogLine),
}

_ENDS = "end "  # a place in the pages of the ends of feeds, which no id looks like


class Copying:
    def __init__(self, server: Server, feed: Feed) -> None:
        self._server = server
        self._feed = feed

    async def page(self, kind: Kind, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        if after is not None and after.startswith(_ENDS):
            return await self._ends(after.removeprefix(_ENDS), limit)
        name, record = COLLECTIONS[kind]
        asked: Document = {"emptied": None} if kind is Kind.FEED else {}
        if after is not None:
            has_text_ids = kind in (Kind.SESSIONS, Kind.UPDATES_STATES)
            asked["_id"] = {"$gt": after if has_text_ids else ObjectId(after)}
        documents = await self._server.settled(name).find(asked).sort("_id", 1).limit(limit).to_list()
        found: list[Record] = [record_of(document, record) for document in documents]
        if len(documents) == limit:
            return found, str(documents[-1]["_id"])
        if kind is Kind.PLACES:
            ends, following = await self._ends("", limit - len(found))
            return found + ends, following
        return found, None

    async def _ends(self, after: str, limit: int) -> tuple[list[Record], str | None]:
        """Behind the places of readers."""
        lasts = await self._feed.lasts(after)
        found: list[Record] = [end_of(session_id, last) for session_id, last in lasts[:limit]]
        return found, _ENDS + lasts[limit - 1][0] if len(lasts) > limit else None

    async def put(self, kind: Kind, records: Sequence[Record], progress: str) -> None:
        ends = {one.session_id: one.number for one in records if isinstance(one, ReaderPlace) and is_end(one)}
        plain = [one for one in records if not (isinstance(one, ReaderPlace) and is_end(one))]
        if plain:
            replacing = [_replacing(kind, record) for record in plain]
            await self._server.collection(COLLECTIONS[kind][0]).bulk_write(replacing, ordered=False)
        await self._feed.put_lasts(ends)
        copying = self._server.collection("copying")
        await copying.replace_one({"_id": 1}, {"progress": progress}, upsert=True)

    async def progress(self) -> str | None:
        found = await self._server.settled("copying").find_one({"_id": 1})
        return None if found is None else str(found["progress"])


def _replacing(kind: Kind, record: Record) -> ReplaceOne[Document]:
    match kind:
        case Kind.SESSIONS:
            key: Document = {"_id": cast(Session, record).session_id}
            document = document_of(record)
        case Kind.UPDATES_STATES:
            key, document = {"_id": cast(UpdatesState, record).session_id}, document_of(record)
        case Kind.CHAT_STATES:
            state = cast(ChatState, record)
            key, document = {"session_id": state.session_id, "chat_id": state.chat_id}, document_of(state)
        case Kind.MESSAGES:
            message = cast(Message, record)
            key, document = key_filter(message), message_document(message)
        case Kind.VERSIONS:
            message = cast(Message, record)
            document = version_document(message)
            key = {**key_filter(message), "edited_at": document["edited_at"]}
        case Kind.EVENTS:
            key, document = {"event_id": cast(Happening, record).event_id}, document_of(record)
        case Kind.FEED:
            line = cast(FeedLine, record)
            key, document = {"session_id": line.session_id, "number": line.number}, document_of(line)
        case Kind.PLACES:
            place = cast(ReaderPlace, record)
            key, document = {"reader": place.reader, "session_id": place.session_id}, document_of(place)
        case Kind.LOGS:
            document = log_document(cast(LogLine, record))
            key = {"digest": document["digest"]}
    return ReplaceOne(key, document, upsert=True)
