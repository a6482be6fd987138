"""What a stranger's tables are, by the names of their columns. Pure; whatever it guesses can be overruled."""

import datetime
import enum
import re
from collections.abc import Mapping, Sequence

import msgspec

from peik.errors import BadInput


class TableKind(enum.StrEnum):
    LETTERS = "letters"
    PEOPLE = "people"
    OFFSET = "offset"
    BOTS = "bots"  # tokens: telegram_settings(setting_key, bot_token)
    RECEIVED = "received"  # what people wrote to the bot: to send it to them would be an echo


# By role: how people call such a column, the surest name first.
LETTER_NAMES: Mapping[str, tuple[str, ...]] = {
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
PEOPLE_NAMES: Mapping[str, tuple[str, ...]] = {
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
ROLES = frozenset(LETTER_NAMES) | frozenset(PEOPLE_NAMES)

# A name that says "last" is of an update that was handled; any other is what the program would ask for next.
# Not `last_id`: what else may be called so, and a number too high would make Telegram forget updates that nobody had.
LAST_NAMES = ("last_update_id", "last_update", "update_id", "last_processed_update_id")
NEXT_NAMES = ("offset", "update_offset", "next_offset", "updates_offset", "last_offset", "next_update_id")
_KEYS = ("key", "name", "param", "setting", "k")
_VALUES = ("value", "val", "v")

_QUEUE = re.compile(r"pending|unsent|outbox|outgoing|queue|scheduled|to_send|mailing")
_PEOPLE = re.compile(r"user|subscriber|member|people|person|client|customer|contact|chats?$")
_ABOUT_PEOPLE = frozenset(PEOPLE_NAMES) - {"user", "name", "joined_at"}
_PROOF_OF_SENDING = frozenset({"sent", "sent_at", "parse_mode", "reply_markup", "send_at", "method"})
_OUT_NAMES = frozenset({"attempts", "retries", "retry_count", "tries", "error", "last_error", "priority"})
_IN_NAMES = frozenset({"update_id", "received_at", "from_user", "from_user_id", "from_id", "callback_data"})


class TableShape(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is understood: what it is, and which of its columns has which role."""

    kind: TableKind
    table: str
    columns: Mapping[str, str]
    is_last: bool = True  # of an offset: the last that was handled, not the next to ask for


def snake(name: str) -> str:
    """chatId, ChatID and "chat id" are one name."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^0-9a-zA-Z]+", "_", apart).lower().strip("_")


def recognise(table: str, columns: Sequence[str]) -> TableShape | None:
    """What a table looks like. None: nothing that Peik could use."""
    known = {snake(column): column for column in columns}
    if "bot_token" in known and not {"chat_id", "text"} & set(known):
        return TableShape(kind=TableKind.BOTS, table=table, columns={"token": known["bot_token"]})
    return _offset(table, known) or _letters(table, known) or _people(table, known)


def as_letters(table: str, columns: Sequence[str], wanted: Mapping[str, str]) -> TableShape:
    """Somebody says that these are messages to send. Raises BadInput if it cannot be seen to whom, or what."""
    shape = _mapped(TableKind.LETTERS, table, columns, LETTER_NAMES, wanted)
    if "chat" not in shape.columns and "params" not in shape.columns:
        raise _missing(table, columns, "chat", "to whom its messages go")
    if not {"text", "params", "file"} & set(shape.columns):
        raise _missing(table, columns, "text", "what its messages say")
    return shape


def as_people(table: str, columns: Sequence[str], wanted: Mapping[str, str]) -> TableShape:
    shape = _mapped(TableKind.PEOPLE, table, columns, PEOPLE_NAMES, wanted)
    if "user" not in shape.columns:
        raise _missing(table, columns, "user", "which number Telegram has for each person")
    return shape


def _mapped(
    kind: TableKind, table: str, columns: Sequence[str], roles: Mapping[str, tuple[str, ...]], wanted: Mapping[str, str]
) -> TableShape:
    mapped = {role: column for role, column in wanted.items() if role in roles}
    if absent := sorted(set(mapped.values()) - set(columns)):
        there = ", ".join(columns)
        raise BadInput(code="no_column", detail=f"{table} has no column {', '.join(absent)}. It has: {there}.")
    taken = {snake(column): column for column in columns if column not in mapped.values()}
    return TableShape(kind=kind, table=table, columns=_guess(taken, roles) | mapped)


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


def _letters(table: str, known: Mapping[str, str]) -> TableShape | None:
    columns = _guess(known, LETTER_NAMES)
    if not {"text", "params", "file"} & set(columns) or not {"chat", "params"} & set(columns):
        return None
    is_sent_from = bool(_PROOF_OF_SENDING & set(columns) or _OUT_NAMES & set(known))
    is_of_somebody = "message_id" in known or ("user_id" in known and "chat_id" not in known)
    if _IN_NAMES & set(known) or (not is_sent_from and is_of_somebody and {"type", "status"} <= set(columns)):
        return TableShape(kind=TableKind.RECEIVED, table=table, columns=columns)
    # A log of all that was ever said has a chat and a text too: without a sign that some of it is yet to be sent, it is one.
    if not ({"status", "sent", "sent_at"} & set(columns) or _QUEUE.search(snake(table))):
        return None
    return TableShape(kind=TableKind.LETTERS, table=table, columns=columns)


def _people(table: str, known: Mapping[str, str]) -> TableShape | None:
    columns = _guess(known, PEOPLE_NAMES)
    told = set(columns) & _ABOUT_PEOPLE
    if "user" not in columns or not (told or _PEOPLE.search(snake(table))):
        return None
    return TableShape(kind=TableKind.PEOPLE, table=table, columns=columns)


def _offset(table: str, known: Mapping[str, str]) -> TableShape | None:
    """A row with a column for it, or rows of keys and values."""
    if {"text", "message", "payload", "chat_id", "user_id"} & set(known):
        return None
    key = next((known[name] for name in _KEYS if name in known), None)
    value = next((known[name] for name in _VALUES if name in known), None)
    if key is not None and value is not None:
        return TableShape(kind=TableKind.OFFSET, table=table, columns={"key": key, "value": value})
    for names, is_last in ((LAST_NAMES, True), (NEXT_NAMES, False)):
        column = next((known[name] for name in names if name in known), None)
        if column is not None:
            more = {"bot": known["bot_id"]} if "bot_id" in known else {}
            return TableShape(kind=TableKind.OFFSET, table=table, columns={"value": column, **more}, is_last=is_last)
    return None


# One row of a stranger's table as a letter or a person in Peik's words, or why it is neither. Pure.


Value = object  # a text, or what a line of JSON holds
Document = dict[str, object]


class RowStanding(enum.StrEnum):
    """How a message stood with the program that it comes from."""

    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    IN_DOUBT = "in doubt"  # somebody was sending it: whether it arrived nobody knows
    UNKNOWN = "unknown"  # a word that we do not know
    OLD = "old"  # waiting, and older than is wanted


class BadRow(Exception):
    """Why a row cannot be brought over, in a sentence."""


_WAITING = frozenset(
    [
        "pending",
        "new",
        "queued",
        "waiting",
        "unsent",
        "scheduled",
        "retry",
        "retrying",
        "created",
        "ready",
        "todo",
        "open",
        "deferred",
        "delayed",
    ]
)
_SENT = frozenset(
    [
        "sent",
        "done",
        "delivered",
        "completed",
        "complete",
        "processed",
        "success",
        "successful",
        "ok",
        "finished",
        "read",
        "seen",
    ]
)
_FAILED = frozenset(
    ["failed", "error", "dead", "cancelled", "canceled", "rejected", "blocked", "expired", "skipped", "deleted"]
)
_IN_DOUBT = frozenset(["sending", "processing", "in_progress", "active", "started", "running", "locked"])
_NO = frozenset({"", "0", "false", "f", "no", "n", "none", "null"})
_METHODS = {
    "text": "sendMessage",
    "message": "sendMessage",
    **{
        kind: f"send{kind.capitalize()}"
        for kind in ("photo", "document", "video", "audio", "voice", "animation", "sticker")
    },
}
_WHOLE = re.compile(r"\s*(-?\d{1,18})(?:\.0+)?\s*")
_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{2,}")
_PARSE_MODES = {"html": "HTML", "markdown": "Markdown", "markdownv2": "MarkdownV2"}
_MILLI_FROM = 100_000_000_000  # later than the year 5000 in seconds: these are milliseconds


def standing_of(shape: TableShape, row: Mapping[str, Value], pending: frozenset[str]) -> tuple[RowStanding, str]:
    """How the message stands, and the word that says so. `pending`: words that mean "to be sent", whatever we think of them."""
    columns = shape.columns
    if "sent" in columns and not _is_no(row.get(columns["sent"])):
        return RowStanding.SENT, "sent"
    if "status" in columns:
        word = word_of(_text(row.get(columns["status"])))
        if pending:
            return (RowStanding.WAITING if word in pending else _by_word(word, has_own=True)), word
        return _by_word(word, has_own=False), word
    if "sent_at" in columns and not _is_no(row.get(columns["sent_at"])):
        return RowStanding.SENT, "sent"
    return RowStanding.WAITING, "waiting"


def word_of(text: str) -> str:
    """A status as words are compared: in any case, and in any script."""
    return snake(text) if text.isascii() else text.strip().lower()


def _by_word(word: str, *, has_own: bool) -> RowStanding:
    """`has_own`: somebody has said which words mean "to be sent", so that no other does."""
    if word in _WAITING or word in _NO:
        return RowStanding.UNKNOWN if has_own else RowStanding.WAITING
    if word in _SENT or word in {"1", "true", "t", "yes"}:
        return RowStanding.SENT
    if word in _FAILED:
        return RowStanding.FAILED
    return RowStanding.IN_DOUBT if word in _IN_DOUBT else RowStanding.UNKNOWN


def letter_of(shape: TableShape, row: Mapping[str, Value]) -> Document:
    """The method and its parameters, with `send_at` if it is set. Raises BadRow."""
    given = {role: row.get(column) for role, column in shape.columns.items()}
    given = {role: value for role, value in given.items() if value is not None and value != ""}
    method, params = _call(given)
    if "chat" in given and "chat_id" not in params:
        params["chat_id"] = _chat(given["chat"])
    if "chat_id" not in params:
        raise BadRow("it does not say to whom it goes")
    if "thread" in given:
        params.setdefault("message_thread_id", _whole(given["thread"], "the topic"))
    if "parse_mode" in given:
        word = _text(given["parse_mode"]).strip()
        params.setdefault("parse_mode", _PARSE_MODES.get(word.lower(), word))
    if "reply_markup" in given:
        params.setdefault("reply_markup", _object(given["reply_markup"], "its reply_markup"))
    letter: Document = {"method": method, "params": params}
    if "send_at" in given:
        at_ms = instant_ms_of(given["send_at"])
        if at_ms is None:
            raise BadRow(f"{_short(given['send_at'])} is no time to send it at")
        letter["send_at"] = at_ms / 1000
    return letter


def _call(given: Mapping[str, Value]) -> tuple[str, Document]:
    if "params" in given:
        params = _object(given["params"], "its parameters")
        method = params.pop("method", None) or given.get("method") or "sendMessage"
        inner = params.get("params")
        if isinstance(inner, dict):  # {"method": …, "params": {…}}
            params = dict(inner)
        if "text" in given and "text" not in params and method == "sendMessage":
            params["text"] = _text(given["text"])
        return str(method), params
    if "method" in given and "file" not in given:
        named: Document = {"text": _text(given["text"])} if "text" in given else {}
        return _text(given["method"]).strip(), named
    if "file" in given:
        kind = _text(given.get("type", "photo")).strip().lower()
        method = _METHODS.get(kind, "")
        if method == "sendMessage" or not method:
            raise BadRow(f"it has a file, and {_short(kind)} does not say what kind of one")
        caption: Document = {"caption": _text(given["text"])} if "text" in given else {}
        return method, {kind: _text(given["file"]), **caption}
    kind = _text(given.get("type", "text")).strip().lower()
    if _METHODS.get(kind, "sendMessage") != "sendMessage":
        raise BadRow(f"it is a {kind} without a file")
    if "text" not in given:
        raise BadRow("it has no text")
    return "sendMessage", {"text": _text(given["text"])}


def person_of(shape: TableShape, row: Mapping[str, Value]) -> Document:
    """A contact in the words of REST. Raises BadRow."""
    given = {role: row.get(column) for role, column in shape.columns.items()}
    chat = _whole(given.get("user"), "the person's id")
    if chat == 0:
        raise BadRow("0 is nobody's id")
    names = [_text(given.get(role)).strip() for role in ("first_name", "last_name")]
    name = " ".join(part for part in names if part) or _text(given.get("name")).strip()
    is_gone = ("blocked" in given and not _is_no(given["blocked"])) or (
        given.get("active") is not None and _is_no(given["active"])
    )
    joined = instant_ms_of(given.get("joined_at"))
    seen = instant_ms_of(given.get("seen_at")) or joined
    told = {
        "chat_id": str(chat),
        "name": name[:256] or None,
        "username": _text(given.get("username")).strip().removeprefix("@")[:64] or None,
        "language": _text(given.get("language")).strip()[:32] or None,
        "first_seen_at": None if joined is None else joined / 1000,
        "last_seen_at": None if seen is None else max(seen, joined or 0) / 1000,
        "gone": is_gone or None,
        "campaign": _text(given.get("campaign")).strip()[:64] or None,
    }
    return {field: value for field, value in told.items() if value is not None}


def last_update_of(shape: TableShape, row: Mapping[str, Value]) -> int | None:
    """The id of the last update that was handled, if the row has it."""
    if "key" in shape.columns:
        key = snake(_text(row.get(shape.columns["key"])))
        if key not in LAST_NAMES and key not in NEXT_NAMES:
            return None
        is_last = key in LAST_NAMES
    else:
        is_last = shape.is_last
    found = _WHOLE.fullmatch(_text(row.get(shape.columns["value"])))
    if found is None:
        return None
    # An id taken for "next" that was the last is delivered twice; the other way round the next one is lost.
    number = int(found.group(1)) - (0 if is_last else 1)
    return number if 0 < number < 2**31 else None


def instant_ms_of(value: Value) -> int | None:
    """Seconds or milliseconds of Unix, or a date; without an offset it is UTC. None: it is no time."""
    text = _text(value).strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        at_ms = number if number >= _MILLI_FROM else number * 1000
        return int(at_ms) if 0 < at_ms < _MILLI_FROM * 100 else None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return max(0, int(moment.timestamp() * 1000)) or None


def _chat(value: Value) -> int | str:
    text = _text(value).strip()
    found = _WHOLE.fullmatch(text)
    if found is not None and int(found.group(1)) != 0:
        return int(found.group(1))
    if _NAME.fullmatch(text):
        return text
    raise BadRow(f"{_short(text)} is no chat")


def _whole(value: Value, what: str) -> int:
    found = _WHOLE.fullmatch(_text(value))
    if found is None:
        raise BadRow(f"{what} is {_short(value)}, and not a number")
    return int(found.group(1))


def _object(value: Value, what: str) -> Document:
    if isinstance(value, dict):
        return dict(value)
    try:
        return msgspec.json.decode(_text(value), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        raise BadRow(f"{what}, {_short(value)}, is no JSON object") from None


def _is_no(value: Value) -> bool:
    return _text(value).strip().lower() in _NO


def _text(value: Value) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _short(value: Value) -> str:
    text = _text(value)
    return repr(text if len(text) <= 40 else text[:39] + "…")
