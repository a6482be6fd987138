"""The archive in MongoDB: a replica set, or a single server."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import ReplaceOne, UpdateOne, errors

from peik.archive.batcher import ArchiveBatcher
from peik.archive.mongo.connection import MongoServer
from peik.archive.mongo.documents import (
    INDEXES,
    JSON_FIELDS,
    Document,
    document_of,
    json_fields,
    key_filter,
    message_document,
    record_of,
    text_of,
    version_document,
)
from peik.archive.mongo.messages import Logs, Messages, MongoFeed, log_document
from peik.archive.rules import (
    VersionFate,
    end_of,
    fitted,
    gone,
    is_end,
    once,
    taken_id,
    taken_phone,
    tally,
    was_changed,
)
from peik.archive.store import (
    ArchiveRetention,
    ChatState,
    EventFilter,
    Fed,
    FeedRecord,
    Happening,
    KeptCounts,
    LogFilter,
    LogLine,
    MemberRecord,
    Message,
    MessageFilter,
    ReaderPlace,
    Record,
    RecordKind,
    Session,
    SessionFilter,
    SessionState,
    Tallied,
    UpdatesState,
)
from peik.errors import Problem, StartError, StoreUnavailable

# Pages of the MongoDB archive for a copy, and what a copy puts into it: see `peik.archive.move`.


COLLECTIONS: dict[RecordKind, tuple[str, type[Any]]] = {
    RecordKind.SESSIONS: ("telegram_sessions", Session),
    RecordKind.UPDATES_STATES: ("updates_states", UpdatesState),
    RecordKind.CHAT_STATES: ("chat_states", ChatState),
    RecordKind.MEMBERS: ("members", MemberRecord),
    RecordKind.MESSAGES: ("messages", Message),
    RecordKind.VERSIONS: ("message_versions", Message),
    RecordKind.EVENTS: ("events", Happening),
    RecordKind.FEED: ("feed", FeedRecord),
    RecordKind.PLACES: ("reader_places", ReaderPlace),
    RecordKind.LOGS: ("logs", LogLine),
}

_ENDS = "end "  # a place in the pages of the ends of feeds, which no id looks like


class Copying:
    def __init__(self, server: MongoServer, feed: MongoFeed) -> None:
        self._server = server
        self._feed = feed

    async def page(self, kind: RecordKind, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        if after is not None and after.startswith(_ENDS):
            return await self._ends(after.removeprefix(_ENDS), limit)
        name, record = COLLECTIONS[kind]
        asked: Document = {"emptied": None} if kind is RecordKind.FEED else {}
        if after is not None:
            has_text_ids = kind in (RecordKind.SESSIONS, RecordKind.UPDATES_STATES)
            asked["_id"] = {"$gt": after if has_text_ids else ObjectId(after)}
        documents = await self._server.settled(name).find(asked).sort("_id", 1).limit(limit).to_list()
        found: list[Record] = [record_of(document, record) for document in documents]
        if len(documents) == limit:
            return found, str(documents[-1]["_id"])
        if kind is RecordKind.PLACES:
            ends, following = await self._ends("", limit - len(found))
            return found + ends, following
        return found, None

    async def _ends(self, after: str, limit: int) -> tuple[list[Record], str | None]:
        """Behind the places of readers."""
        lasts = await self._feed.lasts(after)
        found: list[Record] = [end_of(session_id, last) for session_id, last in lasts[:limit]]
        return found, _ENDS + lasts[limit - 1][0] if len(lasts) > limit else None

    async def put(self, kind: RecordKind, records: Sequence[Record], progress: str) -> None:
        ends = {one.session_id: one.number for one in records if isinstance(one, ReaderPlace) and is_end(one)}
        plain = [one for one in records if not (isinstance(one, ReaderPlace) and is_end(one))]
        if plain:
            replacing = [_replacing(kind, record) for record in plain]
            await self._server.database[COLLECTIONS[kind][0]].bulk_write(replacing, ordered=False)
        await self._feed.put_lasts(ends)
        copying = self._server.database["copying"]
        await copying.replace_one({"_id": 1}, {"progress": progress}, upsert=True)

    async def progress(self) -> str | None:
        found = await self._server.settled("copying").find_one({"_id": 1})
        return None if found is None else str(found["progress"])


def _replacing(kind: RecordKind, record: Record) -> ReplaceOne[Document]:
    match kind:
        case RecordKind.SESSIONS:
            key: Document = {"_id": cast(Session, record).session_id}
            document = document_of(record)
        case RecordKind.UPDATES_STATES:
            key, document = {"_id": cast(UpdatesState, record).session_id}, document_of(record)
        case RecordKind.CHAT_STATES:
            state = cast(ChatState, record)
            key, document = {"session_id": state.session_id, "chat_id": state.chat_id}, document_of(state)
        case RecordKind.MEMBERS:
            return _put_member(cast(MemberRecord, record))
        case RecordKind.MESSAGES:
            message = cast(Message, record)
            key, document = key_filter(message), message_document(message)
        case RecordKind.VERSIONS:
            message = cast(Message, record)
            document = version_document(message)
            key = {**key_filter(message), "edited_at": document["edited_at"]}
        case RecordKind.EVENTS:
            key, document = {"event_id": cast(Happening, record).event_id}, document_of(record)
        case RecordKind.FEED:
            line = cast(FeedRecord, record)
            key, document = {"session_id": line.session_id, "number": line.number}, document_of(line)
        case RecordKind.PLACES:
            place = cast(ReaderPlace, record)
            key, document = {"reader": place.reader, "session_id": place.session_id}, document_of(place)
        case RecordKind.LOGS:
            document = log_document(cast(LogLine, record))
            key = {"digest": document["digest"]}
    return ReplaceOne(key, document, upsert=True)


def _put_member(member: MemberRecord) -> ReplaceOne[Document]:
    document = document_of(member)
    key = {name: document[name] for name in ("session_id", "chat_id", "user_id", "since")}
    return ReplaceOne(key, document, upsert=True)


# Archives of before had texts where sub-documents are now.

_JSON_COLLECTIONS = [
    (COLLECTIONS[kind][0], sorted(JSON_FIELDS[COLLECTIONS[kind][1]]))
    for kind in (
        RecordKind.SESSIONS,
        RecordKind.MESSAGES,
        RecordKind.VERSIONS,
        RecordKind.EVENTS,
        RecordKind.LOGS,
    )
]
_OVER_PAGE = 500
_OVER_PAUSE_S = 5.0  # before the next try, when the server does not answer


class BringingOver:
    """Makes sub-documents of texts, page by page, while the archive is in use; how far it is stands in `upgrades`. Both forms are
    read, so that nothing waits for it, and what was changed meanwhile is left as it is: that has the new form already."""

    def __init__(self, server: MongoServer) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def done(self) -> None:
        """Returns when everything is brought over."""
        assert self._task is not None
        await asyncio.shield(self._task)

    async def _run(self) -> None:
        for name, fields in _JSON_COLLECTIONS:
            is_left = True
            while is_left:
                try:
                    async with self._server.asked():
                        is_left = await self._page(name, fields)
                except Problem:
                    await asyncio.sleep(_OVER_PAUSE_S)

    async def _page(self, name: str, fields: Sequence[str]) -> bool:
        """Whether there may be more."""
        upgrades, collection = self._server.database["upgrades"], self._server.database[name]
        place = await upgrades.find_one({"_id": f"sub-documents of {name}"}) or {}
        if place.get("is_over"):
            return False
        asked: Document = {} if place.get("after") is None else {"_id": {"$gt": place["after"]}}
        found = await collection.find(asked, dict.fromkeys(fields, True)).sort("_id", 1).limit(_OVER_PAGE).to_list()
        changes = [change for one in found for change in _sub_documents(name, one, fields)]
        if changes:
            with contextlib.suppress(
                errors.BulkWriteError
            ):  # what a rule of the collection's owner refuses stays a text
                await collection.bulk_write(changes, ordered=False)
        now = {"after": found[-1]["_id"] if found else place.get("after"), "is_over": len(found) < _OVER_PAGE}
        await upgrades.update_one({"_id": f"sub-documents of {name}"}, {"$set": now}, upsert=True)
        return not now["is_over"]


def _sub_documents(name: str, document: Document, fields: Sequence[str]) -> Iterator[UpdateOne]:
    for field in fields:
        text = document.get(field)
        if not isinstance(text, str):
            continue
        made = json_fields(field, text)
        if name == "logs":
            made[text_of(field)] = text
        if made != {field: text}:
            yield UpdateOne({"_id": document["_id"], field: text}, {"$set": made})


# What every document of ours has, and those of another program with the same collections have not.
_EVERY_HAS = {"telegram_sessions": "version", "messages": "edited_at", "events": "event_id", "logs": "digest"}


class MongoArchive:
    """The port `Archive`."""

    def __init__(self, url: str) -> None:
        self._server = MongoServer(url)
        self._gathering: ArchiveBatcher[Message, VersionFate] = ArchiveBatcher(self._keep)

    async def open(self) -> None:
        try:
            await self._connect()
        except BaseException:  # a client that is only dropped goes on looking for its server
            await self._server.close()
            raise
        self._messages = Messages(self._server)
        self._feed = MongoFeed(self._server)
        self._logs = Logs(self._server)
        self._copying = Copying(self._server, self._feed)
        self.bringing_over = BringingOver(self._server)
        self.bringing_over.start()

    async def _refuse_foreign(self) -> None:
        """Raises StartError if a collection with a name of ours is somebody else's, before anything is written. The first and the
        last document are looked at."""
        for name, field in _EVERY_HAS.items():
            for order in (1, -1):
                found = await self._server.database[name].find().sort("_id", order).limit(1).to_list()
                if found and field not in found[0]:
                    own = self._server.database.name
                    raise StartError(
                        f"The database {own} at {self._server.shown} has a collection `{name}` that is not Peik's: its "
                        f"documents have no `{field}`. Nothing was written. Name a database of Peik's own in PEIK_ARCHIVE "
                        f"(mongodb://…/peik); `peik import mongodb://…/{own}` brings over what is in this one."
                    )

    async def _connect(self) -> None:
        try:
            self._server.connect()
            async with self._server.asked():
                await self._refuse_foreign()
                for name, indexes in INDEXES.items():
                    await self._server.database[name].create_indexes(indexes)
        except (errors.ConfigurationError, errors.InvalidURI, ValueError) as error:
            raise StartError(f"PEIK_ARCHIVE is not an address of a MongoDB server: {error}.") from error
        except StoreUnavailable as error:
            raise StartError(f"Cannot use {self._server.shown} as the archive: {error.detail}") from error

    async def close(self) -> None:
        await self.bringing_over.stop()
        await self._gathering.drained()
        await self._server.close()

    def trouble(self) -> str | None:
        return None if self._server.trouble is None else self._server.trouble.detail

    # ---- the registry ----

    async def add_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=1)
        async with self._server.asked():
            try:
                await self._server.database["telegram_sessions"].insert_one(_session_document(stored))
            except errors.DuplicateKeyError as error:
                raise (taken_phone(stored) if _is_phone(error) else taken_id(stored)) from error
        return stored

    async def session(self, session_id: str) -> Session | None:
        async with self._server.asked():
            found = await self._server.settled("telegram_sessions").find_one({"session_id": session_id})
        return None if found is None else record_of(found, Session)

    async def session_by_phone(self, phone: str) -> Session | None:
        async with self._server.asked():
            found = self._server.settled("telegram_sessions").find({"phone": phone})
            newest = await found.sort([("created_at", -1), ("session_id", -1)]).limit(1).to_list()
        return record_of(newest[0], Session) if newest else None

    async def sessions(self, wanted: SessionFilter, *, after: str | None, limit: int) -> list[Session]:
        asked: Document = {"session_id": {"$gt": after or ""}}
        if wanted.agent_id is not None:
            asked["agent_id"] = wanted.agent_id
        if wanted.states is not None:
            asked["state"] = {"$in": sorted(str(state) for state in wanted.states)}
        if wanted.is_active is not None:
            asked["is_active"] = wanted.is_active
        async with self._server.asked():
            found = self._server.settled("telegram_sessions").find(asked).sort("session_id", 1).limit(limit)
            return [record_of(document, Session) async for document in found]

    async def save_session(self, session: Session) -> Session:
        stored = msgspec.structs.replace(session, version=session.version + 1)
        sessions = self._server.database["telegram_sessions"]
        async with self._server.asked():
            try:
                asked = {"session_id": session.session_id, "version": session.version}
                changed = await sessions.replace_one(asked, _session_document(stored))
            except errors.DuplicateKeyError as error:
                raise taken_phone(stored) from error
            if not changed.matched_count:
                is_here = await sessions.find_one({"session_id": session.session_id}, {"_id": True})
                raise was_changed(session) if is_here else gone(session)
        return stored

    async def remove_session(self, session_id: str) -> bool:
        async with self._server.asked():
            await self._server.database["updates_states"].delete_one({"_id": session_id})
            removed = await self._server.database["telegram_sessions"].delete_one({"session_id": session_id})
        return removed.deleted_count > 0

    async def remove_old_sessions(self, *, before_ms: int, states: frozenset[SessionState]) -> list[str]:
        before = DatetimeMS(before_ms)
        asked: Document = {
            "created_at": {"$lt": before},
            "updated_at": {"$lt": before},
            "$and": [
                {"$or": [{"active_at": None}, {"active_at": {"$lt": before}}]},
                {"$or": [{"is_active": False}, {"state": {"$in": sorted(str(state) for state in states)}}]},
            ],
        }
        sessions, removed = self._server.database["telegram_sessions"], []
        async with self._server.asked():
            for found in await sessions.find(asked).to_list():
                # Only as it was found: somebody may use it again right now.
                ended = await sessions.delete_one({"session_id": found["session_id"], "version": found["version"]})
                if ended.deleted_count:
                    await self._server.database["updates_states"].delete_one({"_id": found["session_id"]})
                    removed.append(str(found["session_id"]))
        return sorted(removed)

    async def save_updates_state(self, session_id: str, state: bytes) -> None:
        async with self._server.asked():
            states = self._server.database["updates_states"]
            await states.replace_one({"_id": session_id}, {"session_id": session_id, "state": state}, upsert=True)

    async def updates_state(self, session_id: str) -> bytes | None:
        async with self._server.asked():
            found = await self._server.settled("updates_states").find_one({"_id": session_id})
        return None if found is None else bytes(found["state"])

    # ---- what they saw ----

    async def keep_messages(self, messages: Sequence[Message]) -> KeptCounts:
        return tally(await self._gathering.add([fitted(message) for message in messages]))

    async def _keep(self, messages: Sequence[Message]) -> list[VersionFate]:
        async with self._server.asked():
            return await self._messages.keep(messages)

    async def mark_deleted(
        self, session_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
    ) -> int:
        async with self._server.asked():
            return await self._messages.mark_deleted(session_id, chat_id, message_ids, at_ms)

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]:
        async with self._server.asked():
            return await self._messages.find(wanted, cursor, limit)

    async def count_messages(self, wanted: MessageFilter) -> int:
        async with self._server.asked():
            return await self._messages.count(wanted)

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        async with self._server.asked():
            return await self._messages.versions(session_id, chat_id, message_id)

    async def keep_events(self, events: Sequence[Happening]) -> int:
        async with self._server.asked():
            return await self._messages.keep_events([fitted(event) for event in events])

    async def events(
        self, wanted: EventFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Happening], str | None]:
        async with self._server.asked():
            return await self._messages.find_events(wanted, cursor, limit)

    # ---- what is told of it ----

    async def feed(self, lines: Sequence[FeedRecord]) -> int:
        async with self._server.asked():
            return await self._feed.add(once(lines))

    async def fed(self, session_id: str, *, after: int, limit: int) -> list[FeedRecord]:
        async with self._server.asked():
            return await self._feed.read(session_id, after, limit)

    async def fed_to(self, session_ids: Sequence[str] | None = None) -> dict[str, Fed]:
        async with self._server.asked():
            return await self._feed.ends(session_ids)

    async def places(self, reader: str) -> dict[str, int]:
        async with self._server.asked():
            return await self._feed.places(reader)

    async def save_places(self, reader: str, places: Mapping[str, int], *, at_ms: int) -> None:
        async with self._server.asked():
            await self._feed.save_places(reader, places, at_ms)

    async def remove_reader(self, reader: str) -> bool:
        async with self._server.asked():
            return await self._feed.remove_reader(reader)

    # ---- the log ----

    async def keep_logs(self, lines: Sequence[LogLine]) -> None:
        async with self._server.asked():
            await self._logs.keep([fitted(line) for line in lines])

    async def logs(self, wanted: LogFilter, *, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        async with self._server.asked():
            return await self._logs.find(wanted, cursor, limit)

    # ---- gaps and crawls ----

    async def message_ids(self, session_id: str, chat_id: int, *, above: int, limit: int) -> list[int]:
        asked = {"session_id": session_id, "chat_id": chat_id, "message_id": {"$gt": above}}
        async with self._server.asked():
            found = self._server.settled("messages").find(asked, {"_id": False, "message_id": True})
            return [document["message_id"] async for document in found.sort("message_id", 1).limit(limit)]

    async def chat_states(self, session_id: str) -> list[ChatState]:
        async with self._server.asked():
            found = self._server.settled("chat_states").find({"session_id": session_id}).sort("chat_id", 1)
            return [record_of(document, ChatState) async for document in found]

    async def save_chat_state(self, state: ChatState) -> None:
        async with self._server.asked():
            key = {"session_id": state.session_id, "chat_id": state.chat_id}
            await self._server.database["chat_states"].replace_one(key, document_of(state), upsert=True)

    async def members(
        self, session_id: str, chat_id: int, *, at_ms: int | None, after: int, limit: int
    ) -> list[MemberRecord]:
        asked: Document = {"session_id": session_id, "chat_id": chat_id, "user_id": {"$gt": after}, "until": None}
        if at_ms is not None:
            at = DatetimeMS(at_ms)
            asked |= {"since": {"$lte": at}, "$or": [{"until": None}, {"until": {"$gt": at}}]}
            del asked["until"]
        async with self._server.asked():
            found = self._server.settled("members").find(asked).sort("user_id", 1).limit(limit)
            return [record_of(document, MemberRecord) async for document in found]

    async def save_members(self, members: Sequence[MemberRecord]) -> None:
        if members:
            async with self._server.asked():
                changes = [_put_member(fitted(one)) for one in members]
                await self._server.database["members"].bulk_write(changes, ordered=False)

    # ---- upkeep ----

    async def tally(self, agent_id: str | None = None) -> Tallied:
        asked: Document = {} if agent_id is None else {"agent_id": agent_id}
        hint: dict[str, Any] = {"hint": "_id_"} if agent_id is None else {}
        counts: dict[str, int] = {}
        async with self._server.asked():
            for kind in (RecordKind.SESSIONS, RecordKind.MESSAGES, RecordKind.VERSIONS, RecordKind.EVENTS):
                counts[kind] = await self._server.settled(COLLECTIONS[kind][0]).count_documents(asked, **hint)
        return Tallied(**counts)

    async def clean(self, retention: ArchiveRetention, *, at_ms: int, limit: int) -> int:
        async with self._server.asked():
            gone = await self._messages.clean(retention, at_ms, limit)
            if retention.feed_ms is not None:
                gone += await self._feed.clean(DatetimeMS(at_ms - retention.feed_ms), limit)
            if retention.logs_ms is not None:
                gone += await self._logs.clean(DatetimeMS(at_ms - retention.logs_ms), limit)
        return gone

    async def forget_person(self, user_id: int) -> Mapping[str, int]:
        async with self._server.asked():
            return {**await self._messages.forget(user_id), "feed": await self._feed.forget(user_id)}

    async def count_person(self, user_id: int) -> Mapping[str, int]:
        async with self._server.asked():
            return {**await self._messages.count_person(user_id), "feed": await self._feed.count_person(user_id)}

    async def drop_logs(self, lines: Sequence[LogLine]) -> int:
        async with self._server.asked():
            return await self._logs.drop([fitted(line) for line in lines])

    async def durability(self) -> list[str]:
        return await self._server.weaknesses()

    # ---- copying ----

    async def page(self, kind: RecordKind, *, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        async with self._server.asked():
            return await self._copying.page(kind, after, limit)

    async def put(self, kind: RecordKind, records: Sequence[Record], progress: str) -> None:
        async with self._server.asked():
            await self._copying.put(kind, records, progress)

    async def progress(self) -> str | None:
        async with self._server.asked():
            return await self._copying.progress()


def _session_document(session: Session) -> Document:
    return {"_id": session.session_id, **document_of(session)}


def _is_phone(error: errors.DuplicateKeyError) -> bool:
    return "phone" in ((error.details or {}).get("keyPattern") or {})
