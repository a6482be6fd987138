"""What a stranger's tables are, by the names of their columns. Pure; whatever it guesses can be overruled."""

import enum
import re
from collections.abc import Mapping, Sequence

import msgspec

from peik.errors import BadInput


class Kind(enum.StrEnum):
    LETTERS = "letters"
    PEOPLE = "people"
    OFFSET = "offset"
    RECEIVED = "received"  # what people wrote to the bot: to send it to them would be an echo


# By role: how people call such a column, the surest name first.
LETTER_COLUMNS: Mapping[str, tuple[str, ...]] = {
    # Not the id of a job, a queue or a message: many rows may have the same, and of those all but one would be lost.
    "id": ("id", "uuid", "pk"),
    "chat": (
        *(
            "chat_id",
            "telegram_chat_id",
            "tg_chat_id",
            "target_chat_id",
            "chat",
            "recipient_id",
            "recipient",
            "receiver_id",
        ),
        *("peer_id", "to_id", "to", "user_id", "telegram_user_id", "telegram_id", "tg_user_id", "tg_id", "uid"),
    ),
    "text": ("text", "message_text", "message", "body", "content", "msg", "caption"),
    "params": ("params", "payload", "data", "kwargs", "request"),
    "method": ("method", "api_method"),
    "type": ("message_type", "content_type", "media_type", "type", "kind"),
    "file": ("file_id", "media", "file", "photo", "media_url", "file_url"),
    "parse_mode": ("parse_mode",),
    "reply_markup": ("reply_markup", "markup", "keyboard"),
    "thread": ("message_thread_id", "thread_id", "topic_id"),
    "send_at": ("send_at", "scheduled_at", "scheduled_for", "run_at", "due_at"),
    "created_at": ("created_at", "created", "queued_at", "added_at", "inserted_at", "timestamp", "date", "ts"),
    "status": ("status", "state", "delivery_status"),
    "sent": ("is_sent", "sent", "is_delivered", "delivered", "is_processed", "processed", "done"),
    "sent_at": ("sent_at", "delivered_at", "processed_at", "completed_at", "done_at"),
}
PEOPLE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    # Never a bare `id`: as often as not it counts rows, and strangers have those numbers.
    "user": ("user_id", "telegram_id", "tg_id", "telegram_user_id", "tg_user_id", "chat_id", "userid", "uid"),
    "username": ("username", "user_name", "tg_username"),
    "first_name": ("first_name", "firstname"),
    "last_name": ("last_name", "lastname", "surname"),
    "name": ("full_name", "fullname", "display_name", "name", "title"),
    "language": ("language_code", "language", "lang_code", "lang", "locale"),
    "blocked": ("is_blocked", "blocked", "blocked_bot", "bot_blocked", "is_bot_blocked", "has_left"),
    "active": ("is_active", "active", "is_alive", "alive"),
    "joined_at": ("joined_at", "created_at", "registered_at", "first_seen_at", "first_seen", "join_date", "created"),
    "seen_at": ("last_seen_at", "last_seen", "last_active_at", "last_active", "last_activity", "updated_at"),
    "campaign": ("campaign", "start_param"),
}
ROLES = frozenset(LETTER_COLUMNS) | frozenset(PEOPLE_COLUMNS)

# A name that says "last" is of an update that was handled; any other is what the program would ask for next.
# Not `last_id`: what else may be called so, and a number too high would make Telegram forget updates that nobody had.
LAST_NAMES = ("last_update_id", "last_update", "update_id", "last_processed_update_id")
NEXT_NAMES = ("offset", "update_offset", "next_offset", "updates_offset", "last_offset", "next_update_id")
_KEYS = ("key", "name", "param", "setting", "k")
_VALUES = ("value", "val", "v")

_QUEUE = re.compile(r"pending|unsent|outbox|outgoing|queue|scheduled|to_send|mailing")
_PEOPLE = re.compile(r"user|subscriber|member|people|person|client|customer|contact|chats?$")
_ABOUT_PEOPLE = frozenset(PEOPLE_COLUMNS) - {"user", "name", "joined_at"}
_PROOF_OF_SENDING = frozenset({"sent", "sent_at", "parse_mode", "reply_markup", "send_at", "method"})
_OUT_NAMES = frozenset({"attempts", "retries", "retry_count", "tries", "error", "last_error", "priority"})
_IN_NAMES = frozenset({"update_id", "received_at", "from_user", "from_user_id", "from_id", "callback_data"})


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is understood: what it is, and which of its columns has which role."""

    kind: Kind
    table: str
    columns: Mapping[str, str]
    is_last: bool = True  # of an offset: the last that was handled, not the next to ask for


def snake(name: str) -> str:
    """chatId, ChatID and "chat id" are one name."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^0-9a-zA-Z]+", "_", apart).lower().strip("_")


