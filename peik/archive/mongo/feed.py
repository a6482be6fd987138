"""Feeds of the MongoDB archive: lines with numbers that have no gap, and how far each reader has had them.

There are no transactions. A line gets the number after the highest one, and a unique index lets only one writer have it: who
comes second looks again. So a number must not leave the collection while a writer may be under way that looked before it came,
or it would be given once more; and the highest must never leave. A line that has to go earlier is emptied: session and number
stay, nothing else. No counter lies beside the lines, so none can fall behind them, wherever a process dies.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import ASCENDING, DESCENDING, UpdateOne, errors
from pymongo.asynchronous.collection import AsyncCollection

from peik.archive.mongo.connection import MongoServer, duplicates
from peik.archive.mongo.documents import Document, between, document_of, of_person, page_of, record_of
from peik.archive.rules import digest_of, levels_from
from peik.archive.store import Fed, FeedRecord, LogFilter, LogLine
from peik.errors import StoreUnavailable

_TRIES = 100  # each time somebody else was quicker with the next number
_AT_ONCE = 1000
# A writer looks and inserts within seconds, or its connection breaks. The rest is for clocks that differ: the age of a line is
# told by its id, which the writer made.
_WRITES_FOR = timedelta(hours=1)

_EMPTIED = {"_id": "$_id", "session_id": "$session_id", "number": "$number", "emptied": True}


class MongoFeed:
    def __init__(self, server: MongoServer) -> None:
        self._server = server
        self._lines = server.collection("feed")
        self._settled = server.settled("feed")
        self._places = server.collection("reader_places")
        self._settled_places = server.settled("reader_places")

    # ---- telling ----

    async def add(self, lines: Sequence[FeedRecord]) -> int:
        left, new = list(lines), 0
        for _ in range(_TRIES):
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
        self._lines = server.collection("logs")
        self._settled = server.settled("logs")

    async def keep(self, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        try:
            await self._lines.insert_many([log_document(line) for line in lines], ordered=False)
        except errors.BulkWriteError as error:
            duplicates(error)

    async def find(self, wanted: LogFilter, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        documents, following = await page_of(self._settled, _where(wanted), by="at", cursor=cursor, limit=limit)
        return [record_of(document, LogLine) for document in documents], following

    async def drop(self, lines: Sequence[LogLine]) -> int:
        return (await self._lines.delete_many({"digest": {"$in": [digest_of(line) for line in lines]}})).deleted_count

    async def clean(self, before: DatetimeMS, limit: int) -> int:
        found = await self._lines.find({"at": {"$lt": before}}, {"_id": True}).sort("at", 1).limit(limit).to_list()
        return (await self._lines.delete_many({"_id": {"$in": [one["_id"] for one in found]}})).deleted_count


def log_document(line: LogLine) -> Document:
    return {**document_of(line), "digest": digest_of(line)}


def _where(wanted: LogFilter) -> Document:
    names = ("event", "session_id", "bot_id")
    asked: Document = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    asked |= between("at", wanted.since_ms, wanted.until_ms)
    if wanted.level is not None:
        asked["level"] = {"$in": list(levels_from(wanted.level))}
    if wanted.text is not None:
        # A pattern may not hold NUL itself. No line does, so nothing is found.
        anywhere = {"$regex": re.escape(wanted.text).replace("\0", r"\x00"), "$options": "i"}
        asked["$or"] = [{"event": anywhere}, {"fields": anywhere}]
    return asked
