"""Messages and events of the MongoDB archive: keeping, finding, letting go.

There are no transactions: each step can be done again, and a process that dies between two of them leaves nothing that the
next one who hands in the same would not fix. A version is put aside before another takes its place.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import ASCENDING, DESCENDING, UpdateOne, errors
from pymongo.asynchronous.collection import AsyncCollection

from peik.archive.mongo.connection import MongoServer, duplicates
from peik.archive.mongo.documents import (
    Document,
    between,
    change_to,
    document_of,
    edited_at,
    key_filter,
    message_document,
    of_person,
    page_of,
    record_of,
    text_of,
    version_document,
)
from peik.archive.rules import (
    Chain,
    Key,
    Todo,
    VersionFate,
    VersionFates,
    beside,
    chains,
    digest_of,
    key_of,
    levels_from,
    settle,
    words,
)
from peik.archive.store import (
    ArchiveRetention,
    EventFilter,
    Fed,
    FeedRecord,
    Happening,
    LogFilter,
    LogLine,
    Message,
    MessageFilter,
)
from peik.errors import StoreUnavailable

_TRIES = 10  # each time somebody else was quicker with the same message
_KEYS_AT_ONCE = 500
_CHATS_AT_ONCE = 100


class Messages:
    def __init__(self, server: MongoServer) -> None:
        self._server = server
        self._all = server.database["messages"]
        self._versions = server.database["message_versions"]
        self._events = server.database["events"]

    # ---- keeping ----

    async def keep(self, messages: Sequence[Message]) -> list[VersionFate]:
        fates = VersionFates(messages)
        left = chains(messages)
        for _ in range(_TRIES):
            left = await self._keep(left, fates)
            if not left:
                return fates.told()
        raise StoreUnavailable(code="store_locked", detail="Others keep changing the same messages. Try again.")

    async def _keep(self, here: Sequence[Chain], fates: VersionFates) -> list[Chain]:
        """Those that somebody else changed meanwhile."""
        todo = Todo()
        by_key = {chain.key: chain for chain in here}
        # Looking first costs a new message little, and spares the server an error for each that is known.
        found = {key_of(current): current for current in await self._find(by_key)}
        for key, current in found.items():
            settle(todo, by_key[key], current)
        new = [chain for chain in here if chain.key not in found]
        there = await self._insert([message_document(chain.newest) for chain in new], "messages")
        late = [chain for place, chain in enumerate(new) if place in there]
        for place, chain in enumerate(new):
            if place not in there:
                fates.inserted(chain)
                todo.aside += beside(chain)
        await self._put_aside([one.old for one in todo.replace])
        for one in todo.replace:
            as_it_was = {**key_filter(one.old), "edited_at": edited_at(one.old)}
            changed = await self._all.update_one(as_it_was, change_to(one.new))
            if changed.matched_count:
                fates.kept(by_key[key_of(one.old)], one.new.edited_at_ms)
                todo.aside += one.between
            else:
                late.append(by_key[key_of(one.old)])
        for version in await self._put_aside(todo.aside):
            fates.kept(by_key[key_of(version)], version.edited_at_ms)
        if todo.fill:
            await self._all.bulk_write([UpdateOne(key_filter(whole), _more_of(whole)) for whole in todo.fill])
        return late

    async def _insert(self, documents: list[Document], collection: str) -> set[int]:
        """The places of those that were there already."""
        if not documents:
            return set()
        try:
            await self._server.database[collection].insert_many(documents, ordered=False)
        except errors.BulkWriteError as error:
            return duplicates(error)
        return set()

    async def _find(self, keys: Iterable[Key]) -> list[Message]:
        by_chat: dict[tuple[str, int], list[int]] = {}
        for session_id, chat_id, message_id in keys:
            by_chat.setdefault((session_id, chat_id), []).append(message_id)
        asked = [
            {"session_id": session_id, "chat_id": chat_id, "message_id": {"$in": message_ids}}
            for (session_id, chat_id), message_ids in by_chat.items()
        ]
        found: list[Message] = []
        for start in range(0, len(asked), _CHATS_AT_ONCE):
            some = self._all.find({"$or": asked[start : start + _CHATS_AT_ONCE]}, {"words": False}, hint="one_per_key")
            found += [record_of(document, Message) for document in await some.to_list()]
        return found

    async def _put_aside(self, aside: Sequence[Message]) -> list[Message]:
        """Those that were not there."""
        there = await self._insert([version_document(message) for message in aside], "message_versions")
        return [message for place, message in enumerate(aside) if place not in there]

    async def mark_deleted(self, session_id: str, chat_id: int | None, message_ids: Sequence[int], at_ms: int) -> int:
        where = {"$gt": -1_000_000_000_000} if chat_id is None else chat_id
        asked = {"session_id": session_id, "chat_id": where, "message_id": {"$in": list(message_ids)}}
        change = [{"$set": {"deleted_at": {"$ifNull": ["$deleted_at", DatetimeMS(at_ms)]}}}]
        return (await self._all.update_many(asked, change)).matched_count

    async def keep_events(self, events: Sequence[Happening]) -> int:
        there = await self._insert([document_of(event) for event in events], "events")
        return len(events) - len(there)

    # ---- finding ----

    async def find(self, wanted: MessageFilter, cursor: str | None, limit: int) -> tuple[list[Message], str | None]:
        asked = _where(wanted)
        if asked is None:
            return [], None
        documents, following = await page_of(
            self._server.settled("messages"), asked, by="date", cursor=cursor, limit=limit
        )
        return [record_of(document, Message) for document in documents], following

    async def count(self, wanted: MessageFilter) -> int:
        asked = _where(wanted)
        if asked is None:
            return 0
        hint: dict[str, Any] = {} if asked else {"hint": "_id_"}
        return await self._server.settled("messages").count_documents(asked, **hint)

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        key = {"session_id": session_id, "chat_id": chat_id, "message_id": message_id}
        current = await self._server.settled("messages").find_one(key, {"words": False})
        aside = self._server.settled("message_versions").find(key).sort("edited_at", 1)
        found = [record_of(document, Message) async for document in aside]
        if current is None:
            return found
        # One that was replaced between the two questions is in both answers.
        last = record_of(current, Message)
        return [message for message in found if message.edited_at_ms < last.edited_at_ms] + [last]

    async def find_events(
        self, wanted: EventFilter, cursor: str | None, limit: int
    ) -> tuple[list[Happening], str | None]:
        names = ("session_id", "agent_id", "event_type", "chat_id")
        asked: Document = {name: value for name in names if (value := getattr(wanted, name)) is not None}
        asked |= between("created_at", wanted.since_ms, wanted.until_ms)
        documents, following = await page_of(
            self._server.settled("events"), asked, by="created_at", cursor=cursor, limit=limit
        )
        return [record_of(document, Happening) for document in documents], following

    # ---- letting go ----

    async def clean(self, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
        gone = 0
        if retention.messages_ms is not None:
            before = DatetimeMS(at_ms - retention.messages_ms)
            for session_id in await self._all.distinct("session_id"):
                asked = {"session_id": session_id, "created_at": {"$lt": before}}
                gone += await self._remove(asked, limit - gone)
                if gone >= limit:
                    break
        if retention.events_ms is not None:
            asked = {"created_at": {"$lt": DatetimeMS(at_ms - retention.events_ms)}}
            found = await self._events.find(asked, {"_id": True}).limit(limit).to_list()
            gone += (await self._events.delete_many({"_id": {"$in": [one["_id"] for one in found]}})).deleted_count
            members = self._server.database["members"]
            left = {"until": {"$lt": DatetimeMS(at_ms - retention.events_ms)}}
            found = await members.find(left, {"_id": True}).limit(limit).to_list()
            gone += (await members.delete_many({"_id": {"$in": [one["_id"] for one in found]}})).deleted_count
        return gone

    async def _remove(self, asked: Document, limit: int) -> int:
        """Versions first: a process that dies in between leaves nothing that nobody would find."""
        keys = {"session_id": True, "chat_id": True, "message_id": True}
        found = await self._all.find(asked, keys).limit(limit).to_list()
        for start in range(0, len(found), _KEYS_AT_ONCE):
            part = found[start : start + _KEYS_AT_ONCE]
            await self._versions.delete_many({"$or": [{name: one[name] for name in keys} for one in part]})
            await self._all.delete_many({"_id": {"$in": [one["_id"] for one in part]}})
        return len(found)

    async def forget(self, user_id: int) -> dict[str, int]:
        places = self._of_person(user_id)
        return {kind: (await place.delete_many(which)).deleted_count for kind, (place, which) in places.items()}

    async def count_person(self, user_id: int) -> dict[str, int]:
        return {kind: await place.count_documents(which) for kind, (place, which) in self._of_person(user_id).items()}

    def _of_person(self, user_id: int) -> dict[str, tuple[AsyncCollection[Document], Document]]:
        """What they wrote and did, and all of the private chats with them."""
        wrote: Document = {"$or": [{"sender_id": user_id}, {"chat_id": user_id}]}
        return {
            "messages": (self._all, wrote),
            "versions": (self._versions, wrote),
            "events": (self._events, of_person(user_id)),
            "chat_states": (self._server.database["chat_states"], {"chat_id": user_id}),
            "members": (self._server.database["members"], {"user_id": user_id}),
        }


def _more_of(whole: Message) -> Document:
    """What a version that is here has learned; a deletion that came meanwhile stays."""
    learned = {
        name: value for name in ("letter_id", "deleted_at") if (value := document_of(whole).get(name)) is not None
    }
    return {"$set": learned}


def _where(wanted: MessageFilter) -> Document | None:
    """None: no message can fit."""
    names = ("session_id", "agent_id", "chat_id", "direction", "sender_id", "kind")
    asked: Document = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    asked |= between("date", wanted.since_ms, wanted.until_ms)
    if wanted.is_deleted is not None:
        asked["deleted_at"] = {"$ne": None} if wanted.is_deleted else None
    if wanted.text is not None:
        # The index is walked for the first of them: a long word is rarer than a short one.
        found = sorted(words(wanted.text), key=len, reverse=True)
        if not found:
            return None
        asked["words"] = {"$all": found}
    return asked


# Feeds of the MongoDB archive: lines with numbers that have no gap, and how far each reader has had them.
#
# There are no transactions. A line gets the number after the highest one, and a unique index lets only one writer have it: who
# comes second looks again. So a number must not leave the collection while a writer may be under way that looked before it came,
# or it would be given once more; and the highest must never leave. A line that has to go earlier is emptied: session and number
# stay, nothing else. No counter lies beside the lines, so none can fall behind them, wherever a process dies.


_NUMBER_TRIES = 100  # each time somebody else was quicker with the next number
_AT_ONCE = 1000
# A writer looks and inserts within seconds, or its connection breaks. The rest is for clocks that differ: the age of a line is
# told by its id, which the writer made.
_WRITES_FOR = timedelta(hours=1)

_EMPTIED = {"_id": "$_id", "session_id": "$session_id", "number": "$number", "emptied": True}


class MongoFeed:
    def __init__(self, server: MongoServer) -> None:
        self._server = server
        self._lines = server.database["feed"]
        self._settled = server.settled("feed")
        self._places = server.database["reader_places"]
        self._settled_places = server.settled("reader_places")

    # ---- telling ----

    async def add(self, lines: Sequence[FeedRecord]) -> int:
        left, new = list(lines), 0
        for _ in range(_NUMBER_TRIES):
            left = await self._unknown(left)
            if not left:
                return new
            added = await self._add(left)
            left, new = left[added:], new + added
        raise StoreUnavailable(code="store_locked", detail="Others keep adding to the same feed. Try again.")

    async def _unknown(self, lines: list[FeedRecord]) -> list[FeedRecord]:
        """Settled ones only are known: of another's that may still be undone we must not say that it is kept. The server
        refuses that one by its key, and answers when it is settled."""
        if not lines:
            return lines
        asked = {"session_id": lines[0].session_id, "key": {"$in": [line.key for line in lines]}}
        found = self._settled.find(asked, {"_id": False, "key": True}, hint="one_per_key")
        known = {document["key"] async for document in found}
        return [line for line in lines if line.key not in known]

    async def _add(self, lines: list[FeedRecord]) -> int:
        """How many of them, from the first on. Ordered: nobody sees a number before the one below it."""
        session_id = lines[0].session_id
        highest = await self._lines.find_one({"session_id": session_id}, _NUMBER, sort=[("number", DESCENDING)])
        last = 0 if highest is None else highest["number"]
        documents = [{**document_of(line), "number": number} for number, line in enumerate(lines, last + 1)]
        try:
            await self._lines.insert_many(documents, ordered=True)
        except errors.BulkWriteError as error:
            return min(duplicates(error))
        return len(documents)

    # ---- reading ----

    async def read(self, session_id: str, after: int, limit: int) -> list[FeedRecord]:
        asked = {"session_id": session_id, "number": {"$gt": after}, "emptied": None}
        found = self._settled.find(asked).sort("number", 1).limit(limit)
        return [record_of(document, FeedRecord) async for document in found]

    async def ends(self, session_ids: Sequence[str] | None) -> dict[str, Fed]:
        """In this order, since lines come and go meanwhile: no first line is then beyond the last, and none was emptied before
        we looked."""
        which = _among(session_ids)
        emptied = {(one["session_id"], one["number"]) for one in await self._emptied(self._settled, which)}
        lowest = await _outermost(self._settled, which, direction=1)
        highest = await _outermost(self._settled, which, direction=-1)
        found: dict[str, Fed] = {}
        for session_id, first in lowest.items():
            last = highest[session_id]
            if (session_id, first) in emptied:
                first = last + 1 if first == last else await self._first(session_id, last)
            found[session_id] = Fed(first=first, last=last)
        return found

    async def _first(self, session_id: str, last: int) -> int:
        """Behind emptied ones, which are few and go soon."""
        asked = {"session_id": session_id, "number": {"$lte": last}, "emptied": None}
        found = await self._settled.find_one(asked, _NUMBER, sort=[("number", ASCENDING)])
        return last + 1 if found is None else int(found["number"])

    async def _emptied(self, lines: AsyncCollection[Document], which: Document) -> list[Document]:
        return await lines.find({"emptied": True, **which}, {"session_id": True, "number": True}).to_list()

    # ---- copying ----

    async def lasts(self, after: str) -> list[tuple[str, int]]:
        """The end of each feed, by session, after one."""
        return sorted((await _outermost(self._settled, {"session_id": {"$gt": after}}, direction=-1)).items())

    async def put_lasts(self, lasts: Mapping[str, int]) -> None:
        """The next line of each comes behind this number, and behind those that are there."""
        if not lasts:
            return
        highest = await _outermost(self._lines, _among(sorted(lasts)), direction=-1)
        keys = [
            {"session_id": session_id, "number": last}
            for session_id, last in lasts.items()
            if last > highest.get(session_id, 0)
        ]
        if keys:
            await self._lines.bulk_write([UpdateOne(key, {"$set": {"emptied": True}}, upsert=True) for key in keys])

    # ---- readers ----

    async def places(self, reader: str) -> dict[str, int]:
        found = self._settled_places.find({"reader": reader})
        return {one["session_id"]: one["number"] async for one in found}

    async def save_places(self, reader: str, places: Mapping[str, int], at_ms: int) -> None:
        if places:
            at = DatetimeMS(at_ms)
            saving = [
                UpdateOne({"reader": reader, "session_id": session_id}, [_moved(number, at)], upsert=True)
                for session_id, number in places.items()
            ]
            await self._places.bulk_write(saving, ordered=False)

    async def remove_reader(self, reader: str) -> bool:
        return (await self._places.delete_many({"reader": reader})).deleted_count > 0

    # ---- letting go ----

    async def clean(self, before: DatetimeMS, limit: int) -> int:
        old = await self._lines.find({"at": {"$lt": before}}, _NUMBER).sort("at", 1).limit(limit).to_list()
        gone = await self._let_go(old)
        await self._places.delete_many({"at": {"$lt": before}})
        return gone

    async def forget(self, user_id: int) -> int:
        gone = 0
        while True:
            theirs = await self._lines.find(of_person(user_id), _NUMBER).limit(_AT_ONCE).to_list()
            if not theirs:
                return gone
            gone += await self._let_go(theirs)

    async def count_person(self, user_id: int) -> int:
        return await self._lines.count_documents(of_person(user_id))

    async def _let_go(self, lines: Sequence[Document]) -> int:
        """By their ids: which of them may leave does not change any more."""
        leaving = await self._leaving(lines)
        staying = [one["_id"] for one in lines if one["_id"] not in leaving]
        gone = await self._remove(leaving)
        if staying:
            emptied = await self._lines.update_many({"_id": {"$in": staying}}, [{"$replaceWith": _EMPTIED}])
            gone += emptied.modified_count
        await self._remove(await self._leaving(await self._emptied(self._lines, {})))
        return gone

    async def _leaving(self, lines: Sequence[Document]) -> set[ObjectId]:
        """Those that nobody needs for their numbers: there is a higher one, and who looked before they came is done."""
        if not lines:
            return set()
        hello = await self._server.database.command("hello")
        border = ObjectId.from_datetime(hello["localTime"] - _WRITES_FOR)
        which = _among(sorted({one["session_id"] for one in lines}))
        highest = await _outermost(self._lines, which, direction=-1)
        return {
            one["_id"] for one in lines if one["_id"] < border and one["number"] < highest.get(one["session_id"], 0)
        }

    async def _remove(self, ids: set[ObjectId]) -> int:
        return (await self._lines.delete_many({"_id": {"$in": list(ids)}})).deleted_count if ids else 0


_NUMBER = {"session_id": True, "number": True}


def _moved(number: int, at: DatetimeMS) -> Document:
    """Also where nothing happens its time goes on; one who comes with an older place says nothing new."""
    is_on = {"$gte": [number, {"$ifNull": ["$number", number]}]}
    return {
        "$set": {
            "number": {"$max": ["$number", number]},
            "at": {"$cond": [is_on, {"$max": ["$at", at]}, "$at"]},
        }
    }


def _among(session_ids: Sequence[str] | None) -> Document:
    return {} if session_ids is None else {"session_id": {"$in": list(session_ids)}}


async def _outermost(lines: AsyncCollection[Document], which: Document, *, direction: int) -> dict[str, int]:
    """The lowest or highest number of each session. The server jumps from one session to the next in the unique index (a
    DISTINCT_SCAN), however many lines there are: the shape of this question matters."""
    pipeline = [
        *([{"$match": which}] if which else []),
        {"$sort": {"session_id": direction, "number": direction}},
        {"$group": {"_id": "$session_id", "number": {"$first": "$number"}}},
    ]
    found = await lines.aggregate(pipeline, batchSize=_AT_ONCE)
    return {one["_id"]: one["number"] for one in await found.to_list()}


# The log in the MongoDB archive.


class Logs:
    def __init__(self, server: MongoServer) -> None:
        self._lines = server.database["logs"]
        self._settled = server.settled("logs")

    async def keep(self, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        try:
            await self._lines.insert_many([log_document(line) for line in lines], ordered=False)
        except errors.BulkWriteError as error:
            duplicates(error)

    async def find(self, wanted: LogFilter, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        documents, following = await page_of(self._settled, _where_logs(wanted), by="at", cursor=cursor, limit=limit)
        return [record_of(document, LogLine) for document in documents], following

    async def drop(self, lines: Sequence[LogLine]) -> int:
        return (await self._lines.delete_many({"digest": {"$in": [digest_of(line) for line in lines]}})).deleted_count

    async def clean(self, before: DatetimeMS, limit: int) -> int:
        found = await self._lines.find({"at": {"$lt": before}}, {"_id": True}).sort("at", 1).limit(limit).to_list()
        return (await self._lines.delete_many({"_id": {"$in": [one["_id"] for one in found]}})).deleted_count


def log_document(line: LogLine) -> Document:
    # Its text is there in any case: it is what is searched.
    return {**document_of(line), text_of("fields"): line.fields, "digest": digest_of(line)}


def _where_logs(wanted: LogFilter) -> Document:
    names = ("event", "session_id", "bot_id")
    asked: Document = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    asked |= between("at", wanted.since_ms, wanted.until_ms)
    if wanted.level is not None:
        asked["level"] = {"$in": list(levels_from(wanted.level))}
    if wanted.text is not None:
        # A pattern may not hold NUL itself. No line does, so nothing is found.
        anywhere = {"$regex": re.escape(wanted.text).replace("\0", r"\x00"), "$options": "i"}
        asked["$or"] = [{"event": anywhere}, {text_of("fields"): anywhere}, {"fields": anywhere}]
    return asked
