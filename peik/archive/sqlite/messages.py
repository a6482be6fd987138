"""Messages and events of the SQLite archive: keeping, finding, letting go. Each function is a piece of work on a connection."""

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from peik.archive.rules import (
    Key,
    Todo,
    VersionFate,
    VersionFates,
    beside,
    chains,
    cursor_of,
    key_of,
    read_row,
    settle,
    words,
)
from peik.archive.sql import event_of, fields_of, filled, load, message_of, version_of, version_row
from peik.archive.sqlite import database
from peik.archive.sqlite.database import PACKAGE
from peik.archive.store import ArchiveRetention, EventFilter, Happening, Message, MessageFilter

_SQL = load(PACKAGE, "queries.sql")
_ADD_VERSION = f"{_SQL['add_version']} RETURNING session_id, chat_id, message_id, edited_at_ms"
_COMMON = 20_000  # hits of a search; from here on it is quicker to walk messages by date than to sort hits
_FORGET_AT_ONCE = 1000

# ---- keeping ----


def keep_messages(connection: apsw.Connection, messages: Sequence[Message]) -> list[VersionFate]:
    fates = VersionFates(messages)
    todo = Todo()
    here = {chain.key: chain for chain in chains(messages)}
    known = _known(connection, here)
    new: list[Message] = []
    for chain in here.values():
        found = known.get(chain.key)
        if found is None:
            fates.inserted(chain)
            new.append(chain.newest)
            todo.aside += beside(chain)
        else:
            settle(todo, chain, found[1])
    _insert(connection, new)
    _put_aside(connection, [one.old for one in todo.replace])
    for one in todo.replace:
        fates.kept(here[key_of(one.old)], one.new.edited_at_ms)
        _replace(connection, known[key_of(one.old)][0], one.new)
        todo.aside += one.between
    for session_id, chat_id, message_id, edited_at_ms in _put_aside(connection, todo.aside):
        fates.kept(here[session_id, chat_id, message_id], edited_at_ms)
    for whole in todo.fill:
        connection.execute(_SQL["replace_message"], fields_of(whole))
    return fates.told()


def _known(connection: apsw.Connection, keys: Iterable[Key]) -> dict[Key, tuple[int, Message]]:
    found: dict[Key, tuple[int, Message]] = {}
    for row in connection.execute(_SQL["messages_by_keys"], {"keys": _json(list(keys))}):
        message = message_of(row[1:])
        found[key_of(message)] = (int(row[0]), message)
    return found


def _insert(connection: apsw.Connection, messages: Sequence[Message]) -> None:
    if not messages:
        return
    first: Any = connection.execute(_SQL["highest_message"]).get
    rows = [(place, *msgspec.structs.astuple(message)) for place, message in enumerate(messages, start=first + 1)]
    database.insert(connection, _SQL["add_message"], rows)
    texts = [
        (row[0], " ".join(words(message.text))) for row, message in zip(rows, messages, strict=True) if message.text
    ]
    database.insert(connection, _SQL["add_words"], texts)


def _put_aside(connection: apsw.Connection, messages: Sequence[Message]) -> list[Any]:
    return database.returned(connection, _ADD_VERSION, [version_row(message) for message in messages])


def _replace(connection: apsw.Connection, row: int, message: Message) -> None:
    connection.execute(_SQL["replace_message"], fields_of(message))
    connection.execute(_SQL["remove_words"], (row,))
    if message.text:
        connection.execute(_SQL["add_words"], (row, " ".join(words(message.text))))


def put_messages(connection: apsw.Connection, messages: Sequence[Message]) -> None:
    """As they are, over what is here."""
    known = _known(connection, map(key_of, messages))
    _insert(connection, [message for message in messages if key_of(message) not in known])
    for message in messages:
        if (found := known.get(key_of(message))) is not None:
            _replace(connection, found[0], message)


def put_versions(connection: apsw.Connection, messages: Sequence[Message]) -> None:
    database.insert(connection, _SQL["put_version"], [version_row(message) for message in messages])


def mark_deleted(
    connection: apsw.Connection, session_id: str, chat_id: int | None, message_ids: Sequence[int], at_ms: int
) -> int:
    query = _SQL["mark_deleted_anywhere" if chat_id is None else "mark_deleted"]
    asked = {"session_id": session_id, "message_ids": _json(message_ids), "at_ms": at_ms}
    connection.execute(query, asked if chat_id is None else {**asked, "chat_id": chat_id})
    return connection.changes()


def keep_events(connection: apsw.Connection, events: Sequence[Happening], *, over: bool = False) -> list[bool]:
    """Which of them were new."""
    query = _SQL["put_event" if over else "add_event"]
    told: list[bool] = []
    for event in events:
        connection.execute(query, fields_of(event))
        told.append(connection.changes() > 0)
    return told


# ---- finding ----


def find_messages(
    connection: apsw.Connection, wanted: MessageFilter, cursor: str | None, limit: int
) -> tuple[list[Message], str | None]:
    where, bound, is_rare = _where(connection, wanted)
    if cursor is not None:
        where += " " + _SQL["before"]
        bound["cursor_ms"], bound["cursor_id"] = read_row(cursor)
    order = _SQL["by_date_of_few" if is_rare else "by_date"]
    query = filled(_SQL["messages"], where=where, order=order)
    rows = connection.execute(query, {**bound, "limit": limit + 1}).fetchall()
    found = [message_of(row[1:]) for row in rows[:limit]]
    following = cursor_of(found[-1].date_ms, rows[limit - 1][0]) if len(rows) > limit else None
    return found, following


