"""Messages and events as JSON Lines or CSV, page by page: an export of any size takes the memory of one page, and one that was
interrupted goes on at its cursor."""

import csv
import enum
import io
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

import msgspec

from peik.archive.store import Archive, EventFilter, Happening, Message, MessageFilter

PAGE = 1000

# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


# Ids pass 2^53, which not every reader of JSON can: they are texts there, as everywhere in Peik.
_IDS = frozenset({"chat_id", "message_id", "sender_id", "reply_to", "grouped_id", "letter_id", "user_id"})


class ExportFormat(enum.StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


class ExportPart(msgspec.Struct, frozen=True, kw_only=True):
    """One page of an export. Anyone who has written `data` may go on at `cursor` later; None: this was the last."""

    data: bytes
    count: int
    cursor: str | None


async def export_messages(
    source: Archive, wanted: MessageFilter, *, form: ExportFormat, cursor: str | None = None, page: int = PAGE
) -> AsyncGenerator[ExportPart, None]:
    """The newest first. For a bar of progress ask for their count first. A CSV has its head only at the beginning."""
    is_first = cursor is None
    while True:
        messages, cursor = await source.messages(wanted, cursor=cursor, limit=page)
        data = _written(messages, Message.__struct_fields__, form, has_head=is_first)
        yield ExportPart(data=data, count=len(messages), cursor=cursor)
        is_first = False
        if cursor is None:
            return


async def export_events(
    source: Archive, wanted: EventFilter, *, form: ExportFormat, cursor: str | None = None, page: int = PAGE
) -> AsyncGenerator[ExportPart, None]:
    """The same of events."""
    is_first = cursor is None
    while True:
        events, cursor = await source.events(wanted, cursor=cursor, limit=page)
        data = _written(events, Happening.__struct_fields__, form, has_head=is_first)
        yield ExportPart(data=data, count=len(events), cursor=cursor)
        is_first = False
        if cursor is None:
            return


def _written(
    records: Sequence[Message | Happening], fields: Sequence[str], form: ExportFormat, *, has_head: bool
) -> bytes:
    if form is ExportFormat.JSONL:
        return b"".join(msgspec.json.encode(_shown(record, fields)) + b"\n" for record in records)
    text = io.StringIO()
    rows = csv.writer(text)
    if has_head:
        rows.writerow([_name(field) for field in fields])
    for record in records:
        rows.writerow([_cell(value) for value in _shown(record, fields).values()])
    return text.getvalue().encode()


def _shown(record: Message | Happening, fields: Sequence[str]) -> dict[str, object]:
    """Times as people write them, JSON as JSON."""
    return {_name(field): _value(field, getattr(record, field)) for field in fields}


def _name(field: str) -> str:
    return field.removesuffix("_ms")


def _value(field: str, value: object) -> object:
    if field.endswith("_ms"):
        if not isinstance(value, int) or (field == "edited_at_ms" and not value):
            return None
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if field in _IDS and isinstance(value, int):
        return str(value)
    if field in ("media", "raw", "payload") and isinstance(value, str):
        return _json(value)
    return value


def _json(text: str) -> object:
    """As it is; a text that is no JSON stays a text, so that every line can be read."""
    try:
        return msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return text


def _cell(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if isinstance(value, str) and value.startswith(_FORMULA) and not value.removeprefix("-").isdecimal():
        return f"'{value}"
    return value
