"""Messages and events of the MongoDB archive: keeping, finding, letting go.

There are no transactions: each step can be done again, and a process that dies between two of them leaves nothing that the
next one who hands in the same would not mend. A version is put aside before another takes its place.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from bson.datetime_ms import DatetimeMS
from pymongo import UpdateOne, errors
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
    version_document,
)
from peik.archive.rules import Chain, Key, Todo, VersionFate, VersionFates, beside, chains, key_of, settle, words
from peik.archive.store import ArchiveRetention, EventFilter, Happening, Message, MessageFilter
from peik.errors import StoreUnavailable

_TRIES = 10  # each time somebody else was quicker with the same message
_KEYS_AT_ONCE = 500
_CHATS_AT_ONCE = 100


class Messages:
    def __init__(self, server: MongoServer) -> None:
        self._server = server
        self._all = server.collection("messages")
        self._versions = server.collection("message_versions")
        self._events = server.collection("events")

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
            await self._server.collection(collection).insert_many(documents, ordered=False)
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
            "chat_states": (self._server.collection("chat_states"), {"chat_id": user_id}),
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