def count_messages(connection: apsw.Connection, wanted: MessageFilter) -> int:
    where, bound, _ = _where(connection, wanted, is_count=True)
    return int(connection.execute(filled(_SQL["count_messages"], where=where), bound).get)


def _where(
    connection: apsw.Connection, wanted: MessageFilter, *, is_count: bool = False
) -> tuple[str, dict[str, Any], bool]:
    """The conditions, what is bound to them, and whether a search by words has few hits, which are then sorted."""
    bound: dict[str, Any] = {}
    parts: list[str] = []
    is_rare = False
    # The first of these decides which index is walked; a plus before the others keeps the planner from theirs.
    plus = ""
    if wanted.text is not None:
        asked = words(wanted.text)
        matched = " AND ".join(f'"{word}"' for word in asked)
        if not asked:
            parts.append(_SQL["nothing"])
        elif is_count or _how_common(connection, matched) < _COMMON:
            parts.append(_SQL["with_words"])
            bound["words"] = matched
            is_rare, plus = True, "+"
        else:
            parts.append(_SQL["with_common_words"])
            bound["words"] = " ".join(asked)
    for name in ("chat", "sender", "session", "agent"):
        value = getattr(wanted, f"{name}_id")
        if value is not None:
            bound[f"{name}_id"] = value
            parts.append(_SQL[f"of_{name}"].replace("{plus}", plus))
            plus = "+"
    for name in ("direction", "kind", "since_ms", "until_ms"):
        value = getattr(wanted, name)
        if value is not None:
            bound[name] = value
            parts.append(_SQL[{"since_ms": "since", "until_ms": "until"}.get(name, f"of_{name}")])
    if wanted.is_deleted is not None:
        parts.append(_SQL["deleted" if wanted.is_deleted else "not_deleted"])
    return " ".join(parts), bound, is_rare


def _how_common(connection: apsw.Connection, asked: str) -> int:
    return int(connection.execute(_SQL["how_common"], {"words": asked, "limit": _COMMON}).get)


def find_versions(connection: apsw.Connection, session_id: str, chat_id: int, message_id: int) -> list[Message]:
    asked = {"session_id": session_id, "chat_id": chat_id, "message_id": message_id}
    with connection:  # one snapshot: one that is replaced meanwhile is neither missing nor there twice
        aside = connection.execute(_SQL["versions"], asked).fetchall()
        current = connection.execute(_SQL["message"], asked).fetchall()
    return [version_of(str(row[0])) for row in aside] + [message_of(row[1:]) for row in current]


def find_events(
    connection: apsw.Connection, wanted: EventFilter, cursor: str | None, limit: int
) -> tuple[list[Happening], str | None]:
    bound: dict[str, Any] = {"limit": limit + 1}
    parts: list[str] = []
    for name, part in (
        ("session_id", "of_session"),
        ("agent_id", "of_agent"),
        ("chat_id", "of_chat"),
        ("event_type", "events_of_type"),
        ("since_ms", "events_since"),
        ("until_ms", "events_until"),
    ):
        value = getattr(wanted, name)
        if value is not None:
            bound[name] = value
            parts.append(_SQL[part].replace("{plus}", ""))
    if cursor is not None:
        parts.append(_SQL["events_before"])
        bound["cursor_ms"], bound["cursor_id"] = read_row(cursor)
    rows = connection.execute(filled(_SQL["events"], where=" ".join(parts)), bound).fetchall()
    found = [event_of(row[1:]) for row in rows[:limit]]
    following = cursor_of(found[-1].created_at_ms, rows[limit - 1][0]) if len(rows) > limit else None
    return found, following


# ---- letting go ----


def clean(connection: apsw.Connection, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    gone = 0
    if retention.messages_ms is not None:
        asked = {"before_ms": at_ms - retention.messages_ms, "limit": limit}
        gone += _remove(connection, connection.execute(_SQL["old_messages"], asked).fetchall())[0]
    if retention.events_ms is not None:
        connection.execute(_SQL["remove_old_events"], {"before_ms": at_ms - retention.events_ms, "limit": limit})
        gone += connection.changes()
    return gone


def forget_messages(connection: apsw.Connection, user_id: int) -> tuple[int, int]:
    """Some of them, and their versions: how many of each. None: it is done."""
    asked = {"user_id": user_id, "limit": _FORGET_AT_ONCE}
    return _remove(connection, connection.execute(_SQL["messages_of_sender"], asked).fetchall())


def forget_rest(connection: apsw.Connection, user_id: int) -> dict[str, int]:
    gone: dict[str, int] = {}
    for kind, query in (("versions", "forget_versions"), ("events", "forget_events"), ("chat_states", "forget_chats")):
        connection.execute(_SQL[query], {"user_id": user_id})
        gone[kind] = connection.changes()
    return gone


def _remove(connection: apsw.Connection, rows: Sequence[Sequence[Any]]) -> tuple[int, int]:
    versions = 0
    for row, *key in rows:
        connection.execute(_SQL["remove_message"], (row,))
        connection.execute(_SQL["remove_words"], (row,))
        connection.execute(_SQL["remove_versions"], key)
        versions += connection.changes()
    return len(rows), versions


def _json(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()
