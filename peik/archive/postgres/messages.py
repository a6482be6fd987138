"""Messages and events of the PostgreSQL archive: keeping, finding, letting go. Each function is a piece of work on a asking."""

from collections.abc import Sequence
from typing import Any

import msgspec

from peik.archive.postgres.connection import PACKAGE, ArchiveSession
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
from peik.archive.sql import MESSAGE, event_of, fields_of, filled, load, message_of, version_of, version_row
from peik.archive.store import ArchiveRetention, EventFilter, Happening, Message, MessageFilter

_SQL = load(PACKAGE, "queries.sql")
_COLUMNS = ", ".join(MESSAGE)
_LOCK = filled(_SQL["lock_messages"], message_columns=_COLUMNS)
_ADD_VERSIONS = filled(_SQL["add_versions"], over=_SQL["leave_it"])
_PUT_VERSIONS = filled(_SQL["add_versions"], over=_SQL["over_version"])
_ADD_EVENTS = filled(_SQL["add_events"], over=_SQL["leave_it"])
_PUT_EVENTS = filled(_SQL["add_events"], over=_SQL["over_event"])
_FORGET_AT_ONCE = 1000
_COMMON = 5000  # hits of a search; from here on it is quicker to walk messages by date than to sort hits

# ---- keeping ----


async def keep_messages(asking: ArchiveSession, messages: Sequence[Message]) -> list[VersionFate]:
    fates = VersionFates(messages)
    todo = Todo()
    here = {chain.key: chain for chain in chains(messages)}
    added = await _insert(asking, [chain.newest for chain in here.values()])
    for key in added:
        fates.inserted(here[key])
        todo.aside += beside(here[key])
    for current in await _lock(asking, [key for key in here if key not in added]):
        settle(todo, here[key_of(current)], current)
    await _put_aside(asking, _ADD_VERSIONS, [one.old for one in todo.replace])
    for one in todo.replace:
        fates.kept(here[key_of(one.old)], one.new.edited_at_ms)
        await _replace(asking, one.new)
        todo.aside += one.between
    for session_id, chat_id, message_id, edited_at_ms in await _put_aside(asking, _ADD_VERSIONS, todo.aside):
        fates.kept(here[session_id, chat_id, message_id], edited_at_ms)
    for whole in todo.fill:
        await _replace(asking, whole)
    return fates.told()


async def _insert(asking: ArchiveSession, messages: Sequence[Message]) -> set[Key]:
    """Which of them were not here."""
    if not messages:
        return set()
    columns = zip(*(msgspec.structs.astuple(message) for message in messages), strict=True)
    texts = [" ".join(words(message.text)) for message in messages]
    rows = await asking.rows(_SQL["add_messages"], *columns, texts)
    return {(row[0], row[1], row[2]) for row in rows}


async def _lock(asking: ArchiveSession, keys: Sequence[Key]) -> list[Message]:
    if not keys:
        return []
    session_ids, chat_ids, message_ids = zip(*keys, strict=True)
    rows = await asking.rows(_LOCK, session_ids=session_ids, chat_ids=chat_ids, message_ids=message_ids)
    return [message_of(row) for row in rows]


async def _put_aside(asking: ArchiveSession, query: str, messages: Sequence[Message]) -> list[Any]:
    if not messages:
        return []
    return await asking.rows(query, *zip(*sorted(map(version_row, messages), key=lambda row: row[:4]), strict=True))


async def _replace(asking: ArchiveSession, message: Message) -> None:
    await asking.run(_SQL["replace_message"], **fields_of(message), words=" ".join(words(message.text)))


async def put_messages(asking: ArchiveSession, messages: Sequence[Message]) -> None:
    """As they are, over what is here."""
    added = await _insert(asking, sorted(messages, key=key_of))
    for message in messages:
        if key_of(message) not in added:
            await _replace(asking, message)


async def put_versions(asking: ArchiveSession, messages: Sequence[Message]) -> None:
    await _put_aside(asking, _PUT_VERSIONS, messages)


async def mark_deleted(
    asking: ArchiveSession, session_id: str, chat_id: int | None, message_ids: Sequence[int], at_ms: int
) -> int:
    query = _SQL["mark_deleted_anywhere" if chat_id is None else "mark_deleted"]
    return await asking.run(query, session_id=session_id, chat_id=chat_id, message_ids=message_ids, at_ms=at_ms)


async def keep_events(asking: ArchiveSession, events: Sequence[Happening], *, over: bool = False) -> int:
    """How many of them were new. One that is handed in twice is one."""
    once = {event.event_id: event for event in reversed(events)}
    if not once:
        return 0
    ordered = [msgspec.structs.astuple(once[event_id]) for event_id in sorted(once)]
    return len(await asking.rows(_PUT_EVENTS if over else _ADD_EVENTS, *zip(*ordered, strict=True)))


