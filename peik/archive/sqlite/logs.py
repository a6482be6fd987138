"""Peik's own log in the SQLite archive. Each function is a piece of work on a connection."""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from peik.archive.rules import cursor_of, digest_of, folded, levels_from, read_row
from peik.archive.sql import filled, load, log_of
from peik.archive.sqlite import database
from peik.archive.sqlite.database import PACKAGE
from peik.archive.store import ArchiveRetention, LogFilter, LogLine

_SQL = load(PACKAGE, "queries.sql")


def keep(connection: apsw.Connection, lines: Sequence[LogLine]) -> None:
    database.insert(connection, _SQL["add_log"], [(digest_of(line), *msgspec.structs.astuple(line)) for line in lines])


def find(
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


def drop(connection: apsw.Connection, lines: Sequence[LogLine]) -> int:
    before = connection.total_changes()
    connection.executemany(_SQL["drop_log"], [(digest_of(line),) for line in lines])
    return connection.total_changes() - before


def clean(connection: apsw.Connection, retention: ArchiveRetention, at_ms: int, limit: int) -> int:
    if retention.logs_ms is None:
        return 0
    connection.execute(_SQL["remove_old_logs"], {"before_ms": at_ms - retention.logs_ms, "limit": limit})
    return connection.changes()
