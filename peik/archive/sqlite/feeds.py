"""Feeds of the SQLite archive and the places of their readers. Each function is a piece of work on a connection."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from peik.archive.rules import cursor_of, digest_of, folded, is_end, levels_from, read_row
from peik.archive.sql import filled, line_of, load, log_of
from peik.archive.sqlite import database
from peik.archive.sqlite.database import PACKAGE
from peik.archive.store import ArchiveRetention, Fed, FeedRecord, LogFilter, LogLine, ReaderPlace

_SQL = load(PACKAGE, "queries.sql")
_PUT_LINE = f"{_SQL['add_line']} {_SQL['over_line']}"

# ---- lines ----


def feed(connection: apsw.Connection, lines: Sequence[FeedRecord]) -> int:
    """Lines of one session, each key once. One connection writes at a time: nobody else takes a number meanwhile."""
    if not lines:
        return 0
    session_id = lines[0].session_id
    asked = {"session_id": session_id, "keys": _json(line.key for line in lines)}
    known = {row[0] for row in connection.execute(_SQL["known_keys"], asked)}
    new = [line for line in lines if line.key not in known]
    if not new:
        return 0
    last = connection.execute(_SQL["use_numbers"], {"session_id": session_id, "count": len(new)}).get
    numbered = (
        msgspec.structs.replace(line, number=number) for number, line in enumerate(new, start=last - len(new) + 1)
    )
    database.insert(connection, _SQL["add_line"], [msgspec.structs.astuple(line) for line in numbered])
    return len(new)


def fed(connection: apsw.Connection, session_id: str, after: int, limit: int) -> list[FeedRecord]:
    rows = connection.execute(_SQL["fed"], {"session_id": session_id, "after": after, "limit": limit})
    return [line_of(row) for row in rows]


def fed_to(connection: apsw.Connection, session_ids: Sequence[str] | None) -> dict[str, Fed]:
    if session_ids is None:
        rows = connection.execute(_SQL["fed_to"])
    else:
        rows = connection.execute(_SQL["fed_to_of_some"], {"session_ids": _json(session_ids)})
    return {str(session_id): Fed(first=first, last=last) for session_id, first, last in rows}


def put_lines(connection: apsw.Connection, lines: Sequence[FeedRecord]) -> None:
    """Under their own numbers, over what is here."""
    database.insert(connection, _PUT_LINE, [msgspec.structs.astuple(line) for line in lines])
    ends: dict[str, int] = {}
    for line in lines:
        ends[line.session_id] = max(line.number, ends.get(line.session_id, 0))
    _put_ends(connection, ends)


def _put_ends(connection: apsw.Connection, ends: Mapping[str, int]) -> None:
    for session_id, last in ends.items():
        connection.execute(_SQL["raise_end"], {"session_id": session_id, "last": last})
    _settle_firsts(connection, ends)


def _settle_firsts(connection: apsw.Connection, session_ids: Iterable[str]) -> None:
    connection.execute(_SQL["settle_firsts"], {"session_ids": _json(set(session_ids))})


# ---- places ----


def places(connection: apsw.Connection, reader: str) -> dict[str, int]:
    return {str(name): int(number) for name, number in connection.execute(_SQL["places"], {"reader": reader})}


def save_places(connection: apsw.Connection, reader: str, found: Mapping[str, int], at_ms: int) -> None:
    rows = [(reader, session_id, number, at_ms) for session_id, number in found.items()]
    database.insert(connection, _SQL["save_place"], rows)


def remove_reader(connection: apsw.Connection, reader: str) -> bool:
    connection.execute(_SQL["remove_reader"], {"reader": reader})
    return connection.changes() > 0


def put_places(connection: apsw.Connection, found: Sequence[ReaderPlace]) -> None:
    rows = [msgspec.structs.astuple(place) for place in found if not is_end(place)]
    database.insert(connection, _SQL["put_place"], rows)
    _put_ends(connection, {place.session_id: place.number for place in found if is_end(place)})


# ---- letting go ----


def clean(connection: apsw.Connection, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    """How many lines went; places are not counted."""
    if retention.feed_ms is None:
        return 0
    asked = {"before_ms": at_ms - retention.feed_ms, "limit": limit}
    connection.execute(_SQL["remove_old_places"], asked)
    return _gone(connection, connection.execute(_SQL["remove_old_lines"], asked).fetchall())


def forget_person(connection: apsw.Connection, user_id: int) -> int:
    return _gone(connection, connection.execute(_SQL["forget_lines"], {"user_id": user_id}).fetchall())


def _gone(connection: apsw.Connection, rows: Sequence[Sequence[object]]) -> int:
    _settle_firsts(connection, (str(row[0]) for row in rows))
    return len(rows)


def _json(values: Iterable[object]) -> str:
    return msgspec.json.encode(list(values)).decode()


# Peik's own log in the SQLite archive. Each function is a piece of work on a connection.


def keep_logs(connection: apsw.Connection, lines: Sequence[LogLine]) -> None:
    database.insert(connection, _SQL["add_log"], [(digest_of(line), *msgspec.structs.astuple(line)) for line in lines])


def find_logs(
    connection: apsw.Connection, wanted: LogFilter, cursor: str | None, limit: int
) -> tuple[list[LogLine], str | None]:
    bound: dict[str, Any] = {"limit": limit + 1}
    parts: list[str] = []
    for name, part in (
        ("event", "logs_of_event"),
        ("session_id", "logs_of_session"),
        ("bot_id", "logs_of_bot"),
        ("since_ms", "logs_since"),
        ("until_ms", "logs_until"),
    ):
        value = getattr(wanted, name)
        if value is not None:
            bound[name] = value
            parts.append(_SQL[part])
    if wanted.level is not None:
        parts.append(_SQL[f"logs_from_{levels_from(wanted.level)[0]}"])
    if wanted.text is not None:
        bound["text"] = folded(wanted.text)
        parts.append(_SQL["logs_with_text"])
    if cursor is not None:
        parts.append(_SQL["logs_before"])
        bound["cursor_ms"], bound["cursor_id"] = read_row(cursor)
    rows = connection.execute(filled(_SQL["logs"], where=" ".join(parts)), bound).fetchall()
    found = [log_of(row[1:]) for row in rows[:limit]]
    following = cursor_of(found[-1].at_ms, rows[limit - 1][0]) if len(rows) > limit else None
    return found, following


def drop_logs(connection: apsw.Connection, lines: Sequence[LogLine]) -> int:
    before = connection.total_changes()
    connection.executemany(_SQL["drop_log"], [(digest_of(line),) for line in lines])
    return connection.total_changes() - before


def clean_logs(connection: apsw.Connection, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    if retention.logs_ms is None:
        return 0
    connection.execute(_SQL["remove_old_logs"], {"before_ms": at_ms - retention.logs_ms, "limit": limit})
    return connection.changes()
