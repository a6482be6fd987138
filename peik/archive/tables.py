"""What is in the archive, as people look at it: lines of a list, one message with its versions, lines as they come."""

from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType

from peik.cli.client import Document
from peik.cli.output import age, facts, plain, table, when

_WORDS_MAX = 80
_LEVELS = {"warning": "yellow", "error": "red", "debug": "dim"}


def messages_table(messages: Sequence[Document], *, empty: str) -> RenderableType:
    columns = ["session", "chat", "message", "age", "from", "kind", "says"]
    rows = [
        (
            one["session_id"],
            one["chat_id"],
            one["message_id"],
            age(one["date"]),
            "sent" if one["direction"] == "sent" else one["sender_id"],
            _kind(one),
            _short(one["text"]),
        )
        for one in messages
    ]
    return table(columns, rows, right=("chat", "message"), shrinking=("session",), empty=empty)


def message_page(message: Document) -> RenderableType:
    head = facts(
        [
            ("session", message["session_id"]),
            ("agent", message["agent_id"]),
            ("chat", message["chat_id"]),
            ("message", message["message_id"]),
            ("direction", message["direction"]),
            ("from", message["sender_id"]),
            ("date", when(message["date"])),
            ("edited", when(message["edited_at"])),
            ("deleted", when(message["deleted_at"])),
            ("kind", message["kind"]),
            ("says", message["text"]),
            ("reply to", message["reply_to"]),
            ("letter", message["letter_id"]),
            ("archived", when(message["created_at"])),
        ]
    )
    versions = message["versions"]
    assert isinstance(versions, list)
    parts: list[RenderableType] = [head]
    if len(versions) > 1:
        rows = [(when(one["edited_at"] or one["date"]), one["text"]) for one in versions]
        parts += ["", table(("version of", "says"), rows, empty="")]
    if message.get("raw") is not None:
        parts += ["", plain(msgspec.json.encode(message["raw"]).decode())]
    return Group(*parts)


def events_table(events: Sequence[Document]) -> RenderableType:
    rows = [
        (
            one["session_id"],
            age(one["created_at"]),
            one["event_type"],
            one["chat_id"],
            one["user_id"],
            _json(one["payload"]),
        )
        for one in events
    ]
    columns = ("session", "age", "event", "chat", "user", "what")
    return table(columns, rows, right=("chat",), shrinking=("session",), empty="There are no such events.")


def logs_table(lines: Sequence[Document]) -> RenderableType:
    rows = [
        (
            when(one["at"]).partition(" (")[0],
            plain(one["level"], _LEVELS.get(str(one["level"]), "")),
            one["event"],
            one["session_id"] or one["bot_id"],
            _json(one["fields"]),
        )
        for one in lines
    ]
    columns = ("at", "level", "event", "of", "more")
    return table(columns, rows, empty="There are no such lines. PEIK_LOG_IN_ARCHIVE=on keeps the log in the archive.")


def message_line(kind: str, line: Document) -> str:
    """One line of a feed of messages."""
    where = f"{line['session_id']} {line['chat_id'] or 'some chat'} {line['message_id']}"
    if kind == "deleted":
        return _plain(f"{where} deleted")
    who = "sent" if line["direction"] == "sent" else f"from {line['sender_id'] or 'nobody known'}"
    mark = " (edited)" if kind == "edited" else ""
    return _plain(f"{where} {who}{mark}: {line['text'] or '[' + str(line['kind']) + ']'}")


def event_line(line: Document) -> str:
    where = f"{line['session_id']} {line['chat_id'] or ''}".rstrip()
    who = f" by {line['user_id']}" if line["user_id"] else ""
    return _plain(f"{where} {line['event_type']}{who} {_json(line['payload'])}")


def _kind(message: Document) -> str:
    marks = [mark for name, mark in (("edited_at", "edited"), ("deleted_at", "deleted")) if message[name]]
    return f"{message['kind']}, {', '.join(marks)}" if marks else str(message["kind"])


def _short(text: object) -> str:
    words = str(text or "")
    return words if len(words) <= _WORDS_MAX else words[: _WORDS_MAX - 1] + "…"


def _json(value: object) -> str:
    return "" if value in (None, {}) else _short(msgspec.json.encode(value).decode())


def _plain(text: str) -> str:
    """Words of strangers on one line, without what steers a terminal."""
    return plain(text).plain
