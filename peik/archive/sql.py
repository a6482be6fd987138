"""Records as rows of SQL: the columns of a table are the fields of its record, in their order."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from peik.archive.store import (
    ChatState,
    FeedRecord,
    Happening,
    LogLine,
    MemberRecord,
    Message,
    ReaderPlace,
    Record,
    RecordKind,
    Session,
    UpdatesState,
)

SESSION = Session.__struct_fields__
MESSAGE = Message.__struct_fields__
EVENT = Happening.__struct_fields__
CHAT_STATE = ChatState.__struct_fields__
MEMBER = MemberRecord.__struct_fields__
FEED = FeedRecord.__struct_fields__
PLACE = ReaderPlace.__struct_fields__
LOG = LogLine.__struct_fields__
PERSON_KINDS = ("messages", "versions", "events", "chat_states", "members", "feed")  # what a person can be forgotten in

_encoder = msgspec.json.Encoder()


def session_of(row: Iterable[Any]) -> Session:
    found = dict(zip(SESSION, row, strict=True))
    found["is_connected"], found["is_active"] = bool(found["is_connected"]), bool(found["is_active"])
    return msgspec.convert(found, Session)


def message_of(row: Iterable[Any]) -> Message:
    return msgspec.convert(dict(zip(MESSAGE, row, strict=True)), Message)


def event_of(row: Iterable[Any]) -> Happening:
    return msgspec.convert(dict(zip(EVENT, row, strict=True)), Happening)


def chat_state_of(row: Iterable[Any]) -> ChatState:
    return msgspec.convert(dict(zip(CHAT_STATE, row, strict=True)), ChatState)


def member_of_row(row: Iterable[Any]) -> MemberRecord:
    return MemberRecord(**dict(zip(MEMBER, row, strict=True)))


def updates_state_of(row: Iterable[Any]) -> UpdatesState:
    session_id, state = row
    return UpdatesState(session_id=session_id, state=bytes(state))


def line_of(row: Iterable[Any]) -> FeedRecord:
    return msgspec.convert(dict(zip(FEED, row, strict=True)), FeedRecord)


def place_of(row: Iterable[Any]) -> ReaderPlace:
    return ReaderPlace(**dict(zip(PLACE, row, strict=True)))


def log_of(row: Iterable[Any]) -> LogLine:
    return LogLine(**dict(zip(LOG, row, strict=True)))


def version_row(message: Message) -> tuple[str, int, int, int, str, int | None, str]:
    """A version that is put aside: by what it is found, and the whole of it."""
    return (
        message.session_id,
        message.chat_id,
        message.message_id,
        message.edited_at_ms,
        message.agent_id,
        message.sender_id,
        _encoder.encode(message).decode(),
    )


version_of = msgspec.json.Decoder(Message).decode


# ---- pages of all records of a kind ----


def record_of(kind: RecordKind, row: Sequence[Any]) -> Record:
    match kind:
        case RecordKind.SESSIONS:
            return session_of(row)
        case RecordKind.UPDATES_STATES:
            return updates_state_of(row)
        case RecordKind.CHAT_STATES:
            return chat_state_of(row)
        case RecordKind.MEMBERS:
            return member_of_row(row)
        case RecordKind.MESSAGES:
            return message_of(row[1:])
        case RecordKind.VERSIONS:
            return version_of(row[0])
        case RecordKind.EVENTS:
            return event_of(row[1:])
        case RecordKind.FEED:
            return line_of(row)
        case RecordKind.PLACES:
            return place_of(row)
        case RecordKind.LOGS:
            return log_of(row[1:])


def page_place(kind: RecordKind, after: str | None) -> dict[str, Any]:
    """What a query for the page after a place is bound to."""
    match kind:
        case RecordKind.SESSIONS | RecordKind.UPDATES_STATES:
            return {"after": after or ""}
        case RecordKind.MESSAGES | RecordKind.EVENTS | RecordKind.LOGS:
            return {"after": int(after or 0)}
        case RecordKind.CHAT_STATES:
            return dict(zip(("session_id", "chat_id"), _parted(after, "", 0), strict=True))
        case RecordKind.MEMBERS:
            names = ("session_id", "chat_id", "user_id", "since_ms")
            return dict(zip(names, _parted(after, "", -(2**63), 0, 0), strict=True))
        case RecordKind.FEED:
            return dict(zip(("session_id", "number"), _parted(after, "", 0), strict=True))
        case RecordKind.PLACES:
            return dict(zip(("reader", "session_id"), _parted(after, "", ""), strict=True))
        case RecordKind.VERSIONS:
            names = ("session_id", "chat_id", "message_id", "edited_at_ms")
            return dict(zip(names, _parted(after, "", 0, 0, 0), strict=True))


def last_place(kind: RecordKind, record: Record, row: Sequence[Any]) -> str:
    """The place of a row."""
    if isinstance(record, ChatState):
        return _joined(record.session_id, record.chat_id)
    if isinstance(record, MemberRecord):
        return _joined(record.session_id, record.chat_id, record.user_id, record.since_ms)
    if isinstance(record, FeedRecord):
        return _joined(record.session_id, record.number)
    if isinstance(record, ReaderPlace):
        return _joined(record.reader, record.session_id)
    if isinstance(record, Message) and kind is RecordKind.VERSIONS:
        return _joined(record.session_id, record.chat_id, record.message_id, record.edited_at_ms)
    return str(row[0])


def _joined(*parts: object) -> str:
    return _encoder.encode(parts).decode()  # ids of sessions may hold anything


def _parted(place: str | None, *first: object) -> list[Any]:
    return list(first) if place is None else msgspec.json.decode(place, type=list[Any])


# ---- the named queries of an archive's `.sql` files ----

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{3})\.sql")


_COLUMNS = {"message_columns": MESSAGE, "line_columns": FEED, "log_columns": LOG}


@cache
def load(package: str, filename: str) -> dict[str, str]:
    """All queries of one file by name, without their comments: some are put together from pieces."""
    text = (files(package) / "sql" / filename).read_text(encoding="utf-8")
    for name, columns in _COLUMNS.items():
        text = text.replace(f"{{{name}}}", ", ".join(columns))
    parts = _NAME.split(text)[1:]
    return {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def filled(query: str, **parts: str) -> str:
    """A query whose {places} are filled with other pieces of SQL."""
    for place, part in parts.items():
        query = query.replace(f"{{{place}}}", part)
    return query


@cache
def migrations(package: str) -> list[str]:
    """The steps of a schema, in order."""
    scripts = sorted(
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in (files(package) / "sql").iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    )
    assert [number for number, _ in scripts] == list(range(1, len(scripts) + 1)), "migrations are numbered without gaps"
    return [script for _, script in scripts]