# ---- finding ----


async def find_messages(
    asking: ArchiveSession, wanted: MessageFilter, cursor: str | None, limit: int
) -> tuple[list[Message], str | None]:
    where, named = _where(wanted)
    if cursor is not None:
        where += " " + _SQL["before"]
        named["cursor_ms"], named["cursor_id"] = read_row(cursor)
    is_rare = (
        named.get("words") and await asking.value(_SQL["how_common"], words=named["words"], bound=_COMMON) < _COMMON
    )
    order = _SQL["by_date_of_few" if is_rare else "by_date"]
    query = filled(_SQL["messages"], where=where, order=order, message_columns=_COLUMNS)
    rows = await asking.rows(query, **named, limit=limit + 1)
    found = [message_of(list(row)[1:]) for row in rows[:limit]]
    following = cursor_of(found[-1].date_ms, rows[limit - 1][0]) if len(rows) > limit else None
    return found, following


async def count_messages(asking: ArchiveSession, wanted: MessageFilter) -> int:
    where, named = _where(wanted)
    return int(await asking.value(filled(_SQL["count_messages"], where=where), **named))


def _where(wanted: MessageFilter) -> tuple[str, dict[str, Any]]:
    named: dict[str, Any] = {}
    parts: list[str] = []
    for name in ("chat_id", "sender_id", "session_id", "agent_id", "direction", "kind", "since_ms", "until_ms"):
        value = getattr(wanted, name)
        if value is not None:
            named[name] = value
            parts.append(_SQL[name])
    if wanted.text is not None:
        asked = words(wanted.text)
        named["words"] = " & ".join(f"'{word}'" for word in asked)
        parts.append(_SQL["with_words" if asked else "nothing"])
    if wanted.is_deleted is not None:
        parts.append(_SQL["deleted" if wanted.is_deleted else "not_deleted"])
    return " ".join(parts), named


async def find_versions(asking: ArchiveSession, session_id: str, chat_id: int, message_id: int) -> list[Message]:
    named = {"session_id": session_id, "chat_id": chat_id, "message_id": message_id}
    # One snapshot: one that is replaced meanwhile is neither missing nor there twice.
    async with asking.connection.transaction(isolation="repeatable_read", readonly=True):
        aside = await asking.rows(_SQL["versions"], **named)
        current = await asking.rows(filled(_SQL["message"], message_columns=_COLUMNS), **named)
    return [version_of(row[0]) for row in aside] + [message_of(row) for row in current]


async def find_events(
    asking: ArchiveSession, wanted: EventFilter, cursor: str | None, limit: int
) -> tuple[list[Happening], str | None]:
    named: dict[str, Any] = {"limit": limit + 1}
    parts: list[str] = []
    for name in ("session_id", "agent_id", "chat_id", "event_type", "since_ms", "until_ms"):
        value = getattr(wanted, name)
        if value is not None:
            named[name] = value
            parts.append(_SQL[f"events_{name}" if name.endswith("_ms") else name])
    if cursor is not None:
        parts.append(_SQL["events_before"])
        named["cursor_ms"], named["cursor_id"] = read_row(cursor)
    rows = await asking.rows(filled(_SQL["events"], where=" ".join(parts)), **named)
    found = [event_of(list(row)[1:]) for row in rows[:limit]]
    following = cursor_of(found[-1].created_at_ms, rows[limit - 1][0]) if len(rows) > limit else None
    return found, following


# ---- letting go ----


async def clean(asking: ArchiveSession, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    gone = 0
    if retention.messages_ms is not None:
        query = filled(_SQL["remove_messages"], which=_SQL["old_messages"])
        gone += (await asking.rows(query, before_ms=at_ms - retention.messages_ms, limit=limit))[0][0]
    if retention.events_ms is not None:
        gone += await asking.run(_SQL["remove_old_events"], before_ms=at_ms - retention.events_ms, limit=limit)
    return gone


async def forget_messages(asking: ArchiveSession, user_id: int) -> tuple[int, int]:
    """Some of them, and their versions: how many of each. None: it is done."""
    query = filled(_SQL["remove_messages"], which=_SQL["messages_of_sender"])
    rows = await asking.rows(query, user_id=user_id, limit=_FORGET_AT_ONCE)
    return rows[0][0], rows[0][1]


async def forget_rest(asking: ArchiveSession, user_id: int) -> dict[str, int]:
    kinds = ("versions", "events", "chat_states")
    return {kind: await asking.run(_SQL[f"forget_{kind}"], user_id=user_id) for kind in kinds}
