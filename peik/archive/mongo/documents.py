"""Records as documents: fields as in the records, times as dates without `_ms` in their names, nothing where nothing is, and what
is JSON in a record as a sub-document, so that others can ask for what is in it."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.asynchronous.collection import AsyncCollection

from peik.archive.rules import cursor_of, read_cursor, words
from peik.archive.store import (
    ChatState,
    FeedRecord,
    Happening,
    LogLine,
    MemberRecord,
    Message,
    ReaderPlace,
    Record,
    Session,
    UpdatesState,
)
from peik.errors import BadInput

Document = dict[str, Any]
R = TypeVar("R", Session, Message, Happening, ChatState, MemberRecord, UpdatesState, FeedRecord, ReaderPlace, LogLine)


# Of which records what is JSON. `body` of a line of a feed is read by nobody but Peik.
JSON_FIELDS: dict[type, frozenset[str]] = {
    Session: frozenset({"metadata"}),
    Message: frozenset({"media", "raw"}),
    Happening: frozenset({"payload"}),
    LogLine: frozenset({"fields"}),
}
_NO_FIELDS: frozenset[str] = frozenset()
_DEPTH_MAX = 80  # MongoDB takes a hundred, and the field itself lies in a document
_INT64 = 2**63


def document_of(record: Record) -> Document:
    found: Document = {}
    parts = JSON_FIELDS.get(type(record), _NO_FIELDS)
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if value is None:
            continue
        if name.endswith("_ms"):
            found[name[:-3]] = DatetimeMS(value)
        elif name in parts:
            found |= json_fields(name, str(value))
        else:
            found[name] = str(value) if isinstance(value, str) else value
    return found


def json_fields(name: str, text: str) -> Document:
    """A JSON text as the fields that it becomes: a sub-document, beside it the text where another text would be made of that; or
    the text alone if a document cannot be that."""
    try:
        value = msgspec.json.decode(text)
        again = msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return {name: text}
    if not isinstance(value, dict) or not _fits(value, 0):
        return {name: text}
    return {name: value} if again == text else {name: value, text_of(name): text}


def text_of(name: str) -> str:
    """The field with the text as it came."""
    return f"{name}_json"


def _fits(value: Any, depth: int) -> bool:
    """Whether MongoDB keeps it as it is, and can be asked for it."""
    match value:
        case dict():
            return depth < _DEPTH_MAX and all(_is_name(key) and _fits(one, depth + 1) for key, one in value.items())
        case list():
            return depth < _DEPTH_MAX and all(_fits(one, depth + 1) for one in value)
        case int():
            return -_INT64 <= value < _INT64
        case _:
            return True


def _is_name(key: str) -> bool:
    return bool(key) and key[0] != "$" and "." not in key and "\0" not in key


def _text(document: Mapping[str, Any], name: str, value: Any) -> str:
    kept = document.get(text_of(name))
    if isinstance(kept, str):
        return kept
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=int).decode()


def message_document(message: Message) -> Document:
    found = version_document(message)
    if message.text:
        found["words"] = words(message.text)
    return found


def version_document(message: Message) -> Document:
    found = document_of(message)
    found["edited_at"] = edited_at(message)
    return found


def edited_at(message: Message) -> DatetimeMS | None:
    """None: as it was sent. It stands before every date."""
    return DatetimeMS(message.edited_at_ms) if message.edited_at_ms else None


def record_of(document: Mapping[str, Any], kind: type[R]) -> R:
    found: Document = {}
    parts = JSON_FIELDS.get(kind, _NO_FIELDS)
    for name in kind.__struct_fields__:
        value = document.get(name.removesuffix("_ms"))
        if value is None:
            continue
        if name in parts:
            found[name] = _text(document, name, value)
        else:
            found[name] = int(value) if isinstance(value, DatetimeMS) else value
    return msgspec.convert(found, kind)


def key_filter(message: Message) -> Document:
    return {"session_id": message.session_id, "chat_id": message.chat_id, "message_id": message.message_id}


# Fields that a newer version may lack. What a deletion or a letter said of the message stays.
_OPTIONAL = frozenset({"sender_id", "reply_to", "grouped_id", "media", "media_json", "raw", "raw_json", "words"})


def change_to(message: Message) -> Document:
    """The update that makes a document this message."""
    wanted = message_document(message)
    change: Document = {"$set": wanted}
    if missing := _OPTIONAL - wanted.keys():
        change["$unset"] = dict.fromkeys(sorted(missing), "")
    return change


def of_person(user_id: int) -> Document:
    """Which events and lines of feeds are of a person: what they did, and what was in a private chat with them."""
    return {"$or": [{"user_id": user_id}, {"chat_id": user_id}]}


# Pages of a collection, the newest first, and the bounds of a time.


async def page_of(
    collection: AsyncCollection[Document], asked: Document, *, by: str, cursor: str | None, limit: int
) -> tuple[list[Document], str | None]:
    """`by` is the time that orders them; `_id` tells those of one millisecond apart."""
    if cursor is not None:
        at_ms, row = read_cursor(cursor)
        if not ObjectId.is_valid(row):
            raise BadInput(code="bad_cursor", detail="The cursor is not one of this archive's. Begin again without it.")
        # The first part says the same as the second, for the index: it begins where the last page ended.
        at = DatetimeMS(at_ms)
        after = {"$or": [{by: {"$lt": at}}, {by: at, "_id": {"$lt": ObjectId(row)}}]}
        asked = {"$and": [asked, {by: {"$lte": at}}, after]}
    found = collection.find(asked, {"words": False}).sort([(by, -1), ("_id", -1)])
    documents = await found.limit(limit + 1).to_list()
    if len(documents) <= limit:
        return documents, None
    last = documents[limit - 1]
    return documents[:limit], cursor_of(int(last[by]), last["_id"])


def between(name: str, since_ms: int | None, until_ms: int | None) -> Document:
    bounds: dict[str, Any] = {}
    if since_ms is not None:
        bounds["$gte"] = DatetimeMS(since_ms)
    if until_ms is not None:
        bounds["$lt"] = DatetimeMS(until_ms)
    return {name: bounds} if bounds else {}


# The indexes of each collection, each with what it is for.


_NOT_A_CHANNEL = {"chat_id": {"$gt": -1_000_000_000_000}}


def _index(*fields: str, **options: Any) -> IndexModel:
    """Fields in rising order, those with a minus before them in falling order."""
    keys = [(name.lstrip("-"), DESCENDING if name.startswith("-") else ASCENDING) for name in fields]
    return IndexModel(keys, **options)


# The pages of a filter are walked in the order of time, and `_id` tells documents of one millisecond apart: an index without it
# would make the server sort everything that fits. Hence (chat_id, date) is here twice, once as people expect it.
INDEXES: dict[str, list[IndexModel]] = {
    "telegram_sessions": [
        _index("session_id", unique=True),
        _index("agent_id"),
        _index("phone"),
        # One active session per phone, no matter who asks at the same time.
        _index(
            "phone",
            "is_active",
            unique=True,
            partialFilterExpression={"is_active": True, "phone": {"$type": "string"}},
            name="one_per_phone",
        ),
    ],
    "messages": [
        _index("session_id", "-created_at"),  # and what retention lets go of
        _index("agent_id", "-created_at"),
        _index("chat_id", "-date"),
        _index("session_id", "chat_id", "message_id", unique=True, name="one_per_key"),
        # Telegram tells a deletion without the chat, but for channels and supergroups.
        _index("session_id", "message_id", partialFilterExpression=_NOT_A_CHANNEL),
        _index("session_id", "-date", "-_id"),
        _index("agent_id", "-date", "-_id"),
        _index("chat_id", "-date", "-_id"),
        _index("sender_id", "-date", "-_id"),
        _index("-date", "-_id"),
        # Folded words, one entry each. A text index has words of its own making, cannot give its hits in the order of time,
        # and there can be only one.
        _index("words", "-date", "-_id"),
    ],
    "message_versions": [
        _index("session_id", "chat_id", "message_id", "edited_at", unique=True, name="one_per_version"),
        _index("sender_id"),
    ],
    "events": [
        _index("session_id", "-created_at"),
        _index("agent_id", "event_type"),
        _index("event_id", unique=True),
        _index("session_id", "-created_at", "-_id"),
        _index("agent_id", "-created_at", "-_id"),
        _index("agent_id", "event_type", "-created_at", "-_id"),
        _index("chat_id", "-created_at", "-_id"),
        _index("-created_at", "-_id"),
        _index("user_id"),
    ],
    "chat_states": [_index("session_id", "chat_id", unique=True)],
    "members": [
        _index("session_id", "chat_id", "user_id", "since", unique=True),
        _index("user_id"),  # whom `forget_person` forgets
        _index("until"),  # what retention lets go of
    ],
    "feed": [
        # One writer has a number. Readers walk it, and how far feeds go is read off its edges.
        _index("session_id", "number", unique=True, name="one_per_number"),
        # The same is told once. An emptied line has no key any more.
        _index(
            "session_id",
            "key",
            unique=True,
            partialFilterExpression={"key": {"$exists": True}},
            name="one_per_key",
        ),
        # Which lines are emptied, asked with every look at how far feeds go: very few entries.
        _index("emptied", "session_id", "number", partialFilterExpression={"emptied": True}, name="emptied"),
        _index("at"),  # what retention lets go of
        _index("user_id"),  # whom `forget_person` forgets
    ],
    "reader_places": [
        _index("reader", "session_id", unique=True),  # a reader is in one place
        _index("at"),  # what retention lets go of
    ],
    "logs": [
        _index("digest", unique=True),  # a line that is handed in again is there once
        # Pages of a filter, as above: a session's, a bot's, those of one event.
        _index("session_id", "-at", "-_id"),
        _index("bot_id", "-at", "-_id"),
        _index("event", "-at", "-_id"),
        _index("-at", "-_id"),  # and what retention lets go of; levels and texts are looked for in this walk
    ],
}
