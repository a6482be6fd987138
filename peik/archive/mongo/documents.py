"""Records as documents: fields as in the records, times as dates without `_ms` in their names, and nothing where nothing is."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from bson.datetime_ms import DatetimeMS

from peik.archive.folding import words
from peik.archive_ports import (
    ChatState,
    FeedLine,
    Happening,
    LogLine,
    Message,
    ReaderPlace,
    Record,
    Session,
    UpdatesState,
)

Document = dict[str, Any]
R = TypeVar("R", Session, Message, Happening, ChatState, UpdatesState, FeedLine, ReaderPlace, LogLine)


def document_of(record: Record) -> Document:
    found: Document = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if value is None:
            continue
        if name.endswith("_ms"):
            found[name[:-3]] = DatetimeMS(value)
        else:
            found[name] = str(value) if isinstance(value, str) else value
    return found


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
    for name in kind.__struct_fields__:
        value = document.get(name.removesuffix("_ms"))
        if value is not None:
            found[name] = int(value) if isinstance(value, DatetimeMS) else value
    return msgspec.convert(found, kind)


def key_filter(message: Message) -> Document:
    return {"session_id": message.session_id, "chat_id": message.chat_id, "message_id": message.message_id}


# Fields that a newer version may lack. What a deletion or a letter said of the message stays.
_OPTIONAL = frozenset({"sender_id", "reply_to", "grouped_id", "media", "raw", "words"})


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