def recognise(table: str, columns: Sequence[str]) -> Shape | None:
    """What a table looks like. None: nothing that Peik could use."""
    known = {snake(column): column for column in columns}
    return _offset(table, known) or _letters(table, known) or _people(table, known)


def as_letters(table: str, columns: Sequence[str], wanted: Mapping[str, str]) -> Shape:
    """Somebody says that these are messages to send. Raises BadInput if it cannot be seen to whom, or what."""
    shape = _mapped(Kind.LETTERS, table, columns, LETTER_COLUMNS, wanted)
    if "chat" not in shape.columns and "params" not in shape.columns:
        raise _missing(table, columns, "chat", "to whom its messages go")
    if not {"text", "params", "file"} & set(shape.columns):
        raise _missing(table, columns, "text", "what its messages say")
    return shape


def as_people(table: str, columns: Sequence[str], wanted: Mapping[str, str]) -> Shape:
    shape = _mapped(Kind.PEOPLE, table, columns, PEOPLE_COLUMNS, wanted)
    if "user" not in shape.columns:
        raise _missing(table, columns, "user", "which number Telegram has for each person")
    return shape


def _mapped(
    kind: Kind, table: str, columns: Sequence[str], roles: Mapping[str, tuple[str, ...]], wanted: Mapping[str, str]
) -> Shape:
    mapped = {role: column for role, column in wanted.items() if role in roles}
    if absent := sorted(set(mapped.values()) - set(columns)):
        there = ", ".join(columns)
        raise BadInput(code="no_column", detail=f"{table} has no column {', '.join(absent)}. It has: {there}.")
    taken = {snake(column): column for column in columns if column not in mapped.values()}
    return Shape(kind=kind, table=table, columns=_guess(taken, roles) | mapped)


def _missing(table: str, columns: Sequence[str], role: str, what: str) -> BadInput:
    there = ", ".join(columns)
    detail = (
        f"The columns of {table} do not say {what}. Name the one that does: --map {role}=COLUMN. There are: {there}."
    )
    return BadInput(code="no_column", detail=detail)


def _guess(known: Mapping[str, str], roles: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for role, names in roles.items():
        column = next((known[name] for name in names if name in known and known[name] not in found.values()), None)
        if column is not None:
            found[role] = column
    return found


def _letters(table: str, known: Mapping[str, str]) -> Shape | None:
    columns = _guess(known, LETTER_COLUMNS)
    if not {"text", "params", "file"} & set(columns) or not {"chat", "params"} & set(columns):
        return None
    is_sent_from = bool(_PROOF_OF_SENDING & set(columns) or _OUT_NAMES & set(known))
    is_of_somebody = "message_id" in known or ("user_id" in known and "chat_id" not in known)
    if _IN_NAMES & set(known) or (not is_sent_from and is_of_somebody and {"type", "status"} <= set(columns)):
        return Shape(kind=Kind.RECEIVED, table=table, columns=columns)
    # A log of all that was ever said has a chat and a text too: without a sign that some of it is yet to be sent, it is one.
    if not ({"status", "sent", "sent_at"} & set(columns) or _QUEUE.search(snake(table))):
        return None
    return Shape(kind=Kind.LETTERS, table=table, columns=columns)


def _people(table: str, known: Mapping[str, str]) -> Shape | None:
    columns = _guess(known, PEOPLE_COLUMNS)
    told = set(columns) & _ABOUT_PEOPLE
    if "user" not in columns or not (told or _PEOPLE.search(snake(table))):
        return None
    return Shape(kind=Kind.PEOPLE, table=table, columns=columns)


def _offset(table: str, known: Mapping[str, str]) -> Shape | None:
    """A row with a column for it, or rows of keys and values."""
    if {"text", "message", "payload", "chat_id", "user_id"} & set(known):
        return None
    key = next((known[name] for name in _KEYS if name in known), None)
    value = next((known[name] for name in _VALUES if name in known), None)
    if key is not None and value is not None:
        return Shape(kind=Kind.OFFSET, table=table, columns={"key": key, "value": value})
    for names, is_last in ((LAST_NAMES, True), (NEXT_NAMES, False)):
        column = next((known[name] for name in names if name in known), None)
        if column is not None:
            more = {"bot": known["bot_id"]} if "bot_id" in known else {}
            return Shape(kind=Kind.OFFSET, table=table, columns={"value": column, **more}, is_last=is_last)
    return None
